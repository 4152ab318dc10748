//! CephFS mounts that are dead, and servers that stand still.

use std::fs;
use std::path::Path;
use std::thread::spawn;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use super::files::{Nodes, many};
use super::files_fuse::{process, processes};
use super::hangs::retried;
use crate::support::machine::{is_mounted, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, refused};

/// The condition of a volume at a path of the first node.
#[track_caller]
fn condition(it: &Nodes, id: &str, at: &str) -> wire::VolumeCondition {
    let stats = it.nodes[0].client().node_get_volume_stats(&stats(id, text(&it.path(0, at))));
    stats.expect("stats").volume_condition.unwrap_or_default()
}

/// Asserts that a dead mount is told, refuses another target, and is made ready anew for the next one.
#[track_caller]
fn assert_is_made_anew(it: &Nodes, id: &str, said: &str) {
    let told = condition(it, id, "target");
    assert!(told.abnormal && told.message.contains(said), "{told:?}");
    assert!(told.message.contains("stage it again"), "{told:?}");
    let refusal = it.mount(id, 0, &many(), "second");
    refused(refusal, Code::FAILED_PRECONDITION, &[said, "still published", "target"]);
    let client = it.nodes[0].client();
    client.node_unpublish_volume(&unpublish(id, text(&it.path(0, "target")))).expect("unpublish");
    it.mount(id, 0, &many(), "target").expect("made ready anew");
    assert_eq!(fs::read_to_string(it.path(0, "target/file")).expect("read"), "content");
    fs::write(it.path(0, "target/more"), "more").expect("write");
    assert!(!condition(it, id, "target").abnormal);
}

/// The MDS keeps what the dead client held for a minute, and the new one waits for it.
#[test]
#[ignore = "long: tests/run --full"]
fn a_killed_ceph_fuse_is_told_and_replaced() {
    let it = Nodes::new();
    let id = it.make_with("killed", 16, &many(), &[("mounter", "fuse")]);
    it.mount(&id, 0, &many(), "target").expect("mount");
    fs::write(it.path(0, "target/file"), "content").expect("write");
    run("sync", &["--file-system", text(&it.path(0, "target/file"))]);
    run("kill", &["-9", &process(&it, 0)]);
    assert_is_made_anew(&it, &id, "ceph-fuse process has ended");
    // One that is in use can be given up, too.
    let open = fs::File::open(it.path(0, "target/file")).expect("open");
    run("kill", &["-9", &process(&it, 0)]);
    it.unmount(&id, 0, "target");
    drop(open);
    // The removal waits for what the dead client held, for as long as this client waits for its answer.
    retried(|| it.controller.client().delete_volume(&delete(&id)).map(drop), "delete");
    it.group.await_empty();
}

