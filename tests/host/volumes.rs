//! Volumes at the controller: made, expanded, changed, published to nodes and deleted, each call twice.

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::machine::images;
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, Setup, TestVolume, refused};

#[test]
fn a_volume_is_made_once() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let request = volume("one");
    let made = client.create(&request).expect("create");
    assert_eq!(made.capacity_bytes, 32 * MIB);
    assert!(
        made.volume_id.starts_with("local:node-1:::csi-vol-") && made.volume_id.len() <= 128,
        "{}",
        made.volume_id
    );
    assert_eq!(client.create(&request).expect("create again"), made);
    let files = images(&daemon.local_dir());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].metadata().expect("the image").len(), 32 << 20);
}

#[test]
fn the_answer_survives_a_restart() {
    let mut daemon = Daemon::start();
    let request = volume("one");
    let made = daemon.client().create(&request).expect("create");
    daemon.restart();
    assert_eq!(daemon.client().create(&request).expect("create again"), made);
    daemon.kill9();
    daemon.restart();
    assert_eq!(daemon.client().create(&request).expect("create again"), made);
}

#[test]
fn a_volume_and_its_snapshot_say_where_they_are_reachable() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume("here")).expect("create");
    let info = client.node_get_info(&wire::NodeGetInfoRequest::default()).expect("the node's topology");
    assert_eq!(info.node_id, "node-1");
    let here = info.accessible_topology.into_option().expect("a topology");
    assert_eq!(made.accessible_topology, std::slice::from_ref(&here));
    let requisite = vec![here.clone()];
    let request = wire::CreateSnapshotRequest {
        accessibility_requirements: MessageField::some(wire::TopologyRequirement {
            requisite,
            ..Default::default()
        }),
        ..snapshot("here", &made.volume_id)
    };
    let taken = client.create_snapshot(&request).expect("a snapshot");
    assert_eq!(taken.snapshot.accessible_topology, [here]);
}

#[test]
fn a_volume_elsewhere_is_refused() {
    let daemon = Daemon::start();
    let mut request = volume("there");
    let elsewhere =
        wire::Topology { segments: map(&[("org.cephlet.csi/node", "node-2")]), ..Default::default() };
    let requirement = wire::TopologyRequirement { requisite: vec![elsewhere.clone()], ..Default::default() };
    request.accessibility_requirements = MessageField::some(requirement);
    refused(daemon.client().create(&request), Code::RESOURCE_EXHAUSTED, &["node-1"]);
    let here = wire::Topology { segments: map(&[("org.cephlet.csi/node", "node-1")]), ..Default::default() };
    request.accessibility_requirements.mut_or_insert_default().requisite.push(here);
    daemon.client().create(&request).expect("one of the requisites is enough");
}

#[test]
fn the_same_name_with_other_properties_is_refused() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume("one")).expect("create");
    let mut other_source = volume("one");
    other_source = from_volume(other_source, &made.volume_id);
    let mut other_parameters = volume("one");
    other_parameters.parameters = map(&[("preallocate", "true")]);
    let smaller = wire::CreateVolumeRequest { capacity_range: range(MIB, 16 * MIB), ..volume("one") };
    for other in [volume_as("one", 64 * MIB, mount("ext4")), smaller, other_source, other_parameters] {
        refused(client.create(&other), Code::ALREADY_EXISTS, &["one"]);
    }
    assert_eq!(client.create(&volume("one")).expect("still there").volume_id, made.volume_id);
}

#[test]
fn a_size_that_fits_the_present_volume_is_the_same_request() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume("one")).expect("create");
    let fits = wire::CreateVolumeRequest { capacity_range: range(16 * MIB, 64 * MIB), ..volume("one") };
    assert_eq!(client.create(&fits).expect("a compatible size").volume_id, made.volume_id);
}

