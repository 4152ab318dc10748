//! Turns `proto/` into Rust: the messages by rust-protobuf; for every service what grpcio needs to serve it
//! (grpcio's own generator knows only protobuf 2); and for every request the rpc that it belongs to, which is
//! all that clients need. Everything is written from the same descriptors, which are kept for the tests. A
//! service whose rpcs stream is left out, so that gRPC answers UNIMPLEMENTED for it.
//!
//! A new interface is one more line in [`FILES`]. Its module is named after its package: `csi.v1` becomes
//! `csi_v1`.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protobuf::Message;
use protobuf::descriptor::{
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
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
        writeln!(code, "/// Package `{}`: its messages and its services.", file.package())?;
        writeln!(code, "pub mod {} {{", module(file))?;
        writeln!(code, "    pub use super::messages::{}::*;", module(file))?;
        for service in file.service.iter().filter(|service| !streams(service)) {
            let rpcs = service
                .method
                .iter()
                .map(|method| Rpc::new(file, service, method))
                .collect::<Result<Vec<_>>>()?;
            let name = Name { package: file.package(), service: service.name() };
            code += &server_trait(&name, &rpcs)?;
            code += &registration(&name, &rpcs)?;
            code += &requests(&rpcs)?;
        }
        code += "}\n";
    }
    Ok(code)
}

/// Whether a service has an rpc with more than one request or reply.
fn streams(service: &ServiceDescriptorProto) -> bool {
    service.method.iter().any(|method| method.client_streaming() || method.server_streaming())
}

/// A service's name.
struct Name<'a> {
    package: &'a str,
    service: &'a str,
}

/// What the generated code says about an rpc.
struct Rpc {
    path: String,
    function: String,
    request: String,
    reply: String,
}

impl Rpc {
    fn new(
        file: &FileDescriptorProto,
        service: &ServiceDescriptorProto,
        method: &MethodDescriptorProto,
    ) -> Result<Self> {
        let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
        Ok(Self {
            function: snake_case(method.name()),
            request: message_type(file, method.input_type())?,
            reply: message_type(file, method.output_type())?,
            path,
        })
    }
}

/// The Rust name of a message at the top of `file`'s own package, which is all that interfaces use as
/// requests and replies.
fn message_type(file: &FileDescriptorProto, proto: &str) -> Result<String> {
    let name = proto.strip_prefix(&format!(".{}.", file.package()));
    let own = name.filter(|name| file.message_type.iter().any(|message| message.name() == *name));
    own.map(str::to_string)
        .ok_or_else(|| format!("{proto} is no message of the package {}", file.package()).into())
}

/// The trait that a server implements.
fn server_trait(name: &Name, rpcs: &[Rpc]) -> Result<String> {
    let Name { package, service } = name;
    let mut code = String::new();
    writeln!(
        code,
        "\n    /// A server of `{package}.{service}`: checks a request and does what it asks for."
    )?;
    writeln!(code, "    pub trait {service}: Send + Sync + 'static {{")?;
    for Rpc { path, function, request, reply } in rpcs {
        writeln!(code, "        /// `{path}`")?;
        writeln!(
            code,
            "        fn {function}(&self, caller: &crate::grpc::bridge::Caller<'_>, request: {request}) -> crate::error::Result<crate::grpc::bridge::Encoded<{reply}>>;"
        )?;
    }
    code += "    }\n";
    Ok(code)
}

/// The function that puts a server's rpcs into a grpcio service.
fn registration(name: &Name, rpcs: &[Rpc]) -> Result<String> {
    let Name { package, service } = name;
    let function = snake_case(service);
    let mut code = String::new();
    writeln!(code, "\n    /// Serves `{package}.{service}`.")?;
    writeln!(code, "    pub fn register_{function}<S: {service}>(")?;
    writeln!(code, "        mut builder: grpcio::ServiceBuilder,")?;
    writeln!(code, "        bridge: &crate::grpc::bridge::Bridge,")?;
    writeln!(code, "        service: &std::sync::Arc<S>,")?;
    writeln!(code, "    ) -> grpcio::ServiceBuilder {{")?;
    for Rpc { function, .. } in rpcs {
        writeln!(code, "        builder = bridge.unary(builder, service, S::{function});")?;
    }
    code += "        builder\n    }\n";
    Ok(code)
}

/// Which rpc each request belongs to.
fn requests(rpcs: &[Rpc]) -> Result<String> {
    let mut code = String::new();
    for Rpc { path, request, reply, .. } in rpcs {
        writeln!(code, "\n    impl super::Rpc for {request} {{")?;
        writeln!(code, "        const PATH: &'static str = \"{path}\";")?;
        writeln!(code, "        type Reply = {reply};\n    }}")?;
    }
    Ok(code)
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
