//! The leftovers of killed commands, made by hand, and how the next request deals with them.

use std::fs;

use cephlet::proto::csi_v1 as wire;
use serde_json::Value;

use crate::copies::{take, with_content};
use crate::support::machine::Checksum;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, await_that, object_of, refused};

#[test]
fn a_killed_creation_is_healed() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let made = daemon.client().create(&corner.volume("one", 8)).expect("create");
    let object = object_of(&made.volume_id).to_string();
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    // What a killed `rbd create` leaves: a name without an image. `create` says "exists" then, and `info` "no
    // such".
    let half = format!("rbd_id.{object}");
    let name_only = || {
        corner.cluster.rados(&["--pool", "rbd", "--namespace", &corner.namespace, "create", &half]);
    };
    name_only();
    daemon.restart();
    let healed = daemon.client().create(&corner.volume("one", 8)).expect("create");
    assert_eq!((object_of(&healed.volume_id), corner.images()), (object.as_str(), vec![object.clone()]));
    daemon.client().delete_volume(&delete(&healed.volume_id)).expect("delete");
    name_only();
    daemon.client().delete_volume(&delete(&healed.volume_id)).expect("delete what is half made");
    let unnamed = format!("rbd:main:rbd:{}:{object}", corner.namespace);
    daemon.client().delete_volume(&delete(&unnamed)).expect("delete what is half made");
}

/// Adds an image of this id to the clones of a snapshot, or removes it there: `child_attach` or
/// `child_detach`.
fn list_clone(corner: &Corner, method: &str, parent: &str, snapshot: u64, clone: &str) {
    let script = "\
import os, rados, struct, sys
method, namespace, parent, snapshot, clone = sys.argv[1:]
def text(it): return struct.pack('<I', len(it)) + it.encode()
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
pool = cluster.open_ioctx('rbd')
pool.set_namespace(namespace)
child = struct.pack('<q', cluster.pool_lookup('rbd')) + text(clone) + text(namespace)
child = struct.pack('<BBI', 2, 1, len(child)) + child
pool.execute('rbd_header.' + parent, 'rbd', method, struct.pack('<Q', int(snapshot)) + child)
# Its threads would run on while the interpreter ends, which sometimes ends by a signal then.
pool.close()
cluster.shutdown()
";
    let mut python = corner.cluster.command("/usr/bin/python3");
    python.args(["-c", script, method, &corner.namespace, parent, &snapshot.to_string(), clone]);
    let output = python.output().expect("python3");
    let (status, said) = (output.status, String::from_utf8_lossy(&output.stderr));
    assert!(status.success(), "{status}: {said}");
}

/// `rbd rm` of a clone first lets go of the parent's snapshot, and then removes that snapshot. If it is
/// killed in between, the snapshot stays in the trash of the parent.
#[test]
fn a_snapshot_without_clones_keeps_no_parent() {
    let corner = Corner::new();
    let [parent, clone] = ["2", "3"].map(|digit| corner.spec(&format!("csi-vol-{}", digit.repeat(13))));
    let rbd = |arguments: &[&str]| corner.cluster.rbd(arguments);
    let taken = format!("{parent}@taken");
    rbd(&["create", "--size", "16M", &parent]);
    rbd(&["snap", "create", &taken]);
    rbd(&["clone", "--rbd-default-clone-format=2", &taken, &clone]);
    let id = corner.json(&["info", &parent])["id"].as_str().expect("an id").to_string();
    let snapshot = corner.json(&["snap", "ls", &parent])[0]["id"].as_u64().expect("an id");
    list_clone(&corner, "child_attach", &id, snapshot, "killed");
    rbd(&["snap", "rm", &taken]);
    rbd(&["rm", "--no-progress", &clone]);
    rbd(&["rename", &parent, &corner.spec(&format!("csi-held-{id}"))]);
    list_clone(&corner, "child_detach", &id, snapshot, "killed");
    let place = ["--pool", "rbd", "--namespace", &corner.namespace, "--image-id", &id];
    let left = corner.json(&[&["snap", "ls", "--all"], &place[..]].concat());
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    let _daemon = corner.start();
    corner.await_empty();
}

