//! Preallocated volumes keep their blocks, and their loop devices are as they were for the next user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::{limited, loops_below, run, text};
use crate::support::requests::*;
use crate::support::{Daemon, MIB, PATIENCE, TestVolume};

fn preallocated<'a>(daemon: &'a Daemon, mib: i64, capability: wire::VolumeCapability) -> TestVolume<'a> {
    let request = volume_as("one", mib * MIB, capability);
    TestVolume::make(
        daemon,
        wire::CreateVolumeRequest { parameters: map(&[("preallocate", "true")]), ..request },
    )
}

fn device_of(volume: &TestVolume<'_>) -> PathBuf {
    loops_below(&volume.image()).remove(0).0
}

fn queue(device: &Path, setting: &str) -> u64 {
    let name = device.file_name().expect("a name");
    let file = Path::new("/sys/block").join(name).join("queue").join(setting);
    fs::read_to_string(file).map_or(0, |text| text.trim().parse().expect("a number"))
}

/// Whether the next user of the device would have it without discard.
fn is_spoilt(device: &Path) -> bool {
    let attached =
        Path::new("/sys/block").join(device.file_name().expect("a name")).join("loop/backing_file");
    !attached.exists() && queue(device, "discard_max_bytes") == 0 && queue(device, "discard_max_hw_bytes") > 0
}

#[track_caller]
fn assert_allocated(volume: &TestVolume<'_>, mib: i64) {
    let blocks = volume.image().metadata().expect("the image").blocks() * 512;
    assert!(blocks >= (mib * MIB) as u64, "UNSAFE: {} of {mib} MiB are left", blocks >> 20);
}

/// Runs a tool that may be refused.
fn attempt(program: &str, arguments: &[&str]) {
    limited(PATIENCE, program).args(arguments).output().expect("timeout");
}

#[test]
fn a_preallocated_file_system_keeps_its_blocks() {
    for (fs_type, mib) in [("ext4", 64), ("btrfs", 256)] {
        let daemon = Daemon::start();
        let volume = preallocated(&daemon, mib, mount(fs_type));
        let use_up = || {
            let file = volume.path("stage/file");
            fs::write(&file, vec![7; 20 << 20]).expect("write");
            run("sync", &["--file-system", &daemon.text("stage")]);
            fs::remove_file(&file).expect("remove");
            run("sync", &["--file-system", &daemon.text("stage")]);
            attempt("fstrim", &[&daemon.text("stage")]);
        };
        for flags in [&[][..], &["discard"]] {
            let capability = mount_as(fs_type, AccessModeOf::SINGLE_NODE_WRITER, flags);
            volume.stage_as("stage", capability.clone()).expect("stage");
            use_up();
            assert_allocated(&volume, mib);
            volume.stage_as("stage", capability).expect("stage again");
            assert_eq!(queue(&device_of(&volume), "discard_max_bytes"), 0);
            volume.unstage("stage").expect("unstage");
        }
        volume.stage("stage").expect("stage");
        volume.expand(2 * mib * MIB).expect("expand");
        // A mounted ext4 grows with CAP_SYS_RESOURCE only.
        if fs_type == "btrfs" {
            volume.node_expand("stage", 2 * mib * MIB).expect("expand on the node");
        }
        use_up();
        assert_allocated(&volume, 2 * mib);
        let device = device_of(&volume);
        volume.unstage("stage").expect("unstage");
        assert!(!is_spoilt(&device));
        volume.retire(&[], &[]);
        daemon.assert_node_is_clean();
    }
}

#[test]
fn a_preallocated_device_keeps_its_blocks() {
    let daemon = Daemon::start();
    let volume = preallocated(&daemon, 32, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    attempt("blkdiscard", &["--force", &daemon.text("device")]);
    assert_allocated(&volume, 32);
    // The device is detached by hand, or by the kernel when its last user lets go of it.
    let device = device_of(&volume);
    run("umount", &[&daemon.text("device")]);
    run("losetup", &["--detach", text(&device)]);
    volume.unpublish("device").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    let sparse = TestVolume::create(&daemon, "sparse", 32, block());
    sparse.stage("stage").expect("stage another one");
    assert!(queue(&device_of(&sparse), "discard_max_bytes") > 0, "it has the setting of the last user");
    assert!(!is_spoilt(&device));
    sparse.retire(&[], &["stage"]);
    volume.retire(&[], &[]);
    daemon.assert_node_is_clean();
}
