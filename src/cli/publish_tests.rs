//! Tests of publish and unpublish.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
use crate::cli::fake::{Fake, publications, run_in};

const PUBLISH: [&str; 5] = [
    "node_get_info",
    "controller_get_volume",
    "controller_publish_volume",
    "node_stage_volume",
    "node_publish_volume",
];
const RELEASE: [&str; 3] = ["node_unpublish_volume", "node_unstage_volume", "controller_unpublish_volume"];

/// A daemon on node n1 with a volume that is given to `nodes`.
fn daemon(nodes: &[&str]) -> Fake {
    use wire::controller_get_volume_response::VolumeStatus;
    let mut volume = wire::Volume { volume_id: "v1".into(), ..Default::default() };
    volume.volume_context.insert("fsType".into(), "xfs".into());
    let nodes = nodes.iter().map(ToString::to_string).collect();
    let found = wire::ControllerGetVolumeResponse {
        volume: MessageField::some(volume),
        status: MessageField::some(VolumeStatus { published_node_ids: nodes, ..Default::default() }),
        ..Default::default()
    };
    let mut given = wire::ControllerPublishVolumeResponse::default();
    given.publish_context.insert("device".into(), "7".into());
    Fake::default()
        .replies("node_get_info", &wire::NodeGetInfoResponse { node_id: "n1".into(), ..Default::default() })
        .replies("controller_get_volume", &found)
        .replies("controller_publish_volume", &given)
}

/// What is recorded of v1; nothing at all lies below the runtime directory if that is nothing.
fn targets(runtime: &Path) -> Vec<String> {
    let targets = publications(runtime).targets("v1").unwrap();
    let left = std::fs::read_dir(runtime.join("staging")).map_or(0, Iterator::count);
    assert_eq!(left, usize::from(!targets.is_empty()), "{targets:?}");
    targets
}

#[test]
fn a_volume_goes_all_the_way_to_its_path_and_back() {
    let (runtime, fake) = (tempfile::tempdir().unwrap(), daemon(&[]));
    let report = run_in(runtime.path(), &fake, "volume publish v1 /mnt/a --fs xfs --flags noatime").unwrap();
    assert_eq!(fake.asked(), PUBLISH);
    let stage: wire::NodeStageVolumeRequest = fake.request("node_stage_volume");
    let publish: wire::NodePublishVolumeRequest = fake.request("node_publish_volume");
    assert_eq!(
        (stage.publish_context["device"].as_str(), stage.volume_context["fsType"].as_str()),
        ("7", "xfs")
    );
    assert_eq!(stage.volume_capability.mount().mount_flags, ["noatime"]);
    assert!(Path::new(&stage.staging_target_path).starts_with(runtime.path().join("staging")));
    assert_eq!(
        (publish.staging_target_path, publish.target_path.as_str(), publish.readonly),
        (stage.staging_target_path.clone(), "/mnt/a", false)
    );
    let json = json!({"id": "v1", "node_id": "n1", "staging_path": stage.staging_target_path, "target_path": "/mnt/a"});
    assert_eq!((report.text.as_str(), report.json), ("", json));
    assert_eq!(targets(runtime.path()), ["/mnt/a"]);

    let fake = daemon(&["n1"]);
    let report = run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/a").unwrap();
    assert_eq!(fake.asked(), RELEASE);
    let unstage: wire::NodeUnstageVolumeRequest = fake.request("node_unstage_volume");
    assert_eq!(unstage.staging_target_path, stage.staging_target_path);
    assert_eq!(
        fake.request::<wire::ControllerUnpublishVolumeRequest>("controller_unpublish_volume").node_id,
        "n1"
    );
    assert_eq!(report.json, json!({"id": "v1", "target_path": "/mnt/a", "detached": true}));
    assert!(targets(runtime.path()).is_empty());
}

