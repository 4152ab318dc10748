//! Tests of `kernel`: the whole round trip, with the helper's side called in place.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::error::Kind;
use crate::exec::fake::FakeHelper;
use crate::exec::{CommandError, Why};
use crate::sys::freeze::Thawed;
use crate::sys::loopdev::Detached;
use crate::sys::mount::Unmounted;
use crate::sys::mountinfo::Mounts;
use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};
use crate::sys::superblock::{Content, FsType};
use crate::sys::{freeze, loopdev};

/// Serves requests in this thread, and so in its mount namespace.
struct InPlace;

impl Helper for InPlace {
    fn ask(
        &self,
        _: &Call,
        _: &str,
        _: Class,
        request: &[u8],
        _: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        Ok(handle(request))
    }
}

/// Answers everything with the same bytes.
struct Canned(&'static [u8]);

impl Helper for Canned {
    fn ask(
        &self,
        _: &Call,
        _: &str,
        _: Class,
        _: &[u8],
        _: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        Ok(self.0.to_vec())
    }
}

pub(super) fn kernel() -> (Kernel, Call) {
    (Kernel::new(Arc::new(InPlace)), Call::internal("test"))
}

fn subdirectory(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    path
}

fn backing(image: &LoopImage) -> Backing {
    Backing::Loop(image.attached().clone())
}

fn spec<'a>(image: &'a Backing, target: &'a Path, fs_type: &'a str, options: &'a [String]) -> MountSpec<'a> {
    MountSpec { source: image, target, fs_type, options, read_only: false }
}

#[test]
fn paths_that_are_no_utf8_travel_unchanged() {
    let path = OsStr::from_bytes(b"/a\xff\n\"b");
    let request = HelperRequest::Statfs { path: path.to_owned() };
    let bytes = serde_json::to_vec(&request).unwrap();
    assert_eq!(serde_json::from_slice::<HelperRequest>(&bytes).unwrap(), request);
}

#[test]
fn nonsense_on_either_side_is_an_internal_error() {
    assert!(String::from_utf8(handle(b"{}")).unwrap().contains("read the request"));
    for reply in [&b""[..], b"null", b"\"Done\""] {
        let error = Kernel::new(Arc::new(Canned(reply)))
            .device_size(&Call::internal("test"), Path::new("/dev/x"))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Internal);
        assert!(error.message().contains("/dev/x"), "{error}");
    }
}

#[test]
fn a_missing_right_is_named() {
    let denied = br#"{"Err":{"action":"mount /dev/x on /y","errno":1,"text":""}}"#;
    let error =
        Kernel::new(Arc::new(Canned(denied))).thaw(&Call::internal("test"), Path::new("/y")).unwrap_err();
    assert!(error.message().contains("CAP_SYS_ADMIN"), "{error}");
    assert_eq!(error.errno(), Some(libc::EPERM));
}

#[test]
fn a_machine_without_loop_devices_is_no_missing_volume() {
    let missing = br#"{"Err":{"action":"attach /x","errno":19,"text":""}}"#;
    let error = Kernel::new(Arc::new(Canned(missing)))
        .attach(&Call::internal("test"), Path::new("/x"), false)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "an orchestrator takes NOT_FOUND for a volume that is gone");
    assert!(error.message().contains("modprobe loop"), "{error}");
}

#[test]
fn an_image_is_attached_grown_and_detached() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let (kernel, call) = kernel();
    let device = kernel.attach(&call, &image, false).unwrap();
    let again = kernel.attach(&call, &image, false);
    let size = kernel.device_size(&call, &device.path);
    File::options().write(true).open(&image).unwrap().set_len(6 << 20).unwrap();
    let grown = kernel.grow(&call, &device.path).and_then(|()| kernel.device_size(&call, &device.path));
    assert_eq!(kernel.detach(&call, &device).unwrap(), Detached::Gone);
    assert_eq!(again.unwrap(), device);
    assert_eq!((size.unwrap(), grown.unwrap()), (4 << 20, 6 << 20));
    assert!(loopdev::find(&image).unwrap().is_none());
}

