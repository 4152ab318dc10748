//! Snapshots and copies of RBD volumes: content, sources, names, and that nothing is left of them.

use cephlet::proto::csi_v1 as wire;

use crate::support::requests::*;
use crate::support::{Client, Code, Corner, MIB, object_of, refused};

/// A volume of 8 MiB whose content is not empty.
pub(crate) fn with_content(corner: &Corner, client: &Client, name: &str) -> String {
    let id = client.create(&corner.volume(name, 8)).expect("create").volume_id;
    corner.poke(&id, 0, b"begin");
    corner.poke(&id, 5 << 20, &[7; 70_000]);
    id
}

#[track_caller]
pub(crate) fn take(client: &Client, name: &str, volume: &str) -> wire::Snapshot {
    let reply = client.create_snapshot(&snapshot(name, volume)).expect("snapshot");
    reply.snapshot.into_option().expect("the reply has a snapshot")
}

/// The current time in seconds, as creation times are.
fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("now").as_secs().cast_signed()
}

#[test]
fn a_snapshot_is_taken_once() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let id = with_content(&corner, &daemon.client(), "one");
    let before = now();
    let first = take(&daemon.client(), "taken-once", &id);
    assert_eq!((first.size_bytes, &first.source_volume_id, first.ready_to_use), (8 * MIB, &id, true));
    assert!((before..=now()).contains(&first.creation_time.seconds), "{first:?}");
    assert!(first.snapshot_id.len() <= 128, "{}", first.snapshot_id);
    for _ in 0..2 {
        assert_eq!(take(&daemon.client(), "taken-once", &id), first);
        let got = daemon.client().get_snapshot(&get_snapshot(&first.snapshot_id)).expect("get");
        assert_eq!(got.snapshot.as_ref(), Some(&first));
        daemon.restart();
    }
    assert_eq!(corner.json(&["snap", "ls", &corner.spec(&id)]).as_array().map(Vec::len), Some(1));
    let client = daemon.client();
    client.delete_snapshot(&delete_snapshot(&first.snapshot_id)).expect("delete");
    client.delete_snapshot(&delete_snapshot(&first.snapshot_id)).expect("again");
    refused(client.get_snapshot(&get_snapshot(&first.snapshot_id)), Code::NOT_FOUND, &[&first.snapshot_id]);
    client.delete_volume(&delete(&id)).expect("delete the volume");
    corner.await_empty();
}

#[test]
fn a_later_snapshot_of_the_same_name_is_another() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let id = with_content(&corner, &client, "one");
    let first = take(&client, "nightly", &id).snapshot_id;
    // The deleted snapshot stays in the image's trash as long as a clone reads from it.
    let copy = client.create(&from_snapshot(corner.volume("copy", 8), &first)).expect("copy").volume_id;
    client.delete_snapshot(&delete_snapshot(&first)).expect("delete");
    corner.poke(&id, 0, b"later");
    let second = take(&client, "nightly", &id).snapshot_id;
    for _ in 0..2 {
        let client = daemon.client();
        client.delete_snapshot(&delete_snapshot(&first)).expect("it is gone");
        assert_eq!(take(&client, "nightly", &id).snapshot_id, second, "UNSAFE: a later snapshot was deleted");
        refused(client.get_snapshot(&get_snapshot(&first)), Code::NOT_FOUND, &[&first]);
        let restore = from_snapshot(corner.volume("restored", 8), &first);
        refused(client.create(&restore), Code::NOT_FOUND, &[&first]);
        daemon.restart();
    }
    let client = daemon.client();
    let restored = client.create(&from_snapshot(corner.volume("restored", 8), &second)).expect("restore");
    assert_eq!(corner.checksum(&restored.volume_id), corner.checksum(&id));
    client.delete_snapshot(&delete_snapshot(&second)).expect("delete");
    for id in [&copy, &restored.volume_id, &id] {
        client.delete_volume(&delete(id)).expect("delete");
    }
    corner.await_empty();
}

#[test]
fn a_name_is_for_one_snapshot_only() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let [one, other] =
        ["one", "other"].map(|name| client.create(&corner.volume(name, 8)).expect("create").volume_id);
    let first = take(&client, "claimed", &one);
    for _ in 0..2 {
        let parts = ["claimed", object_of(&one), "another name"];
        refused(daemon.client().create_snapshot(&snapshot("claimed", &other)), Code::ALREADY_EXISTS, &parts);
        daemon.restart();
    }
    let client = daemon.client();
    assert_eq!(corner.json(&["snap", "ls", &corner.spec(&other)]).as_array().map(Vec::len), Some(0));
    client.delete_snapshot(&delete_snapshot(&first.snapshot_id)).expect("delete");
    let second = take(&client, "claimed", &other);
    assert_ne!(first.snapshot_id, second.snapshot_id);
    // A late repetition of the first deletion does not delete the later snapshot of that name.
    client.delete_snapshot(&delete_snapshot(&first.snapshot_id)).expect("it is gone");
    refused(client.create_snapshot(&snapshot("claimed", &one)), Code::ALREADY_EXISTS, &["claimed"]);
    client.delete_snapshot(&delete_snapshot(&second.snapshot_id)).expect("delete");
    [one, other].iter().for_each(|id| drop(client.delete_volume(&delete(id)).expect("delete")));
    corner.await_empty();
}

