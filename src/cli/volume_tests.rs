//! Tests of the commands on volumes.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::backend::Reason;
use crate::cli::fake::{Fake, run};
use crate::error::Error;
use crate::grpc::proto::cephlet_operator_v1::{ListHereRequest, ListHereResponse, ListReachableResponse};
use crate::volume::Fault;

fn volume(id: &str, size: i64) -> wire::Volume {
    wire::Volume { volume_id: id.into(), capacity_bytes: size, ..Default::default() }
}

/// A volume in a list.
fn named(name: &str, entry: wire::list_volumes_response::Entry) -> NamedVolume {
    NamedVolume { name: name.into(), entry: MessageField::some(entry), ..Default::default() }
}

/// A page of a list with one volume.
fn page(id: &str, next: &str, missing: &[&str]) -> ListReachableResponse {
    let volume = MessageField::some(volume(id, 1));
    ListReachableResponse {
        volumes: vec![named("web", wire::list_volumes_response::Entry { volume, ..Default::default() })],
        missing: missing.iter().map(ToString::to_string).collect(),
        next_token: next.into(),
        ..Default::default()
    }
}

fn created(id: &str) -> wire::CreateVolumeResponse {
    wire::CreateVolumeResponse { volume: MessageField::some(volume(id, 1 << 30)), ..Default::default() }
}

fn expanded(size: i64) -> wire::ControllerExpandVolumeResponse {
    wire::ControllerExpandVolumeResponse {
        capacity_bytes: size,
        node_expansion_required: true,
        ..Default::default()
    }
}

/// A daemon that has the volume published at this path.
fn published_at(target: &str) -> Fake {
    let reply = ListHereResponse { target_paths: vec![target.into()], ..Default::default() };
    Fake::default().replies::<ListHereRequest>(&reply)
}

#[test]
fn a_creation_asks_for_what_the_options_say_and_prints_the_id() {
    let secrets = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secrets.path(), "userKey=hidden\n").unwrap();
    let fake = Fake::default().replies::<wire::CreateVolumeRequest>(&created("v1"));
    let line = format!(
        "volume create web --size 1G --limit 2G --fs xfs --mode multi-node-reader-only --parameter pool=ssd \
         --from-snapshot v0@s1 --secrets {}",
        secrets.path().display()
    );
    let report = run(&fake, &line).unwrap();
    assert_eq!(report.rendered(false), "v1\n");
    let json = json!({
        "name": "web", "id": "v1", "size_bytes": 1 << 30, "context": {}, "source": null, "topology": [], "published_nodes": [], "condition": null,
    });
    assert_eq!(report.json, json);
    let request: wire::CreateVolumeRequest = fake.request();
    assert_eq!(
        (request.name.as_str(), request.parameters["pool"].as_str(), request.secrets["userKey"].as_str()),
        ("web", "ssd", "hidden")
    );
    assert_eq!(
        (request.capacity_range.required_bytes, request.capacity_range.limit_bytes),
        (1 << 30, 2 << 30)
    );
    assert_eq!(request.volume_content_source.snapshot().snapshot_id, "v0@s1");
    let capability = &request.volume_capabilities[0];
    assert_eq!(request.parameters[FS_TYPE], "xfs", "the file system stays with the volume");
    assert_eq!((capability.mount().fs_type.as_str(), capability.access_mode.mode.value()), ("xfs", 3));
}

#[test]
fn a_creation_without_options_leaves_size_and_source_open() {
    let fake = Fake::default();
    run(&fake, "volume create web").unwrap();
    let request: wire::CreateVolumeRequest = fake.request();
    assert!(request.capacity_range.is_none() && request.volume_content_source.is_none());
    assert_eq!(request.volume_capabilities[0].access_mode.mode.value(), 1);
    run(&fake, "volume create web --block --from-volume v0").unwrap();
    let request: wire::CreateVolumeRequest = fake.request();
    assert!(request.volume_capabilities[0].has_block());
    assert_eq!(request.volume_content_source.volume().volume_id, "v0");
}

