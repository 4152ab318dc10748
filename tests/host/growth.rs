//! Sizes on the node: expansion online, copies that are larger than their source, how full a volume is.

use std::fs;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::{run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, TestVolume, refused};

/// The size of a file system by statvfs(3).
fn size_at(volume: &TestVolume<'_>, at: &str) -> i64 {
    let found = rustix::fs::statvfs(volume.path(at)).expect("statvfs");
    i64::try_from(found.f_blocks * found.f_frsize).expect("a size")
}

#[test]
fn xfs_grows_while_it_is_used() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 320, mount("xfs"));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "target").expect("publish");
    let open = fs::File::create(volume.path("target/file")).expect("a file in use");
    let before = size_at(&volume, "target");
    refused(volume.node_expand("target", 400 * MIB), Code::OUT_OF_RANGE, &["controller"]);
    volume.expand(400 * MIB).expect("expand");
    for _ in 0..2 {
        assert_eq!(volume.node_expand("target", 400 * MIB).expect("expand on the node"), 400 * MIB);
    }
    assert!(size_at(&volume, "target") >= before + 70 * MIB);
    drop(open);
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn btrfs_grows_while_it_is_used() {
    let daemon = Daemon::start();
    // The kernel resizes no btrfs to less than 256 MiB.
    let volume = TestVolume::create(&daemon, "one", 256, mount("btrfs"));
    volume.stage("stage").expect("stage");
    volume.expand(320 * MIB).expect("expand");
    assert_eq!(volume.node_expand("stage", 0).expect("at the staging path, to what there is"), 320 * MIB);
    assert_eq!(size_at(&volume, "stage"), 320 * MIB);
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_block_volume_grows_while_it_is_used() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    volume.expand(16 * MIB).expect("expand");
    assert_eq!(volume.node_expand("device", 16 * MIB).expect("expand on the node"), 16 * MIB);
    assert_eq!(run("blockdev", &["--getsize64", text(&volume.path("device"))]), (16 << 20).to_string());
    volume.retire(&["device"], &["stage"]);
}

/// Whether this process may grow a mounted ext4: CAP_SYS_RESOURCE is bit 24 of the capabilities
/// (capabilities(7)).
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("our status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    u64::from_str_radix(effective.trim(), 16).expect("hexadecimal") & (1 << 24) != 0
}

#[test]
fn ext4_grows_while_it_is_used_or_says_what_is_missing() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    volume.expand(64 * MIB).expect("expand");
    let answer = volume.node_expand("target", 64 * MIB);
    if may_grow_ext4() {
        assert_eq!(answer, Ok(64 * MIB));
    } else {
        refused(answer, Code::FAILED_PRECONDITION, &["CAP_SYS_RESOURCE"]);
        volume.unpublish("target").expect("unpublish");
        volume.unstage("stage").expect("unstage");
        volume.stage("stage").expect("it grows when it is staged again");
    }
    assert!(size_at(&volume, "stage") > 50 * MIB);
}

#[test]
fn a_volume_that_grew_while_it_was_away_is_grown_at_stage() {
    for (fs_type, mib) in [("ext4", 32), ("xfs", 320), ("btrfs", 128)] {
        let daemon = Daemon::start();
        let volume = TestVolume::create(&daemon, "one", mib, mount(fs_type));
        volume.stage("stage").expect("stage");
        fs::write(volume.path("stage/file"), "data").expect("write");
        volume.unstage("stage").expect("unstage");
        volume.expand(2 * mib * MIB).expect("expand");
        volume.stage("stage").expect("stage again");
        assert!(size_at(&volume, "stage") > mib * MIB * 3 / 2, "{fs_type}");
        assert_eq!(fs::read_to_string(volume.path("stage/file")).expect("the data"), "data", "{fs_type}");
        volume.retire(&[], &["stage"]);
    }
}

#[test]
fn a_btrfs_that_the_kernel_cannot_resize_is_usable_still() {
    // The kernel resizes no btrfs to less than 256 MiB.
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 128, mount("btrfs"));
    volume.stage("stage").expect("stage");
    volume.expand(160 * MIB).expect("expand");
    let said = volume.node_expand("stage", 160 * MIB).expect_err("the kernel cannot");
    assert!(said.message.contains("256"), "{said:?}");
    volume.unstage("stage").expect("unstage");
    volume.stage("stage").expect("it is as it was");
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_clone_larger_than_its_source_is_grown_at_stage() {
    for (fs_type, mib) in [("ext4", 32), ("xfs", 320)] {
        let daemon = Daemon::start();
        let source = TestVolume::create(&daemon, "one", mib, mount(fs_type));
        source.stage("stage").expect("stage");
        fs::write(source.path("stage/file"), "data").expect("write");
        source.unstage("stage").expect("unstage");
        let copy = TestVolume::make(
            &daemon,
            from_volume(volume_as("copy", 2 * mib * MIB, mount(fs_type)), &source.id),
        );
        source.stage("stage").expect("stage the source");
        copy.stage("copy").expect("stage the copy beside it");
        assert!(size_at(&copy, "copy") > mib * MIB * 3 / 2, "{fs_type}");
        assert_eq!(fs::read_to_string(copy.path("copy/file")).expect("the data"), "data", "{fs_type}");
        copy.retire(&[], &["copy"]);
        source.retire(&[], &["stage"]);
        daemon.assert_node_is_clean();
    }
}