#[test]
fn a_volume_from_a_snapshot_has_the_content_of_that_moment() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let id = with_content(&corner, &client, "one");
    let before = corner.checksum(&id);
    let taken = take(&client, "moment", &id).snapshot_id;
    corner.poke(&id, 0, b"later");
    let request = from_snapshot(corner.volume("copy", 8), &taken);
    let copy = client.create(&request).expect("copy");
    assert_eq!(copy.content_source, request.volume_content_source);
    assert_eq!(corner.checksum(&copy.volume_id), before);
    corner.poke(&copy.volume_id, 1 << 20, b"the copy's own");
    assert_ne!(corner.checksum(&copy.volume_id), before);
    for _ in 0..2 {
        assert_eq!(daemon.client().create(&request).expect("again"), copy);
        daemon.restart();
    }
    let larger = daemon.client().create(&from_snapshot(corner.volume("larger", 12), &taken)).expect("larger");
    assert_eq!(
        (larger.capacity_bytes, &corner.info(&larger.volume_id)["size"]),
        (12 * MIB, &(12 * MIB).into())
    );
    let limited =
        wire::CreateVolumeRequest { capacity_range: range(0, 4 * MIB), ..corner.volume("small", 0) };
    refused(
        daemon.client().create(&from_snapshot(limited, &taken)),
        Code::OUT_OF_RANGE,
        &["source", "limit_bytes"],
    );
    let last = if taken.ends_with('a') { 'b' } else { 'a' };
    let absent = format!("{}{last}", &taken[..taken.len() - 1]);
    refused(
        daemon.client().create(&from_snapshot(corner.volume("x", 8), &absent)),
        Code::NOT_FOUND,
        &["source"],
    );
    assert_eq!(corner.images().len(), 3);
}

#[test]
fn a_copy_of_a_volume_is_one_of_its_own() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let fs_type = [("csi.storage.k8s.io/fstype", "ext4")];
    let id = client.create(&corner.volume_with("one", 8, &fs_type)).expect("create").volume_id;
    client.controller_modify_volume(&modify(&id, &[("iops", "50")])).expect("modify");
    corner.poke(&id, 0, b"begin");
    let before = corner.checksum(&id);
    let request = from_volume(corner.volume("copy", 16), &id);
    let copy = client.create(&request).expect("copy");
    assert_eq!((copy.capacity_bytes, &copy.content_source), (16 * MIB, &request.volume_content_source));
    assert_eq!(client.create(&request).expect("again"), copy);
    corner.poke(&id, 0, b"later");
    corner.cluster.rbd(&[
        "resize",
        "--no-progress",
        "--allow-shrink",
        "--size",
        "8M",
        &corner.spec(&copy.volume_id),
    ]);
    assert_eq!(corner.checksum(&copy.volume_id), before);
    // The copy takes over the file system, but not the limits. No snapshot is left on the source.
    let metadata = corner.json(&["image-meta", "ls", &corner.spec(&copy.volume_id)]);
    assert!(metadata.get("conf_rbd_qos_iops_limit").is_none(), "{metadata}");
    let verdict =
        client.validate_volume_capabilities(&validate(&copy.volume_id, mount("xfs"))).expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("ext4"), "{}", verdict.message);
    assert_eq!(corner.json(&["snap", "ls", &corner.spec(&id)]).as_array().map(Vec::len), Some(0));
    client.delete_volume(&delete(&id)).expect("the source goes first");
    assert_eq!(corner.checksum(&copy.volume_id), before);
    client.delete_volume(&delete(&copy.volume_id)).expect("delete");
    corner.await_empty();
}