#[test]
fn a_creation_asks_for_domains_by_the_plugins_keys() {
    let identity = wire::GetPluginInfoResponse { name: "org.x".into(), ..Default::default() };
    let fake = Fake::default().replies::<wire::GetPluginInfoRequest>(&identity);
    run(&fake, "volume create web --domain zone=1 --domain region=eu,zone=2 --prefer zone=2").unwrap();
    let request: wire::CreateVolumeRequest = fake.request();
    let asked = request.accessibility_requirements.unwrap();
    let segments = |all: &[wire::Topology]| -> Vec<BTreeMap<String, String>> {
        all.iter().map(|it| it.segments.clone().into_iter().collect()).collect()
    };
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    let second = map(&[("org.x/region", "eu"), ("org.x/zone", "2")]);
    assert_eq!(segments(&asked.requisite), [map(&[("org.x/zone", "1")]), second]);
    assert_eq!(segments(&asked.preferred), [map(&[("org.x/zone", "2")])]);
    run(&fake, "volume create web").unwrap();
    assert!(fake.request::<wire::CreateVolumeRequest>().accessibility_requirements.is_none());
}

#[test]
fn a_wrong_creation_asks_the_daemon_nothing() {
    for line in [
        "volume create web --size lots",
        "volume create web --block --fs xfs",
        "volume create web --from-volume a --from-snapshot b",
        "volume create web --mode rw",
        "volume create web --parameter x",
        "volume create web --domain eu-1",
        "volume create web --fs xfs --parameter csi.storage.k8s.io/fstype=ext4",
    ] {
        let fake = Fake::default();
        assert_eq!(run(&fake, line).unwrap_err().exit_code(), 2, "{line}");
        assert!(fake.asked().is_empty(), "{line}");
    }
}

