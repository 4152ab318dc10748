//! `volume create`, `list`, `show`, `expand` and `delete`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use protobuf::{EnumOrUnknown, MessageField};
use serde::Serialize;
use serde_json::json;

use crate::cli::condition::Condition;
use crate::cli::failure::{CliError, CliResult, UNREACHABLE};
use crate::cli::here::{self, Usage};
use crate::cli::jobs;
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, fields, human, table};
use crate::cli::syntax::Given;
use crate::cli::values;
use crate::error::Result;
use crate::grpc::proto::cephlet_operator_v1::{ListReachableRequest, NamedVolume};
use crate::grpc::proto::csi_v1 as wire;
use crate::volume::request::FS_TYPE;

/// A volume as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    name: Option<String>,
    id: String,
    size_bytes: i64,
    context: BTreeMap<String, String>,
    source: Option<Source>,
    topology: Vec<BTreeMap<String, String>>,
    published_nodes: Vec<String>,
    condition: Option<Condition>,
}

#[derive(Debug, Serialize)]
struct Source {
    kind: &'static str,
    id: String,
}

/// A volume with what this node knows of it.
#[derive(Debug, Serialize)]
struct ShownHere {
    #[serde(flatten)]
    volume: Shown,
    targets: Vec<String>,
    usage: Option<Usage>,
}

impl Shown {
    fn new(
        name: Option<String>,
        volume: wire::Volume,
        published_nodes: Vec<String>,
        condition: MessageField<wire::VolumeCondition>,
    ) -> Self {
        let sorted = |map: HashMap<String, String>| map.into_iter().collect::<BTreeMap<_, _>>();
        Self {
            name,
            id: volume.volume_id,
            size_bytes: volume.capacity_bytes,
            context: sorted(volume.volume_context),
            source: volume.content_source.into_option().and_then(source),
            topology: volume.accessible_topology.into_iter().map(|it| sorted(it.segments)).collect(),
            published_nodes,
            condition: condition.into_option().map(Condition::from),
        }
    }

    fn is_unwell(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.abnormal)
    }

    /// The trouble of the volume; "ok" if there is none, empty if that is not known.
    fn health(&self) -> String {
        match &self.condition {
            None => String::new(),
            Some(condition) => condition.to_string(),
        }
    }

    /// The domain or the node of the volume; empty for one that can be reached from everywhere.
    fn domain(&self) -> String {
        let label = |key: &str| key.rsplit('/').next().unwrap_or(key).to_string();
        let pair = |(key, value): (&String, &String)| format!("{}={value}", label(key));
        self.topology
            .first()
            .map(|own| own.iter().map(pair).collect::<Vec<_>>().join(","))
            .unwrap_or_default()
    }

    fn row(&self, is_wide: bool) -> Vec<String> {
        let (name, published) = (self.name.clone().unwrap_or_default(), self.published_nodes.join(" "));
        let cells = [name, human(self.size_bytes), self.domain(), published, self.health()];
        cells.into_iter().chain(is_wide.then(|| self.id.clone())).collect()
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let pairs = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        vec![
            ("name", self.name.clone().unwrap_or_default()),
            ("id", self.id.clone()),
            ("size", format!("{} ({} bytes)", human(self.size_bytes), self.size_bytes)),
            ("context", pairs(&self.context)),
            (
                "source",
                self.source
                    .as_ref()
                    .map(|source| format!("{} {}", source.kind, source.id))
                    .unwrap_or_default(),
            ),
            ("topology", self.topology.iter().map(pairs).collect::<Vec<_>>().join(", ")),
            ("published to", self.published_nodes.join(" ")),
            ("condition", self.health()),
        ]
    }
}

fn source(source: wire::VolumeContentSource) -> Option<Source> {
    use wire::volume_content_source::Type;
    match source.type_? {
        Type::Snapshot(snapshot) => Some(Source { kind: "snapshot", id: snapshot.snapshot_id }),
        Type::Volume(volume) => Some(Source { kind: "volume", id: volume.volume_id }),
    }
}

/// How a volume is to be used, as the options say.
pub fn capability(given: &Given) -> CliResult<wire::VolumeCapability> {
    use wire::volume_capability::{Access_type, AccessMode, BlockVolume, MountVolume};
    given.not_both("block", "fs")?;
    given.not_both("block", "flags")?;
    let access = match given.has("block") {
        true => Access_type::Block(BlockVolume::default()),
        false => {
            let fs_type = given.value("fs").unwrap_or_default().to_string();
            Access_type::Mount(MountVolume {
                fs_type,
                // The daemon splits the options.
                mount_flags: given.value("flags").map(str::to_string).into_iter().collect(),
                ..Default::default()
            })
        }
    };
    let mode = EnumOrUnknown::from_i32(values::mode(given)?.number());
    Ok(wire::VolumeCapability {
        access_type: Some(access),
        access_mode: MessageField::some(AccessMode { mode, ..Default::default() }),
        ..Default::default()
    })
}