#[test]
fn every_order_of_deletion_leaves_nothing() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    for (number, order) in ["vsc", "vcs", "svc", "scv", "cvs", "csv"].into_iter().enumerate() {
        let id = with_content(&corner, &client, &format!("v{number}"));
        let before = corner.checksum(&id);
        let taken = take(&client, &format!("order-{number}"), &id).snapshot_id;
        let copy = client
            .create(&from_snapshot(corner.volume(&format!("c{number}"), 8), &taken))
            .expect("copy")
            .volume_id;
        let mut left = "vsc".to_string();
        for what in order.chars() {
            match what {
                'v' => client.delete_volume(&delete(&id)).map(drop),
                's' => client.delete_snapshot(&delete_snapshot(&taken)).map(drop),
                _ => client.delete_volume(&delete(&copy)).map(drop),
            }
            .unwrap_or_else(|error| panic!("{what} of {order}: {error:?}"));
            left.retain(|it| it != what);
            if left.contains('c') {
                assert_eq!(corner.checksum(&copy), before, "{what} of {order}");
            }
            let found = client.get_snapshot(&get_snapshot(&taken));
            assert_eq!(found.is_ok(), left.contains('s'), "{what} of {order}: {found:?}");
            assert!(
                found.is_err() || found.is_ok_and(|found| found.snapshot.source_volume_id == id),
                "{what} of {order}"
            );
            let listed = client.list_volumes(&page(0, "")).expect("list").entries;
            assert_eq!(
                listed.len(),
                left.chars().filter(|it| *it != 's').count(),
                "{what} of {order}: {listed:?}"
            );
        }
        corner.await_empty();
    }
}

#[test]
fn a_snapshot_outlives_its_volume_and_is_copied_still() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let id = with_content(&corner, &client, "one");
    let before = corner.checksum(&id);
    let taken = take(&client, "outlives", &id).snapshot_id;
    client.delete_volume(&delete(&id)).expect("the source can go first");
    client.delete_volume(&delete(&id)).expect("again");
    refused(client.controller_get_volume(&get(&id)), Code::NOT_FOUND, &[&id]);
    let again = client.create(&corner.volume("one", 8)).expect("the name is free").volume_id;
    assert_ne!(again, id);
    daemon.restart();
    let client = daemon.client();
    let late = client.create(&from_snapshot(corner.volume("late", 8), &taken)).expect("copy").volume_id;
    assert_eq!(corner.checksum(&late), before);
    let listed = client.list_snapshots(&snapshot_page(0, "")).expect("list").entries;
    assert_eq!(
        listed.iter().map(|it| it.snapshot.source_volume_id.as_str()).collect::<Vec<_>>(),
        [id.as_str()]
    );
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete");
    [late, again].iter().for_each(|id| drop(client.delete_volume(&delete(id)).expect("delete")));
    corner.await_empty();
}

#[test]
fn a_copy_that_would_be_too_deep_is_flattened_while_it_is_made() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let mut chain = vec![with_content(&corner, &client, "c0")];
    let before = corner.checksum(&chain[0]);
    for number in 1..=10 {
        let request = from_volume(corner.volume(&format!("c{number}"), 8), chain.last().expect("a source"));
        chain.push(client.create(&request).expect("copy").volume_id);
    }
    let has_parent = |id: &String| !corner.info(id)["parent"].is_null();
    let flat: Vec<usize> = (0..chain.len()).filter(|number| !has_parent(&chain[*number])).collect();
    assert_eq!(flat, [0, 9]);
    let map = corner.cluster.rbd(&["object-map", "check", "--no-progress", &corner.spec(&chain[9])]);
    assert_eq!((corner.info(&chain[9])["flags"].as_array().map(Vec::len), map.as_str()), (Some(0), ""));
    chain.iter().for_each(|id| assert_eq!(corner.checksum(id), before));
    chain.iter().for_each(|id| drop(client.delete_volume(&delete(id)).expect("delete")));
    corner.await_empty();
}

#[test]
fn snapshots_are_listed_by_source_and_by_id() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let [one, other] =
        ["one", "other"].map(|name| client.create(&corner.volume(name, 8)).expect("create").volume_id);
    let mut of_one: Vec<wire::Snapshot> = ["l-a", "l-b", "l-c"].map(|name| take(&client, name, &one)).into();
    of_one.sort_by(|a, b| a.snapshot_id.cmp(&b.snapshot_id));
    let of_other = take(&client, "l-d", &other);
    for _ in 0..2 {
        let list = |request: wire::ListSnapshotsRequest| {
            let (mut request, mut all) = (request, Vec::new());
            loop {
                let reply = daemon.client().list_snapshots(&request).expect("a page");
                all.extend(
                    reply.entries.into_iter().map(|entry| entry.snapshot.into_option().expect("a snapshot")),
                );
                request.starting_token = reply.next_token;
                if request.starting_token.is_empty() {
                    return all;
                }
            }
        };
        for size in 0..5 {
            assert_eq!(list(snapshot_page(size, "")).len(), 4, "{size}");
            let of = wire::ListSnapshotsRequest { source_volume_id: one.clone(), ..snapshot_page(size, "") };
            assert_eq!(list(of), of_one, "{size}");
        }
        let by_id =
            |id: &str| wire::ListSnapshotsRequest { snapshot_id: id.to_string(), ..Default::default() };
        assert_eq!(list(by_id(&of_other.snapshot_id)), std::slice::from_ref(&of_other));
        assert!(list(by_id("x")).is_empty() && list(by_id(&format!("{}x", of_other.snapshot_id))).is_empty());
        daemon.restart();
    }
}
