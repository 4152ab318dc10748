//! Volumes that are subvolumes of a file system: the controller's part.

use std::slice;
use std::sync::Barrier;
use std::thread;

use cephlet::proto::csi_v1 as wire;

use crate::controllers::settle;
use crate::support::group::Group;
use crate::support::requests::*;
use crate::support::{Client, Code, Daemon, MIB, Place, is_full, refused};

const DAY: u64 = 24 * 60 * 60;

#[test]
fn a_volume_is_made_once() {
    let group = Group::new();
    let mut daemon = group.start();
    let made = daemon.client().create(&group.volume("one", 10)).expect("create");
    assert!(made.volume_id.starts_with(&format!("{}csi-vol-one-", group.prefix())), "{}", made.volume_id);
    assert!(made.volume_id.len() <= 128 && made.capacity_bytes == 12 * MIB, "{made:?}");
    assert_eq!(group.info(&made.volume_id)["bytes_quota"], 12 * MIB);
    assert_eq!(daemon.client().create(&group.volume("one", 10)).expect("again"), made);
    daemon.restart();
    assert_eq!(daemon.client().create(&group.volume("one", 10)).expect("after a restart"), made);
    let other = wire::CreateVolumeRequest { capacity_range: range(MIB, MIB), ..group.volume("one", 0) };
    refused(daemon.client().create(&other), Code::ALREADY_EXISTS, &["12582912"]);
    assert_eq!(group.subvolumes().len(), 1);
    assert_eq!(listed(&daemon, &group), [made.volume_id.as_str()]);
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete again");
    group.await_empty();
    let anew = daemon.client().create(&group.volume("one", 10)).expect("anew");
    assert_ne!(anew.volume_id, made.volume_id, "UNSAFE: a name was used again");
    refused(daemon.client().controller_get_volume(&get(&made.volume_id)), Code::NOT_FOUND, &[]);
}

#[test]
fn a_volume_is_the_same_with_and_without_a_session() {
    let group = Group::new();
    let with = group.start();
    let without = group.setup_of(2).set("CEPHLET_SESSION", "off").start();
    for (name, one, other) in [("a", &with, &without), ("b", &without, &with)] {
        let made = one.client().create(&group.volume(name, 8)).expect("create");
        assert_eq!(other.client().create(&group.volume(name, 8)).expect("the same"), made);
        assert_eq!(listed(other, &group), listed(one, &group));
        other.client().controller_publish_volume(&publish_as(&made.volume_id, "n1")).expect("publish");
        refused(one.client().delete_volume(&delete(&made.volume_id)), Code::FAILED_PRECONDITION, &["n1"]);
        one.client().controller_unpublish_volume(&unpublish_from(&made.volume_id, "n1")).expect("unpublish");
        let grown = other.client().controller_expand_volume(&expand(&made.volume_id, 16 * MIB));
        assert_eq!(grown.expect("expand").capacity_bytes, 16 * MIB);
        one.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    }
    group.await_empty();
}

#[test]
fn parameters_shape_the_subvolume() {
    let group = Group::new();
    let daemon = group.start();
    let asked = [("fsName", "cephfs"), ("pool", "fs-more"), ("uid", "65534"), ("gid", "7"), ("mode", "2770")];
    let made = daemon.client().create(&group.volume_with("one", 8, &asked)).expect("create");
    let info = group.info(&made.volume_id);
    assert_eq!(
        (&info["data_pool"], &info["uid"], &info["gid"]),
        (&"fs-more".into(), &65534.into(), &7.into())
    );
    assert_eq!(info["mode"].as_u64().map(|mode| mode & 0o7777), Some(0o2770));
    for (key, value, said) in [
        ("fsName", "none", "no file system \"none\""),
        ("fsName", "..", "fsName"),
        ("subvolumeGroup", "..", "subvolumeGroup"),
        ("pool", "rbd", "\"rbd\""),
        ("mode", "rwx", "mode"),
        ("mood", "0770", "mode"),
    ] {
        let request = group.volume_with("other", 8, &[(key, value)]);
        let failure = daemon.client().create(&request).expect_err(key);
        assert!([Code::INVALID_ARGUMENT, Code::FAILED_PRECONDITION].contains(&failure.code), "{failure:?}");
        assert!(failure.message.contains(said), "{failure:?}");
    }
    let block = wire::CreateVolumeRequest { volume_capabilities: vec![block()], ..group.volume("b", 8) };
    refused(daemon.client().create(&block), Code::INVALID_ARGUMENT, &["block"]);
    let ext4 = wire::CreateVolumeRequest { volume_capabilities: vec![mount("ext4")], ..group.volume("e", 8) };
    refused(daemon.client().create(&ext4), Code::INVALID_ARGUMENT, &["ext4"]);
    assert_eq!(group.subvolumes().len(), 1, "UNSAFE: bad input made something");
}

