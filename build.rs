//! Turns `proto/` into Rust: the messages by rust-protobuf; for every service what grpcio needs to serve it
//! (grpcio's own generator knows only protobuf 2); and for every request the rpc that it belongs to, which is
//! all that clients need. Everything is written from the same descriptors, which are kept for the tests. A
//! service whose rpcs stream is left out, so that gRPC answers UNIMPLEMENTED for it.
//!
//! A new interface is one more line in [`FILES`]. Its module is named after its package: `csi.v1` becomes
//! `csi_v1`.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protobuf::Message;
use protobuf::descriptor::{FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto};
use protobuf_codegen::Customize;
use protobuf_codegen::gen_and_write::gen_and_write;
use protobuf_parse::{Parser, ProtoPathBuf};

/// The protocols that are served. Their Rust goes to `wire` below OUT_DIR: `messages/mod.rs`, `services.rs` and
/// `descriptors.bin`.
const FILES: &[&str] = &[
    "csi/v1/csi.proto",
    "csi/v0_1/csi.proto",
    "csi_addons/identity.proto",
    "csi_addons/fence.proto",
    "csi_addons/replication.proto",
    "cephlet/operator.proto",
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[expect(clippy::disallowed_methods, reason = "cargo tells where to write by the environment")]
fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=proto");
    // Checkouts share a cache of compiled code, and cargo takes equal names and older sources for the same
    // program. Set by packaging/cargo, this tells them apart.
    println!("cargo::rerun-if-env-changed=CEPHLET_CHECKOUT");
    generate(&PathBuf::from(env::var("OUT_DIR")?).join("wire"), FILES)
}

/// Writes the Rust of these files below `directory`.
fn generate(directory: &Path, inputs: &[&str]) -> Result<()> {
    let proto = Path::new("proto");
    let paths = inputs.iter().map(|input| proto.join(input));
    let parsed = Parser::new().pure().include(proto).inputs(paths).parse_and_typecheck()?;
    let wanted = |file: &&FileDescriptorProto| inputs.contains(&file.name());
    let files: Vec<_> = parsed.file_descriptors.iter().filter(wanted).cloned().collect();

    let messages = directory.join("messages");
    fs::create_dir_all(&messages)?;
    let (renamed, modules) = name_after_packages(parsed.file_descriptors, inputs)?;
    // The lite runtime leaves out reflection, which nobody asks for.
    let customize = Customize::default().lite_runtime(true).gen_mod_rs(true);
    gen_and_write(&renamed, &parsed.parser, &modules, &messages, &customize, &NoChange)?;

    fs::write(directory.join("services.rs"), services(&files)?)?;
    let set = FileDescriptorSet { file: files, ..Default::default() };
    fs::write(directory.join("descriptors.bin"), set.write_to_bytes()?)?;
    Ok(())
}

/// Every element is generated as the set says.
struct NoChange;

impl protobuf_codegen::CustomizeCallback for NoChange {}

/// rust-protobuf names a module after its file, so that two `csi.proto` would collide. Here each file is
/// renamed after its package, and so are the imports of it.
fn name_after_packages(
    files: Vec<FileDescriptorProto>,
    inputs: &[&str],
) -> Result<(Vec<FileDescriptorProto>, Vec<ProtoPathBuf>)> {
    let ours = files.iter().filter(|file| inputs.contains(&file.name()));
    let names: HashMap<_, _> =
        ours.map(|file| (file.name().to_string(), format!("{}.proto", module(file)))).collect();
    let mut modules: Vec<_> = names.values().cloned().collect();
    modules.sort();
    if let Some(twice) = modules.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two files make {}: a package has to be in one file", twice[0]).into());
    }
    let rename = |name: &mut String| names.get(name).into_iter().for_each(|new| name.clone_from(new));
    let renamed = files.into_iter().map(|mut file| {
        file.name.as_mut().map(rename);
        file.dependency.iter_mut().for_each(rename);
        file
    });
    Ok((
        renamed.collect(),
        modules.into_iter().map(ProtoPathBuf::new).collect::<std::result::Result<_, _>>()?,
    ))
}

fn module(file: &FileDescriptorProto) -> String {
    file.package().replace('.', "_")
}

/// One module a file: its messages with their rpcs, and its services' traits and registrations.
fn services(files: &[FileDescriptorProto]) -> Result<String> {
    let mut code = String::new();
    for file in files {
        let (package, module) = (file.package(), module(file));
        let served = file.service.iter().filter(|service| !streams(service));
        let services = served.map(|service| service_code(file, service)).collect::<Result<String>>()?;
        code += &format!(
            "/// Package `{package}`: its messages and its services.
pub mod {module} {{
    use crate::grpc::bridge::{{Answer, Asked, Bridge}};
    pub use super::messages::{module}::*;
{services}}}
"
        );
    }
    Ok(code)
}

/// Whether a service has an rpc with more than one request or reply.
fn streams(service: &ServiceDescriptorProto) -> bool {
    service.method.iter().any(|method| method.client_streaming() || method.server_streaming())
}

/// The Rust name of a message at the top of `file`'s own package, which is all that interfaces use as
/// requests and replies.
fn message_type(file: &FileDescriptorProto, proto: &str) -> Result<String> {
    let name = proto.strip_prefix(&format!(".{}.", file.package()));
    let own = name.filter(|name| file.message_type.iter().any(|message| message.name() == *name));
    own.map(str::to_string)
        .ok_or_else(|| format!("{proto} is no message of the package {}", file.package()).into())
}

/// The trait that a server implements, the function that puts its rpcs into a grpcio service, and which rpc
/// each request belongs to.
fn service_code(file: &FileDescriptorProto, service: &ServiceDescriptorProto) -> Result<String> {
    let (mut methods, mut registrations, mut requests) = (String::new(), String::new(), String::new());
    let (package, name) = (file.package(), service.name());
    for method in &service.method {
        let (path, function) = (format!("/{package}.{name}/{}", method.name()), snake_case(method.name()));
        let request = message_type(file, method.input_type())?;
        let reply = message_type(file, method.output_type())?;
        methods += &format!(
            "        /// `{path}`
        fn {function}(&self, asked: Asked<'_, {request}>) -> Answer;
"
        );
        registrations += &format!("        builder = bridge.unary(builder, service, S::{function});\n");
        requests += &format!(
            "    impl super::Rpc for {request} {{
        const PATH: &'static str = \"{path}\";
        type Reply = {reply};
    }}
"
        );
    }
    let function = snake_case(name);
    Ok(format!(
        "    /// A server of `{package}.{name}`: checks a request and does what it asks for.
    pub trait {name}: Send + Sync + 'static {{
{methods}    }}
    /// Serves `{package}.{name}`.
    pub fn register_{function}<S: {name}>(
        mut builder: grpcio::ServiceBuilder,
        bridge: &Bridge,
        service: &std::sync::Arc<S>,
    ) -> grpcio::ServiceBuilder {{
{registrations}        builder
    }}
{requests}"
    ))
}

/// `NodeGetID` becomes `node_get_id`: a word begins at a capital that follows a small letter or precedes one.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_uppercase();
        let before_small = at > 0 && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