#[test]
fn only_the_last_path_takes_the_volume_from_the_node() {
    let runtime = tempfile::tempdir().unwrap();
    for line in [
        "volume publish v1 /mnt/a",
        "volume publish v1 /mnt/b --read-only",
        "volume publish v1 /mnt/b --read-only",
    ] {
        run_in(runtime.path(), &daemon(&[]), line).unwrap();
    }
    assert_eq!(targets(runtime.path()), ["/mnt/a", "/mnt/b"]);
    let fake = daemon(&[]);
    let report = run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/a").unwrap();
    assert_eq!((fake.asked(), &report.json["detached"]), (vec!["node_unpublish_volume"], &json!(false)));
    run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/b").unwrap();
    assert_eq!(fake.asked()[1..], RELEASE);
    assert!(targets(runtime.path()).is_empty());
}

#[test]
fn a_path_for_reading_beside_one_for_writing_does_not_change_what_the_node_was_given() {
    let (runtime, fake) = (tempfile::tempdir().unwrap(), daemon(&[]));
    let readonly = |fake: &Fake| {
        let given: wire::ControllerPublishVolumeRequest = fake.request("controller_publish_volume");
        (given.readonly, fake.request::<wire::NodePublishVolumeRequest>("node_publish_volume").readonly)
    };
    run_in(runtime.path(), &fake, "volume publish v1 /mnt/a").unwrap();
    assert_eq!(readonly(&fake), (false, false));
    run_in(runtime.path(), &fake, "volume publish v1 /mnt/b --read-only").unwrap();
    assert_eq!(readonly(&fake), (false, true));
    let other = tempfile::tempdir().unwrap();
    run_in(other.path(), &fake, "volume publish v1 /mnt/a --read-only").unwrap();
    assert_eq!(readonly(&fake), (true, true));
}

#[test]
fn whichever_step_fails_everything_is_undone() {
    for (at, rpc) in PUBLISH.iter().enumerate().skip(2) {
        let (runtime, fake) =
            (tempfile::tempdir().unwrap(), daemon(&[]).refuses(rpc, Error::no_space("full")));
        let failure = run_in(runtime.path(), &fake, "volume publish v1 /mnt/a").unwrap_err();
        assert_eq!(
            (failure.exit_code(), failure.to_string().as_str()),
            (7, "RESOURCE_EXHAUSTED: full"),
            "{rpc}"
        );
        assert_eq!(fake.asked()[..=at], PUBLISH[..=at]);
        assert_eq!(fake.asked()[at + 1..], RELEASE, "{rpc}");
        assert!(targets(runtime.path()).is_empty(), "{rpc}");
    }
}

#[test]
fn what_fails_before_anything_is_asked_for_leaves_nothing() {
    for rpc in ["node_get_info", "controller_get_volume"] {
        let (runtime, fake) =
            (tempfile::tempdir().unwrap(), daemon(&[]).refuses(rpc, Error::not_found("no")));
        assert_eq!(run_in(runtime.path(), &fake, "volume publish v1 /mnt/a").unwrap_err().exit_code(), 3);
        assert!(targets(runtime.path()).is_empty());
    }
    let (runtime, fake) = (tempfile::tempdir().unwrap(), daemon(&[]));
    assert_eq!(
        run_in(runtime.path(), &fake, "volume publish v1 /mnt/a --mode rw").unwrap_err().exit_code(),
        2
    );
    assert!(fake.asked().is_empty() && targets(runtime.path()).is_empty());
}

#[test]
fn a_volume_that_the_node_had_before_is_not_taken_from_it() {
    let refused = daemon(&["n1"]).refuses("node_stage_volume", Error::already_exists("as ext4"));
    let runtime = tempfile::tempdir().unwrap();
    assert_eq!(run_in(runtime.path(), &refused, "volume publish v1 /mnt/a").unwrap_err().exit_code(), 4);
    assert_eq!(refused.asked()[4..], RELEASE[..2]);
}

#[test]
fn a_second_path_that_fails_leaves_the_first_alone() {
    let runtime = tempfile::tempdir().unwrap();
    run_in(runtime.path(), &daemon(&[]), "volume publish v1 /mnt/a").unwrap();
    let refused = daemon(&["n1"]).refuses("node_publish_volume", Error::precondition("one target only"));
    run_in(runtime.path(), &refused, "volume publish v1 /mnt/b").unwrap_err();
    assert_eq!(refused.asked()[5..], ["node_unpublish_volume"]);
    assert_eq!(targets(runtime.path()), ["/mnt/a"]);
}