#[test]
fn volumes_grow_and_tell_their_state() {
    let group = Group::new();
    let daemon = group.start();
    let client = daemon.client();
    let id = client.create(&group.volume("one", 8)).expect("create").volume_id;
    assert_eq!(
        client.controller_expand_volume(&expand(&id, 9 * MIB)).expect("expand").capacity_bytes,
        12 * MIB
    );
    assert_eq!(group.info(&id)["bytes_quota"], 12 * MIB);
    assert_eq!(
        client.controller_expand_volume(&expand(&id, MIB)).expect("never smaller").capacity_bytes,
        12 * MIB
    );
    let both = mount_as("", AccessModeOf::MULTI_NODE_MULTI_WRITER, &[]);
    let verdict = client.validate_volume_capabilities(&validate(&id, both.clone())).expect("validate");
    assert!(verdict.confirmed.is_some(), "{verdict:?}");
    let verdict = client.validate_volume_capabilities(&validate(&id, block())).expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("block"), "{verdict:?}");
    for node in ["n1", "n2"] {
        let request = wire::ControllerPublishVolumeRequest {
            volume_capability: protobuf::MessageField::some(both.clone()),
            ..publish_to(&id, node)
        };
        let context = client.controller_publish_volume(&request).expect("publish").publish_context;
        assert_eq!(context["subvolumePath"], group.info(&id)["path"].as_str().expect("a path"));
        assert_eq!(client.controller_publish_volume(&request).expect("again").publish_context, context);
    }
    let status = client.controller_get_volume(&get(&id)).expect("get").status.unwrap();
    assert_eq!(status.published_node_ids, ["n1", "n2"]);
    assert!(!status.volume_condition.unwrap().abnormal);
    refused(client.controller_publish_volume(&publish_as(&id, "n3")), Code::FAILED_PRECONDITION, &["n1"]);
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["n1", "n2"]);
    client.controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back from all");
    refused(
        client.controller_modify_volume(&modify(&id, &[("iops", "1")])),
        Code::INVALID_ARGUMENT,
        &["CephFS"],
    );
    let capacity = wire::GetCapacityRequest { parameters: map(&[("pool", "fs-data")]), ..Default::default() };
    assert!(client.get_capacity(&capacity).expect("capacity").available_capacity > 0);
    client.delete_volume(&delete(&id)).expect("delete");
    group.await_empty();
}