/// Shuts the client of the mount at `path` out.
fn evict(it: &Nodes, path: &Path) {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, c"ceph.client_id", &mut value).expect("its client");
    let name = String::from_utf8_lossy(&value[..length]).into_owned();
    let id = format!("id={}", name.trim_start_matches("client"));
    it.group.cluster.ceph(&["tell", "mds.cephfs:0", "client", "evict", &id]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_client_that_is_shut_out_is_told_and_replaced() {
    for mounter in ["kernel", "fuse"] {
        let it = Nodes::new();
        let id = it.make_with("evicted", 16, &many(), &[("mounter", mounter)]);
        it.mount(&id, 0, &many(), "target").expect("mount");
        fs::write(it.path(0, "target/file"), "content").expect("write");
        run("sync", &["--file-system", text(&it.path(0, "target/file"))]);
        evict(&it, &it.path(0, "target"));
        assert_is_made_anew(&it, &id, "shut out");
        let open = fs::File::open(it.path(0, "target/file")).expect("open");
        evict(&it, &it.path(0, "target"));
        it.unmount(&id, 0, "target");
        drop(open);
        assert_eq!(processes(&it, 0), [""; 0]);
        it.delete(&id);
    }
}

/// Takes the volumes back from all nodes, and deletes them.
fn take_back(it: &Nodes, ids: &[String]) {
    for id in ids {
        it.controller.client().controller_unpublish_volume(&unpublish_from(id, "")).expect("take back");
        it.controller.client().delete_volume(&delete(id)).expect("delete");
    }
    it.group.await_empty();
}

/// Unpublishes and unstages a volume while its MDS stands still, and kills the daemon meanwhile.
fn kill_while_unmounting(it: &mut Nodes, used: &str, other: &str) {
    let (client, target, at) = (it.nodes[0].client(), it.path(0, "target"), it.path(0, "stage"));
    let (one, two) = (unpublish(used, text(&target)), unstage(used, text(&at)));
    let unmounting = spawn(move || {
        let unpublished = client.node_unpublish_volume(&one).map(drop);
        unpublished.and_then(|()| client.node_unstage_volume(&two).map(drop))
    });
    let client = it.nodes[0].client();
    client.node_unstage_volume(&unstage(other, text(&it.path(0, "other")))).expect("another volume");
    it.nodes[0].kill9();
    eprintln!("{:?}", unmounting.join().expect("it ends"));
    it.nodes[0].restart();
    it.nodes[0].assert_well();
}

/// Mount, statistics and unmount stand still, each in a call of its own, and the daemon is killed.
#[test]
#[ignore = "long: tests/run --full"]
fn an_mds_that_stands_still_stops_no_other_volume() {
    for mounter in ["kernel", "fuse"] {
        let mut it = Nodes::new();
        let parameters = [("mounter", mounter)];
        let [used, new, other] =
            ["used", "new", "other"].map(|name| it.make_with(name, 16, &many(), &parameters));
        it.mount(&used, 0, &many(), "target").expect("mount");
        fs::write(it.path(0, "target/file"), "content").expect("write");
        let given = it.controller.client().controller_publish_volume(&wire::ControllerPublishVolumeRequest {
            volume_capability: MessageField::some(many()),
            ..publish_to(&new, "node-1")
        });
        let staged = wire::NodeStageVolumeRequest {
            publish_context: given.expect("give").publish_context,
            ..stage(&new, text(&it.path(0, "new")), many())
        };
        let paused = it.group.cluster.pause("mds");
        let (client, request) = (it.nodes[0].client(), staged.clone());
        let mounting = spawn(move || client.node_stage_volume(&request));
        let (client, request) = (it.nodes[0].client(), stats(&used, text(&it.path(0, "target"))));
        let looking = spawn(move || client.node_get_volume_stats(&request));
        // Neither the other volume nor the daemon waits for them.
        let client = it.nodes[0].client();
        client.node_unstage_volume(&unstage(&other, text(&it.path(0, "other")))).expect("another volume");
        it.nodes[0].assert_well();
        let told = looking.join().expect("it ends").map(|told| told.volume_condition.unwrap_or_default());
        assert!(
            told.is_ok_and(|told| told.abnormal && told.message.contains("does not answer")),
            "{mounter}"
        );
        it.nodes[0].kill9();
        mounting.join().expect("it ends").expect_err("its daemon was killed");
        it.nodes[0].restart();
        it.nodes[0].assert_well();

        kill_while_unmounting(&mut it, &used, &other);
        drop(paused);

        let client = it.nodes[0].client();
        let (target, at) = (it.path(0, "target"), it.path(0, "stage"));
        let (one, two) = (unpublish(&used, text(&target)), unstage(&used, text(&at)));
        retried(|| client.node_unpublish_volume(&one).map(drop), "unpublish");
        retried(|| client.node_unstage_volume(&two).map(drop), "unstage");
        retried(|| it.mount(&used, 0, &many(), "target"), "mount again");
        assert_eq!(fs::read_to_string(it.path(0, "target/file")).expect("read"), "content");
        retried(|| client.node_stage_volume(&staged).map(drop), "stage");
        fs::write(it.path(0, "new/file"), "").expect("write");
        client.node_unstage_volume(&unstage(&new, text(&it.path(0, "new")))).expect("unstage");
        it.unmount(&used, 0, "target");
        assert!(!is_mounted(&it.path(0, "new")));
        assert_eq!(processes(&it, 0), [""; 0]);
        take_back(&it, &[used, new, other]);
    }
}

/// The volume's own mount is gone, and its users go on: the paths are known by what is mounted there.
#[test]
fn a_volume_whose_own_mount_was_unmounted_by_hand_is_taken_from_all_its_paths() {
    for mounter in ["kernel", "fuse"] {
        let it = Nodes::new();
        let id = it.make_with("hand", 16, &many(), &[("mounter", mounter)]);
        let target = it.path(0, "target");
        fs::create_dir(&target).expect("a directory of the operator");
        it.mount(&id, 0, &many(), "target").expect("mount");
        let real = mounts_below(&it.path(0, "run")).remove(0).point;
        run("umount", &[text(&real)]);
        let client = it.nodes[0].client();
        let staged = unstage(&id, text(&it.path(0, "stage")));
        refused(
            client.node_unstage_volume(&staged),
            Code::FAILED_PRECONDITION,
            &["still published", "target"],
        );
        client.node_unpublish_volume(&unpublish(&id, text(&target))).expect("unpublish");
        assert!(!is_mounted(&target), "UNSAFE: its user goes on");
        retried(|| client.node_unstage_volume(&staged).map(drop), "unstage");
        assert!(!is_mounted(&it.path(0, "stage")));
        assert_eq!(processes(&it, 0), [""; 0]);
        it.unmount(&id, 0, "target");
        it.delete(&id);
    }
}

/// The MDS answers, so what the client holds is written out as soon as the OSDs take it. Until then no signal
/// ends the process that waits for it.
#[test]
#[ignore = "long: tests/run --full"]
fn what_a_mount_still_writes_out_is_not_given_up() {
    let it = Nodes::new();
    let id = it.make_with("slow", 16, &many(), &[]);
    it.mount(&id, 0, &many(), "target").expect("mount");
    fs::write(it.path(0, "target/file"), "content").expect("write");
    let client = it.nodes[0].client();
    client.node_unpublish_volume(&unpublish(&id, text(&it.path(0, "target")))).expect("unpublish");
    let paused = it.group.cluster.pause("osd");
    let staged = unstage(&id, text(&it.path(0, "stage")));
    refused(client.node_unstage_volume(&staged), Code::DEADLINE_EXCEEDED, &["look after the storage"]);
    drop(paused);
    retried(|| client.node_unstage_volume(&staged).map(drop), "unstage");
    it.controller.client().controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("take back");
    it.mount(&id, 1, &many(), "target").expect("mount there");
    assert_eq!(fs::read_to_string(it.path(1, "target/file")).expect("read"), "content", "UNSAFE: it is lost");
    it.unmount(&id, 1, "target");
    it.delete(&id);
}

/// What a client holds cannot be written out, so it is unmounted by force, and its users go on.
#[test]
#[ignore = "long: tests/run --full"]
fn a_mount_whose_servers_are_away_is_given_up() {
    for mounter in ["kernel", "fuse"] {
        let it = Nodes::new();
        let id = it.make_with("away", 16, &many(), &[("mounter", mounter)]);
        it.mount(&id, 0, &many(), "target").expect("mount");
        fs::write(it.path(0, "target/file"), "content").expect("write");
        let client = it.nodes[0].client();
        client.node_unpublish_volume(&unpublish(&id, text(&it.path(0, "target")))).expect("unpublish");
        let real = mounts_below(&it.path(0, "run")).remove(0).point;
        let paused = it.group.cluster.pause("mds");
        let unknown = real.join("unknown");
        let waiting = spawn(move || fs::metadata(unknown));
        let staged = unstage(&id, text(&it.path(0, "stage")));
        let given_up = client.node_unstage_volume(&staged);
        waiting.join().expect("it ends").expect_err("UNSAFE: there is no such file");
        assert!(!is_mounted(&real));
        match mounter {
            "kernel" => drop(given_up.expect("unstage")),
            // Its process writes out what it holds once the MDS is back.
            _ => drop(refused(given_up, Code::UNAVAILABLE, &["ceph-fuse (process"])),
        }
        drop(paused);
        retried(|| client.node_unstage_volume(&staged).map(drop), "unstage");
        retried(|| it.mount(&id, 0, &many(), "target"), "mount again");
        fs::write(it.path(0, "target/file"), "more").expect("write");
        it.unmount(&id, 0, "target");
        it.delete(&id);
    }
}
