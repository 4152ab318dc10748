//! Common to the tests of the local backend: a backend in a scratch directory, and loop devices that exist in
//! memory only.

#![allow(clippy::unwrap_used)]

mod attaching;
mod copies;
mod crashes;
mod kernel;
mod lists;
mod publishing;
mod space;
mod volumes;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::Local;
use crate::backend::{
    Backend, Deleted, Deletion, NewSnapshot, NewVolume, NodeDriver, Origin, PlacementRequest, Publisher,
    Reason, Served, Service, Snapshot, Volume, Volumes,
};
use crate::csi::{Access, Capability, Map, Mode, SizeRange, Source};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{VolumeId, snapshot_key, volume_object};
use crate::kernel::Loops;
use crate::node_name::NodeName;
use crate::secrets::Secrets;
use crate::sys::flock::FileLock;
use crate::sys::holders::Holder;
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::statfs::{Amount, Usage};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const NODE: &str = "node7";

/// Loop devices that exist in memory only, each with the flock that a real one holds.
#[derive(Debug, Default)]
pub(super) struct FakeLoops {
    attached: Mutex<Vec<Attached>>,
    /// The actions, in words.
    pub done: Mutex<Vec<String>>,
    /// A directory that the next attach deletes once its image is attached.
    pub deleted_meanwhile: Mutex<Option<PathBuf>>,
    /// The devices on top of every device.
    pub holders: Mutex<Vec<Holder>>,
    /// The size of the file system and what is left of it; None if it fails. It hangs while this is locked.
    pub space: Mutex<Option<(u64, u64)>>,
    /// Whether the space has been asked for.
    pub is_asked: AtomicBool,
}

#[derive(Debug)]
struct Attached {
    image: PathBuf,
    device: LoopDevice,
    mounts: Vec<PathBuf>,
    _lock: FileLock,
}

impl FakeLoops {
    /// Sets where the file system on the image is mounted.
    pub fn mounted_at(&self, image: &Path, mounts: &[&str]) {
        let mut all = self.attached.lock();
        let attached = all.iter_mut().find(|attached| attached.image == image).unwrap();
        attached.mounts = mounts.iter().map(PathBuf::from).collect();
    }
}

impl Loops for FakeLoops {
    fn usable(&self) -> Result<()> {
        Ok(())
    }

    fn space(&self, _call: &Call, _path: &Path) -> Result<Usage> {
        self.is_asked.store(true, Ordering::SeqCst);
        let space = *self.space.lock();
        let (total, available) = space.ok_or_else(|| Error::internal("it fails"))?;
        Ok(Usage { bytes: Amount { total, available, used: 0 }, ..Usage::default() })
    }

    fn find(&self, image: &Path) -> Result<Option<LoopDevice>> {
        let known = image.exists();
        Ok(self.attached.lock().iter().find(|it| known && it.image == image).map(|it| it.device.clone()))
    }

    fn mounts(&self, device: &LoopDevice) -> Result<Vec<PathBuf>> {
        Ok(self
            .attached
            .lock()
            .iter()
            .find(|it| it.device == *device)
            .map(|it| it.mounts.clone())
            .unwrap_or_default())
    }

    fn holders(&self, _device: &LoopDevice) -> Result<Vec<Holder>> {
        Ok(self.holders.lock().clone())
    }

    fn file_systems(&self, device: &LoopDevice) -> Result<Vec<PathBuf>> {
        self.mounts(device)
    }

    fn attach(&self, _call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice> {
        if let Some(device) = self.find(image)? {
            return Ok(device);
        }
        let lock = File::open(image).unwrap();
        let lock = FileLock::try_shared(lock).unwrap().ok_or_else(|| {
            Error::unavailable(format!("{} is being copied or deleted, try again", image.display()))
        })?;
        let mut all = self.attached.lock();
        let device = LoopDevice::pretended(format!("/dev/loop{}", 700 + all.len()).into(), read_only);
        all.push(Attached { image: image.into(), device: device.clone(), mounts: Vec::new(), _lock: lock });
        if let Some(directory) = self.deleted_meanwhile.lock().take() {
            std::fs::remove_dir_all(directory).unwrap();
        }
        Ok(device)
    }

    fn refuse_discard(&self, _call: &Call, device: &LoopDevice) -> Result<()> {
        self.done.lock().push(format!("refuse discard on {}", device.path.display()));
        Ok(())
    }

    fn replay_journal(&self, _call: &Call, device: &LoopDevice) -> Result<()> {
        self.done.lock().push(format!("replay the journal on {}", device.path.display()));
        Ok(())
    }

    fn detach(&self, _call: &Call, device: &LoopDevice) -> Result<Detached> {
        let mut all = self.attached.lock();
        let free = |it: &Attached| it.device == *device && it.mounts.is_empty();
        let before = all.len();
        all.retain(|it| !free(it));
        self.done.lock().push(format!("detach {}", device.path.display()));
        Ok(if all.len() < before { Detached::Gone } else { Detached::WhenUnused })
    }

    fn grow(&self, _call: &Call, device: &Path) -> Result<()> {
        self.done.lock().push(format!("grow {}", device.display()));
        Ok(())
    }

    fn clone_frozen(
        &self,
        _call: &Call,
        mount_points: &[PathBuf],
        source: &Path,
        target: &Path,
    ) -> Result<()> {
        rustix::fs::ioctl_ficlone(File::create_new(target).unwrap(), File::open(source).unwrap()).unwrap();
        self.done.lock().push(format!("clone frozen {mount_points:?}"));
        Ok(())
    }

    fn thaw(&self, _call: &Call, mount_point: &Path) -> Result<()> {
        self.done.lock().push(format!("thaw {}", mount_point.display()));
        Ok(())
    }
}

/// A backend in a directory of its own.
pub(super) struct Fixture {
    pub local: Local,
    pub loops: Arc<FakeLoops>,
    pub root: PathBuf,
    pub call: Call,
    pub none: Secrets,
    _dir: Option<TempDir>,
}

pub(super) fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::at(dir.path().join("local"));
    Fixture { _dir: Some(dir), ..fixture }
}