/// The range of `--size` and `--limit`, if one of them was given.
fn capacity_range(given: &Given) -> CliResult<MessageField<wire::CapacityRange>> {
    let (size, limit) = (values::optional_size(given, "size")?, values::optional_size(given, "limit")?);
    if size.is_none() && limit.is_none() {
        return Ok(MessageField::none());
    }
    let range = wire::CapacityRange {
        required_bytes: size.unwrap_or_default(),
        limit_bytes: limit.unwrap_or_default(),
        ..Default::default()
    };
    Ok(MessageField::some(range))
}

fn content_source(given: &Given) -> CliResult<MessageField<wire::VolumeContentSource>> {
    use wire::volume_content_source::{SnapshotSource, Type, VolumeSource};
    given.not_both("from-snapshot", "from-volume")?;
    let snapshot = given
        .value("from-snapshot")
        .map(|id| SnapshotSource { snapshot_id: id.to_string(), ..Default::default() });
    let volume =
        given.value("from-volume").map(|id| VolumeSource { volume_id: id.to_string(), ..Default::default() });
    let source = snapshot.map(Type::Snapshot).or(volume.map(Type::Volume));
    Ok(source.map(|source| wire::VolumeContentSource { type_: Some(source), ..Default::default() }).into())
}

/// The parameters of a new volume. The file system is one of them: a capability is for one use only, while a
/// parameter stays with the volume and counts wherever the volume is published.
fn parameters(given: &Given) -> CliResult<HashMap<String, String>> {
    let mut parameters = values::pairs(given, "parameter")?;
    let Some(fs_type) = given.value("fs") else { return Ok(parameters) };
    match parameters.insert(FS_TYPE.to_string(), fs_type.to_string()) {
        Some(other) if other != fs_type => Err(CliError::usage(format!(
            "--fs {fs_type} and --parameter {FS_TYPE}={other} exclude each other"
        ))),
        _ => Ok(parameters),
    }
}

/// The topology requirement of `--domain` and `--prefer`, if one of them was given.
fn requirement(plugin: &dyn Plugin, given: &Given) -> CliResult<MessageField<wire::TopologyRequirement>> {
    let requirement = wire::TopologyRequirement {
        requisite: values::topologies(plugin, given, "domain")?,
        preferred: values::topologies(plugin, given, "prefer")?,
        ..Default::default()
    };
    let is_empty = requirement.requisite.is_empty() && requirement.preferred.is_empty();
    Ok(Some(requirement).filter(|_| !is_empty).into())
}

