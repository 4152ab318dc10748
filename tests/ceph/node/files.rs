//! CephFS volumes on nodes, with the kernel's own client: two nodes of one machine, each a daemon with the
//! least rights, mount what the controller publishes to them.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::client::Answer;
use crate::support::corner::entry;
use crate::support::group::Group;
use crate::support::machine::{is_mounted, owner, run, text, write_as};
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, cluster, refused};

/// Two nodes, and a controller apart from them.
pub struct Nodes {
    pub group: Group,
    pub controller: Daemon,
    pub nodes: [Daemon; 2],
}

impl Nodes {
    pub fn new() -> Self {
        Self::of("cephlet-fs", ["cephlet-fs-node"; 2])
    }

    /// A controller and nodes that are these users of the cluster.
    fn of(controller: &str, users: [&str; 2]) -> Self {
        let group = Group::new();
        let controller = group.setup_as(0, controller).set("CEPHLET_SERVICES", "controller").start();
        let node = |number| group.setup_as(number, users[number - 1]).set("CEPHLET_SERVICES", "node").start();
        let nodes = [node(1), node(2)];
        Self { group, controller, nodes }
    }

    fn make(&self, name: &str, mib: i64, capability: &wire::VolumeCapability) -> String {
        self.make_with(name, mib, capability, &[])
    }

    /// The same with further parameters.
    pub fn make_with(
        &self,
        name: &str,
        mib: i64,
        capability: &wire::VolumeCapability,
        parameters: &[(&str, &str)],
    ) -> String {
        let request = wire::CreateVolumeRequest {
            volume_capabilities: vec![capability.clone()],
            ..self.group.volume_with(name, mib, &[&[("mode", "0777")], parameters].concat())
        };
        self.controller.client().create(&request).expect("create").volume_id
    }

    /// A path below the directory of a node.
    pub fn path(&self, node: usize, name: &str) -> PathBuf {
        self.nodes[node].path(name)
    }

    /// Publishes a volume to a node, stages it there, and publishes it at `target`.
    pub fn mount(
        &self,
        id: &str,
        node: usize,
        capability: &wire::VolumeCapability,
        target: &str,
    ) -> Answer<()> {
        let given =
            self.controller.client().controller_publish_volume(&wire::ControllerPublishVolumeRequest {
                volume_capability: MessageField::some(capability.clone()),
                ..publish_to(id, &format!("node-{}", node + 1))
            })?;
        let (client, staging) = (self.nodes[node].client(), self.path(node, "stage"));
        client.node_stage_volume(&wire::NodeStageVolumeRequest {
            publish_context: given.publish_context.clone(),
            ..stage(id, text(&staging), capability.clone())
        })?;
        client.node_publish_volume(&wire::NodePublishVolumeRequest {
            publish_context: given.publish_context,
            ..publish(id, text(&staging), text(&self.path(node, target)), capability.clone())
        })?;
        Ok(())
    }

    /// Takes a volume back from a node.
    pub fn unmount(&self, id: &str, node: usize, target: &str) {
        let client = self.nodes[node].client();
        client.node_unpublish_volume(&unpublish(id, text(&self.path(node, target)))).expect("unpublish");
        client.node_unstage_volume(&unstage(id, text(&self.path(node, "stage")))).expect("unstage");
        let taken = unpublish_from(id, &format!("node-{}", node + 1));
        self.controller.client().controller_unpublish_volume(&taken).expect("take back");
        self.nodes[node].assert_node_is_clean();
    }

    pub fn delete(self, id: &str) {
        self.controller.client().delete_volume(&delete(id)).expect("delete");
        self.group.await_empty();
    }
}

pub fn many() -> wire::VolumeCapability {
    mount_as("", AccessModeOf::MULTI_NODE_MULTI_WRITER, &[])
}

#[test]
fn two_nodes_write_a_volume_and_read_each_other() {
    let it = Nodes::new();
    let id = it.make("both", 64, &many());
    it.mount(&id, 0, &many(), "target").expect("mount");
    it.mount(&id, 1, &many(), "target").expect("mount");
    let [one, two] = [0, 1].map(|node| it.path(node, "target"));
    fs::write(one.join("from-one"), "one").expect("write");
    fs::write(two.join("from-two"), "two").expect("write");
    assert_eq!(fs::read_to_string(two.join("from-one")).expect("read"), "one");
    assert_eq!(fs::read_to_string(one.join("from-two")).expect("read"), "two");
    let refusal = it.controller.client().delete_volume(&delete(&id));
    refused(refusal, Code::FAILED_PRECONDITION, &["node-1", "node-2"]);

    // A target can be read-only beside the others.
    let read_only = wire::NodePublishVolumeRequest {
        readonly: true,
        ..publish(&id, text(&it.path(0, "stage")), text(&it.path(0, "reader")), many())
    };
    it.nodes[0].client().node_publish_volume(&read_only).expect("a reader");
    assert_eq!(fs::read_to_string(it.path(0, "reader/from-two")).expect("read"), "two");
    let written = fs::write(it.path(0, "reader/x"), "");
    assert_eq!(written.expect_err("written to").kind(), ErrorKind::ReadOnlyFilesystem);
    it.nodes[0]
        .client()
        .node_unpublish_volume(&unpublish(&id, text(&it.path(0, "reader"))))
        .expect("unpublish");

    it.unmount(&id, 0, "target");
    assert_eq!(fs::read_to_string(two.join("from-one")).expect("read"), "one");
    it.unmount(&id, 1, "target");
    it.delete(&id);
}