/// A controller and node for this directory, whose ID is remembered beside it.
pub(super) fn open(root: &Path, loops: Arc<dyn Loops>) -> Local {
    Local::open(root.into(), &NodeName::new(NODE), "org.test", loops, Some(root.with_extension("id")))
        .unwrap()
}

impl Fixture {
    /// A backend in this directory, as after a start of the daemon.
    pub fn at(root: PathBuf) -> Self {
        let loops = Arc::new(FakeLoops::default());
        let local = open(&root, Arc::clone(&loops) as Arc<dyn Loops>);
        local.recover().unwrap();
        Self { local, loops, root, call: Call::internal("test"), none: Secrets::default(), _dir: None }
    }

    /// Deletes a volume, without a record of the deletion.
    pub fn delete(&self, id: &VolumeId) -> Result<Deleted> {
        let deletion = Deletion { id, snapshots_may_outlive: true, secrets: &self.none };
        self.local.delete(&self.call, &deletion, &|| Ok(()))
    }

    pub fn new_volume(&self, name: &str, size: u64) -> NewVolume {
        NewVolume {
            topology: None,
            place: self.local.own_place(),
            object: volume_object("test", name),
            name: name.into(),
            size: SizeRange { required: size, limit: 0 },
            parameters: Map::new(),
            mutable_parameters: Map::new(),
            capabilities: vec![block()],
            source: None,
            secrets: Secrets::default(),
        }
    }

    pub fn create(&self, new: &NewVolume) -> Result<Volume> {
        self.local.create(&self.call, new)
    }

    pub fn volume(&self, name: &str, size: u64) -> Volume {
        self.create(&self.new_volume(name, size)).unwrap()
    }

    pub fn copy_of(&self, name: &str, volume: &Volume) -> NewVolume {
        let source = Some((Source::Volume(volume.id.to_string()), Origin::Volume(volume.id.clone())));
        NewVolume { source, ..self.new_volume(name, 0) }
    }

    pub fn restored(&self, name: &str, snapshot: &Snapshot) -> NewVolume {
        let source = Some((Source::Snapshot(snapshot.id.to_string()), Origin::Snapshot(snapshot.id.clone())));
        NewVolume { source, ..self.new_volume(name, 0) }
    }

    pub fn snapshot(&self, name: &str, volume: &Volume) -> Result<Snapshot> {
        let (source, key) = (volume.id.clone(), snapshot_key("test", name));
        let new = NewSnapshot {
            source,
            key,
            name: name.into(),
            secrets: Secrets::default(),
            requisite: Vec::new(),
        };
        self.local.snapshots().create(&self.call, &new)
    }

    pub fn path(&self, volume: &Volume, file: &str) -> PathBuf {
        self.root.join("volumes").join(&volume.id.object).join(file)
    }

    pub fn image(&self, volume: &Volume) -> PathBuf {
        self.path(volume, "image")
    }

    pub fn find(&self, volume: &Volume) -> Option<Volume> {
        self.local.find(&self.call, &volume.id, &self.none).unwrap()
    }

    pub fn names(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.root.join(directory))
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(super) fn block() -> Capability {
    Capability { access: Access::Block, mode: Mode::SingleNodeWriter }
}

/// Asserts an error of this kind that mentions every part.
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T>, kind: Kind, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{error} should mention {part}");
    }
}

/// A file system of its own, mounted through a loop device; it is removed with the test.
pub(super) struct Mounted {
    pub path: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    pub fn new(mkfs: &[&str], size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (image, path) = (dir.path().join("fs"), dir.path().join("mnt"));
        File::create_new(&image).unwrap().set_len(size).unwrap();
        std::fs::create_dir(&path).unwrap();
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &path]));
        Self { path, _dir: dir }
    }

    pub fn xfs() -> Self {
        Self::new(&["mkfs.xfs", "-q"], 320 * MIB)
    }

    pub fn tiny_ext4() -> Self {
        Self::new(&["mkfs.ext4", "-q", "-b", "4096", "-m", "0"], 16 * MIB)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.path));
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the tools of the file systems are installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