#[test]
fn two_controllers_make_one_volume_of_a_name() {
    let group = Group::new();
    let daemons = [1, 2].map(|number| group.setup_of(number).start());
    let count = if is_full() { 50 } else { 12 };
    let names: Vec<String> = (0..count).map(|number| format!("both-{number}")).collect();
    let start = Barrier::new(2);
    let create_all = |client: Client, mib: i64| -> Vec<Option<wire::Volume>> {
        start.wait();
        let create = |name: &String| {
            let exact = wire::CreateVolumeRequest {
                capacity_range: range(mib * MIB, mib * MIB),
                ..group.volume(name, mib)
            };
            settle(|| match client.create(&exact) {
                Err(failure) if failure.code == Code::ALREADY_EXISTS => Ok(None),
                answer => answer.map(Some),
            })
        };
        names.iter().map(create).collect()
    };
    let [one, two] = daemons.each_ref().map(Daemon::client);
    let (small, large) = thread::scope(|scope| {
        let small = scope.spawn(|| create_all(one, 8));
        let large = scope.spawn(|| create_all(two, 16));
        (small.join().expect("a client"), large.join().expect("a client"))
    });
    for ((name, small), large) in names.iter().zip(&small).zip(&large) {
        let winner = small
            .as_ref()
            .xor(large.as_ref())
            .unwrap_or_else(|| panic!("UNSAFE: {name}: {small:?} {large:?}"));
        assert_eq!(group.info(&winner.volume_id)["bytes_quota"], winner.capacity_bytes, "UNSAFE: {name}");
    }
    assert_eq!(group.subvolumes().len(), names.len(), "UNSAFE: a volume more or less");
    for volume in small.into_iter().chain(large).flatten() {
        daemons[1].client().delete_volume(&delete(&volume.volume_id)).expect("delete");
    }
    group.assert_nothing();
}

#[test]
fn a_subvolume_of_an_operator_is_taken_in_by_its_name() {
    let group = Group::new();
    let daemon = group.start();
    let client = daemon.client();
    let other = client.create(&group.volume("makes-the-group", 8)).expect("create").volume_id;
    group.command("create", "by-hand", &["--size", "8388608"]);
    let id = format!("{}by-hand", group.prefix());
    let found = client.controller_get_volume(&get(&id)).expect("get").volume.unwrap();
    let uuid =
        group.info("by-hand")["path"].as_str().and_then(|path| path.rsplit('/').next().map(String::from));
    assert_eq!(found.volume_id, format!("{id}:{}", uuid.expect("a path")));
    assert_eq!(listed(&daemon, &group), [other.as_str()], "an operator's subvolume is not listed");
    group.command("rm", "by-hand", &[]);
    group.command("create", "by-hand", &["--size", "8388608"]);
    client.delete_volume(&delete(&found.volume_id)).expect("the former one is gone");
    refused(client.controller_get_volume(&get(&found.volume_id)), Code::NOT_FOUND, &[]);
    assert_eq!(group.subvolumes().len(), 2, "UNSAFE: another subvolume of the name was removed");
    client.delete_volume(&delete(&id)).expect("delete");
    client.delete_volume(&delete(&other)).expect("delete");
    for odd in ["..", ".", "a/b", "_a", "%2e%2e"] {
        let id = format!("{}{odd}", group.prefix());
        client.delete_volume(&delete(&id)).expect("a name that cannot be means nothing");
        refused(client.controller_get_volume(&get(&id)), Code::NOT_FOUND, &[]);
    }
    group.await_empty();
}

#[test]
fn without_index_and_claims_no_id_changes_its_meaning() {
    let group = Group::new();
    let mut daemon = group.start();
    let volumes: Vec<wire::Volume> = (0..20)
        .map(|number| daemon.client().create(&group.volume(&format!("v{number}"), 8)).expect("create"))
        .collect();
    let before = group.subvolumes();
    group.entries().iter().for_each(|key| group.remove_entry(key));
    for volume in &volumes {
        let key = volume.volume_id.rsplit('-').nth(1).expect("a key");
        group.rados(&["rm", &format!("cephlet.name.{key}")]);
    }
    daemon.restart();
    for volume in &volumes {
        let found = daemon.client().controller_get_volume(&get(&volume.volume_id)).expect("get");
        let found = found.volume.unwrap();
        assert_eq!((&found.volume_id, found.capacity_bytes), (&volume.volume_id, volume.capacity_bytes));
        daemon.client().controller_publish_volume(&publish_as(&volume.volume_id, "n1")).expect("publish");
    }
    assert_eq!(group.subvolumes(), before, "UNSAFE: a subvolume was removed for want of an entry");
    for volume in &volumes {
        daemon
            .client()
            .controller_unpublish_volume(&unpublish_from(&volume.volume_id, "n1"))
            .expect("unpublish");
        daemon.client().delete_volume(&delete(&volume.volume_id)).expect("delete");
    }
    group.await_empty();
}