#[test]
fn the_list_shows_where_volumes_are_and_how_they_are() {
    use wire::list_volumes_response::{Entry, VolumeStatus};
    let entry = |volume, nodes: &[&str], abnormal: bool| Entry {
        volume: MessageField::some(volume),
        status: MessageField::some(VolumeStatus {
            published_node_ids: nodes.iter().map(ToString::to_string).collect(),
            volume_condition: MessageField::some(wire::VolumeCondition {
                abnormal,
                message: "gone".into(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let topology = |pairs: &[(&str, &str)]| wire::Topology {
        segments: pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        ..Default::default()
    };
    let own = topology(&[("org.x/zone", "eu-1"), ("org.x/region", "eu")]);
    let accessible_topology = vec![own, topology(&[("org.x/takes.zone.eu-1", "true")])];
    let first = wire::Volume { accessible_topology, ..volume("v1", 1 << 30) };
    let volumes = vec![
        named("web", entry(first, &["n1", "n2"], false)),
        named("db", entry(volume("v22", 1536), &[], true)),
    ];
    let page = ListReachableResponse { volumes, ..Default::default() };
    let fake = Fake::default().replies::<ListReachableRequest>(&page);
    let report = run(&fake, "volume list").unwrap();
    assert_eq!(
        report.text,
        "NAME  SIZE     DOMAIN               PUBLISHED TO  CONDITION\n\
         web   1 GiB    region=eu,zone=eu-1  n1 n2         ok\n\
         db    1.5 KiB                                     gone"
    );
    let wide = run(&fake, "volume list --wide").unwrap().text;
    let columns: Vec<&str> = wide.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(columns, ["ID", "v1", "v22"]);
    assert_eq!((&report.json[1]["name"], &report.json[1]["id"]), (&json!("db"), &json!("v22")));
    assert_eq!(
        report.json[1]["condition"],
        json!({"abnormal": true, "message": "gone", "reason": null, "status": null})
    );
}

#[test]
fn all_pages_of_the_list_are_read() {
    let fake = Fake::default()
        .replies::<ListReachableRequest>(&page("v1", "after v1", &[]))
        .replies::<ListReachableRequest>(&page("v2", "", &[]));
    let report = run(&fake, "volume list").unwrap();
    assert_eq!((report.json[0]["id"].as_str(), report.json[1]["id"].as_str()), (Some("v1"), Some("v2")));
    assert_eq!(fake.request::<ListReachableRequest>().starting_token, "after v1");
    assert_eq!((report.status, report.notes), (0, Vec::new()));
}

#[test]
fn what_is_missing_from_a_list_is_said_once_with_an_exit_status() {
    let fake = Fake::default()
        .replies::<ListReachableRequest>(&page("v1", "after v1", &["list cluster \"b\": it is down"]))
        .replies::<ListReachableRequest>(&page("v2", "", &["list cluster \"b\": it is down"]));
    let report = run(&fake, "volume list").unwrap();
    assert_eq!(report.json.as_array().map(Vec::len), Some(2));
    assert_eq!(report.notes, ["volumes are missing: list cluster \"b\": it is down"]);
    assert_eq!(report.status, UNREACHABLE);
}

#[test]
fn an_empty_list_is_no_text_and_an_empty_array() {
    let report = run(&Fake::default(), "volume list").unwrap();
    assert_eq!((report.rendered(false), report.rendered(true)), (String::new(), "[]\n".to_string()));
}

#[test]
fn show_tells_where_a_volume_is_published_here_and_how_full_it_is() {
    let mut shown = volume("v1", 1 << 30);
    shown.volume_context.insert("fsType".into(), "xfs".into());
    let bytes = wire::VolumeUsage {
        total: 1000,
        used: 10,
        available: 990,
        unit: wire::volume_usage::Unit::BYTES.into(),
        ..Default::default()
    };
    let fake = published_at("/mnt/a")
        .replies::<wire::ControllerGetVolumeRequest>(&wire::ControllerGetVolumeResponse {
            volume: MessageField::some(shown),
            ..Default::default()
        })
        .replies::<wire::NodeGetVolumeStatsRequest>(&wire::NodeGetVolumeStatsResponse {
            usage: vec![bytes],
            ..Default::default()
        });
    let report = run(&fake, "volume show v1").unwrap();
    assert_eq!(
        report.text,
        "id:            v1\n\
         size:          1 GiB (1073741824 bytes)\n\
         context:       fsType=xfs\n\
         published at:  /mnt/a\n\
         used:          10 B of 1000 B"
    );
    assert_eq!(report.json["targets"], json!(["/mnt/a"]));
    assert_eq!(report.json["usage"], json!({"total_bytes": 1000, "used_bytes": 10, "available_bytes": 990}));
    let lost = fake.refuses::<wire::NodeGetVolumeStatsRequest>(Error::not_found("not there"));
    assert_eq!(run(&lost, "volume show v1").unwrap().json["usage"], json!(null));
}

fn condition(fault: Option<Fault>) -> MessageField<wire::VolumeCondition> {
    let (abnormal, message) = (fault.is_some(), fault.map_or("well".into(), |fault| fault.to_string()));
    MessageField::some(wire::VolumeCondition { abnormal, message, ..Default::default() })
}

/// A daemon whose controller and node say this of a published volume.
fn daemon_that_says(controller: Option<Fault>, node: Option<Fault>) -> Fake {
    use wire::controller_get_volume_response::VolumeStatus;
    let status = VolumeStatus { volume_condition: condition(controller), ..Default::default() };
    let (volume, status) = (MessageField::some(volume("v1", 1)), MessageField::some(status));
    let found = wire::ControllerGetVolumeResponse { volume, status, ..Default::default() };
    let volume_condition = condition(node);
    let stats = wire::NodeGetVolumeStatsResponse { volume_condition, ..Default::default() };
    published_at("/mnt/a")
        .replies::<wire::ControllerGetVolumeRequest>(&found)
        .replies::<wire::NodeGetVolumeStatsRequest>(&stats)
}

#[test]
fn show_tells_the_reason_of_the_storage_before_that_of_the_node() {
    let (lost, gone) = (Fault::new(Reason::ImageMissing, "lost"), Fault::new(Reason::MountGone, "gone"));
    for (controller, node, text, json) in [
        (None, None, "ok", json!({"abnormal": false, "message": "well", "reason": null, "status": null})),
        (
            None,
            Some(&gone),
            "MountGone: gone",
            json!({"abnormal": true, "message": "gone", "reason": "MountGone", "status": "INACCESSIBLE"}),
        ),
        (
            Some(&lost),
            Some(&gone),
            "ImageMissing: lost",
            json!({"abnormal": true, "message": "lost", "reason": "ImageMissing", "status": "DATA_LOSS"}),
        ),
    ] {
        let report = run(&daemon_that_says(controller.cloned(), node.cloned()), "volume show v1").unwrap();
        assert!(report.text.lines().any(|line| line == format!("condition:     {text}")), "{}", report.text);
        assert_eq!(report.json["condition"], json);
    }
}

#[test]
fn a_volume_that_is_not_there_exits_with_3() {
    let fake = Fake::default()
        .refuses::<wire::ControllerGetVolumeRequest>(Error::not_found("there is no volume \"v1\""));
    assert_eq!(run(&fake, "volume show v1").unwrap_err().exit_code(), 3);
}

#[test]
fn an_expansion_reaches_the_node_where_the_volume_is_published() {
    let fake = published_at("/mnt/a").replies::<wire::ControllerExpandVolumeRequest>(&expanded(20 << 30));
    let report = run(&fake, "volume expand v1 --size 20G").unwrap();
    assert_eq!(fake.asked(), ["ControllerExpandVolume", "ListHere", "NodeExpandVolume"]);
    assert_eq!(report.json, json!({"id": "v1", "size_bytes": 20_i64 << 30, "expanded_at": "/mnt/a"}));
    let request: wire::NodeExpandVolumeRequest = fake.request();
    assert_eq!((request.volume_path.as_str(), request.capacity_range.required_bytes), ("/mnt/a", 20 << 30));
}

#[test]
fn an_expansion_of_a_volume_that_is_not_published_says_when_the_node_follows() {
    let fake = Fake::default().replies::<wire::ControllerExpandVolumeRequest>(&expanded(20 << 30));
    let report = run(&fake, "volume expand v1 --size 20G").unwrap();
    assert_eq!(fake.asked(), ["ControllerExpandVolume", "ListHere"]);
    assert!(report.notes[0].contains("staged next"));
    run(&fake, "volume expand v1 --size 20G --path /mnt/b").unwrap();
    assert_eq!(fake.request::<wire::NodeExpandVolumeRequest>().volume_path, "/mnt/b");
}

#[test]
fn an_expansion_that_the_node_refuses_says_what_has_happened() {
    let error = Error::precondition("read-only");
    let fake = Fake::default()
        .replies::<wire::ControllerExpandVolumeRequest>(&expanded(1))
        .refuses::<wire::NodeExpandVolumeRequest>(error);
    let refused = run(&fake, "volume expand v1 --size 1 --path /mnt/b").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "FAILED_PRECONDITION: the volume is larger now, but not at /mnt/b: read-only"
    );
    assert_eq!(run(&Fake::default(), "volume expand v1").unwrap_err().exit_code(), 2);
}

#[test]
fn a_deletion_is_silent() {
    let fake = Fake::default();
    let report = run(&fake, "volume delete v1").unwrap();
    assert_eq!((report.text.as_str(), report.json), ("", json!({"id": "v1"})));
    assert_eq!(fake.request::<wire::DeleteVolumeRequest>().volume_id, "v1");
}

#[test]
fn settings_that_can_be_changed_are_given_at_creation_and_later() {
    let fake = Fake::default();
    run(&fake, "volume create web --mutable iops=500 --mutable bps=0").unwrap();
    let request: wire::CreateVolumeRequest = fake.request();
    assert_eq!((request.mutable_parameters["iops"].as_str(), request.mutable_parameters.len()), ("500", 2));
    assert!(request.parameters.is_empty());
    assert_eq!(run(&fake, "volume modify v1 --mutable iops=0").unwrap().json, json!({"id": "v1"}));
    let request: wire::ControllerModifyVolumeRequest = fake.request();
    assert_eq!((request.volume_id.as_str(), request.mutable_parameters["iops"].as_str()), ("v1", "0"));
    let idle = Fake::default();
    assert_eq!(run(&idle, "volume modify v1").unwrap_err().exit_code(), 2);
    assert!(idle.asked().is_empty());
}
