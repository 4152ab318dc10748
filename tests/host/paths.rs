//! Paths that mislead: those of other volumes, spelt in two ways, through links, one in the other.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::machine::{exists, is_mounted, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, Setup, TestVolume, refused};

const ABSENT: &str = "local:node-1:::csi-vol-no:1";

#[test]
fn a_stage_that_fails_unmounts_nobody_else() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    let at = daemon.text("stage");
    refused(volume.client.node_stage_volume(&stage(ABSENT, &at, mount("ext4"))), Code::NOT_FOUND, &[ABSENT]);
    assert!(is_mounted(&volume.path("stage")), "the other volume was unmounted");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_target_whose_device_is_gone_is_unpublished() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    let device = run("losetup", &["-nO", "NAME", "-j", text(&volume.image())]);
    run("losetup", &["-d", &device]);
    volume.retire(&["device"], &["stage"]);
    assert!(!exists(&volume.path("device")));
    daemon.assert_node_is_clean();
}

#[test]
fn the_runtime_directory_may_be_reached_by_a_link() {
    let setup = Setup::new();
    let real = setup.scratch.dir("elsewhere");
    symlink(&real, setup.scratch.path("link")).expect("a link");
    let linked = setup.scratch.path("link/run").display().to_string();
    let daemon = setup.set("CEPHLET_RUNTIME_DIR", linked).start();
    let volume = TestVolume::in_use(&daemon, "one");
    volume.stage("stage").expect("stage again");
    assert_eq!(mounts_below(&real).len(), 1);
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_failed_repetition_leaves_what_is_in_use() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    run("mount", &["-t", "tmpfs", "foreign", text(&volume.path("stage"))]);
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["foreign", &daemon.text("stage")]);
    run("umount", &[text(&volume.path("stage"))]);
    assert!(is_mounted(&volume.path("stage")) && is_mounted(&volume.path("target")));
    let real = mounts_below(&volume.path("run")).remove(0).point;
    run("mount", &["-t", "tmpfs", "foreign", text(&real)]);
    refused(volume.stage("other"), Code::FAILED_PRECONDITION, &["foreign", text(&real)]);
    run("umount", &[text(&real)]);
    assert!(!is_mounted(&volume.path("other")), "it would have been a bind of something foreign");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_bind_that_was_never_made_read_only_is_made_again() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    volume.publish_read_only("stage", "target").expect("publish");
    // A crash between the two steps leaves this state.
    run("mount", &["-o", "remount,bind,rw", text(&volume.path("target"))]);
    volume.publish_read_only("stage", "target").expect("publish again");
    fs::write(volume.path("target/file"), "x").expect_err("nothing is written through a read-only target");
    assert_eq!(mounts_below(&volume.path("target")).len(), 1);
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn links_are_not_bound_over() {
    let daemon = Daemon::start();
    let elsewhere = daemon.scratch().dir("elsewhere");
    let links = [("live", elsewhere.as_path()), ("dead", "/nonexistent".as_ref())];
    links.iter().for_each(|(name, to)| symlink(to, daemon.path(name)).expect("a link"));
    for (name, capability) in [("one", mount("ext4")), ("two", block())] {
        let volume = TestVolume::create(&daemon, name, 32, capability);
        for (link, _) in links {
            refused(volume.stage(link), Code::FAILED_PRECONDITION, &["symbolic link", &daemon.text(link)]);
        }
        volume.stage("stage").expect("stage");
        for (link, _) in links {
            refused(
                volume.publish("stage", link),
                Code::FAILED_PRECONDITION,
                &["symbolic link", &daemon.text(link)],
            );
            volume.unpublish(link).expect("it was never published");
            assert!(exists(&volume.path(link)), "it is not ours to remove");
        }
        assert!(!is_mounted(&elsewhere));
        volume.retire(&[], &["stage"]);
    }
    daemon.assert_node_is_clean();
}

#[test]
fn a_target_of_the_wrong_sort_is_refused() {
    let daemon = Daemon::start();
    fs::write(daemon.path("file"), "theirs").expect("a file");
    daemon.scratch().dir("directory");
    let (one, two) = (
        TestVolume::create(&daemon, "one", 32, mount("ext4")),
        TestVolume::create(&daemon, "two", 8, block()),
    );
    refused(one.stage("file"), Code::FAILED_PRECONDITION, &["no directory", &daemon.text("file")]);
    one.stage("s1").expect("stage");
    two.stage("s2").expect("stage");
    refused(one.publish("s1", "file"), Code::FAILED_PRECONDITION, &["no directory"]);
    refused(two.publish("s2", "directory"), Code::FAILED_PRECONDITION, &["is a directory"]);
    one.retire(&[], &["s1"]);
    two.retire(&[], &["s2"]);
    assert_eq!(fs::read_to_string(daemon.path("file")).expect("it stays"), "theirs");
}

#[test]
fn a_path_is_the_same_however_it_is_spelt() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage/").expect("stage");
    volume.publish("stage//", "target//").expect("publish");
    volume.stats("target").expect("stats");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_target_lies_apart_from_the_staging_path() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    for target in ["stage", "stage/", "stage/below"] {
        refused(
            volume.publish_read_only("stage", target),
            Code::INVALID_ARGUMENT,
            &["target_path", &daemon.text("stage")],
        );
    }
    assert!(!exists(&volume.path("stage/below")));
    volume.publish("stage", "stage-2").expect("a name that only begins alike");
    volume.retire(&["stage-2"], &["stage"]);
}

#[test]
fn a_file_below_a_target_that_holds_data_is_never_deleted() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    // A user unmounts the target without the daemon, and goes on writing.
    run("umount", &[text(&volume.path("device"))]);
    fs::write(volume.path("device"), "theirs").expect("write below the mount");
    refused(volume.unpublish("device"), Code::FAILED_PRECONDITION, &[&daemon.text("device")]);
    assert_eq!(fs::read_to_string(volume.path("device")).expect("never deleted"), "theirs");
    fs::remove_file(volume.path("device")).expect("now they take it away");
    volume.retire(&["device"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_late_call_for_an_earlier_volume_of_the_name_does_nothing() {
    let daemon = Daemon::start();
    let first = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    first.retire(&[], &[]);
    let second = TestVolume::in_use(&daemon, "one");
    assert_ne!(first.id, second.id);
    first.unpublish("target").expect("it is not published");
    first.unstage("stage").expect("it is not staged");
    assert!(is_mounted(&second.path("target")) && is_mounted(&second.path("stage")));
    second.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn an_earlier_volume_that_was_deleted_in_use_is_unmounted_first() {
    let daemon = Daemon::start();
    let first = TestVolume::in_use(&daemon, "one");
    let device = run("losetup", &["-nO", "NAME", "-j", text(&first.image())]);
    fs::remove_dir_all(first.image().parent().expect("its directory")).expect("remove it by hand");
    let second = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(second.stage("other"), Code::FAILED_PRECONDITION, &[&first.id, &second.id]);
    first.unpublish("target").expect("unpublish");
    first.unstage("stage").expect("unstage");
    run("losetup", &["-d", &device]);
    second.stage("other").expect("now it is out of the way");
    second.retire(&[], &["other"]);
    daemon.assert_node_is_clean();
}