/// The manager carries the command out after its daemon has died. The repeat makes a subvolume of another
/// name, and the first one is swept, a day later.
#[test]
fn a_killed_creation_leaves_nothing_for_longer_than_a_day() {
    let own = Box::leak(Box::new(crate::support::Cluster::start()));
    let group = Group::of(own);
    let mut daemon = group.setup().set("CEPHLET_SESSION", "off").start();
    let first = daemon.client().create(&group.volume("makes-the-group", 8)).expect("create").volume_id;
    let paused = own.pause("mgr");
    let client = daemon.client();
    let asked = thread::spawn({
        let request = group.volume("one", 8);
        move || client.create(&request)
    });
    crate::support::await_that("it is being made", || match group.entries().as_slice() {
        [_, _] => Ok(()),
        entries => Err(format!("{entries:?}")),
    });
    daemon.kill9();
    assert!(asked.join().expect("a client").is_err());
    drop(paused);
    daemon.restart();
    let made = daemon.client().create(&group.volume("one", 8)).expect("the repeat").volume_id;
    let mut expected = vec![first.clone(), made.clone()];
    expected.sort();
    assert_eq!(listed(&daemon, &group), expected);
    let left =
        group.entries().into_iter().find(|key| !expected.iter().any(|id| key.ends_with(object_of_fs(id))));
    let left = left.expect("the entry of the first attempt");
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs() - DAY - 60;
    let entry =
        format!(r#"{{"version":1,"state":"making","controller":"0000aaaa","since":{since},"size":8388608}}"#);
    group.set_entry(&left, &entry);
    daemon.restart();
    crate::support::await_that("the first attempt is swept", || match group.entries().len() {
        2 => Ok(()),
        entries => Err(format!("{entries} entries")),
    });
    assert_eq!(listed(&daemon, &group), expected, "UNSAFE: a volume is missing");
    expected.iter().for_each(|id| drop(daemon.client().delete_volume(&delete(id)).expect("delete")));
    group.await_empty();
}

#[test]
fn what_was_removed_by_hand_leaves_the_lists() {
    let group = Group::new();
    let mut daemon = group.start();
    let client = daemon.client();
    let [gone, stays] = ["gone", "stays"].map(|name| client.create(&group.volume(name, 8)).expect(name));
    client.create_snapshot(&snapshot("with it", &gone.volume_id)).expect("snapshot");
    let taken = group.command("snapshot ls", &gone.volume_id, &["--format=json"]);
    let taken: Vec<serde_json::Value> = serde_json::from_str(&taken).expect("JSON");
    group.command("snapshot rm", &gone.volume_id, &[taken[0]["name"].as_str().expect("a name")]);
    group.command("rm", &gone.volume_id, &[]);
    daemon.restart();
    crate::support::await_that("two entries are forgotten", || match group.entries().len() {
        1 => Ok(()),
        number => Err(format!("{number} entries")),
    });
    assert_eq!(listed(&daemon, &group), [stays.volume_id]);
    let anew = daemon.client().create(&group.volume("gone", 16)).expect("its name is free");
    assert_ne!(anew.volume_id, gone.volume_id);
}

#[test]
fn a_snapshot_outlives_its_volume_and_becomes_another() {
    let group = Group::new();
    let mut daemon = group.start();
    let client = daemon.client();
    let source = client.create(&group.volume("source", 8)).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot("before", &source)).expect("snapshot").snapshot.unwrap();
    assert!(
        taken.ready_to_use && taken.size_bytes == 8 * MIB && taken.source_volume_id == source,
        "{taken:?}"
    );
    assert_eq!(client.create_snapshot(&snapshot("before", &source)).expect("again").snapshot.unwrap(), taken);
    let listed_of = |client: &Client| client.list_snapshots(&snapshot_page(0, "")).expect("list").entries;
    let of_group = |client: &Client| -> Vec<wire::Snapshot> {
        let all = listed_of(client).into_iter().map(|entry| entry.snapshot.unwrap());
        all.filter(|snapshot| snapshot.snapshot_id.starts_with(&group.prefix())).collect()
    };
    assert_eq!(of_group(&client), slice::from_ref(&taken));
    client.delete_volume(&delete(&source)).expect("delete");
    assert_eq!((of_group(&client), listed(&daemon, &group)), (vec![taken.clone()], Vec::new()));
    daemon.restart();
    let client = daemon.client();
    let wanted = from_snapshot(group.volume("copy", 16), &taken.snapshot_id);
    let copy = client.create(&wanted).expect("copy");
    assert_eq!(
        (copy.capacity_bytes, &group.info(&copy.volume_id)["bytes_quota"]),
        (16 * MIB, &(16 * MIB).into())
    );
    assert_eq!(client.create(&wanted).expect("again"), copy);
    let small = wire::CreateVolumeRequest {
        capacity_range: range(MIB, 4 * MIB),
        ..from_snapshot(group.volume("small", 0), &taken.snapshot_id)
    };
    refused(client.create(&small), Code::OUT_OF_RANGE, &["8388608"]);
    let second =
        client.create(&from_volume(group.volume("second", 16), &copy.volume_id)).expect("of a volume");
    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete the snapshot");
    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("again");
    for volume in [copy, second] {
        client.delete_volume(&delete(&volume.volume_id)).expect("delete");
    }
    // A source that is retained for a copy goes in the background.
    daemon.restart();
    group.await_empty();
}