/// Gives an image a second name by which it is found, as a killed `rbd rename` does.
fn give_second_name(corner: &Corner, own: &str, second: &str) {
    let namespace = format!("--namespace={}", corner.namespace);
    let [from, to] = [own, second].map(|name| format!("rbd_id.{name}"));
    corner.cluster.rados(&["--pool=rbd", &namespace, "cp", &from, &to]);
}

/// A copy of a snapshot with content, and the temporary name that it had while it was made.
struct Copy {
    request: wire::CreateVolumeRequest,
    made: wire::Volume,
    checksum: Checksum,
    temporary: String,
    origin: [String; 2],
}

/// A temporary name that this daemon could give a copy.
fn temporary_of(daemon: &Daemon, volume: &str) -> String {
    let (_, key) = object_of(volume).rsplit_once('-').expect("an image of ours");
    let tag = fs::read_to_string(daemon.path("state/tag")).expect("the daemon's tag");
    format!("csi-tmp-{}-{key}-zyxw7654", tag.trim_end())
}

/// Waits until the sweep after a start has removed what killed copies have left.
fn await_swept(corner: &Corner, source: &str) {
    await_that("what was half made is removed", || {
        let images = corner.images();
        let snapshots = corner.cluster.rbd(&["snap", "ls", &corner.spec(source)]);
        let is_swept =
            images.iter().all(|name| !name.starts_with("csi-tmp-")) && !snapshots.contains("csi-copy-");
        if is_swept { Ok(()) } else { Err(format!("{images:?}\n{snapshots}")) }
    });
}

fn with_copy(corner: &Corner, daemon: &Daemon) -> Copy {
    let client = daemon.client();
    let id = with_content(corner, &client, "one");
    let taken = take(&client, "moment", &id).snapshot_id;
    let request = from_snapshot(corner.volume("copy", 8), &taken);
    let made = client.create(&request).expect("copy");
    let temporary = temporary_of(daemon, &made.volume_id);
    Copy { checksum: corner.checksum(&made.volume_id), request, made, temporary, origin: [taken, id] }
}

#[track_caller]
fn clear(corner: &Corner, client: &Client, copy: &str, origin: &[String; 2]) {
    client.delete_volume(&delete(copy)).expect("delete the copy");
    client.delete_snapshot(&delete_snapshot(&origin[0])).expect("delete the snapshot");
    client.delete_volume(&delete(&origin[1])).expect("delete the source");
    corner.await_empty();
}

#[test]
fn a_copy_that_kept_its_former_name_loses_nothing_but_that() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let copy = with_copy(&corner, &daemon);
    give_second_name(&corner, object_of(&copy.made.volume_id), &copy.temporary);
    daemon.restart();
    assert_eq!(daemon.client().create(&copy.request).expect("again"), copy.made);
    assert_eq!(corner.checksum(&copy.made.volume_id), copy.checksum);
    clear(&corner, &daemon.client(), &copy.made.volume_id, &copy.origin);
}

#[test]
fn a_copy_that_only_seems_to_have_its_name_is_made_again() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let copy = with_copy(&corner, &daemon);
    let object = object_of(&copy.made.volume_id);
    corner.cluster.rbd(&["rename", &corner.spec(object), &corner.spec(&copy.temporary)]);
    give_second_name(&corner, &copy.temporary, object);
    daemon.restart();
    let again = daemon.client().create(&copy.request).expect("again");
    assert_eq!(corner.checksum(&again.volume_id), copy.checksum);
    clear(&corner, &daemon.client(), &again.volume_id, &copy.origin);
}