#[test]
fn an_image_that_is_locked_or_missing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let (kernel, call) = kernel();
    assert_eq!(kernel.attach(&call, &image, false).unwrap_err().kind(), Kind::NotFound);
    fs::write(&image, [0; 4096]).unwrap();
    let locked = File::open(&image).unwrap();
    locked.lock().unwrap();
    let error = kernel.attach(&call, &image, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().contains("image"), "{error}");
}

#[test]
fn a_volume_is_identified_mounted_bound_and_unmounted() {
    in_private_mounts(|dir| {
        let (kernel, call) = kernel();
        let image = LoopImage::new(16 << 20);
        let blank = kernel.identify(&call, &backing(&image), Some(image.file())).unwrap();
        assert_eq!(blank, Identified { content: Content::Blank, device_bytes: 16 << 20 });
        mkfs("ext4", image.device());
        match kernel.identify(&call, &backing(&image), Some(image.file())).unwrap().content {
            Content::FileSystem(found) => assert_eq!(found.fs_type, FsType::Ext4),
            other => panic!("{other:?}"),
        }
        let (target, bound) = (subdirectory(dir, "target"), subdirectory(dir, "bound"));
        kernel
            .mount(&call, &spec(&backing(&image), &target, "ext4", &["noatime".into(), "discard".into()]))
            .unwrap();
        kernel.bind(&call, &target, &bound, true).unwrap();
        let mounts = Mounts::read().unwrap();
        assert!(mounts.find_at(&bound).unwrap().options.starts_with("ro,noatime"));
        assert!(mounts.find_at(&target).unwrap().super_options.contains("discard"));
        assert!(kernel.statfs(&call, &target).unwrap().bytes.total > 8 << 20);
        for path in [&bound, &target] {
            assert_eq!(kernel.unmount(&call, path).unwrap(), Unmounted::Done);
            assert_eq!(kernel.unmount(&call, path).unwrap(), Unmounted::NotMounted);
        }
    });
}

#[test]
fn what_uses_a_mount_for_a_moment_only_is_awaited() {
    let helper = Arc::new(FakeHelper::default());
    let request = || serde_json::to_vec(&HelperRequest::Unmount { target: "/t".into() }).unwrap();
    let busy = || {
        let busy = std::io::Error::from_raw_os_error(libc::EBUSY);
        failure::reply(Err::<(), _>(busy))
    };
    let (kernel, call) = (Kernel::new(Arc::clone(&helper) as Arc<_>), Call::internal("test"));
    (0..2).for_each(|_| helper.expect(request(), busy()));
    helper.expect(request(), failure::reply(Answer::Ok(Unmounted::Done)));
    assert_eq!(kernel.unmount(&call, Path::new("/t")).unwrap(), Unmounted::Done);
    (0..mount::UNMOUNTS).for_each(|_| helper.expect(request(), busy()));
    let error = kernel.unmount(&call, Path::new("/t")).unwrap_err();
    assert!(error.kind() == Kind::Precondition && error.message().contains("fuser -vm /t"), "{error}");
}

#[test]
fn a_device_in_use_is_not_looked_at() {
    in_private_mounts(|dir| {
        let (kernel, call) = kernel();
        let image = LoopImage::new(16 << 20);
        mkfs("ext4", image.device());
        let _mount = image.mount("ext4", dir);
        let error = kernel.identify(&call, &backing(&image), None).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (Kind::Unavailable, Some(libc::EBUSY)));
    });
}

#[test]
fn a_busy_mount_names_its_path() {
    in_private_mounts(|dir| {
        let (kernel, call) = kernel();
        let image = LoopImage::new(16 << 20);
        mkfs("ext4", image.device());
        let mount = image.mount("ext4", dir);
        let _user = File::create(mount.path().join("f")).unwrap();
        let error = kernel.unmount(&call, mount.path()).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition);
        assert!(error.message().contains(mount.path().to_str().unwrap()), "{error}");
    });
}

