//! Real mounts: staged, published, written, read, taken back. Paths are names in the test's directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;

use crate::support::machine::{checksum, exists, is_mounted, mount_at, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::scratch::poke;
use crate::support::{Code, Daemon, Setup, TestVolume, refused};

use AccessModeOf as Mode;

/// A file system is made, written, unpublished, published elsewhere and compared.
fn carries_data(fs_type: &str, mib: i64) {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", mib, mount(fs_type));
    for _ in 0..2 {
        volume.stage("stage").expect("stage");
        volume.publish("stage", "target").expect("publish");
    }
    assert_eq!(mount_at(&volume.path("target")).expect("mounted").fs_type, fs_type);
    let file = volume.path("target/file");
    fs::write(&file, vec![0x5a; 3_000_001]).expect("write");
    let before = checksum(&file);
    for _ in 0..2 {
        volume.unpublish("target").expect("unpublish");
        volume.unstage("stage").expect("unstage");
    }
    daemon.assert_node_is_clean();
    volume.stage("elsewhere/stage").expect("stage elsewhere");
    fs::create_dir_all(daemon.path("pod")).expect("the parent of the target");
    volume.publish("elsewhere/stage", "pod/target").expect("publish elsewhere");
    assert_eq!(checksum(&volume.path("pod/target/file")), before);
    volume.retire(&["pod/target"], &["elsewhere/stage"]);
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

#[test]
fn ext4_carries_data() {
    carries_data("ext4", 32);
}

#[test]
fn xfs_carries_data() {
    carries_data("xfs", 320);
}

#[test]
fn btrfs_carries_data() {
    carries_data("btrfs", 128);
}

#[test]
fn no_file_system_type_means_ext4() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount(""));
    volume.stage("stage").expect("stage");
    assert_eq!(mount_at(&volume.path("stage")).expect("mounted").fs_type, "ext4");
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_volume_may_have_several_targets() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_MULTI_WRITER, &[]));
    volume.stage("stage").expect("stage");
    let targets = ["a", "b", "c"];
    targets.iter().for_each(|target| volume.publish("stage", target).expect("publish"));
    fs::write(volume.path("a/file"), "from a").expect("write");
    assert_eq!(fs::read_to_string(volume.path("c/file")).expect("read"), "from a");
    volume.unpublish("a").expect("unpublish");
    assert!(!is_mounted(&volume.path("a")) && is_mounted(&volume.path("b")));
    assert_eq!(fs::read_to_string(volume.path("b/file")).expect("the others stay"), "from a");
    volume.retire(&["b", "c"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn single_writers_have_one_target() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_SINGLE_WRITER, &[]));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "a").expect("publish");
    volume.publish("stage", "a").expect("the same again");
    refused(volume.publish("stage", "b"), Code::FAILED_PRECONDITION, &[&daemon.text("a")]);
    assert!(!exists(&volume.path("b")), "a refused target leaves nothing");
    volume.unpublish("a").expect("unpublish");
    volume.publish("stage", "b").expect("now it is free");
    volume.retire(&["b"], &["stage"]);
}

#[test]
fn a_second_target_of_a_single_node_is_a_matter_of_configuration() {
    for (policy, code) in [("lenient", Code::OK), ("strict", Code::FAILED_PRECONDITION)] {
        let daemon = Setup::new().set("CEPHLET_SINGLE_NODE_TARGETS", policy).start();
        let volume = TestVolume::in_use(&daemon, "one");
        let second = volume.publish("stage", "second");
        assert_eq!(second.map_or_else(|error| error.code, |()| Code::OK), code, "{policy}");
    }
}

#[test]
fn nothing_is_written_through_a_read_only_target() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_MULTI_WRITER, &[]));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "rw").expect("publish");
    for _ in 0..2 {
        volume.publish_read_only("stage", "ro").expect("publish read-only");
    }
    let refusal = fs::write(volume.path("ro/file"), "x").expect_err("read-only");
    assert_eq!(refusal.kind(), ErrorKind::ReadOnlyFilesystem);
    fs::write(volume.path("rw/file"), "x").expect("the other target is not read-only");
    refused(volume.publish("stage", "ro"), Code::ALREADY_EXISTS, &[&daemon.text("ro")]);
    volume.retire(&["ro", "rw"], &["stage"]);
}

