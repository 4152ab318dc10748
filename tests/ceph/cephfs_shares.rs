//! CephFS volumes that share a snapshot: the controller's part.

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::group::Group;
use crate::support::requests::*;
use crate::support::{Code, MIB, refused};

#[test]
fn a_snapshot_is_kept_for_the_volumes_that_share_it() {
    let group = Group::new();
    let mut daemon = group.start();
    let client = daemon.client();
    let source = client.create(&group.volume("source", 8)).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot("s", &source)).expect("snapshot").snapshot.unwrap();
    let readers = mount_as("", AccessModeOf::MULTI_NODE_READER_ONLY, &[]);
    let wanted = |name: &str, parameters: &[(&str, &str)]| wire::CreateVolumeRequest {
        volume_capabilities: vec![readers.clone()],
        ..from_snapshot(group.volume_with(name, 8, parameters), &taken.snapshot_id)
    };
    let reader = client.create(&wanted("reader", &[("pool", "fs-more")])).expect("create");
    let second = client.create(&wanted("second", &[("backingSnapshot", "true")])).expect("create");
    assert_eq!((reader.capacity_bytes, group.subvolumes().len()), (8 * MIB, 1));
    let writing = |name: &str, parameters: &[(&str, &str)]| {
        client.create(&from_snapshot(group.volume_with(name, 8, parameters), &taken.snapshot_id))
    };
    let writer = writing("writer", &[("backingSnapshot", "true")]);
    refused(writer, Code::INVALID_ARGUMENT, &["backingSnapshot", "reader-only"]);
    refused(writing("reader", &[("pool", "fs-more")]), Code::ALREADY_EXISTS, &["shares"]);
    let larger = wire::CreateVolumeRequest { capacity_range: range(9 * MIB, 0), ..wanted("larger", &[]) };
    refused(client.create(&larger), Code::OUT_OF_RANGE, &["8388608", "backingSnapshot"]);

    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete the snapshot");
    refused(client.get_snapshot(&get_snapshot(&taken.snapshot_id)), Code::NOT_FOUND, &[]);
    refused(client.create(&wanted("late", &[])), Code::NOT_FOUND, &[&taken.snapshot_id]);
    assert_eq!(client.create(&wanted("reader", &[("pool", "fs-more")])).expect("the same again"), reader);
    client.delete_volume(&delete(&source)).expect("delete the source");
    client.delete_volume(&delete(&second.volume_id)).expect("delete");
    daemon.restart();
    let client = daemon.client();
    let verdict =
        client.validate_volume_capabilities(&validate(&reader.volume_id, mount(""))).expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("can only be read"), "{verdict:?}");
    let published = wire::ControllerPublishVolumeRequest {
        volume_capability: MessageField::some(readers.clone()),
        ..publish_to(&reader.volume_id, "n1")
    };
    let given = client.controller_publish_volume(&published).expect("publish").publish_context;
    assert!(given["snapshot"].starts_with("csi-snap-") && given["readOnly"] == "true", "{given:?}");
    refused(client.delete_volume(&delete(&reader.volume_id)), Code::FAILED_PRECONDITION, &["n1"]);
    client.controller_unpublish_volume(&unpublish_from(&reader.volume_id, "n1")).expect("unpublish");
    let copy =
        client.create(&from_volume(group.volume("copy", 16), &reader.volume_id)).expect("a copy").volume_id;
    assert_eq!(group.info(&copy)["bytes_quota"], 16 * MIB);
    client.delete_volume(&delete(&copy)).expect("delete");
    client.delete_volume(&delete(&reader.volume_id)).expect("delete the last one");
    group.await_empty();
}
