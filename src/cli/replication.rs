//! `replication enable`, `disable`, `promote`, `demote`, `resync`, `status`, `destination` and `list`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use protobuf::MessageField;
use serde::Serialize;
use serde_json::json;

use crate::cli::complain;
use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, fields, table};
use crate::cli::syntax::Given;
use crate::cli::{values, volume};
use crate::error::{Kind, Result};
use crate::grpc::proto::{csi_v1, replication as wire};
use crate::volume::request::{NOT_YET, ROLE_KEY};

/// The pause between two attempts of a command that waits for the other side.
const PAUSE: Duration = Duration::from_millis(500);

/// The state of a volume's copying.
#[derive(Debug, Default, Serialize)]
struct Status {
    status: String,
    message: String,
    last_sync: Option<String>,
    last_sync_seconds: Option<i64>,
    last_sync_bytes: Option<i64>,
}

/// A replicated volume in a list.
#[derive(Debug, Serialize)]
struct Listed {
    id: String,
    role: String,
    #[serde(flatten)]
    status: Status,
}

/// The volume, as requests name it.
fn source(id: &str) -> MessageField<wire::ReplicationSource> {
    use wire::replication_source::{Type, VolumeSource};
    let volume = VolumeSource { volume_id: id.to_string(), ..Default::default() };
    MessageField::some(wire::ReplicationSource { type_: Some(Type::Volume(volume)), ..Default::default() })
}