#[test]
fn a_mount_that_fails_says_why() {
    in_private_mounts(|dir| {
        let (kernel, call) = kernel();
        let image = LoopImage::new(16 << 20);
        let target = subdirectory(dir, "target");
        let unknown = kernel.mount(&call, &spec(&backing(&image), &target, "nosuchfs", &[])).unwrap_err();
        assert_eq!((unknown.kind(), unknown.errno()), (Kind::Precondition, Some(libc::ENODEV)));
        mkfs("ext4", image.device());
        let bad = kernel
            .mount(&call, &spec(&backing(&image), &target, "ext4", &["nosuchoption".into()]))
            .unwrap_err();
        assert!(
            bad.message().contains("1 options") && !bad.message().contains("nosuchoption"),
            "flags are sensitive: {bad}"
        );
    });
}

/// An XFS with reflink, on which images lie as they would on a host, and an ext4 volume mounted from such an
/// image.
fn frozen_clone_of_a_volume(dir: &Path, fs_type: &str, test: impl FnOnce(&Path, &Path)) {
    let host = LoopImage::new(512 << 20);
    mkfs(fs_type, host.device());
    let host = host.mount(fs_type, dir);
    let image = host.path().join("volume");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let device = loopdev::attach(&image, false).unwrap();
    mkfs("ext4", &device.path);
    let volume = subdirectory(dir, "volume");
    crate::sys::mount::mount(&device.path, &volume, "ext4", &crate::sys::mount::Options::parse::<&str>(&[]))
        .unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&image, &volume)));
    crate::sys::mount::unmount_detached(&volume).unwrap();
    loopdev::detach(&device).unwrap();
    if let Err(payload) = result {
        std::panic::resume_unwind(payload);
    }
}

#[test]
fn a_frozen_clone_holds_what_was_written_and_needs_no_replay() {
    in_private_mounts(|dir| {
        let bound = subdirectory(dir, "bound");
        frozen_clone_of_a_volume(dir, "xfs", |image, volume| {
            let (kernel, call) = kernel();
            fs::write(volume.join("f"), "written, never synced").unwrap();
            kernel.bind(&call, volume, &bound, false).unwrap();
            let clone = image.with_extension("clone");
            let mounts = [volume.to_owned(), bound.clone()];
            let cloned = kernel.clone_frozen(&call, &mounts, image, &clone);
            assert_eq!(freeze::thaw(volume).unwrap(), Thawed::NotFrozen, "it was thawed");
            kernel.unmount(&call, &bound).unwrap();
            cloned.unwrap();

            // Read-only and without replay, so the clone's data must be in place already.
            let device = kernel.attach(&call, &clone, true).unwrap();
            let options = ["noload".to_owned()];
            let spec = MountSpec {
                source: &Backing::Loop(device.clone()),
                target: &bound,
                fs_type: "ext4",
                options: &options,
                read_only: true,
            };
            let content = kernel.mount(&call, &spec).map(|()| fs::read(bound.join("f")));
            kernel.unmount(&call, &bound).unwrap();
            kernel.detach(&call, &device).unwrap();
            assert_eq!(content.unwrap().unwrap(), b"written, never synced");
        });
    });
}

#[test]
fn where_blocks_cannot_be_shared_everything_is_as_before() {
    in_private_mounts(|dir| {
        frozen_clone_of_a_volume(dir, "ext4", |image, volume| {
            let (kernel, call) = kernel();
            let clone = image.with_extension("clone");
            let refused = kernel.clone_frozen(&call, &[volume.to_owned()], image, &clone).unwrap_err();
            assert!(refused.message().contains("cannot be cloned"), "{refused}");
            assert_eq!(freeze::thaw(volume).unwrap(), Thawed::NotFrozen, "it was thawed");
            assert!(!clone.exists());
        });
    });
}