#[test]
fn a_lost_node_is_shut_out_before_the_next_one_writes() {
    lose_a_node("kernel");
}

/// A node is lost while this client has a volume mounted, and another node gets the volume.
pub fn lose_a_node(mounter: &str) {
    let it = Nodes::of("cephlet-fs-looks", ["cephlet-fs-node"; 2]);
    let alone = mount("");
    let id = it.make_with("one", 64, &alone, &[("mounter", mounter)]);
    it.mount(&id, 0, &alone, "target").expect("mount");
    let [lost, next] = [0, 1].map(|node| it.path(node, "target"));
    // A write that is not synced goes to the memory of its client, which has not heard of its end.
    let write = |path: PathBuf, text: &str| {
        let mut file = fs::File::create(path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all())
    };
    write(lost.join("first"), "one").expect("write");
    let mut open = fs::File::create(lost.join("open")).expect("create");
    let taken = unpublish_from(&id, "node-1");
    it.controller.client().controller_unpublish_volume(&taken).expect("take back from a node that is lost");
    it.mount(&id, 1, &alone, "target").expect("mount");
    write(next.join("second"), "two").expect("write");
    let late = [open.write_all(b"late").and_then(|()| open.sync_all()), write(lost.join("first"), "late")];
    // What counts is what others read: Linux 6.1 says that a file is synced whose data it has thrown away.
    let read = ["first", "open"].map(|name| fs::read_to_string(next.join(name)).expect("read"));
    assert_eq!(read, ["one", ""], "UNSAFE: a lost node writes: {late:?}");
    assert!(late[1].is_err(), "it has not heard of its end: {late:?}");
    drop(open);
    it.unmount(&id, 0, "target");
    it.controller
        .client()
        .controller_publish_volume(&wire::ControllerPublishVolumeRequest {
            volume_capability: MessageField::some(alone),
            ..publish_to(&id, "node-2")
        })
        .expect("node-2 has it still");
    assert_eq!(fs::read_to_string(next.join("second")).expect("read"), "two");
    it.unmount(&id, 1, "target");
    it.delete(&id);
}

#[test]
fn a_quota_is_kept_shown_and_raised_under_the_writer() {
    let it = Nodes::new();
    let id = it.make("quota", 16, &mount(""));
    it.mount(&id, 0, &mount(""), "target").expect("mount");
    let target = it.path(0, "target");
    let total = || {
        let stats = it.nodes[0].client().node_get_volume_stats(&stats(&id, text(&target))).expect("stats");
        assert!(!stats.volume_condition.unwrap_or_default().abnormal);
        stats.usage[0].total
    };
    assert_eq!(total(), 16 * MIB);
    let fill = |name: &str| -> std::io::Result<()> {
        let mut file = fs::File::create(target.join(name))?;
        for _ in 0..64 {
            file.write_all(&vec![7; 1 << 20])?;
            file.sync_all()?;
        }
        Ok(())
    };
    let full = fill("too-much").expect_err("UNSAFE: the quota is not kept");
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded);
    let grown = it.controller.client().controller_expand_volume(&expand(&id, 128 * MIB)).expect("expand");
    assert!(!grown.node_expansion_required, "there is nothing to do on the node");
    assert_eq!(total(), 128 * MIB);
    fill("enough").expect("there is room");
    it.unmount(&id, 0, "target");
    it.delete(&id);
}

