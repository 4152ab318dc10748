//! CSI 0.1 on CephFS: what Mesos sees of subvolumes.

use cephlet::proto::csi as wire;

use crate::support::requests::{self, map};
use crate::support::v0::*;
use crate::support::{Code, Daemon, Group, refused};

/// A volume of a group, for many nodes that write.
pub fn shared_volume(group: &Group, name: &str) -> wire::CreateVolumeRequest {
    let parameters = map(&[("subvolumeGroup", &group.name), ("mode", "0777")]);
    let many = mount_as("", Mode::MULTI_NODE_MULTI_WRITER, &[]);
    wire::CreateVolumeRequest { parameters, ..volume_as(name, mib(8), many) }
}

/// The volumes of a group that the list has.
fn listed(client: &Client, group: &Group) -> Vec<wire::VolumeInfo> {
    client.list().into_iter().filter(|volume| volume.id.starts_with(&group.prefix())).collect()
}

fn published_to(daemon: &Daemon, id: &str) -> Vec<String> {
    let seen = daemon.client().controller_get_volume(&requests::get(id)).expect("get");
    seen.status.published_node_ids.clone()
}

/// "CreateVolume", "ListVolumes", "ControllerPublishVolume", "DeleteVolume".
#[test]
fn a_subvolume_is_made_shared_and_deleted() {
    let group = Group::new();
    let daemon = group.start();
    let client = Client::of(&daemon);
    let request = shared_volume(&group, "one");
    let many = request.volume_capabilities[0].clone();
    let made = client.create(&request).expect("create");
    assert_eq!(client.create(&request).expect("again"), made);
    assert_eq!((listed(&client, &group), made.capacity_bytes), (vec![made.clone()], mib(8)));
    for node in ["node-1", "node-2"] {
        client.controller_publish_volume(&publish_to(&made.id, node, many.clone())).expect("publish");
    }
    assert_eq!(published_to(&daemon, &made.id), ["node-1", "node-2"]);
    refused(client.delete_volume(&delete(&made.id)), Code::FAILED_PRECONDITION, &["node-1", "node-2"]);
    client.controller_unpublish_volume(&unpublish_from(&made.id, "")).expect("take back from all");
    assert!(published_to(&daemon, &made.id).is_empty());
    client.delete_volume(&delete(&made.id)).expect("delete");
    client.delete_volume(&delete(&made.id)).expect("it is gone");
    group.await_empty();
    daemon.assert_well();
}

/// "CreateVolume", "ValidateVolumeCapabilities": a subvolume is no device.
#[test]
fn a_device_is_refused() {
    let group = Group::new();
    let daemon = group.start();
    let client = Client::of(&daemon);
    let request = shared_volume(&group, "one");
    let device = wire::CreateVolumeRequest { volume_capabilities: vec![block()], ..request.clone() };
    refused(client.create(&device), Code::INVALID_ARGUMENT, &["block"]);
    let id = client.create(&request).expect("create").id;
    let validated = client.validate_volume_capabilities(&validate(&id, &[block()])).expect("validate");
    assert!(!validated.supported && validated.message.contains("block"), "{validated:?}");
    refused(
        client.controller_publish_volume(&publish_to(&id, "node-1", block())),
        Code::INVALID_ARGUMENT,
        &["block"],
    );
    assert_eq!(listed(&client, &group).len(), 1);
    daemon.assert_well();
}

/// "DeleteVolume": the storage is released, so not while a snapshot needs it, which in v1 outlives its
/// volume.
#[test]
fn a_subvolume_with_snapshots_is_not_deleted() {
    let group = Group::new();
    let daemon = group.start();
    let (client, v1) = (Client::of(&daemon), daemon.client());
    let id = client.create(&shared_volume(&group, "one")).expect("create").id;
    let taken = v1.create_snapshot(&requests::snapshot("s", &id)).expect("snapshot");
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["csi-snap-", &id]);
    assert_eq!(listed(&client, &group).len(), 1, "it is still a volume");
    v1.delete_snapshot(&requests::delete_snapshot(&taken.snapshot.snapshot_id)).expect("delete the snapshot");
    client.delete_volume(&delete(&id)).expect("delete");
    group.await_empty();
}