/// The parameters that stand for options.
fn parameters(given: &Given) -> HashMap<String, String> {
    let valued =
        [("mode", "mirroringMode"), ("interval", "schedulingInterval"), ("start", "schedulingStartTime")];
    let valued = valued.iter().filter_map(|(option, key)| Some((*key, given.value(option)?)));
    let flags = [("flatten", "flattenMode", "force"), ("accept-loss", "acceptLoss", "true")];
    let flags = flags.iter().filter(|(option, ..)| given.has(option)).map(|(_, key, value)| (*key, *value));
    valued.chain(flags).map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn done(given: &Given) -> Report {
    Report::new("", &json!({"id": given.word(0)}))
}

/// Begins to replicate a volume.
pub fn enable(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    plugin.ask(&wire::EnableVolumeReplicationRequest {
        replication_source: source(given.word(0)),
        parameters: parameters(given),
        secrets: values::secrets(given)?,
        ..Default::default()
    })?;
    Ok(done(given))
}

/// Ends the replication of a volume.
pub fn disable(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let force = given.has("force").then(|| ("force".to_string(), "true".to_string()));
    plugin.ask(&wire::DisableVolumeReplicationRequest {
        replication_source: source(given.word(0)),
        parameters: force.into_iter().collect(),
        secrets: values::secrets(given)?,
        ..Default::default()
    })?;
    Ok(done(given))
}

/// Makes a copy the primary. Waits for the demotion of the other side, and reports the wait.
pub fn promote(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = wire::PromoteVolumeRequest {
        replication_source: source(given.word(0)),
        force: given.has("force"),
        parameters: parameters(given),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    if request.force {
        tell_of_copy(plugin, given);
    }
    until_arrived(given, || plugin.ask(&request))
}

/// Repeats `attempt` until the update from the other side has arrived; reports what it waits for.
fn until_arrived<T>(given: &Given, attempt: impl Fn() -> Result<T>) -> CliResult<Report> {
    let patience = given.value("timeout").map(|text| values::duration("timeout", text)).transpose()?;
    let (since, mut shown) = (Instant::now(), String::new());
    loop {
        match attempt() {
            Err(error)
                if is_on_its_way(&error) && patience.is_none_or(|most| since.elapsed() + PAUSE < most) =>
            {
                if shown != error.message() {
                    shown = error.message().to_string();
                    complain(&format!("waiting: {shown}"));
                }
                std::thread::sleep(PAUSE);
            }
            outcome => return Ok(outcome.map(|_| done(given))?),
        }
    }
}

fn is_on_its_way(error: &crate::error::Error) -> bool {
    matches!(error.kind(), Kind::Precondition | Kind::Unavailable) && error.message().contains(NOT_YET)
}

/// Makes a primary a copy. Waits until the other side has begun to follow it, and reports the wait.
pub fn demote(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = wire::DemoteVolumeRequest {
        replication_source: source(given.word(0)),
        force: given.has("force"),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    until_arrived(given, || plugin.ask(&request))
}

/// Makes a copy anew if that is necessary.
pub fn resync(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let ready = plugin.ask(&wire::ResyncVolumeRequest {
        replication_source: source(given.word(0)),
        force: given.has("force"),
        secrets: values::secrets(given)?,
        ..Default::default()
    })?;
    let ready = ready.ready;
    let text = if ready { "up to date" } else { "not up to date yet: ask again" };
    Ok(Report::new(text, &json!({"id": given.word(0), "ready": ready})))
}

/// Shows the state of a volume's copying.
pub fn status(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let status = status_of(plugin, given.word(0), values::secrets(given)?)?;
    let pairs = [
        ("status", status.status.clone()),
        ("message", status.message.clone()),
        ("last sync", status.last_sync.clone().unwrap_or_default()),
        ("took", status.last_sync_seconds.map(|seconds| format!("{seconds} s")).unwrap_or_default()),
        ("bytes", status.last_sync_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
    ];
    Ok(Report::new(fields(&pairs), &status))
}

fn status_of(plugin: &dyn Plugin, id: &str, secrets: HashMap<String, String>) -> Result<Status> {
    let asked = wire::GetVolumeReplicationInfoRequest {
        replication_source: source(id),
        secrets,
        ..Default::default()
    };
    let reply = plugin.ask(&asked)?;
    let took = reply.last_sync_duration.as_ref().map(|it| it.seconds);
    Ok(Status {
        status: format!("{:?}", reply.status.enum_value_or_default()).to_lowercase(),
        message: reply.status_message,
        last_sync: reply.last_sync_time.as_ref().and_then(values::date),
        last_sync_seconds: took,
        last_sync_bytes: took.map(|_| reply.last_sync_bytes),
    })
}

/// Prints the ID that a volume has at the other side.
pub fn destination(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    use wire::replication_destination::Type;
    let asked = wire::GetReplicationDestinationInfoRequest {
        replication_source: source(given.word(0)),
        secrets: values::secrets(given)?,
        ..Default::default()
    };
    let reply = plugin.ask(&asked)?;
    let id = match reply.replication_destination.into_option().and_then(|it| it.type_) {
        Some(Type::Volume(volume)) => volume.volume_id,
        _ => String::new(),
    };
    Ok(Report::new(id.clone(), &json!({"id": id})))
}

/// Lists the replicated volumes.
pub fn list(plugin: &dyn Plugin, _: &Given) -> CliResult<Report> {
    let replicated = volume::all(plugin)?.into_iter().filter_map(|entry| {
        let volume = entry.volume.into_option()?;
        Some(listed(plugin, volume.volume_id, volume.volume_context.get(ROLE_KEY)?.clone()))
    });
    let listed: Vec<Listed> = replicated.collect();
    let row = |it: &Listed| {
        let last_sync = it.status.last_sync.clone().unwrap_or_default();
        [it.id.clone(), it.role.clone(), it.status.status.clone(), last_sync, it.status.message.clone()]
    };
    let rows: Vec<_> = listed.iter().map(row).collect();
    Ok(Report::new(table(&["ID", "ROLE", "STATUS", "LAST SYNC", "MESSAGE"], &rows), &listed))
}

/// A volume whose state cannot be queried does not prevent the listing of others.
fn listed(plugin: &dyn Plugin, id: String, role: String) -> Listed {
    let status = match role.as_str() {
        "primary" => status_of(plugin, &id, HashMap::new()),
        _ => copy_of(plugin, &id),
    };
    let unknown = |message| Status { status: "unknown".into(), message, ..Default::default() };
    Listed { id, role, status: status.unwrap_or_else(|error| unknown(error.message().to_string())) }
}

/// The state of a copy, which its site reports with the volume's condition.
fn copy_of(plugin: &dyn Plugin, id: &str) -> Result<Status> {
    let asked = csi_v1::ControllerGetVolumeRequest { volume_id: id.to_string(), ..Default::default() };
    let status = plugin.ask(&asked)?.status.unwrap_or_default();
    let condition = status.volume_condition.unwrap_or_default();
    let status = if condition.abnormal { "error" } else { "" }.to_string();
    Ok(Status { status, message: condition.message, ..Default::default() })
}

/// Before a promotion by force, tells the operator of which time the copy is.
fn tell_of_copy(plugin: &dyn Plugin, given: &Given) {
    let Ok(Status { message, .. }) = copy_of(plugin, given.word(0)) else { return };
    let loss =
        if given.has("accept-loss") { "; in the middle of a copy it becomes one snapshot older" } else { "" };
    if !message.is_empty() {
        complain(&format!("by force: {message}{loss}"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::error::Error;

    fn volume(source: &MessageField<wire::ReplicationSource>) -> String {
        use wire::replication_source::Type;
        match source.as_ref().and_then(|it| it.type_.as_ref()) {
            Some(Type::Volume(volume)) => volume.volume_id.clone(),
            other => panic!("no volume: {other:?}"),
        }
    }

    #[test]
    fn options_become_parameters() {
        let fake = Fake::default();
        let line = "replication enable a --mode journal --interval 5m --start 02:00 --flatten";
        assert_eq!(run(&fake, line).unwrap().json, json!({"id": "a"}));
        let asked: wire::EnableVolumeReplicationRequest = fake.request();
        assert_eq!(volume(&asked.replication_source), "a");
        let expected = [
            ("mirroringMode", "journal"),
            ("schedulingInterval", "5m"),
            ("schedulingStartTime", "02:00"),
            ("flattenMode", "force"),
        ];
        assert_eq!(asked.parameters, expected.map(|(key, value)| (key.into(), value.into())).into());
        run(&fake, "replication disable a --force").unwrap();
        let asked: wire::DisableVolumeReplicationRequest = fake.request();
        assert_eq!(asked.parameters["force"], "true");
        run(&fake, "replication demote a --force").unwrap();
        assert!(fake.request::<wire::DemoteVolumeRequest>().force);
        let report = run(&fake, "replication resync a").unwrap();
        assert!(!fake.request::<wire::ResyncVolumeRequest>().force);
        assert_eq!(report.json, json!({"id": "a", "ready": false}));
    }

    #[test]
    fn a_promotion_and_a_demotion_wait_only_for_what_is_on_its_way() {
        let fake = Fake::default();
        run(&fake, "replication promote a --force --accept-loss").unwrap();
        let asked: wire::PromoteVolumeRequest = fake.request();
        assert!(asked.force && asked.parameters["acceptLoss"] == "true");
        let other = Fake::default()
            .refuses::<wire::PromoteVolumeRequest>(Error::precondition("it is not replicated"));
        assert_eq!(run(&other, "replication promote a").unwrap_err().exit_code(), 5);
        assert_eq!(other.asked().len(), 1);
        let error = || Error::precondition(format!("{NOT_YET}: x"));
        for (late, command) in [
            (Fake::default().refuses::<wire::PromoteVolumeRequest>(error()), "promote"),
            (Fake::default().refuses::<wire::DemoteVolumeRequest>(error()), "demote"),
        ] {
            let line = format!("replication {command} a --timeout 1s");
            assert_eq!(run(&late, &line).unwrap_err().exit_code(), 5);
            assert!(late.asked().len() > 1, "it was tried again until its time was up");
        }
    }

    #[test]
    fn a_list_names_roles_and_how_they_do() {
        let entry = |id: &str, role: Option<&str>| csi_v1::list_volumes_response::Entry {
            volume: MessageField::some(csi_v1::Volume {
                volume_id: id.into(),
                volume_context: role
                    .map(|role| (ROLE_KEY.to_string(), role.to_string()))
                    .into_iter()
                    .collect(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let volumes = csi_v1::ListVolumesResponse {
            entries: vec![
                entry("a", Some("primary")),
                entry("b", None),
                entry("c", Some("secondary")),
                entry("d", Some("unknown")),
            ],
            ..Default::default()
        };
        let info = wire::GetVolumeReplicationInfoResponse {
            status: protobuf::EnumOrUnknown::from_i32(2),
            status_message: "late".into(),
            ..Default::default()
        };
        let fake = Fake::default()
            .replies::<csi_v1::ListVolumesRequest>(&volumes)
            .replies::<wire::GetVolumeReplicationInfoRequest>(&info);
        let report = run(&fake, "replication list").unwrap();
        let shown = report.json.as_array().unwrap();
        assert_eq!(shown.len(), 3, "only replicated ones: {shown:?}");
        assert_eq!((&shown[0]["role"], &shown[0]["status"]), (&json!("primary"), &json!("degraded")));
        assert_eq!((&shown[1]["role"], &shown[0]["last_sync"]), (&json!("secondary"), &json!(null)));
        assert_eq!(shown[2]["role"], "unknown", "no rbd-mirror has said");
        assert!(report.text.starts_with("ID  ROLE"), "{}", report.text);
    }
}