#[test]
fn sizes_are_exact() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let create = |name: &str, required, limit| {
        client.create(&wire::CreateVolumeRequest { capacity_range: range(required, limit), ..volume(name) })
    };
    let exact = 5 * MIB + 4096;
    assert_eq!(create("exact", exact, exact).expect("exact").capacity_bytes, exact);
    let rounded = create("rounded", exact + 1, 0).expect("rounded").capacity_bytes;
    assert!(rounded > exact && rounded <= exact + 4096, "{rounded}");
    let limited = create("limited", 0, 7 * MIB).expect("limited").capacity_bytes;
    assert!(limited > 0 && limited <= 7 * MIB, "{limited}");
    refused(create("between", exact + 1, exact + 2), Code::OUT_OF_RANGE, &["limit_bytes"]);
    refused(create("tiny", 0, 4096), Code::OUT_OF_RANGE, &["limit_bytes"]);
    assert_eq!(images(&daemon.local_dir()).len(), 3);
}

#[test]
fn a_size_without_a_demand_has_a_default() {
    let daemon = Daemon::start();
    let request = wire::CreateVolumeRequest { capacity_range: MessageField::none(), ..volume("any") };
    let made = daemon.client().create(&request).expect("create");
    assert!(made.capacity_bytes >= MIB);
    assert_eq!(daemon.client().create(&request).expect("again"), made);
}

#[test]
fn a_volume_has_room_from_the_start_if_asked() {
    use std::os::unix::fs::MetadataExt;
    let daemon = Daemon::start();
    let request = wire::CreateVolumeRequest { parameters: map(&[("preallocate", "true")]), ..volume("full") };
    let volume = TestVolume::make(&daemon, request);
    let found = volume.image().metadata().expect("the image");
    assert!(found.blocks() * 512 >= found.len(), "{} blocks for {} bytes", found.blocks(), found.len());
}

#[test]
fn parameters_of_sidecars_choose_the_file_system() {
    let daemon = Daemon::start();
    let parameters = map(&[
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/pvc/name", "claim"),
        ("backend", "local"),
    ]);
    let request = wire::CreateVolumeRequest { parameters, ..volume_as("fs", 320 * MIB, mount("")) };
    let made = daemon.client().create(&request).expect("create");
    let verdict = |capability| {
        daemon
            .client()
            .validate_volume_capabilities(&validate(&made.volume_id, capability))
            .expect("validate")
    };
    assert!(verdict(mount("xfs")).confirmed.is_some());
    let refusal = verdict(mount("ext4"));
    assert!(refusal.confirmed.is_none() && refusal.message.contains("xfs"), "{}", refusal.message);
}

#[test]
fn deletion_is_final_and_may_be_repeated() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume("one")).expect("create");
    for _ in 0..2 {
        client.delete_volume(&delete(&made.volume_id)).expect("delete");
    }
    assert!(images(&daemon.local_dir()).is_empty());
    refused(client.controller_get_volume(&get(&made.volume_id)), Code::NOT_FOUND, &[&made.volume_id]);
    for foreign in ["x", "local:node-1:::../../etc:1", &"x".repeat(128)] {
        client.delete_volume(&delete(foreign)).unwrap_or_else(|error| panic!("{foreign}: {error:?}"));
    }
    // A volume that cannot be reached does not count as deleted.
    let elsewhere = client.delete_volume(&delete("rbd:main:vms::disk:1"));
    refused(elsewhere, Code::FAILED_PRECONDITION, &["\"main\"", "not set up"]);
}

/// Nomad asks one controller after another, and the next one only on the words "Unknown node".
#[test]
fn what_another_node_has_is_sent_there_and_not_called_absent() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let (theirs, taken) = ("local:node-2:::csi-vol-00:1", "local:node-2:::1@abcdefghij234-zyxw7654");
    let says = ["Unknown node", "\"node-2\"", "\"node-1\""];
    refused(client.delete_volume(&delete(theirs)), Code::UNAVAILABLE, &says);
    refused(client.controller_publish_volume(&publish_to(theirs, "node-2")), Code::UNAVAILABLE, &says);
    refused(client.controller_expand_volume(&expand(theirs, MIB)), Code::UNAVAILABLE, &says);
    refused(client.create_snapshot(&snapshot("s", theirs)), Code::UNAVAILABLE, &says);
    refused(client.delete_snapshot(&delete_snapshot(taken)), Code::UNAVAILABLE, &says);
}

