//! Lists page by page, capacity, what is offered.

use std::collections::BTreeSet;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::client::{Answer, Client};
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, refused};

/// Creates volumes with these names; gives their IDs.
fn create(client: &Client, names: impl Iterator<Item = usize>) -> BTreeSet<String> {
    names
        .map(|name| client.create(&volume_as(&format!("v{name}"), MIB, block())).expect("create").volume_id)
        .collect()
}

fn ids(reply: &wire::ListVolumesResponse) -> Vec<String> {
    reply.entries.iter().map(|entry| entry.volume.volume_id.clone()).collect()
}

/// All pages of at most `size` volumes.
fn pages(client: &Client, size: i32) -> Vec<Vec<String>> {
    let (mut token, mut all) = (String::new(), Vec::new());
    loop {
        let reply = client.list_volumes(&page(size, &token)).expect("a page");
        all.push(ids(&reply));
        token = reply.next_token;
        if token.is_empty() {
            return all;
        }
    }
}

#[test]
fn every_volume_is_listed_once_whatever_the_page() {
    let daemon = Daemon::start();
    let client = daemon.client();
    assert_eq!(pages(&client, 0), [Vec::<String>::new()]);
    let made = create(&client, 0..7);
    for size in [0, 1, 2, 3, 6, 7, 8, i32::MAX] {
        let pages = pages(&client, size);
        let full = usize::try_from(size).expect("not negative");
        assert!(pages.iter().all(|page| size == 0 || page.len() <= full), "{size}: {pages:?}");
        let told: Vec<String> = pages.concat();
        assert_eq!(told.len(), 7, "{size}");
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), made, "{size}");
    }
}

#[test]
fn entries_are_whole() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume("one")).expect("create");
    client.controller_publish_volume(&publish_to(&made.volume_id, "node-1")).expect("publish");
    let listed = client.list_volumes(&page(0, "")).expect("list").entries.remove(0);
    let got = client.controller_get_volume(&get(&made.volume_id)).expect("get");
    assert_eq!((&listed.volume, &got.volume), (&MessageField::some(made.clone()), &MessageField::some(made)));
    assert_eq!(listed.status.published_node_ids, ["node-1"]);
    assert_eq!(got.status.published_node_ids, ["node-1"]);
    assert!(!listed.status.volume_condition.abnormal && !got.status.volume_condition.abnormal);
}

#[test]
fn pages_survive_what_comes_and_goes_between_them() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = create(&client, 0..9);
    let first = client.list_volumes(&page(3, "")).expect("first page");
    let told = ids(&first);
    // The last listed volume (the token's) and one that is still to come are deleted; others are made.
    let coming = made.iter().find(|id| !told.contains(id)).expect("six are to come").clone();
    for gone in [told.last().expect("three were told"), &coming] {
        client.delete_volume(&delete(gone)).expect("delete");
    }
    let new = create(&client, 9..14);
    let mut later = Vec::new();
    let mut token = first.next_token;
    while !token.is_empty() {
        let reply = client.list_volumes(&page(3, &token)).expect("a page");
        later.extend(ids(&reply));
        token = reply.next_token;
    }
    assert!(told.iter().all(|id| !later.contains(id)), "told twice");
    let stayed = made.iter().filter(|id| !told.contains(id) && **id != coming);
    assert!(
        stayed.clone().all(|id| later.iter().filter(|it| *it == id).count() == 1),
        "left out or told twice"
    );
    assert!(
        later.iter().all(|id| new.contains(id) || stayed.clone().any(|it| it == id)),
        "told though it is gone"
    );
}

#[test]
fn tokens_are_good_after_a_restart_and_foreign_ones_are_not() {
    let mut daemon = Daemon::start();
    let made = create(&daemon.client(), 0..4);
    let first = daemon.client().list_volumes(&page(2, "")).expect("first page");
    daemon.restart();
    let second = daemon.client().list_volumes(&page(2, &first.next_token)).expect("second page");
    assert_eq!([ids(&first), ids(&second)].concat().into_iter().collect::<BTreeSet<_>>(), made);
    for token in ["x", "local", ":", "rbd:a", "local:a b", "local:a:b", "local:\u{e9}", "0", "-1"] {
        refused(daemon.client().list_volumes(&page(2, token)), Code::ABORTED, &["starting_token"]);
        refused(daemon.client().list_snapshots(&snapshot_page(2, token)), Code::ABORTED, &["starting_token"]);
    }
    refused(daemon.client().list_volumes(&page(-1, "")), Code::INVALID_ARGUMENT, &["max_entries"]);
}

#[test]
fn a_damaged_volume_is_listed_as_such() {
    let daemon = Daemon::start();
    let client = daemon.client();
    create(&client, 0..3);
    let image = crate::support::machine::images(&daemon.local_dir()).remove(0);
    std::fs::remove_file(&image).expect("take an image away");
    let entries = client.list_volumes(&page(0, "")).expect("list").entries;
    let abnormal: Vec<_> = entries.iter().filter(|entry| entry.status.volume_condition.abnormal).collect();
    assert_eq!((entries.len(), abnormal.len()), (3, 1));
    assert!(abnormal[0].status.volume_condition.message.contains("image"));
}

fn snapshots(client: &Client, request: &wire::ListSnapshotsRequest) -> Answer<Vec<String>> {
    let (mut request, mut all) = (request.clone(), Vec::new());
    loop {
        let reply = client.list_snapshots(&request)?;
        all.extend(reply.entries.iter().map(|entry| entry.snapshot.snapshot_id.clone()));
        request.starting_token = reply.next_token;
        if request.starting_token.is_empty() {
            return Ok(all);
        }
    }
}

