//! A controller and a node, each a daemon of its own with the least rights in the cluster, and volumes on
//! their way between them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use super::toolbox::{CEPH, Toolbox};
use crate::support::client::Answer;
use crate::support::machine::{mounts_below, rbd_devices, text};
use crate::support::requests::*;
use crate::support::{Cluster, Daemon, LONG_PATIENCE, MIB, Setup, cluster};

/// All tests share one cluster and the kernel's one client of it: a test that disturbs them runs alone.
static PEACE: RwLock<()> = RwLock::new(());

enum Turn {
    Shared(#[allow(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

/// The daemons.
pub struct Scene {
    pub controller: Daemon,
    pub node: Daemon,
    /// The node's tools.
    pub tools: Toolbox,
    _turn: Turn,
}

/// A volume, and what the controller told the node of it.
#[derive(Clone, Debug)]
pub struct Volume {
    pub id: String,
    pub size: i64,
    pub capability: wire::VolumeCapability,
    pub context: HashMap<String, String>,
    pub told: HashMap<String, String>,
}

impl Volume {
    /// A volume of which only the ID is known.
    pub fn of(id: &str) -> Self {
        let (context, told) = (HashMap::new(), HashMap::new());
        Self { id: id.to_string(), size: 0, capability: block(), context, told }
    }

    /// The image's name.
    pub fn image(&self) -> &str {
        self.id.split(':').nth(4).expect("the ID names the image")
    }

    /// `POOL/NAME`, as the tools take it.
    pub fn spec(&self) -> String {
        format!("rbd/{}", self.image())
    }
}

/// Makes the node read the cluster from a clusters file, with these further settings.
pub fn by_file(node: Setup, settings: &str) -> Setup {
    let conf = cluster().conf();
    let text = format!("[cluster.ceph]\nconf = {:?}\n{settings}", text(&conf));
    let file = node.scratch.replace("clusters.toml", &text);
    let keys = ["CEPHLET_CEPH_CONF", "CEPHLET_CEPH_USER", "CEPHLET_CEPH_KEYRING"];
    keys.into_iter().fold(node.set("CEPHLET_CLUSTERS", file.display()), Setup::unset)
}

impl Scene {
    /// A node that has every tool.
    pub fn new() -> Self {
        Self::with(CEPH, |node| node, shared())
    }

    /// A node without any of Ceph's tools.
    pub fn without_tools() -> Self {
        Self::with(&[], |node| node, shared())
    }

    /// A scene that disturbs no other test, even when the cluster stands still.
    pub fn alone() -> Self {
        Self::alone_with(CEPH)
    }

    /// The same with these of Ceph's tools. Without rados a node asks no cluster before and after it maps.
    pub fn alone_with(ceph: &[&str]) -> Self {
        let turn = Turn::Alone(PEACE.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        Self::with(ceph, |node| node, turn)
    }

    /// A node that knows the cluster, but has no key for it.
    pub fn without_key() -> Self {
        Self::with(CEPH, |node| by_file(node, ""), shared())
    }

    /// A node that is set up in another way, without any of Ceph's tools.
    pub fn of_node(change: impl FnOnce(Setup) -> Setup) -> Self {
        Self::with(&[], change, shared())
    }

    /// A scene whose node's daemon serves the controller as well, as for a command line. It disturbs no other
    /// test.
    pub fn alone_with_a_full_node() -> Self {
        let turn = Turn::Alone(PEACE.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        Self::with(CEPH, |node| node.set("CEPHLET_SERVICES", "controller,node"), turn)
    }

    fn with(ceph: &[&str], change: impl FnOnce(Setup) -> Setup, turn: Turn) -> Self {
        assert!(
            Path::new("/sys/bus/rbd").exists(),
            "there is no krbd here: run this in the VM, by tests/run or tests/vm/run"
        );
        let node = Setup::new();
        let tools = Toolbox::new(&node.scratch, ceph);
        let instance = node.scratch.path("").display().to_string().replace('/', "-");
        let controller = Setup::new().on(cluster(), "cephlet").set("CEPHLET_SERVICES", "controller");
        let controller = controller.set("CEPHLET_INSTANCE", instance.trim_matches('-'));
        // It stands for another machine, which is not cut off with this one: so are its tools, and no
        // session.
        let is_apart = matches!(turn, Turn::Alone(_));
        let controller = if is_apart { controller.set("CEPHLET_SESSION", "off") } else { controller }.start();
        let node = node.on(cluster(), "cephlet-node").set("CEPHLET_SERVICES", "node");
        let node = change(node.with_tools(text(tools.path()))).start();
        Self { controller, node, tools, _turn: turn }
    }

    pub fn cluster(&self) -> &'static Cluster {
        cluster()
    }

    /// A path on the node.
    pub fn path(&self, name: &str) -> PathBuf {
        self.node.path(name)
    }

    /// Creates a volume of `mib` MiB and gives it to the node.
    #[track_caller]
    pub fn give(
        &self,
        name: &str,
        mib: i64,
        capability: wire::VolumeCapability,
        parameters: &[(&str, &str)],
    ) -> Volume {
        let volume = self.make(wire::CreateVolumeRequest {
            parameters: map(parameters),
            ..volume_as(name, mib * MIB, capability)
        });
        self.publish_to_node(volume, false)
    }

    /// Creates the volume of this request.
    #[track_caller]
    pub fn make(&self, request: wire::CreateVolumeRequest) -> Volume {
        let made = self
            .controller
            .client()
            .create(&request)
            .unwrap_or_else(|error| panic!("create {}: {error:?}", request.name));
        let capability = request.volume_capabilities[0].clone();
        let (context, told) = (made.volume_context, HashMap::new());
        Volume { id: made.volume_id, size: made.capacity_bytes, capability, context, told }
    }

    /// Gives a volume to the node.
    #[track_caller]
    pub fn publish_to_node(&self, mut volume: Volume, readonly: bool) -> Volume {
        let mut request = publish_to(&volume.id, "node-1");
        (request.volume_capability, request.readonly) =
            (MessageField::some(volume.capability.clone()), readonly);
        request.volume_context = volume.context.clone();
        volume.told = self
            .controller
            .client()
            .controller_publish_volume(&request)
            .expect("give it to the node")
            .publish_context;
        volume
    }

    pub fn stage_request(&self, volume: &Volume, at: &str) -> wire::NodeStageVolumeRequest {
        let mut request = stage(&volume.id, &self.node.text(at), volume.capability.clone());
        (request.publish_context, request.volume_context) = (volume.told.clone(), volume.context.clone());
        request
    }

    pub fn stage(&self, volume: &Volume, at: &str) -> Answer<()> {
        self.node.client().node_stage_volume(&self.stage_request(volume, at)).map(drop)
    }

    pub fn unstage(&self, volume: &Volume, at: &str) -> Answer<()> {
        self.node.client().node_unstage_volume(&unstage(&volume.id, &self.node.text(at))).map(drop)
    }

    pub fn publish_request(
        &self,
        volume: &Volume,
        staging: &str,
        target: &str,
    ) -> wire::NodePublishVolumeRequest {
        let (staging, target) = (self.node.text(staging), self.node.text(target));
        let mut request = publish(&volume.id, &staging, &target, volume.capability.clone());
        request.publish_context = volume.told.clone();
        request
    }

    pub fn publish(&self, volume: &Volume, staging: &str, target: &str) -> Answer<()> {
        self.node.client().node_publish_volume(&self.publish_request(volume, staging, target)).map(drop)
    }

    pub fn publish_read_only(&self, volume: &Volume, staging: &str, target: &str) -> Answer<()> {
        let request = wire::NodePublishVolumeRequest {
            readonly: true,
            ..self.publish_request(volume, staging, target)
        };
        self.node.client().node_publish_volume(&request).map(drop)
    }

    pub fn unpublish(&self, volume: &Volume, target: &str) -> Answer<()> {
        self.node.client().node_unpublish_volume(&unpublish(&volume.id, &self.node.text(target))).map(drop)
    }

    pub fn stats(&self, volume: &Volume, at: &str) -> Answer<wire::NodeGetVolumeStatsResponse> {
        self.node.client().node_get_volume_stats(&stats(&volume.id, &self.node.text(at)))
    }

    /// Waits until the node reports trouble with a volume, and calls `again` before each look; returns the
    /// report.
    #[track_caller]
    pub fn await_trouble(&self, volume: &Volume, at: &str, again: impl Fn()) -> String {
        let deadline = Instant::now() + LONG_PATIENCE;
        loop {
            again();
            let stats = self.stats(volume, at).expect("stats");
            if stats.volume_condition.abnormal {
                return stats.volume_condition.message.clone();
            }
            assert!(Instant::now() < deadline, "all is well, it says: {stats:?}");
            sleep(Duration::from_millis(200));
        }
    }

    /// Makes the volume larger, and lets the node follow; gives the device's size.
    #[track_caller]
    pub fn expand(&self, volume: &Volume, at: &str, size: i64) -> i64 {
        self.controller.client().controller_expand_volume(&expand(&volume.id, size)).expect("expand");
        let request = self.expand_request(volume, at, size);
        self.node.client().node_expand_volume(&request).expect("expand on the node").capacity_bytes
    }

    pub fn expand_request(&self, volume: &Volume, at: &str, size: i64) -> wire::NodeExpandVolumeRequest {
        let mut request = node_expand(&volume.id, &self.node.text(at));
        (request.capacity_range, request.volume_capability) =
            (range(size, 0), MessageField::some(volume.capability.clone()));
        request
    }

    /// A volume in use, staged at `stage` and published at `target`.
    #[track_caller]
    pub fn use_volume(
        &self,
        name: &str,
        mib: i64,
        capability: wire::VolumeCapability,
        parameters: &[(&str, &str)],
    ) -> Volume {
        let volume = self.give(name, mib, capability, parameters);
        self.stage(&volume, "stage").expect("stage");
        self.publish(&volume, "stage", "target").expect("publish");
        volume
    }

    /// Takes everything back, deletes the volume, and asserts that nothing of it is left.
    #[track_caller]
    pub fn retire(&self, volume: &Volume, targets: &[&str], stagings: &[&str]) {
        targets.iter().for_each(|target| self.unpublish(volume, target).expect("unpublish"));
        stagings.iter().for_each(|staging| self.unstage(volume, staging).expect("unstage"));
        assert!(devices(volume).is_empty(), "UNSAFE: {} is still mapped", volume.image());
        let controller = self.controller.client();
        controller
            .controller_unpublish_volume(&unpublish_from(&volume.id, "node-1"))
            .expect("take it from the node");
        controller.delete_volume(&delete(&volume.id)).expect("delete");
        assert!(
            !cluster().attempt("rbd", &["info", &volume.spec()]).status.success(),
            "UNSAFE: {} is still there",
            volume.image()
        );
    }

    /// Asserts that nothing is mounted on the node, and that both daemons are well.
    #[track_caller]
    pub fn assert_clean(&self) {
        let mounts = mounts_below(&self.node.path(""));
        assert!(mounts.is_empty(), "UNSAFE: still mounted: {mounts:?}");
        self.node.assert_well();
        self.controller.assert_well();
    }
}

impl Drop for Scene {
    /// The mounts of a failed test must not hold the image that the next test deletes, or keep the VM from
    /// ending.
    fn drop(&mut self) {
        for mount in mounts_below(&self.node.path("")).iter().rev() {
            let _ = rustix::mount::unmount(&mount.point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn shared() -> Turn {
    Turn::Shared(PEACE.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// The devices that the kernel's driver has mapped the volume as.
pub fn devices(volume: &Volume) -> Vec<PathBuf> {
    rbd_devices(volume.image())
}

/// The one device of the volume.
#[track_caller]
pub fn device(volume: &Volume) -> PathBuf {
    let mut all = devices(volume);
    assert_eq!(all.len(), 1, "UNSAFE: one mapping: {all:?}");
    all.remove(0)
}

/// The options with which the kernel's driver has mapped a volume.
pub fn driver_options(volume: &Volume) -> String {
    let number = text(&device(volume)).trim_start_matches("/dev/rbd").to_string();
    fs::read_to_string(format!("/sys/bus/rbd/devices/{number}/config_info")).expect("its options")
}

/// The connected nbd devices.
pub fn connected() -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/block").expect("/sys/block").flatten();
    entries
        .filter(|entry| entry.path().join("pid").exists())
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}

/// Fills a file with `length` bytes that differ from file to file.
pub fn fill(path: &Path, length: usize) {
    let seed = text(path).bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let bytes: Vec<u8> =
        (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed).to_be_bytes()[0]).collect();
    fs::write(path, bytes).expect("write");
}

/// The size of a file system by statvfs(3).
pub fn size_at(path: &Path) -> i64 {
    let found = rustix::fs::statvfs(path).expect("statvfs");
    i64::try_from(found.f_blocks * found.f_frsize).expect("a size")
}