/// The cluster sets the owner, the nodes the group.
#[test]
fn a_group_writes_to_a_volume_on_every_node() {
    let it = Nodes::new();
    let parameters = [("uid", "65534"), ("mode", "0750"), ("mountGroupPolicy", "always")];
    let made = it.controller.client().create(&it.group.volume_with("shared", 16, &parameters));
    let id = made.expect("create").volume_id;
    it.mount(&id, 0, &many(), "target").expect("mount");
    let [one, two] = [0, 1].map(|node| it.path(node, "target"));
    assert_eq!(owner(&one), (65534, 0, 0o750));
    assert!(write_as(65534, 1, &one, "file") && !write_as(1, 100, &one, "other"));
    it.unmount(&id, 0, "target");

    let shared = shared_with(many(), "100");
    it.mount(&id, 0, &shared, "target").expect("mount");
    it.mount(&id, 1, &shared, "target").expect("mount");
    assert_eq!((owner(&two), owner(&two.join("file"))), ((65534, 100, 0o2770), (65534, 100, 0o664)));
    assert!(write_as(1, 100, &one, "from-one") && write_as(2, 100, &two, "from-two"));
    assert_eq!(fs::read_to_string(one.join("from-two")).expect("read"), "data\n");
    it.unmount(&id, 1, "target");
    it.unmount(&id, 0, "target");
    it.delete(&id);
}

#[test]
fn a_killed_daemon_finds_its_mounts_again() {
    let mut it = Nodes::new();
    let id = it.make("kept", 16, &mount(""));
    it.mount(&id, 0, &mount(""), "target").expect("mount");
    fs::write(it.path(0, "target/file"), "kept").expect("write");
    let open = fs::File::open(it.path(0, "target/file")).expect("open");
    it.nodes[0].kill9();
    it.nodes[0].restart();
    assert_eq!(fs::read_to_string(it.path(0, "target/file")).expect("read"), "kept");
    it.mount(&id, 0, &mount(""), "target").expect("the same again");
    let mounts = run("findmnt", &["--noheadings", "--raw", "--output", "TARGET", "--types", "ceph"]);
    let below = text(&it.nodes[0].path("")).to_string();
    assert_eq!(mounts.lines().filter(|at| at.starts_with(&below)).count(), 3, "{mounts}");
    drop(open);
    it.unmount(&id, 0, "target");
    assert!(!is_mounted(&it.path(0, "target")));
    it.delete(&id);
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let it = Nodes::new();
    let id = it.make("refused", 16, &mount(""));
    let block = it.mount(&id, 0, &block(), "target");
    refused(block, Code::INVALID_ARGUMENT, &["block device"]);
    let odd = mount_as("", AccessModeOf::SINGLE_NODE_WRITER, &["no_such_option=1"]);
    refused(it.mount(&id, 0, &odd, "target"), Code::INVALID_ARGUMENT, &["dmesg"]);
    it.controller.client().controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back");
    it.nodes[0].assert_node_is_clean();
    let path = it.group.info(&id)["path"].as_str().expect("a path").to_string();
    it.controller.client().delete_volume(&delete(&id)).expect("delete");
    let told = map(&[("subvolumePath", path.as_str()), ("fsName", "cephfs"), ("fsType", "ceph")]);
    let gone = it.nodes[0].client().node_stage_volume(&wire::NodeStageVolumeRequest {
        publish_context: told,
        ..stage(&id, text(&it.path(0, "stage")), mount(""))
    });
    refused(gone, Code::NOT_FOUND, &[&path]);
    it.nodes[0].assert_node_is_clean();
    it.group.await_empty();
}

/// The user of the node may mount another group only.
#[test]
fn a_node_without_rights_to_the_path_is_told_which_it_needs() {
    let mut it = Nodes::new();
    let setup = it.group.setup();
    let (keyring, clusters) = (setup.scratch.path("keyring"), setup.scratch.path("clusters.toml"));
    let rights = ["mon", "allow r", "mds", "allow rw path=/volumes/another", "osd", "allow rw pool=fs-data"];
    let made = [&["auth", "get-or-create", "client.cephlet-narrow"], &rights[..]].concat();
    fs::write(&keyring, cluster().ceph(&made)).expect("write the keyring");
    let entry = entry("main", cluster(), "cephlet-fs-node").replace("cephlet-fs-node", "cephlet-narrow");
    let entry = entry.lines().filter(|line| !line.starts_with("keyring")).collect::<Vec<_>>().join("\n");
    fs::write(clusters, format!("{entry}\nkeyring = {keyring:?}\n")).expect("write the file");
    it.nodes[0] = setup.set("CEPHLET_SERVICES", "node").start();
    let id = it.make("refused", 16, &many());
    let path = it.group.info(&id)["path"].as_str().expect("a path").to_string();
    let told = ["client.cephlet-narrow", &path, "mds 'allow rw path="];
    refused(it.mount(&id, 0, &many(), "target"), Code::UNAUTHENTICATED, &told);
    it.nodes[0].assert_node_is_clean();
    it.mount(&id, 1, &many(), "target").expect("a node with the rights");
    it.unmount(&id, 1, "target");
    it.controller.client().controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back");
    it.delete(&id);
}