/// Makes a volume; prints its ID.
pub fn create(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = wire::CreateVolumeRequest {
        name: given.word(0).to_string(),
        capacity_range: capacity_range(given)?,
        volume_capabilities: vec![capability(given)?],
        parameters: parameters(given)?,
        mutable_parameters: values::pairs(given, "mutable")?,
        volume_content_source: content_source(given)?,
        accessibility_requirements: requirement(plugin, given)?,
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let volume = plugin.ask(&request)?.volume.unwrap_or_default();
    let shown = Shown::new(Some(request.name), volume, Vec::new(), MessageField::none());
    let hint = Some(format!("commands take the name {:?}, or this ID", given.word(0)));
    Ok(Report { hint, ..Report::new(shown.id.clone(), &shown) })
}

/// All volumes, of all pages of the list.
pub fn all(plugin: &dyn Plugin) -> Result<Vec<wire::list_volumes_response::Entry>> {
    let mut entries = Vec::new();
    let page = |starting_token| wire::ListVolumesRequest { starting_token, ..Default::default() };
    plugin.ask_all(page, |reply| {
        entries.extend(reply.entries);
        reply.next_token
    })?;
    Ok(entries)
}

/// Lists the volumes that can be reached; remarks say which cannot be.
pub fn list(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (mut volumes, mut missing) = (Vec::new(), BTreeSet::new());
    let page = |starting_token| ListReachableRequest { starting_token, ..Default::default() };
    plugin.ask_all(page, |reply| {
        volumes.extend(reply.volumes.into_iter().map(listed));
        missing.extend(reply.missing);
        reply.next_token
    })?;
    let is_wide = given.has("wide");
    let rows: Vec<_> = volumes.iter().map(|volume| volume.row(is_wide)).collect();
    let header = ["NAME", "SIZE", "DOMAIN", "PUBLISHED TO", "CONDITION", "ID"];
    let shown = if is_wide { &header[..] } else { &header[..header.len() - 1] };
    let report = Report::new(table(shown, &rows), &volumes);
    let status = if missing.is_empty() { 0 } else { UNREACHABLE };
    let notes = missing.into_iter().map(|why| format!("volumes are missing: {why}")).collect();
    Ok(Report { notes, status, ..report })
}

fn listed(volume: NamedVolume) -> Shown {
    let entry = volume.entry.unwrap_or_default();
    let status = entry.status.unwrap_or_default();
    let (nodes, condition) = (status.published_node_ids, status.volume_condition);
    Shown::new(Some(volume.name), entry.volume.unwrap_or_default(), nodes, condition)
}

/// Shows a volume and, if it is published on this node, where and how full it is.
pub fn show(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let id = given.word(0);
    if let Some(report) = jobs::instead(plugin, id, given.names.get(id))? {
        return Ok(report);
    }
    let request = wire::ControllerGetVolumeRequest { volume_id: id.to_string(), ..Default::default() };
    let reply = plugin.ask(&request)?;
    let status = reply.status.unwrap_or_default();
    let name = given.names.get(id).cloned();
    let (nodes, condition) = (status.published_node_ids, status.volume_condition);
    let mut volume = Shown::new(name, reply.volume.unwrap_or_default(), nodes, condition);
    let targets = here::targets(plugin, id)?;
    let stats =
        targets.first().map(|path| here::stats(plugin, id, path)).transpose()?.flatten().unwrap_or_default();
    let here = stats.volume_condition.clone().into_option().map(Condition::from);
    if let (false, Some(here)) = (volume.is_unwell(), here.filter(|here| here.abnormal)) {
        volume.condition = Some(here);
    }
    let usage = here::usage(stats);
    let mut pairs = volume.fields();
    pairs.push(("published at", targets.join(" ")));
    pairs.extend(
        usage.iter().map(|it| ("used", format!("{} of {}", human(it.used_bytes), human(it.total_bytes)))),
    );
    Ok(Report::new(fields(&pairs), &ShownHere { volume, targets, usage }))
}

/// Makes a volume larger, and expands it on the node where the volume is published.
pub fn expand(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let id = given.word(0);
    if !given.has("size") {
        return Err(CliError::usage("--size is missing; see cephlet volume expand --help"));
    }
    let (range, named) = (capacity_range(given)?, given.value("path").map(values::path).transpose()?);
    let request = wire::ControllerExpandVolumeRequest {
        volume_id: id.to_string(),
        capacity_range: range.clone(),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let named = named.as_deref().map(values::path_text).transpose()?;
    let reply = plugin.ask(&request)?;
    // One path is enough: all of them are the same device and file system.
    let path = match (named, reply.node_expansion_required) {
        (None, true) => here::targets(plugin, id)?.into_iter().next(),
        (named, is_required) => named.filter(|_| is_required),
    };
    if let Some(path) = &path {
        expand_on_node(plugin, id, path, reply.capacity_bytes)?;
    }
    let json = json!({"id": id, "size_bytes": reply.capacity_bytes, "expanded_at": path});
    let report = Report::new(human(reply.capacity_bytes), &json);
    Ok(match (path, reply.node_expansion_required) {
        (None, true) => report.with_note(
            "not published on this node: device and file system follow when it is published or staged next",
        ),
        _ => report,
    })
}

fn expand_on_node(plugin: &dyn Plugin, id: &str, path: &str, size: i64) -> Result<()> {
    let range = wire::CapacityRange { required_bytes: size, ..Default::default() };
    let request = wire::NodeExpandVolumeRequest {
        volume_id: id.to_string(),
        volume_path: path.to_string(),
        capacity_range: MessageField::some(range),
        ..Default::default()
    };
    let expanded = plugin.ask(&request);
    expanded
        .map(|_| ())
        .map_err(|error| error.context(format!("the volume is larger now, but not at {path}")))
}

/// Changes the mutable parameters of a volume.
pub fn modify(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (id, mutable_parameters) = (given.word(0), values::pairs(given, "mutable")?);
    if mutable_parameters.is_empty() {
        return Err(CliError::usage("--mutable is missing; see cephlet volume modify --help"));
    }
    let request = wire::ControllerModifyVolumeRequest {
        volume_id: id.to_string(),
        mutable_parameters,
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    plugin.ask(&request)?;
    Ok(Report::new("", &json!({"id": id})))
}

/// Deletes a volume.
pub fn delete(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let id = given.word(0);
    let secrets = values::secrets(given)?;
    plugin.ask(&wire::DeleteVolumeRequest { volume_id: id.to_string(), secrets, ..Default::default() })?;
    Ok(Report::new("", &json!({"id": id})))
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
