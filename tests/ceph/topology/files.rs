//! CephFS volumes: the pool for their data is in a domain.

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use super::{told, topology};
use crate::support::group::Group;
use crate::support::requests::*;
use crate::support::{Code, refused};

/// The label of the data pool `fs-more`. All tests share the pool, and no other asks for a domain there.
const ZONE: &str = "files-1";

fn wanted(group: &Group, name: &str, zone: &str, parameters: &[(&str, &str)]) -> wire::CreateVolumeRequest {
    let requirement =
        wire::TopologyRequirement { requisite: vec![topology(&[("zone", zone)])], ..Default::default() };
    wire::CreateVolumeRequest {
        accessibility_requirements: MessageField::some(requirement),
        ..group.volume_with(name, 8, parameters)
    }
}

/// Gives the pool its label, again if another test has done so.
fn label(group: &Group) {
    group.cluster.ceph(&["osd", "pool", "application", "set", "fs-more", "cephfs", "cephlet.zone", ZONE]);
}

#[test]
fn the_data_of_a_file_system_goes_to_the_domain_that_is_asked_for() {
    let group = Group::new();
    label(&group);
    let daemon = group.start();
    let client = daemon.client();
    let made = client.create(&wanted(&group, "one", ZONE, &[])).expect("create");
    assert_eq!(group.info(&made.volume_id)["data_pool"], "fs-more");
    assert_eq!(made.accessible_topology, told(ZONE));
    assert_eq!(client.create(&wanted(&group, "one", ZONE, &[])).expect("again"), made);
    let shown = client.controller_get_volume(&get(&made.volume_id)).expect("get").volume.unwrap();
    assert_eq!(shown.accessible_topology, told(ZONE));
    refused(client.create(&wanted(&group, "one", "files-2", &[])), Code::ALREADY_EXISTS, &[ZONE]);
    refused(
        client.create(&wanted(&group, "two", "files-2", &[])),
        Code::RESOURCE_EXHAUSTED,
        &["files-2", ZONE],
    );

    let constrained = |pool: &str| {
        format!(
            r#"[{{"poolName": "{pool}", "domainSegments": [{{"domainLabel": "zone", "value": "files-2"}}]}}]"#
        )
    };
    let odd = [("topologyConstrainedPools", &*constrained("rbd"))];
    refused(
        client.create(&wanted(&group, "two", "files-2", &odd)),
        Code::INVALID_ARGUMENT,
        &["rbd", "fs-more"],
    );
    let there = [("topologyConstrainedPools", &*constrained("fs-data"))];
    let two = client.create(&wanted(&group, "two", "files-2", &there)).expect("create");
    assert_eq!(group.info(&two.volume_id)["data_pool"], "fs-data");
    assert_eq!(two.accessible_topology, told("files-2"));

    let copy = wire::CreateVolumeRequest {
        volume_content_source: from_volume(group.volume("copy", 8), &made.volume_id).volume_content_source,
        ..wanted(&group, "copy", "files-2", &there)
    };
    let copy = client.create(&copy).expect("copy to another domain");
    assert_eq!(group.info(&copy.volume_id)["data_pool"], "fs-data");

    for id in [copy.volume_id, two.volume_id, made.volume_id] {
        client.delete_volume(&delete(&id)).expect("delete");
    }
    group.await_empty();
}

#[test]
fn the_room_of_a_domain_is_that_of_its_data_pools() {
    let group = Group::new();
    label(&group);
    let daemon = group.start();
    let client = daemon.client();
    let room = |zone: &str| {
        let request = wire::GetCapacityRequest {
            parameters: map(&[("backend", "cephfs")]),
            accessible_topology: MessageField::some(topology(&[("zone", zone)])),
            ..Default::default()
        };
        client.get_capacity(&request).expect("capacity").available_capacity
    };
    assert!(room(ZONE) > 0);
    assert_eq!(room("files-2"), 0);
}