/// Writes a MiB or more to each of these files of a volume, which say their names.
fn fill(volume: &Path, files: &[&str]) {
    for name in files {
        fs::create_dir_all(volume.join(name).parent().expect("a directory")).expect("make directories");
        fs::write(volume.join(name), name.repeat(1 << 18)).expect("write");
    }
    run("sync", &["--file-system", text(volume)]);
}

/// What a reader sees stays as it was when the snapshot was taken, whatever becomes of the source and of the
/// snapshot.
#[test]
fn a_volume_that_shares_a_snapshot_outlives_its_source() {
    let it = Nodes::of("cephlet-fs", ["cephlet-fs-node", "cephlet-fs-reader"]);
    let client = it.controller.client();
    let source = it.make("source", 64, &many());
    it.mount(&source, 0, &many(), "target").expect("mount");
    let written = it.path(0, "target");
    let files = ["file", "dir/file", "dir/below/file", "moved/file"];
    fill(&written, &files);
    let taken = client.create_snapshot(&snapshot("before", &source)).expect("snapshot").snapshot.unwrap();
    it.unmount(&source, 0, "target");

    let readers = mount_as("", AccessModeOf::MULTI_NODE_READER_ONLY, &[]);
    let wanted = wire::CreateVolumeRequest {
        volume_capabilities: vec![readers.clone()],
        ..from_snapshot(it.group.volume("reader", 64), &taken.snapshot_id)
    };
    let reader = client.create(&wanted).expect("create").volume_id;
    assert_eq!(it.group.subvolumes().len(), 1, "it was copied");
    refused(it.mount(&reader, 0, &many(), "target"), Code::INVALID_ARGUMENT, &["read-only"]);
    // This node's user is confined to a path, and could not read files whose directory is deleted.
    let confined = it.mount(&reader, 0, &readers, "target");
    refused(confined, Code::UNAUTHENTICATED, &["mds 'allow r,", "backingSnapshot"]);
    client.controller_unpublish_volume(&unpublish_from(&reader, "node-1")).expect("take back");
    it.nodes[0].assert_node_is_clean();

    let sees_all = || {
        let target = it.path(1, "target");
        for name in files {
            let read = fs::read_to_string(target.join(name)).expect(name);
            assert!(read == name.repeat(1 << 18), "UNSAFE: {name} has other data");
        }
        let written = fs::write(target.join("x"), "").expect_err("UNSAFE: written to");
        assert_eq!(written.kind(), ErrorKind::ReadOnlyFilesystem);
    };
    it.mount(&reader, 1, &readers, "target").expect("mount");
    sees_all();
    let stats = it.nodes[1].client().node_get_volume_stats(&stats(&reader, text(&it.path(1, "target"))));
    assert!(!stats.expect("stats").volume_condition.unwrap_or_default().abnormal);
    it.mount(&source, 0, &many(), "target").expect("mount");
    fs::write(written.join("file"), "changed").expect("write");
    fs::remove_dir_all(written.join("dir")).expect("remove");
    fs::rename(written.join("moved/file"), written.join("elsewhere")).expect("rename");
    it.unmount(&source, 0, "target");
    sees_all();
    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete the snapshot");
    client.delete_volume(&delete(&source)).expect("delete the source");
    fs::write("/proc/sys/vm/drop_caches", "3").expect("drop the caches");
    sees_all();
    it.unmount(&reader, 1, "target");
    it.mount(&reader, 1, &readers, "target").expect("mount it after its source has gone");
    sees_all();
    it.unmount(&reader, 1, "target");
    it.delete(&reader);
}

#[test]
fn a_killed_daemon_finds_a_shared_snapshot_again() {
    let mut it = Nodes::of("cephlet-fs", ["cephlet-fs-reader"; 2]);
    let source = it.make("source", 16, &mount(""));
    let client = it.controller.client();
    let taken = client.create_snapshot(&snapshot("s", &source)).expect("snapshot").snapshot.unwrap();
    let readers = mount_as("", AccessModeOf::SINGLE_NODE_READER_ONLY, &[]);
    let wanted = wire::CreateVolumeRequest {
        volume_capabilities: vec![readers.clone()],
        ..from_snapshot(it.group.volume("reader", 16), &taken.snapshot_id)
    };
    let reader = client.create(&wanted).expect("create").volume_id;
    it.mount(&reader, 0, &readers, "target").expect("mount");
    it.nodes[0].kill9();
    it.nodes[0].restart();
    it.mount(&reader, 0, &readers, "target").expect("the same again");
    it.unmount(&reader, 0, "target");
    client.delete_volume(&delete(&reader)).expect("delete");
    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete");
    it.delete(&source);
}