#[test]
fn readers_only_read() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    fs::write(volume.path("target/file"), "data").expect("write");
    volume.unpublish("target").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    let reader = mount_as("ext4", Mode::SINGLE_NODE_READER_ONLY, &[]);
    volume.stage_as("stage", reader.clone()).expect("stage for reading");
    refused(volume.publish("stage", "target"), Code::FAILED_PRECONDITION, &["read-only"]);
    volume.publish_as("stage", "target", reader).expect("publish for reading");
    assert_eq!(fs::read_to_string(volume.path("target/file")).expect("read"), "data");
    let refusal = fs::write(volume.path("target/file"), "x").expect_err("read-only");
    assert_eq!(refusal.kind(), ErrorKind::ReadOnlyFilesystem);
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn a_volume_may_be_staged_at_several_paths() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("s1").expect("stage");
    volume.stage("s2").expect("stage at another path");
    volume.publish("s2", "target").expect("publish");
    fs::write(volume.path("s1/file"), "x").expect("write");
    assert_eq!(fs::read_to_string(volume.path("target/file")).expect("one file system"), "x");
    volume.unstage("s1").expect("unstage");
    assert!(!is_mounted(&volume.path("s1")) && is_mounted(&volume.path("target")));
    volume.retire(&["target"], &["s2"]);
    daemon.assert_node_is_clean();
}

#[test]
fn other_mount_options_are_refused_and_leave_nothing() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_WRITER, &["noatime"]));
    volume.stage("s1").expect("stage");
    let options = mount_at(&volume.path("s1")).expect("mounted").options;
    assert!(options.split(',').any(|option| option == "noatime"), "{options}");
    refused(volume.stage_as("s2", mount("ext4")), Code::ALREADY_EXISTS, &[&volume.id]);
    refused(volume.stage_as("s1", block()), Code::ALREADY_EXISTS, &["block device"]);
    assert!(!exists(&volume.path("s2")));
    volume.retire(&[], &["s1"]);
}

#[test]
fn an_option_the_kernel_does_not_know_leaves_nothing() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_WRITER, &["nosuchoption"]));
    refused(volume.stage("stage"), Code::INVALID_ARGUMENT, &[&volume.id, "options"]);
    daemon.assert_node_is_clean();
    volume.stage_as("stage", mount("ext4")).expect("without it");
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_block_volume_is_a_device() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    for _ in 0..2 {
        volume.stage("stage").expect("stage");
        volume.publish("stage", "device").expect("publish");
    }
    let device = volume.path("device");
    assert!(fs::metadata(&device).expect("the target").file_type().is_block_device());
    assert_eq!(run("blockdev", &["--getsize64", text(&device)]), (8 << 20).to_string());
    poke(&device, 4096, b"through the device");
    let read = fs::read(volume.image()).expect("the image");
    assert_eq!(&read[4096..4114], b"through the device");
    volume.unpublish("device").expect("unpublish");
    assert!(!exists(&device));
    volume.stage("stage").expect("staged still");
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_block_device_is_not_read_only_at_one_path_alone() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    refused(
        volume.publish_read_only("stage", "device"),
        Code::FAILED_PRECONDITION,
        &[&volume.id, "reader-only"],
    );
    assert!(!exists(&volume.path("device")));
    refused(volume.publish_as("stage", "other", mount("ext4")), Code::FAILED_PRECONDITION, &["block device"]);
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn readers_of_a_block_volume_only_read() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block_as(Mode::SINGLE_NODE_READER_ONLY));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    assert!(
        fs::write(volume.path("device"), "x").is_err(),
        "the device must refuse, a read-only bind of its node does not"
    );
    refused(volume.stage_as("other", block()), Code::FAILED_PRECONDITION, &["read-only"]);
    volume.retire(&["device"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn what_is_published_keeps_its_volume_staged() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    fs::write(volume.path("target/file"), "data").expect("write");
    for _ in 0..2 {
        refused(volume.unstage("stage"), Code::FAILED_PRECONDITION, &[&daemon.text("target")]);
        assert!(is_mounted(&volume.path("stage")));
    }
    assert_eq!(fs::read_to_string(volume.path("target/file")).expect("still there"), "data");
    refused(
        volume.client.delete_volume(&delete(&volume.id)),
        Code::FAILED_PRECONDITION,
        &[&daemon.text("target")],
    );
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn what_was_there_before_stays() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let (made, kept) = (volume.path("made"), volume.path("kept"));
    fs::create_dir(&kept).expect("a directory of the orchestrator");
    fs::write(kept.join("hidden"), "x").expect("something in it");
    volume.stage("stage").expect("stage");
    volume.publish("stage", "made").expect("publish");
    volume.publish("stage", "kept").expect("publish over it");
    volume.unpublish("made").expect("unpublish");
    volume.unpublish("kept").expect("unpublish");
    assert!(!exists(&made), "we made it");
    assert_eq!(fs::read_to_string(kept.join("hidden")).expect("it is as it was"), "x");
    volume.retire(&[], &["stage"]);
}

#[test]
fn data_below_a_target_is_never_deleted() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    // A user unmounts the target without the daemon, and puts a file there.
    run("umount", &[text(&volume.path("target"))]);
    fs::write(volume.path("target/theirs"), "x").expect("write below the mount");
    refused(volume.unpublish("target"), Code::FAILED_PRECONDITION, &[&daemon.text("target")]);
    assert_eq!(fs::read_to_string(volume.path("target/theirs")).expect("never deleted"), "x");
    fs::remove_file(volume.path("target/theirs")).expect("now they take it away");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn publishing_needs_a_stage() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.publish("stage", "target"), Code::FAILED_PRECONDITION, &[&volume.id, "stage it first"]);
    volume.stage("stage").expect("stage");
    refused(volume.publish("other", "target"), Code::FAILED_PRECONDITION, &[&daemon.text("other")]);
    run("umount", &[text(&volume.path("stage"))]);
    refused(volume.publish("stage", "target"), Code::FAILED_PRECONDITION, &[&daemon.text("stage")]);
    assert!(!exists(&volume.path("target")));
    volume.stage("stage").expect("staging again mends it");
    volume.publish("stage", "target").expect("publish");
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn a_foreign_mount_is_left_alone() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let foreign = daemon.scratch().dir("stage");
    run("mount", &["-t", "tmpfs", "foreign", text(&foreign)]);
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &[&daemon.text("stage")]);
    assert_eq!(mount_at(&foreign).expect("it is there").source, "foreign");
    volume.unstage("stage").expect("it was never staged there");
    assert_eq!(mount_at(&foreign).expect("it is there").source, "foreign");
    run("umount", &[text(&foreign)]);
    daemon.assert_node_is_clean();
    volume.stage("stage").expect("now it is out of the way");
    volume.retire(&[], &["stage"]);
}