/// A large image has no snapshots that would say that it may have been renamed.
#[test]
fn a_large_volume_whose_deletion_was_killed_is_not_answered_by_the_name_it_kept() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let request = corner.volume("large", 5 << 10);
    let made = daemon.client().create(&request).expect("create").volume_id;
    let image = corner.info(&made)["id"].as_str().expect("an id").to_string();
    let (object, held) = (object_of(&made).to_string(), format!("csi-held-{image}"));
    assert!(daemon.terminate().success());
    corner.cluster.rbd(&["rename", &corner.spec(&object), &corner.spec(&held)]);
    give_second_name(&corner, &held, &object);
    daemon.restart();
    let new = daemon.client().create(&request).expect("a new one").volume_id;
    assert_ne!(new, made, "UNSAFE: what is deleted is answered");
    await_that("the deleted one is gone", || {
        let images = corner.images();
        if images == [object.as_str()] { Ok(()) } else { Err(format!("{images:?}")) }
    });
    daemon.client().controller_get_volume(&get(&new)).expect("it is there");
    daemon.client().delete_volume(&delete(&new)).expect("delete the new one");
    corner.await_empty();
}

#[test]
fn a_deleted_volume_is_not_found_by_the_name_it_kept() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = with_content(&corner, &client, "one");
    let image = corner.info(&id)["id"].as_str().expect("an id").to_string();
    let taken = take(&client, "kept", &id).snapshot_id;
    let (object, held) = (object_of(&id), format!("csi-held-{image}"));
    // A rename that was killed at its beginning, then at its end.
    give_second_name(&corner, object, &held);
    client.delete_volume(&delete(&id)).expect("delete");
    give_second_name(&corner, &held, object);
    let new = client.create(&corner.volume("one", 8)).expect("a new one").volume_id;
    assert_ne!(new, id);
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete the snapshot");
    client.controller_get_volume(&get(&new)).expect("it is there");
    client.delete_volume(&delete(&new)).expect("delete the new one");
    corner.await_empty();
}

/// Its snapshot, as `rbd snap ls` has it.
fn snapshot_of(corner: &Corner, volume: &str) -> Value {
    corner.json(&["snap", "ls", &corner.spec(volume)])[0].clone()
}

/// What a killed `rbd clone` leaves under the temporary name: an image of the right size without a parent, or
/// an image whose parent does not know it and lets its snapshot go.
#[test]
fn a_copy_whose_clone_was_killed_is_made_again() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let copy = with_copy(&corner, &daemon);
    let (source, temporary) = (&copy.origin[1], corner.spec(&copy.temporary));
    let snapshot = snapshot_of(&corner, source);
    let blank = || drop(corner.cluster.rbd(&["create", "--size", "8M", &temporary]));
    let unlisted = || {
        let from = format!("{}@{}", corner.spec(source), snapshot["name"].as_str().expect("a name"));
        corner.cluster.rbd(&["clone", "--rbd-default-clone-format=2", &from, &temporary]);
        let id = |info: Value| info["id"].as_str().expect("an id").to_string();
        let [parent, clone] = [corner.info(source), corner.json(&["info", &temporary])].map(id);
        list_clone(&corner, "child_detach", &parent, snapshot["id"].as_u64().expect("a number"), &clone);
    };
    let states: [&dyn Fn(); 2] = [&blank, &unlisted];
    let mut made = copy.made.volume_id.clone();
    for leave_half_made in states {
        daemon.client().delete_volume(&delete(&made)).expect("delete");
        leave_half_made();
        // The start sweeps the leftovers up, perhaps at the same time.
        daemon.restart();
        made = daemon.client().create(&copy.request).expect("copy").volume_id;
        assert_eq!(corner.checksum(&made), copy.checksum, "UNSAFE: what was half made is taken for a copy");
        await_swept(&corner, source);
    }
    clear(&corner, &daemon.client(), &made, &copy.origin);
}

/// Two containers of one host may have the same node name and the same paths. Each state directory has a tag
/// of its own, by which a start tells the copies of this daemon from those that another one is making.
#[test]
fn a_start_leaves_the_copies_of_another_daemon_with_the_same_node_name_alone() {
    let corner = Corner::new();
    let [mut one, mut other] = [corner.setup_of(1), corner.setup_of(1)].map(|setup| setup.start());
    let volume = one.client().create(&corner.volume("one", 8)).expect("create").volume_id;
    let [own, foreign] = [&one, &other].map(|daemon| temporary_of(daemon, &volume));
    assert_ne!(own, foreign);
    for name in [&own, &foreign] {
        corner.cluster.rbd(&["create", "--size", "8M", &corner.spec(name)]);
    }
    let left = |names: &[&str]| {
        let mut expected: Vec<_> = names.iter().map(|name| (*name).to_string()).collect();
        expected.push(object_of(&volume).to_string());
        expected.sort();
        let mut images = corner.images();
        images.sort();
        if images == expected { Ok(()) } else { Err(format!("{images:?}")) }
    };
    one.restart();
    await_that("its own copy is removed, and the other's is there", || left(&[&foreign]));
    other.restart();
    await_that("the other has removed its copy", || left(&[]));
    one.client().delete_volume(&delete(&volume)).expect("delete");
    corner.await_empty();
}