#[test]
fn a_late_deletion_spares_a_newer_volume_of_the_same_name() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let first = client.create(&volume("one")).expect("create");
    client.delete_volume(&delete(&first.volume_id)).expect("delete");
    let second = client.create(&volume("one")).expect("create again");
    assert_ne!(first.volume_id, second.volume_id);
    client.delete_volume(&delete(&first.volume_id)).expect("the first is gone");
    client.controller_get_volume(&get(&second.volume_id)).expect("the second is there");
    assert_eq!(client.create(&volume("one")).expect("again"), second);
}

#[test]
fn a_volume_is_published_to_its_node_only() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let client = &volume.client;
    let first = client.controller_publish_volume(&publish_to(&volume.id, "node-1")).expect("publish");
    assert_eq!(client.controller_publish_volume(&publish_to(&volume.id, "node-1")).expect("again"), first);
    refused(
        client.controller_publish_volume(&publish_to(&volume.id, "node-2")),
        Code::NOT_FOUND,
        &["node-2"],
    );
    refused(
        client.controller_publish_volume(&publish_to("local:node-1:::no:1", "node-1")),
        Code::NOT_FOUND,
        &["local:node-1:::no:1"],
    );
    let read_only =
        wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(&volume.id, "node-1") };
    refused(client.controller_publish_volume(&read_only), Code::ALREADY_EXISTS, &[&volume.id]);
    let status = client.controller_get_volume(&get(&volume.id)).expect("get").status;
    assert_eq!(status.published_node_ids, ["node-1"]);
}

#[test]
fn a_published_volume_is_not_deleted() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let client = &volume.client;
    client.controller_publish_volume(&publish_to(&volume.id, "node-1")).expect("publish");
    refused(client.delete_volume(&delete(&volume.id)), Code::FAILED_PRECONDITION, &["node-1", "unpublish"]);
    for node in ["node-2", "node-1", "node-1", ""] {
        client.controller_unpublish_volume(&unpublish_from(&volume.id, node)).expect("unpublish");
    }
    client.delete_volume(&delete(&volume.id)).expect("delete");
    client.controller_unpublish_volume(&unpublish_from(&volume.id, "node-1")).expect("the volume is gone");
}

#[test]
fn a_staged_volume_is_not_deleted() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    refused(
        volume.client.delete_volume(&delete(&volume.id)),
        Code::FAILED_PRECONDITION,
        &[&daemon.text("stage")],
    );
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    for _ in 0..2 {
        assert_eq!(volume.expand(48 * MIB).expect("expand"), 48 * MIB);
    }
    assert_eq!(volume.expand(16 * MIB).expect("large enough"), 48 * MIB);
    assert_eq!(volume.image().metadata().expect("the image").len(), 48 << 20);
    let request =
        wire::ControllerExpandVolumeRequest { capacity_range: range(0, 40 * MIB), ..expand(&volume.id, 0) };
    refused(volume.client.controller_expand_volume(&request), Code::OUT_OF_RANGE, &["shrinks"]);
    let exact = wire::ControllerExpandVolumeRequest {
        capacity_range: range(48 * MIB + 1, 48 * MIB + 2),
        ..expand(&volume.id, 0)
    };
    refused(volume.client.controller_expand_volume(&exact), Code::OUT_OF_RANGE, &["limit_bytes"]);
    refused(
        volume.client.controller_expand_volume(&expand("local:node-1:::no:1", MIB)),
        Code::NOT_FOUND,
        &["local:node-1:::no:1"],
    );
    let reply = volume.client.controller_expand_volume(&expand(&volume.id, 48 * MIB)).expect("expand");
    assert!(reply.node_expansion_required);
}

#[test]
fn an_expanded_volume_still_answers_its_creation() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.expand(48 * MIB).expect("expand");
    let again =
        volume.client.create(&crate::support::requests::volume("one")).expect("the first request again");
    assert_eq!((again.volume_id, again.capacity_bytes), (volume.id, 48 * MIB));
}

