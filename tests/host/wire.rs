//! The wire format, with all its numbers: the compiled descriptors are compared with tables of every rpc,
//! field and enum value.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use protobuf::Message;
use protobuf::UnknownValueRef;
use protobuf::descriptor::field_descriptor_proto::{Label, Type};
use protobuf::descriptor::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

/// The mark of secrets, an extension of FieldOptions.
const CSI_SECRET: u32 = 1059;

static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire/descriptors.bin"));

/// A line of a table: what it is, where, number, name, type, oneof, secret.
type Rows = BTreeSet<String>;

fn row(kind: &str, scope: &str, number: &str, name: &str, what: &str, oneof: &str, secret: &str) -> String {
    [kind, scope, number, name, what, oneof, secret].join("\t")
}

/// The rows of a package, from its compiled descriptor.
fn compiled(package: &str) -> Rows {
    let set = FileDescriptorSet::parse_from_bytes(DESCRIPTORS).unwrap();
    let file = set.file.iter().find(|file| file.package() == package).unwrap();
    let mut rows = Rows::new();
    file.service.iter().for_each(|service| add_service(&mut rows, file, service));
    file.enum_type.iter().for_each(|found| add_enum(&mut rows, package, found));
    file.message_type.iter().for_each(|message| add_message(&mut rows, package, message));
    rows
}

fn add_service(rows: &mut Rows, file: &FileDescriptorProto, service: &ServiceDescriptorProto) {
    for method in &service.method {
        let stream = |streaming| if streaming { "stream " } else { "" };
        let (input, output) =
            (method.input_type().trim_start_matches('.'), method.output_type().trim_start_matches('.'));
        let types = format!(
            "{}{input} -> {}{output}",
            stream(method.client_streaming()),
            stream(method.server_streaming())
        );
        rows.insert(row(
            "rpc",
            &format!("{}.{}", file.package(), service.name()),
            "-",
            method.name(),
            &types,
            "-",
            "-",
        ));
    }
}

fn add_enum(rows: &mut Rows, scope: &str, found: &EnumDescriptorProto) {
    let scope = format!("{scope}.{}", found.name());
    rows.extend(
        found
            .value
            .iter()
            .map(|value| row("enum", &scope, &value.number().to_string(), value.name(), "-", "-", "-")),
    );
}

fn add_message(rows: &mut Rows, scope: &str, message: &DescriptorProto) {
    let scope = format!("{scope}.{}", message.name());
    rows.extend(message.field.iter().map(|field| field_row(&scope, message, field)));
    message.enum_type.iter().for_each(|found| add_enum(rows, &scope, found));
    let nested = message.nested_type.iter().filter(|nested| !nested.options.map_entry());
    nested.for_each(|nested| add_message(rows, &scope, nested));
}

fn field_row(scope: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let oneof = field.oneof_index.map_or("-", |index| message.oneof_decl[index as usize].name());
    let secret = if is_secret(field) { "secret" } else { "-" };
    row("field", scope, &field.number().to_string(), field.name(), &type_of(message, field), oneof, secret)
}

fn is_secret(field: &FieldDescriptorProto) -> bool {
    field.options.special_fields.unknown_fields().get(CSI_SECRET) == Some(UnknownValueRef::Varint(1))
}

/// A field's type as the tables write it: `string`, `repeated csi.v1.Topology`, `map<string,string>`.
fn type_of(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let repeated = field.label() == Label::LABEL_REPEATED;
    let name = base_type(field);
    let entry = message
        .nested_type
        .iter()
        .find(|nested| nested.options.map_entry() && name.ends_with(&format!(".{}", nested.name())));
    match entry {
        Some(entry) => format!("map<{},{}>", base_type(&entry.field[0]), base_type(&entry.field[1])),
        None if repeated => format!("repeated {name}"),
        None => name,
    }
}

fn base_type(field: &FieldDescriptorProto) -> String {
    match field.type_() {
        Type::TYPE_MESSAGE | Type::TYPE_ENUM => field.type_name().trim_start_matches('.').to_string(),
        scalar => format!("{scalar:?}").trim_start_matches("TYPE_").to_lowercase(),
    }
}

