//! CephFS volumes that ceph-fuse mounts: a process for each, which lives apart from the daemon.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command};

use cephlet::proto::csi_v1 as wire;

use super::files::{Nodes, lose_a_node, many};
use super::secrecy::{Watch, assert_is_told_no};
use super::toolbox::Toolbox;
use crate::support::machine::{mount_at, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, MIB, Scratch, await_that, refused};

const FUSE: (&str, &str) = ("mounter", "fuse");

/// The processes of ceph-fuse below the directory of a node.
pub fn processes(it: &Nodes, node: usize) -> Vec<String> {
    let below = it.path(node, "").display().to_string();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_it = line.starts_with("ceph-fuse\0") && line.contains(&below);
        is_it.then(|| entry.file_name().display().to_string())
    });
    lines.collect()
}

/// The one process of ceph-fuse of a node.
#[track_caller]
pub fn process(it: &Nodes, node: usize) -> String {
    let mut all = processes(it, node);
    assert_eq!(all.len(), 1, "UNSAFE: one process: {all:?}");
    all.remove(0)
}

/// A process that writes lines without end.
struct Writer(Child);

impl Writer {
    fn start(file: &Path) -> Self {
        let script = "while echo line; do sleep 0.02; done >>\"$0\"";
        Self(Command::new("sh").args(["-c", script, text(file)]).spawn().expect("sh"))
    }

    /// Waits until it has written more.
    #[track_caller]
    fn await_more(&self, file: &Path) {
        let before = fs::metadata(file).map_or(0, |found| found.len());
        await_that("it goes on writing", || match fs::metadata(file) {
            Ok(found) if found.len() > before => Ok(()),
            found => Err(format!("{before}, {found:?}")),
        });
    }