#[test]
fn unknown_volumes_and_paths() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.unstage("never").expect("never staged");
    volume.unpublish("never").expect("never published");
    let (client, at, absent) = (&volume.client, daemon.text("x"), "local:node-1:::csi-vol-no:1");
    refused(client.node_stage_volume(&stage(absent, &at, mount("ext4"))), Code::NOT_FOUND, &[absent]);
    refused(
        client.node_publish_volume(&publish(absent, &at, &daemon.text("y"), mount("ext4"))),
        Code::NOT_FOUND,
        &[absent],
    );
    refused(client.node_get_volume_stats(&stats(absent, &at)), Code::NOT_FOUND, &[absent]);
    refused(client.node_expand_volume(&node_expand(absent, &at)), Code::NOT_FOUND, &[absent]);
    refused(volume.stats("x"), Code::NOT_FOUND, &[&at]);
    refused(client.node_stage_volume(&stage("x", &at, mount("ext4"))), Code::NOT_FOUND, &["x"]);
    assert!(!exists(&volume.path("x")));
}

#[test]
fn the_real_mount_is_reached_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    let mode = |name: &str| fs::metadata(volume.path(name)).expect(name).permissions().mode() & 0o777;
    assert_eq!((mode("run"), mode("run/mounts")), (0o700, 0o700));
    volume.retire(&[], &["stage"]);
}

/// The staging path is a mount of its own, so it stays.
#[test]
fn a_volume_that_is_mounted_nowhere_but_where_it_is_staged_is_not_published() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    let [real] = mounts_below(&daemon.path("run")).try_into().expect("one mount");
    run("umount", &[text(&real.point)]);
    refused(
        volume.publish("stage", "target"),
        Code::FAILED_PRECONDITION,
        &["no longer mounted", "unstage it"],
    );
    volume.unstage("stage").expect("unstage");
    volume.stage("stage").expect("stage it again");
    volume.publish("stage", "target").expect("publish");
    volume.unpublish("target").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    daemon.assert_node_is_clean();
}