#[test]
fn a_clone_that_fails_leaves_nothing_frozen_and_no_file() {
    in_private_mounts(|dir| {
        frozen_clone_of_a_volume(dir, "xfs", |image, volume| {
            let (kernel, call) = kernel();
            let clone = image.with_extension("clone");
            let mounts = [volume.to_owned(), PathBuf::from("/proc")];
            let error = kernel.clone_frozen(&call, &mounts, image, &clone).unwrap_err();
            assert!(error.message().contains("freeze /proc"), "{error}");
            assert_eq!(freeze::thaw(volume).unwrap(), Thawed::NotFrozen, "the first one was thawed");
            assert!(!clone.exists());

            fs::write(&clone, "somebody's").unwrap();
            let taken = kernel.clone_frozen(&call, &[volume.to_owned()], image, &clone).unwrap_err();
            assert_eq!(taken.kind(), Kind::AlreadyExists);
            assert_eq!(fs::read(&clone).unwrap(), b"somebody's");
        });
    });
}

/// A helper that is killed between freeze and thaw.
struct KilledInTheFreeze(PathBuf);

impl Helper for KilledInTheFreeze {
    fn ask(
        &self,
        _: &Call,
        step: &str,
        _: Class,
        request: &[u8],
        _: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        let request_read = serde_json::from_slice(request).unwrap();
        let HelperRequest::CloneFrozen { .. } = request_read else { return Ok(handle(request)) };
        std::mem::forget(freeze::Frozen::freeze(&self.0).unwrap());
        Err(Why::Signaled { signal: libc::SIGKILL, stderr_tail: String::new() }.of(step))
    }
}

#[test]
fn what_a_killed_helper_has_frozen_is_thawed() {
    in_private_mounts(|dir| {
        let image = LoopImage::new(16 << 20);
        mkfs("ext4", image.device());
        let volume = image.mount("ext4", dir);
        let kernel = Kernel::new(Arc::new(KilledInTheFreeze(volume.path().into())));
        let places = [dir.to_owned(), volume.path().to_owned()];
        let cloned = kernel.clone_frozen(&Call::internal("test"), &places, image.file(), &dir.join("clone"));
        let left = freeze::thaw(volume.path()).unwrap();
        assert!(cloned.unwrap_err().message().contains("signal 9"));
        assert_eq!(left, Thawed::NotFrozen, "UNSAFE: the consumer's writes hang");
    });
}

#[test]
fn a_file_system_frozen_by_others_is_theirs_to_thaw() {
    in_private_mounts(|dir| {
        frozen_clone_of_a_volume(dir, "xfs", |image, volume| {
            let (kernel, call) = kernel();
            let frozen = freeze::Frozen::freeze(volume).unwrap();
            let error = kernel
                .clone_frozen(&call, &[volume.to_owned()], image, &image.with_extension("clone"))
                .unwrap_err();
            assert_eq!((error.kind(), error.errno()), (Kind::Precondition, Some(libc::EBUSY)));
            std::mem::forget(frozen);
            assert_eq!(freeze::thaw(volume).unwrap(), Thawed::Done, "still frozen");
            kernel.thaw(&call, volume).unwrap();
        });
    });
}

#[test]
fn a_file_system_is_never_frozen_under_its_own_clone() {
    in_private_mounts(|dir| {
        frozen_clone_of_a_volume(dir, "xfs", |image, _| {
            let (kernel, call) = kernel();
            let host = image.parent().unwrap();
            let clone = image.with_extension("clone");
            let error = kernel.clone_frozen(&call, &[host.to_owned()], image, &clone).unwrap_err();
            assert_eq!(error.errno(), Some(libc::EDEADLK));
            assert!(!clone.exists());
        });
    });
}