    #[track_caller]
    fn end(mut self) {
        assert!(self.0.try_wait().expect("its state").is_none(), "UNSAFE: it could not go on writing");
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}

#[test]
fn a_volume_of_ceph_fuse_lives_without_the_daemon() {
    let mut it = Nodes::new();
    let options = [FUSE, ("fuseMountOptions", "noatime")];
    let id = it.make_with("lives", 16, &many(), &options);
    it.mount(&id, 0, &many(), "target").expect("mount");
    let (file, first) = (it.path(0, "target/file"), process(&it, 0));
    let session = fs::read_to_string(format!("/proc/{first}/stat")).expect("its state");
    let (_, fields) = session.rsplit_once(") ").expect("its fields");
    let own = fs::read_to_string("/proc/self/stat").expect("our state");
    assert_ne!(fields.split(' ').nth(3), own.rsplit_once(") ").expect("fields").1.split(' ').nth(3));
    let writer = Writer::start(&file);
    writer.await_more(&file);
    it.nodes[0].kill9();
    writer.await_more(&file);
    it.nodes[0].restart();
    it.mount(&id, 0, &many(), "target").expect("the same again");
    it.mount(&id, 0, &many(), "second").expect("another target");
    assert_eq!(process(&it, 0), first);
    let mounts = mounts_below(&it.path(0, ""));
    assert!(mounts.iter().all(|mount| mount.fs_type == "fuse.ceph-fuse"), "{mounts:?}");
    // The real mount, the staging path and two targets.
    assert_eq!(mounts.len(), 4, "{mounts:?}");
    assert!(mount_at(&it.path(0, "target")).expect("a mount").options.contains("noatime"));

    let read_only = wire::NodePublishVolumeRequest {
        readonly: true,
        ..publish(&id, text(&it.path(0, "stage")), text(&it.path(0, "reader")), many())
    };
    let client = it.nodes[0].client();
    client.node_publish_volume(&read_only).expect("a reader");
    let written = fs::write(it.path(0, "reader/x"), "").expect_err("written to");
    assert_eq!(written.kind(), ErrorKind::ReadOnlyFilesystem);
    for target in ["reader", "second"] {
        client.node_unpublish_volume(&unpublish(&id, text(&it.path(0, target)))).expect("unpublish");
    }
    let total = || {
        let stats = client.node_get_volume_stats(&stats(&id, text(&it.path(0, "target")))).expect("stats");
        assert!(!stats.volume_condition.unwrap_or_default().abnormal);
        stats.usage[0].total
    };
    assert_eq!(total(), 16 * MIB);
    it.controller.client().controller_expand_volume(&expand(&id, 64 * MIB)).expect("expand");
    assert_eq!(total(), 64 * MIB);
    writer.await_more(&file);
    writer.end();
    it.unmount(&id, 0, "target");
    assert_eq!(processes(&it, 0), [""; 0], "UNSAFE: it may still write");
    it.delete(&id);
}

#[test]
fn a_node_without_ceph_fuse_says_what_to_install() {
    let mut it = Nodes::new();
    let scratch = Scratch::new();
    let tools = Toolbox::new(&scratch, &[]);
    let setup = it.group.setup_as(1, "cephlet-fs-node").set("CEPHLET_SERVICES", "node");
    it.nodes[0] = setup.with_tools(text(tools.path())).start();
    let id = it.make_with("missing", 16, &mount(""), &[FUSE]);
    let refusal = it.mount(&id, 0, &mount(""), "target");
    refused(refusal, Code::FAILED_PRECONDITION, &["install ceph-fuse"]);
    it.unmount(&id, 0, "target");
    it.delete(&id);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_lost_node_is_shut_out_before_the_next_one_writes() {
    lose_a_node("fuse");
}

#[test]
#[ignore = "long: tests/run --full"]
fn two_nodes_write_and_then_one_reads_only() {
    let it = Nodes::new();
    let id = it.make_with("clients", 16, &many(), &[FUSE]);
    it.mount(&id, 0, &many(), "target").expect("mount");
    it.mount(&id, 1, &many(), "target").expect("mount");
    let [one, two] = [0, 1].map(|node| it.path(node, "target"));
    fs::write(one.join("from-one"), "one").expect("write");
    fs::write(two.join("from-two"), "two").expect("write");
    assert_eq!(fs::read_to_string(two.join("from-one")).expect("read"), "one");
    assert_eq!(fs::read_to_string(one.join("from-two")).expect("read"), "two");
    [0, 1].into_iter().for_each(|node| it.unmount(&id, node, "target"));
    let reader = mount_as("ceph", AccessModeOf::MULTI_NODE_READER_ONLY, &[]);
    it.mount(&id, 1, &reader, "target").expect("mount read-only");
    assert_eq!(fs::read_to_string(two.join("from-one")).expect("read"), "one");
    let written = fs::write(two.join("x"), "").expect_err("written to");
    assert_eq!(written.kind(), ErrorKind::ReadOnlyFilesystem);
    it.unmount(&id, 1, "target");
    it.delete(&id);
}

#[test]
#[ignore = "long: tests/run --full"]
fn what_ceph_fuse_refuses_is_said_and_leaves_nothing() {
    let it = Nodes::new();
    let id = it.make_with("refused", 16, &mount(""), &[FUSE, ("fuseMountOptions", "no_such_option=1")]);
    refused(it.mount(&id, 0, &mount(""), "target"), Code::INVALID_ARGUMENT, &["mount options"]);
    it.unmount(&id, 0, "target");
    let path = it.group.info(&id)["path"].as_str().expect("a path").to_string();
    let stage_with = |told: &[(&str, &str)]| {
        it.nodes[0].client().node_stage_volume(&wire::NodeStageVolumeRequest {
            publish_context: map(told),
            ..stage(&id, text(&it.path(0, "stage")), mount(""))
        })
    };
    let told = [FUSE, ("subvolumePath", &path), ("fsName", "no-such-fs"), ("fsType", "ceph")];
    refused(stage_with(&told), Code::NOT_FOUND, &["no-such-fs"]);
    it.controller.client().delete_volume(&delete(&id)).expect("delete");
    let told = [FUSE, ("subvolumePath", &path), ("fsName", "cephfs"), ("fsType", "ceph")];
    refused(stage_with(&told), Code::NOT_FOUND, &[&path]);
    assert_eq!(processes(&it, 0), [""; 0]);
    it.nodes[0].assert_node_is_clean();
    it.group.await_empty();
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_key_of_ceph_fuse_is_shown_nowhere() {
    let it = Nodes::new();
    let users = ["cephlet-fs", "cephlet-fs-node"];
    let keys = users.map(|user| it.group.cluster.key(user).trim().to_string()).to_vec();
    let watch = Watch::start(keys.clone());
    let id = it.make_with("secret", 16, &mount(""), &[FUSE]);
    it.mount(&id, 0, &mount(""), "target").expect("mount");
    let shown = fs::read_to_string(format!("/proc/{}/cmdline", process(&it, 0))).expect("its arguments");
    assert!(shown.contains("--keyfile\0/proc/self/fd/"), "{shown}");
    it.unmount(&id, 0, "target");
    assert_eq!(watch.end(), [""; 0]);
    for daemon in [&it.controller, &it.nodes[0]] {
        // The clusters file of the test names a file with the key.
        assert_is_told_no(&keys, daemon);
    }
    run("sh", &["-c", "! ls /run/ceph/*.asok /var/log/ceph/ceph-client* 2>/dev/null"]);
    it.delete(&id);
}
