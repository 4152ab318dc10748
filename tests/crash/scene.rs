//! A daemon with the few volumes that a request is tried on, and what must be true of them afterwards.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use cephlet::{Journal, RealDisk, Table};

use crate::support::client::Answer;
use crate::support::machine::{loops_below, mounts_below, run};
use crate::support::requests::*;
use crate::support::scratch::poke;
use crate::support::stub::install;
use crate::support::{Client, Daemon, Scratch, Setup};

/// The content of files in volumes.
pub const DATA: &str = "written before the crash";

/// A daemon and its volumes, which have the names `stage` and `target` in common.
pub struct Scene {
    pub daemon: Daemon,
    pub volumes: Vec<String>,
    pub snapshots: Vec<String>,
    /// Where the first volume is published.
    pub target: &'static str,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(|setup| setup)
    }

    /// A scene whose volumes lie on a file system that shares blocks.
    pub fn with_reflink() -> Self {
        Self::with(|setup| {
            setup.scratch.reflink_xfs("local");
            setup
        })
    }

    /// A scene in which only one volume can be formatted.
    pub fn with_mkfs_for_once() -> Self {
        Self::with(|setup| {
            let directory = setup.scratch.dir("stubs");
            let script = "#!/bin/sh\nmkdir ${0%/*}/once && PATH=/usr/sbin:/sbin exec mkfs.ext4 \"$@\"\n";
            install(&directory.join("mkfs.ext4"), script);
            setup.set("CEPHLET_TOOL_PATH", format!("{}:/usr/bin:/usr/sbin:/sbin", directory.display()))
        })
    }

    fn with(prepare: impl FnOnce(Setup) -> Setup) -> Self {
        let setup = prepare(Setup::within(Arc::new(Scratch::in_memory())).in_own_session());
        Self { daemon: setup.start(), volumes: Vec::new(), snapshots: Vec::new(), target: "target" }
    }

    pub fn client(&self) -> Client {
        self.daemon.client()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.daemon.path(name)
    }

    /// The first volume.
    pub fn id(&self) -> &str {
        &self.volumes[0]
    }

    /// Makes a volume that is there before the request.
    #[track_caller]
    pub fn have(&mut self, name: &str, size: i64, capability: wire::VolumeCapability) {
        let made = self.client().create(&volume_as(name, size, capability)).expect("create");
        self.volumes.push(made.volume_id);
    }

    /// Writes bytes into the first volume that no file system would take for its own.
    pub fn fill(&self) {
        poke(&self.image(self.id()), 0, b"begin");
        poke(&self.image(self.id()), 5 << 20, &[7; 70_000]);
    }

    #[track_caller]
    pub fn have_snapshot(&mut self, name: &str) {
        let reply = self.client().create_snapshot(&snapshot(name, self.id())).expect("snapshot");
        self.snapshots.push(reply.snapshot.snapshot_id.clone());
    }

    /// The file with a volume's content.
    pub fn image(&self, id: &str) -> PathBuf {
        let object = id.split(':').nth(4).expect("the ID names the object");
        self.daemon.local_dir().join("volumes").join(object).join("image")
    }

    pub fn stage(&self, capability: wire::VolumeCapability) -> Answer<()> {
        self.client().node_stage_volume(&stage(self.id(), &self.daemon.text("stage"), capability)).map(drop)
    }

    pub fn unstage(&self) -> Answer<()> {
        self.client().node_unstage_volume(&unstage(self.id(), &self.daemon.text("stage"))).map(drop)
    }

    pub fn publish(&self, capability: wire::VolumeCapability, readonly: bool) -> Answer<()> {
        let request =
            publish(self.id(), &self.daemon.text("stage"), &self.daemon.text(self.target), capability);
        let request = wire::NodePublishVolumeRequest { readonly, ..request };
        self.client().node_publish_volume(&request).map(drop)
    }

    pub fn unpublish(&self) -> Answer<()> {
        self.client().node_unpublish_volume(&unpublish(self.id(), &self.daemon.text(self.target))).map(drop)
    }

    /// Writes a file into a mounted volume, all the way to its image. Not in this process: a child that
    /// another test starts at that moment would have the file open too and keep the volume from being
    /// unmounted.
    #[track_caller]
    pub fn write(&self, file: &str) {
        run(
            "sh",
            &["-c", "printf %s \"$2\" > \"$1\" && sync -f \"$1\"", "write", &self.daemon.text(file), DATA],
        );
    }

    #[track_caller]
    pub fn assert_written(&self, file: &str) {
        assert_eq!(run("cat", &[&self.daemon.text(file)]), DATA);
    }

    /// Asserts that there are this many objects, and none that is half made or half removed.
    #[track_caller]
    pub fn assert_holds(&self, volumes: usize, snapshots: usize) {
        let names = |directory: &str| -> Vec<String> {
            let entries = fs::read_dir(self.daemon.local_dir().join(directory)).expect("list").flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let held = ["volumes", "snapshots", "pending"].map(names);
        assert_eq!(held.each_ref().map(Vec::len), [volumes, snapshots, 0], "{held:?}");
    }

    /// Asserts that no path has two mounts, and no image has two devices.
    #[track_caller]
    pub fn assert_nothing_twice(&self) {
        let mut points: Vec<PathBuf> =
            mounts_below(&self.path("")).into_iter().map(|mount| mount.point).collect();
        points.sort();
        let twice: Vec<_> = points.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "mounted twice: {twice:?}");
        let mut images: Vec<PathBuf> =
            loops_below(&self.daemon.local_dir()).into_iter().map(|(_, image)| image).collect();
        images.sort();
        let twice: Vec<_> = images.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "attached twice: {twice:?}");
    }

    /// Takes everything back through the daemon, and asserts that nothing is left: no mount, device, file or
    /// journal entry.
    #[track_caller]
    pub fn assert_leaves_nothing(&mut self) {
        let client = self.client();
        for id in &self.volumes {
            let (staging, target) = (self.daemon.text("stage"), self.daemon.text(self.target));
            client.node_unpublish_volume(&unpublish(id, &target)).expect("unpublish");
            client.node_unstage_volume(&unstage(id, &staging)).expect("unstage");
            client.controller_unpublish_volume(&unpublish_from(id, "")).expect("unpublish from the node");
            client.delete_volume(&delete(id)).expect("delete");
        }
        for id in &self.snapshots {
            client.delete_snapshot(&delete_snapshot(id)).expect("delete the snapshot");
        }
        self.assert_holds(0, 0);
        self.daemon.assert_node_is_clean();
        let outermost = self.target.split('/').next().unwrap_or_default();
        assert!(!self.path(outermost).exists(), "the target was made and not removed");
        self.daemon.assert_well();
        assert!(self.daemon.terminate().success());
        assert_journal_is_empty(&self.daemon);
    }
}

/// Asserts that the journal of a daemon that has ended has no entry.
#[track_caller]
pub fn assert_journal_is_empty(daemon: &Daemon) {
    let disk = RealDisk::open(&daemon.path("state")).expect("open the state directory");
    let journal = Journal::open(Arc::new(disk), |error| panic!("{error}")).expect("open the journal");
    for table in Table::ALL {
        let keys: Vec<String> = journal.entries(table).into_iter().map(|(key, _)| key).collect();
        assert!(keys.is_empty(), "UNSAFE: {table:?} has {keys:?}");
    }
}