#[test]
fn snapshots_are_listed_by_source_and_by_id() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let volumes: Vec<String> = create(&client, 0..2).into_iter().collect();
    let take = |name: &str, volume: &str| {
        let reply = client.create_snapshot(&snapshot(name, volume)).expect("snapshot");
        reply.snapshot.snapshot_id.clone()
    };
    let of_first: BTreeSet<String> = ["a", "b", "c"].iter().map(|name| take(name, &volumes[0])).collect();
    let of_second = take("d", &volumes[1]);
    for size in 0..6 {
        let told = snapshots(&client, &snapshot_page(size, "")).expect("all");
        assert_eq!(told.len(), 4, "{size}");
        let of =
            wire::ListSnapshotsRequest { source_volume_id: volumes[0].clone(), ..snapshot_page(size, "") };
        let told = snapshots(&client, &of).expect("of the first");
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), of_first, "{size}");
    }
    let one = |snapshot_id: &str, source: &str| {
        let request = wire::ListSnapshotsRequest {
            snapshot_id: snapshot_id.to_string(),
            source_volume_id: source.to_string(),
            ..Default::default()
        };
        snapshots(&client, &request).expect("one")
    };
    assert_eq!(one(&of_second, ""), std::slice::from_ref(&of_second));
    assert_eq!(one(&of_second, &volumes[1]), std::slice::from_ref(&of_second));
    let (by_hand, _) = volumes[1].rsplit_once(':').expect("the ID says which volume of that name");
    assert_eq!(one(&of_second, by_hand), std::slice::from_ref(&of_second));
    assert!(one(&of_second, &volumes[0]).is_empty() && one("x", "").is_empty() && one("", "x").is_empty());
}

#[test]
fn capacity_counts_what_is_promised() {
    let scratch = std::sync::Arc::new(crate::support::Scratch::new());
    scratch.small_ext4("local", 64);
    let daemon = crate::support::Setup::within(scratch).start();
    let client = daemon.client();
    let capacity = |request: &wire::GetCapacityRequest| client.get_capacity(request).expect("capacity");
    let before = capacity(&Default::default());
    assert!(before.available_capacity > 30 * MIB && before.available_capacity < 64 * MIB, "{before:?}");
    assert!(
        before.maximum_volume_size.value <= before.available_capacity + MIB
            && before.minimum_volume_size.value > 0
    );
    client.create(&volume_as("sparse", 16 * MIB, block())).expect("create");
    let after = capacity(&Default::default());
    let promised = before.available_capacity - after.available_capacity;
    assert!((16 * MIB..17 * MIB).contains(&promised), "{promised}");
    let elsewhere =
        wire::Topology { segments: map(&[("org.cephlet.csi/node", "node-2")]), ..Default::default() };
    let elsewhere =
        wire::GetCapacityRequest { accessible_topology: MessageField::some(elsewhere), ..Default::default() };
    assert_eq!(capacity(&elsewhere).available_capacity, 0);
    let shared = mount_as("ext4", AccessModeOf::MULTI_NODE_MULTI_WRITER, &[]);
    let shared = wire::GetCapacityRequest { volume_capabilities: vec![shared], ..Default::default() };
    assert_eq!(capacity(&shared).available_capacity, 0);
    let unknown = wire::GetCapacityRequest { parameters: map(&[("pool", "x")]), ..Default::default() };
    refused(client.get_capacity(&unknown), Code::INVALID_ARGUMENT, &["pool"]);
}

#[test]
fn what_is_offered_is_what_works() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let controller =
        client.controller_get_capabilities(&Default::default()).expect("controller").capabilities;
    let controller: BTreeSet<i32> = controller.iter().map(|it| it.rpc().type_.value()).collect();
    assert_eq!(controller, (1..=17).collect());
    let node = client.node_get_capabilities(&Default::default()).expect("node").capabilities;
    let node: BTreeSet<i32> = node.iter().map(|it| it.rpc().type_.value()).collect();
    assert_eq!(node, (1..=8).collect());
    let info = client.get_plugin_info(&Default::default()).expect("info");
    assert_eq!(
        (info.name.as_str(), info.vendor_version.as_str()),
        ("org.cephlet.csi", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn volumes_put_there_by_hand_are_listed_under_every_name_that_an_id_can_have() {
    let daemon = Daemon::start();
    let (usable, long) = (["disk 1", "disk 2", "d\u{e9}", "d:e"], "x".repeat(200));
    for name in usable.iter().copied().chain([long.as_str()]) {
        std::fs::create_dir(daemon.local_dir().join("volumes").join(name)).expect("a directory");
    }
    let pages = pages(&daemon.client(), 1);
    assert_eq!(pages.concat().len(), usable.len(), "{pages:?}");
    for id in pages.concat() {
        daemon.client().controller_get_volume(&get(&id)).expect("what is listed is found");
    }
}

#[test]
fn a_list_without_a_limit_is_not_larger_than_a_client_takes() {
    let daemon = Daemon::start();
    for number in 0..6000 {
        std::fs::create_dir(daemon.local_dir().join(format!("volumes/hand-{number}"))).expect("a directory");
    }
    let first = daemon.client().list_volumes(&page(0, "")).expect("list");
    let second = daemon.client().list_volumes(&page(0, &first.next_token)).expect("list");
    assert_eq!((first.entries.len(), second.entries.len(), second.next_token.as_str()), (5000, 1000, ""));
}