#[test]
fn capabilities_of_a_volume_are_confirmed_or_explained() {
    use wire::volume_capability::access_mode::Mode;
    let daemon = Daemon::start();
    let made = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let verdict = |capability| {
        made.client.validate_volume_capabilities(&validate(&made.id, capability)).expect("validate")
    };
    for good in [
        mount("ext4"),
        mount_as("", Mode::SINGLE_NODE_READER_ONLY, &["noatime"]),
        block(),
        block_as(Mode::SINGLE_NODE_SINGLE_WRITER),
    ] {
        let confirmed = verdict(good.clone()).confirmed;
        assert_eq!(confirmed.volume_capabilities, [good]);
    }
    let with_parameters = wire::ValidateVolumeCapabilitiesRequest {
        parameters: map(&[("nobody", "looks")]),
        ..validate(&made.id, mount("ext4"))
    };
    let verdict_of_all = made.client.validate_volume_capabilities(&with_parameters).expect("validate");
    assert!(verdict_of_all.confirmed.parameters.is_empty(), "{verdict_of_all:?}");
    for bad in [
        mount("vfat"),
        mount_as("ext4", Mode::MULTI_NODE_MULTI_WRITER, &[]),
        block_as(Mode::MULTI_NODE_READER_ONLY),
    ] {
        let verdict = verdict(bad);
        assert!(verdict.confirmed.is_none() && !verdict.message.is_empty());
    }
    let other = wire::ValidateVolumeCapabilitiesRequest {
        volume_context: map(&[("a", "b")]),
        ..validate(&made.id, mount("ext4"))
    };
    let verdict = made.client.validate_volume_capabilities(&other).expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("volume_context"), "{}", verdict.message);
    let absent = validate("local:node-1:::no:1", mount("ext4"));
    refused(made.client.validate_volume_capabilities(&absent), Code::NOT_FOUND, &["local:node-1:::no:1"]);
}

#[test]
fn modes_that_one_node_cannot_serve_are_refused() {
    use wire::volume_capability::access_mode::Mode;
    let daemon = Daemon::start();
    for mode in [Mode::MULTI_NODE_READER_ONLY, Mode::MULTI_NODE_SINGLE_WRITER, Mode::MULTI_NODE_MULTI_WRITER]
    {
        refused(
            daemon.client().create(&volume_as("m", MIB, mount_as("ext4", mode, &[]))),
            Code::INVALID_ARGUMENT,
            &["mode"],
        );
    }
    assert!(images(&daemon.local_dir()).is_empty());
}

#[test]
fn there_is_nothing_to_modify() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(
        volume.client.controller_modify_volume(&modify(&volume.id, &[("iops", "5")])),
        Code::INVALID_ARGUMENT,
        &["iops"],
    );
    volume.client.controller_modify_volume(&modify(&volume.id, &[])).expect("nothing to change");
    refused(
        volume.client.controller_modify_volume(&modify("local:node-1:::no:1", &[("iops", "5")])),
        Code::NOT_FOUND,
        &[],
    );
}

#[test]
fn an_image_put_there_by_hand_is_a_volume() {
    let daemon = Daemon::start();
    let directory = daemon.local_dir().join("volumes/web-disk");
    std::fs::create_dir(&directory).expect("a directory");
    crate::support::scratch::make_file(&directory.join("image"), 32 * MIB);
    let client = daemon.client();
    let found =
        client.controller_get_volume(&get("local:node-1:::web-disk")).expect("found without incarnation");
    assert_eq!(found.volume.capacity_bytes, 32 * MIB);
    let (stage_at, id) = (daemon.text("stage"), "local:node-1:::web-disk");
    client.node_stage_volume(&stage(id, &stage_at, mount("ext4"))).expect("stage");
    client.node_unstage_volume(&unstage(id, &stage_at)).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn instances_do_not_share_names() {
    let daemon = Setup::new().set("CEPHLET_INSTANCE", "blue").start();
    let blue = daemon.client().create(&volume("one")).expect("create");
    let scratch = std::sync::Arc::clone(&daemon.setup.scratch);
    drop(daemon);
    let daemon = Setup::within(scratch).set("CEPHLET_INSTANCE", "green").start();
    let green = daemon.client().create(&volume("one")).expect("create");
    assert_ne!(blue.volume_id, green.volume_id);
}