#[test]
fn a_repeated_publish_that_fails_undoes_nothing() {
    let runtime = tempfile::tempdir().unwrap();
    run_in(runtime.path(), &daemon(&[]), "volume publish v1 /mnt/a").unwrap();
    let refused = daemon(&["n1"]).refuses("node_publish_volume", Error::already_exists("read-only"));
    run_in(runtime.path(), &refused, "volume publish v1 /mnt/a").unwrap_err();
    assert_eq!(refused.asked(), PUBLISH);
    assert_eq!(targets(runtime.path()), ["/mnt/a"]);
}

#[test]
fn what_cannot_be_undone_stays_recorded_and_can_be_unpublished_later() {
    let stuck = daemon(&[])
        .refuses("node_stage_volume", Error::timeout("late"))
        .refuses("node_unstage_volume", Error::unavailable("busy"));
    let runtime = tempfile::tempdir().unwrap();
    let failure = run_in(runtime.path(), &stuck, "volume publish v1 /mnt/a").unwrap_err();
    assert_eq!(
        failure.to_string(),
        "DEADLINE_EXCEEDED: late; and it could not be undone: busy; repeat that with cephlet volume \
         unpublish v1 /mnt/a"
    );
    assert!(publications(runtime.path()).hold("v1").unwrap().read().unwrap().is_some());
    let fake = daemon(&["n1"]);
    run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/a").unwrap();
    assert_eq!(fake.asked(), RELEASE);
    assert!(targets(runtime.path()).is_empty());
}

#[test]
fn without_a_record_the_node_keeps_the_volume_unless_told_otherwise() {
    let (runtime, fake) = (tempfile::tempdir().unwrap(), daemon(&["n1"]));
    let report = run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/a").unwrap();
    assert!(!fake.asked().contains(&"controller_unpublish_volume"));
    assert!(
        report.notes[0].contains("still given to node n1") && report.notes[0].contains("--detach"),
        "{:?}",
        report.notes
    );
    assert_eq!(report.json["detached"], json!(false));

    let fake = daemon(&[]);
    let report = run_in(runtime.path(), &fake, "volume unpublish v1 /mnt/a --detach").unwrap();
    assert!(fake.asked().contains(&"controller_unpublish_volume"));
    assert_eq!((report.notes.len(), &report.json["detached"]), (0, &json!(true)));
    assert!(targets(runtime.path()).is_empty());
}

#[test]
fn a_daemon_without_a_controller_has_the_node_do_it_all() {
    let (runtime, absent) = (tempfile::tempdir().unwrap(), || Error::unimplemented("not served here"));
    let node = ["controller_get_volume", "controller_publish_volume", "controller_unpublish_volume"]
        .into_iter()
        .fold(daemon(&[]), |fake, rpc| fake.refuses(rpc, absent()));
    run_in(runtime.path(), &node, "volume publish v1 /mnt/a").unwrap();
    let stage: wire::NodeStageVolumeRequest = node.request("node_stage_volume");
    assert!(stage.publish_context.is_empty() && stage.volume_context.is_empty());
    run_in(runtime.path(), &node, "volume unpublish v1 /mnt/a").unwrap();
    assert!(targets(runtime.path()).is_empty());
}

#[test]
fn a_volume_that_only_secrets_open_is_published_with_them() {
    let secrets = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secrets.path(), "userKey=hidden\n").unwrap();
    let line = format!("volume publish v1 /mnt/a --secrets {}", secrets.path().display());
    let locked = || daemon(&[]).refuses("controller_get_volume", Error::unauthenticated("no key"));
    let (runtime, fake) = (tempfile::tempdir().unwrap(), locked());
    run_in(runtime.path(), &fake, &line).unwrap();
    let stage: wire::NodeStageVolumeRequest = fake.request("node_stage_volume");
    assert_eq!(
        (stage.secrets["userKey"].as_str(), stage.publish_context["device"].as_str()),
        ("hidden", "7")
    );
    // Who had it before is not known, so it is not taken from the node.
    let (runtime, fake) =
        (tempfile::tempdir().unwrap(), locked().refuses("node_stage_volume", Error::no_space("full")));
    run_in(runtime.path(), &fake, &line).unwrap_err();
    assert_eq!(fake.asked()[4..], RELEASE[..2]);
}