/// The snapshot from which a killed attempt copied a volume is as old as that attempt.
#[test]
fn a_volume_is_copied_as_it_is_now() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let source = with_content(&corner, &client, "one");
    let request = from_volume(corner.volume("copy", 8), &source);
    let first = client.create(&request).expect("copy").volume_id;
    let temporary = temporary_of(&daemon, &first);
    client.delete_volume(&delete(&first)).expect("delete");
    let transient = temporary.replacen("csi-tmp-", "csi-copy-", 1);
    corner.cluster.rbd(&["snap", "create", &format!("{}@{transient}", corner.spec(&source))]);
    corner.poke(&source, 0, b"later");
    let copy = client.create(&request).expect("copy").volume_id;
    assert_eq!(corner.checksum(&copy), corner.checksum(&source), "UNSAFE: it is of an earlier moment");
    daemon.restart();
    await_swept(&corner, &source);
    let client = daemon.client();
    for volume in [copy, source] {
        client.delete_volume(&delete(&volume)).expect("delete");
    }
    corner.await_empty();
}

/// A snapshot is taken after its name was claimed, and deleted before the claim is. A kill leaves one without
/// the other.
#[test]
fn a_snapshot_and_the_claim_to_its_name_are_completed() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let source = with_content(&corner, &daemon.client(), "one");
    let other = daemon.client().create(&corner.volume("other", 8)).expect("create").volume_id;
    let mut id = take(&daemon.client(), "moment", &source).snapshot_id;
    let claims = || -> Vec<String> {
        corner.objects().into_iter().filter(|name| name.starts_with("cephlet.snap.")).collect()
    };
    let [claim] = claims().try_into().expect("one claim");
    let without_snapshot = || {
        let name = snapshot_of(&corner, &source)["name"].as_str().expect("a name").to_string();
        corner.cluster.rbd(&["snap", "rm", "--no-progress", &format!("{}@{name}", corner.spec(&source))]);
    };
    let without_claim = || {
        let namespace = format!("--namespace={}", corner.namespace);
        corner.cluster.rados(&["--pool=rbd", &namespace, "rm", &claim]);
    };
    let states: [&dyn Fn(); 2] = [&without_snapshot, &without_claim];
    for leave_half_made in states {
        leave_half_made();
        daemon.restart();
        let again = take(&daemon.client(), "moment", &source).snapshot_id;
        assert_ne!(again, id, "it is taken anew");
        // Without its claim the former snapshot is a different one, and is deleted by its ID as before.
        daemon.client().delete_snapshot(&delete_snapshot(&id)).expect("delete");
        id = again;
        assert_eq!((claims(), snapshot_of(&corner, &source).is_object()), (vec![claim.clone()], true));
        refused(
            daemon.client().create_snapshot(&snapshot("moment", &other)),
            Code::ALREADY_EXISTS,
            &["moment"],
        );
    }
    for leave_half_made in states {
        leave_half_made();
        daemon.restart();
        daemon.client().delete_snapshot(&delete_snapshot(&id)).expect("delete");
        assert_eq!((claims(), snapshot_of(&corner, &source)), (vec![], Value::Null));
        id = take(&daemon.client(), "moment", &source).snapshot_id;
    }
    let client = daemon.client();
    client.delete_snapshot(&delete_snapshot(&id)).expect("delete");
    for volume in [source, other] {
        client.delete_volume(&delete(&volume)).expect("delete");
    }
    corner.await_empty();
}