/// The manager makes the copy while the daemon is dead; the repeat waits for the same one.
#[test]
fn a_copy_goes_on_while_its_daemon_is_dead() {
    let group = Group::new();
    let mut daemon = group.setup().set("CEPHLET_SESSION", "off").start();
    let source = daemon.client().create(&group.volume("source", 8)).expect("create").volume_id;
    let request = from_volume(group.volume("copy", 8), &source);
    let client = daemon.client();
    let asked = thread::spawn({
        let request = request.clone();
        move || client.create(&request)
    });
    crate::support::await_that("the copy is begun", || match group.subvolumes().len() {
        2 => Ok(()),
        number => Err(format!("{number} subvolumes")),
    });
    daemon.kill9();
    let first = asked.join().expect("a client");
    daemon.restart();
    let copy = daemon.client().create(&request).expect("the repeat");
    if let Ok(first) = first {
        assert_eq!(first, copy, "UNSAFE: another volume was answered");
    }
    assert_eq!(group.subvolumes().len(), 2, "UNSAFE: it was copied twice");
    for id in [copy.volume_id, source] {
        daemon.client().delete_volume(&delete(&id)).expect("delete");
    }
    daemon.restart();
    group.await_empty();
}

/// A publication for one node that writes.
fn publish_as(id: &str, node: &str) -> wire::ControllerPublishVolumeRequest {
    wire::ControllerPublishVolumeRequest {
        volume_capability: protobuf::MessageField::some(mount("")),
        ..publish_to(id, node)
    }
}

/// The subvolume in the ID of a volume.
fn object_of_fs(id: &str) -> &str {
    id.rsplit(':').next().unwrap_or(id)
}

/// The IDs of the volumes of the group that the daemon lists, in order.
fn listed(daemon: &Daemon, group: &Group) -> Vec<String> {
    let entries = daemon.client().list_volumes(&page(0, "")).expect("list").entries;
    let ids = entries.into_iter().map(|entry| entry.volume.unwrap().volume_id);
    ids.filter(|id| id.starts_with(&group.prefix())).collect()
}