/// The rows of a table.
fn table(text: &str) -> Rows {
    text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect()
}

/// The rows that are only in the table (`-`) or only in the descriptors (`+`).
fn differences(table: &Rows, compiled: &Rows) -> Vec<String> {
    let missing = table.difference(compiled).map(|row| format!("- {row}"));
    let surplus = compiled.difference(table).map(|row| format!("+ {row}"));
    missing.chain(surplus).collect()
}

fn assert_same(package: &str, text: &str) {
    let differences = differences(&table(text), &compiled(package));
    assert!(differences.is_empty(), "package {package} differs from its table:\n{}", differences.join("\n"));
}

const CSI_V1: &str = include_str!("../fixtures/csi-v1.tsv");

#[test]
fn csi_v1_is_the_published_interface() {
    assert_same("csi.v1", CSI_V1);
}

#[test]
fn csi_0_1_is_the_published_interface() {
    assert_same("csi", include_str!("../fixtures/csi-v0.1.tsv"));
}

#[test]
fn csi_addons_is_the_published_interface() {
    assert_same("identity", include_str!("../fixtures/csi-addons-identity.tsv"));
    assert_same("fence", include_str!("../fixtures/csi-addons-fence.tsv"));
    assert_same("replication", include_str!("../fixtures/csi-addons-replication.tsv"));
}

/// Messages without fields have no row of their own, but every rpc's request and reply has to exist.
#[test]
fn every_rpc_has_its_messages() {
    let set = FileDescriptorSet::parse_from_bytes(DESCRIPTORS).unwrap();
    for file in &set.file {
        let messages: BTreeSet<_> = file
            .message_type
            .iter()
            .map(|message| format!(".{}.{}", file.package(), message.name()))
            .collect();
        for method in file.service.iter().flat_map(|service| &service.method) {
            assert!(
                messages.contains(method.input_type()) && messages.contains(method.output_type()),
                "{method}"
            );
        }
    }
}

/// The comparison can fail: each column of each kind of row, when changed, is seen.
#[test]
fn a_changed_row_is_reported() {
    let changes = [
        ("\tcsi.v1.ProbeResponse\t1\t", "\tcsi.v1.ProbeResponse\t2\t"),
        ("\tready\t", "\tis_ready\t"),
        ("\tgoogle.protobuf.BoolValue\t", "\tbool\t"),
        ("rpc\tcsi.v1.Identity\t", "rpc\tcsi.v1.Node\t"),
        ("-> stream csi.v1.GetMetadataDeltaResponse", "-> csi.v1.GetMetadataDeltaResponse"),
        ("\t2\tINODES\t", "\t3\tINODES\t"),
        ("\tINODES\t", "\tFILES\t"),
        ("BlockVolume\taccess_type\t", "BlockVolume\t-\t"),
        ("\tpublished_node_ids\trepeated string\t", "\tpublished_node_ids\tstring\t"),
        (
            "DeleteVolumeRequest\t2\tsecrets\tmap<string,string>\t-\tsecret",
            "DeleteVolumeRequest\t2\tsecrets\tmap<string,string>\t-\t-",
        ),
    ];
    let compiled = compiled("csi.v1");
    for (published, changed) in changes {
        let text = CSI_V1.replacen(published, changed, 1);
        assert_ne!(text, CSI_V1, "the table has no {published:?} to be changed");
        assert_eq!(
            differences(&table(&text), &compiled).len(),
            2,
            "{published:?} changed to {changed:?}: one row gone, one too many"
        );
    }
}

#[test]
fn a_missing_row_and_a_surplus_row_are_reported() {
    let published = table(CSI_V1);
    let first = published.first().unwrap().clone();
    let mut shorter = published.clone();
    shorter.remove(&first);
    assert_eq!(differences(&shorter, &published), [format!("+ {first}")]);
    assert_eq!(differences(&published, &shorter), [format!("- {first}")]);
}
