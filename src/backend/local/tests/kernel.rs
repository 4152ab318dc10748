//! The kernel's own loop devices and mounts, with the helper's side called in place.

use std::os::unix::fs::FileExt;

use super::*;
use crate::backend::{Attachment, BlockDevice, Deleted, NodeContext, Publication, PublishedBy};
use crate::exec::{Class, CommandError, Helper};
use crate::kernel::{Kernel, handle};
use crate::sys::mount::{self, Options};
use crate::sys::scratch::{in_private_mounts, mkfs};

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

/// A backend with real devices, in a private mount namespace. Detaches the devices that the test leaves.
fn with_devices(directory: &Path, test: impl FnOnce(&Fixture)) {
    let root = directory.join("local");
    let local = open(&root, Arc::new(Kernel::new(Arc::new(InPlace))));
    local.recover().unwrap();
    let it = Fixture { local, root, ..fixture() };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&it)));
    for volume in it.local.list(&it.call, ("", 0), &Err).unwrap().entries {
        let _ = it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none);
    }
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn attach(it: &Fixture, volume: &Volume, publish: &Map) -> Result<BlockDevice> {
    let attached = it.local.attach(
        &it.call,
        &volume.id,
        None,
        &NodeContext {
            volume: &Map::new(),
            publish,
            secrets: &it.none,
            capability: &block(),
            read_only: false,
        },
        &|_| Ok(()),
    );
    attached.map(|attached| attached.device().unwrap().clone())
}

fn device_size(device: &BlockDevice) -> u64 {
    let open = crate::sys::block::open(&device.path).unwrap();
    crate::sys::block::size(&open).unwrap()
}

#[test]
fn a_volume_is_attached_grown_and_detached() {
    in_private_mounts(|directory| {
        with_devices(directory, |it| {
            let volume = it.volume("a", 3 * MIB + 1);
            let device = attach(it, &volume, &Map::new()).unwrap();
            assert_eq!(device_size(&device), volume.size, "the device is as large as the image");
            assert_eq!(attach(it, &volume, &Map::new()).unwrap(), device);
            assert_eq!(it.local.attached(&volume.id).unwrap(), Some(Attachment::Block(device.clone())));
            let range = SizeRange { required: 5 * MIB, limit: 0 };
            let size = it.local.expand(&it.call, &volume.id, &range, &it.none).unwrap();
            it.local.grow(&it.call, &volume.id, &Attachment::Block(device.clone()), 0).unwrap();
            assert_eq!((device_size(&device), size), (5 * MIB, 5 * MIB));
            let parts = [&volume.id.to_string(), device.path.to_str().unwrap()];
            refused(it.delete(&volume.id), Kind::Precondition, &parts);
            it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none).unwrap();
            assert_eq!(it.local.attached(&volume.id).unwrap(), None);
            assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
        });
    });
}

#[test]
fn a_read_only_publication_gives_a_read_only_device() {
    in_private_mounts(|directory| {
        with_devices(directory, |it| {
            let volume = it.volume("a", MIB);
            let publication = Publication { node: NODE.into(), capability: block(), read_only: true };
            let context = it.local.publish(&it.call, &volume.id, &publication, &it.none).unwrap();
            assert!(attach(it, &volume, &context).unwrap().read_only);
            refused(
                attach(it, &volume, &Map::new()),
                Kind::Precondition,
                &[&volume.id.to_string(), "read-only"],
            );
        });
    });
}

#[test]
fn a_mounted_volume_keeps_its_device_and_says_where() {
    in_private_mounts(|directory| {
        with_devices(directory, |it| {
            let volume = it.volume("a", 16 * MIB);
            let device = attach(it, &volume, &Map::new()).unwrap();
            mkfs("ext4", &device.path);
            let target = directory.join("mnt");
            std::fs::create_dir(&target).unwrap();
            mount::mount(&device.path, &target, "ext4", &Options::parse::<&str>(&[])).unwrap();
            let parts = [&volume.id.to_string(), device.path.to_str().unwrap(), target.to_str().unwrap()];
            refused(it.delete(&volume.id), Kind::Precondition, &parts);
            refused(
                it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none),
                Kind::Precondition,
                &parts,
            );
            mount::ensure_unmounted(&target).unwrap();
            it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none).unwrap();
        });
    });
}

#[test]
fn a_volume_whose_data_is_copied_is_attached_afterwards() {
    in_private_mounts(|directory| {
        with_devices(directory, |it| {
            let volume = it.volume("a", MIB);
            let copying =
                it.local.open_source(&it.local.volumes, &volume.id.object, "volume a".into()).unwrap();
            refused(
                attach(it, &volume, &Map::new()),
                Kind::Unavailable,
                &[&volume.id.to_string(), "try again"],
            );
            drop(copying);
            attach(it, &volume, &Map::new()).unwrap();
            refused(
                it.snapshot("s", &volume),
                Kind::Precondition,
                &[&volume.id.to_string(), "/dev/loop", "no reflink"],
            );
        });
    });
}

#[test]
fn a_mounted_volume_is_snapshotted_as_a_whole_file_system() {
    in_private_mounts(|directory| {
        let xfs = Mounted::xfs();
        with_devices(&xfs.path, |it| {
            let volume = it.volume("a", 16 * MIB);
            let device = attach(it, &volume, &Map::new()).unwrap();
            mkfs("ext4", &device.path);
            let target = directory.join("mnt");
            std::fs::create_dir(&target).unwrap();
            mount::mount(&device.path, &target, "ext4", &Options::parse::<&str>(&[])).unwrap();
            std::fs::write(target.join("file"), "still in memory").unwrap();
            let snapshot = it.snapshot("s", &volume).unwrap();
            std::fs::write(target.join("file"), "writes go on").unwrap();
            mount::ensure_unmounted(&target).unwrap();
            assert!(it.names("pending").is_empty(), "the note of the freeze is gone");

            let restored = it.create(&it.restored("b", &snapshot)).unwrap();
            let device = attach(it, &restored, &Map::new()).unwrap();
            mount::mount(&device.path, &target, "ext4", &Options::parse(&["ro", "noload"])).unwrap();
            assert_eq!(
                std::fs::read(target.join("file")).unwrap(),
                b"still in memory",
                "without replaying the journal"
            );
            mount::ensure_unmounted(&target).unwrap();
        });
    });
}

#[test]
fn an_attached_block_volume_is_copied_as_it_is_on_disk() {
    in_private_mounts(|_| {
        let xfs = Mounted::xfs();
        with_devices(&xfs.path, |it| {
            let volume = it.volume("a", MIB);
            let device = attach(it, &volume, &Map::new()).unwrap();
            let open = File::options().write(true).open(&device.path).unwrap();
            open.write_all_at(b"synced", 4096).unwrap();
            open.sync_all().unwrap();
            let copy = it.create(&it.copy_of("b", &volume)).unwrap();
            let mut bytes = [0; 6];
            File::open(it.image(&copy)).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
            assert_eq!(&bytes, b"synced");
        });
    });
}