#[test]
fn how_full_a_file_system_is() {
    use wire::volume_usage::Unit;
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    let usage = |unit: Unit| {
        let reply = volume.stats("target").expect("stats");
        assert!(!reply.volume_condition.abnormal, "{}", reply.volume_condition.message);
        reply.usage.into_iter().find(|usage| usage.unit.enum_value() == Ok(unit)).expect("an entry")
    };
    let (bytes, inodes) = (usage(Unit::BYTES), usage(Unit::INODES));
    assert_eq!(bytes.total, size_at(&volume, "target"));
    assert!(bytes.total <= volume.size && bytes.used + bytes.available <= bytes.total, "{bytes:?}");
    fs::write(volume.path("target/file"), vec![1; 4 << 20]).expect("write");
    rustix::fs::syncfs(fs::File::open(volume.path("target")).expect("open")).expect("sync");
    assert!(usage(Unit::BYTES).used >= bytes.used + 4 * MIB);
    assert_eq!(usage(Unit::INODES).used, inodes.used + 1);
    assert_eq!(volume.stats("stage").expect("at the staging path too").usage.len(), 2);
}

#[test]
fn how_large_a_block_volume_is() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    let reply = volume.stats("device").expect("stats");
    assert_eq!((reply.usage.len(), reply.usage[0].total), (1, 8 * MIB));
    assert!(!reply.volume_condition.abnormal);
}

#[test]
fn a_lost_mount_is_reported() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    run("umount", &[text(&volume.path("target"))]);
    let condition = volume.stats("target").expect("stats").volume_condition;
    assert!(condition.abnormal && condition.message.contains("mounted"), "{condition:?}");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn what_is_no_longer_mounted_does_not_grow() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    for mount in crate::support::machine::mounts_below(&daemon.path("")) {
        crate::support::machine::run("umount", &[crate::support::machine::text(&mount.point)]);
    }
    volume.expand(48 * MIB).expect("expand");
    refused(volume.node_expand("stage", 48 * MIB), Code::FAILED_PRECONDITION, &["stage it again"]);
    volume.stage("stage").expect("stage again");
    volume.node_expand("stage", 48 * MIB).expect("now it grows");
    volume.retire(&[], &["stage"]);
}

/// File systems that are never made are mounted, checked and grown if a volume has one already.
#[test]
fn an_ext2_or_ext3_that_is_there_is_used_and_grows() {
    let daemon = Daemon::start();
    for fs_type in ["ext2", "ext3"] {
        let offered = ["ext4, xfs, btrfs"];
        let new = volume_as("new", 32 * MIB, mount(fs_type));
        refused(daemon.client().create(&new), Code::INVALID_ARGUMENT, &offered);
        let parameters = map(&[("csi.storage.k8s.io/fstype", fs_type)]);
        let new = wire::CreateVolumeRequest { parameters, ..volume_as("new", 32 * MIB, mount("")) };
        refused(daemon.client().create(&new), Code::INVALID_ARGUMENT, &offered);

        let volume = TestVolume::create(&daemon, fs_type, 32, block());
        refused(
            volume.stage_as("stage", mount(fs_type)),
            Code::INVALID_ARGUMENT,
            &["blank", "ext4, xfs, btrfs"],
        );
        volume.stage("stage").expect("stage");
        volume.publish("stage", "device").expect("publish");
        run("mke2fs", &["-q", "-t", fs_type, "-F", text(&volume.path("device"))]);
        volume.unpublish("device").expect("unpublish");
        volume.unstage("stage").expect("unstage");

        let advice = format!("ask for {fs_type}");
        refused(volume.stage_as("stage", mount("ext4")), Code::FAILED_PRECONDITION, &[&advice]);
        volume.stage_as("stage", mount(fs_type)).expect("stage as what it is");
        fs::write(volume.path("stage/file"), "kept").expect("write");
        let before = size_at(&volume, "stage");
        volume.unstage("stage").expect("unstage");
        volume.expand(64 * MIB).expect("expand");
        volume.stage_as("stage", mount(fs_type)).expect("stage again");
        assert!(size_at(&volume, "stage") >= before + 24 * MIB, "it grows");
        assert_eq!(fs::read(volume.path("stage/file")).expect("read"), b"kept");
        volume.publish_as("stage", "target", mount(fs_type)).expect("publish");
        volume.retire(&["target"], &["stage"]);
    }
}
