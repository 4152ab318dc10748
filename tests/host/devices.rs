//! Numbers of devices and names of volumes are used again: the node formats, checks and blanks only the
//! device that it has looked at.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::machine::{Checksum, checksum, loops_below, run, text};
use crate::support::requests::*;
use crate::support::scratch::{make_file, poke};
use crate::support::stub::{Hanging, install};
use crate::support::{Code, Daemon, MIB, Scratch, Setup, TestVolume, await_that, refused};

/// Takes an image's device away, and gives the image's name to another image; returns that one's checksum.
fn replace(image: &Path) -> Checksum {
    let device = loops_below(image).remove(0).0;
    run("losetup", &["--detach", text(&device)]);
    let other = image.with_extension("new");
    make_file(&other, 32 * MIB);
    poke(&other, 5000, b"somebody's data");
    fs::rename(&other, image).expect("put it in place");
    checksum(image)
}

#[test]
fn a_right_to_format_is_for_the_image_that_was_blank() {
    let scratch = Arc::new(Scratch::new());
    // Writes half a file system, then kills the daemon, its parent.
    let script = "#!/bin/sh\nfor device; do :; done\necho half > $device; sync\nkill -9 $PPID\nread never\n";
    let stub = scratch.dir("stubs").join("mkfs.ext4");
    install(&stub, script);
    let path = format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", scratch.path("stubs").display());
    let mut daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", path).start();
    // A volume that was made by hand is used by an ID without incarnation.
    let created = daemon.client().create(&volume("one")).expect("create").volume_id;
    let node = created.split(':').nth(1).expect("the node");
    let image = daemon.local_dir().join("volumes/by-hand/image");
    fs::create_dir(image.parent().expect("its directory")).expect("a volume made by hand");
    make_file(&image, 32 * MIB);
    let (id, at) = (format!("local:{node}:::by-hand"), daemon.text("stage"));
    let request = stage(&id, &at, mount("ext4"));
    assert!(daemon.client().node_stage_volume(&request).is_err());
    daemon.wait();
    let before = replace(&image);
    fs::remove_file(stub).expect("take the stub away");
    daemon.restart();
    refused(daemon.client().node_stage_volume(&request), Code::FAILED_PRECONDITION, &["unknown data"]);
    assert_eq!(checksum(&image), before, "UNSAFE: the data of another image was formatted over");
    daemon.client().node_unstage_volume(&unstage(&id, &at)).expect("unstage");
    assert_eq!(checksum(&image), before, "UNSAFE: the data of another image was taken off");
    daemon.assert_node_is_clean();
}

/// The kernel detaches such a device with its last user, and gives its number to another volume.
#[test]
fn a_device_that_is_being_detached_is_given_to_nobody() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, block());
    volume.stage_as("stage", block()).expect("stage");
    let device = loops_below(&volume.image()).remove(0).0;
    let user = fs::File::open(device).expect("open the device");
    refused(volume.unstage("stage"), Code::FAILED_PRECONDITION, &["has it open"]);
    let staged = volume.stage_as("stage", block());
    assert!(staged.is_err(), "UNSAFE: the device goes with its last user");
    refused(staged, Code::UNAVAILABLE, &[&volume.id, "try again"]);
    drop(user);
    await_that("the device is gone", || volume.unstage("stage").map_err(|error| error.message));
    volume.stage_as("stage", block()).expect("on a device that stays");
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn what_is_put_there_before_the_formatter_begins_is_not_formatted() {
    let scratch = Arc::new(Scratch::new());
    let hanging = Hanging::new(&scratch, "mkfs.ext4");
    let setup = Setup::within(scratch).set("CEPHLET_TOOL_PATH", hanging.tool_path());
    let daemon = setup.set("CEPHLET_TOOLS", 2).set("CEPHLET_LOG", "debug").start();
    let [first, second] =
        ["first", "second"].map(|name| TestVolume::create(&daemon, name, 32, mount("ext4")));
    std::thread::scope(|scope| {
        let of_first = scope.spawn(|| first.stage("stage-1"));
        hanging.await_start();
        // It was found blank, and waits for the only place there is for tools without a deadline.
        let of_second = scope.spawn(|| second.stage("stage-2"));
        daemon.log.await_lines("`look what is on", 2);
        poke(&second.image(), 16 << 20, b"somebody's data");
        let before = checksum(&second.image());
        hanging.release();
        of_first.join().expect("the client").expect("stage");
        let staged = of_second.join().expect("the client");
        assert_eq!(checksum(&second.image()), before, "UNSAFE: data was formatted over");
        refused(staged, Code::FAILED_PRECONDITION, &["unknown data", &second.id]);
    });
    // Nor is the data removed as a half-made file system.
    refused(second.stage("stage-2"), Code::FAILED_PRECONDITION, &["unknown data"]);
    first.retire(&[], &["stage-1"]);
    daemon.assert_node_is_clean();
}

/// The exit status by which e2fsck says that it has corrected something is also that of a systemd-run which
/// could not start e2fsck.
#[test]
fn a_check_that_has_not_run_is_none() {
    let scratch = Arc::new(Scratch::new());
    let stub = scratch.dir("stubs").join("e2fsck");
    install(&stub, "#!/bin/sh\nexit 1\n");
    let path = format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", scratch.path("stubs").display());
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", path).start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    volume.unstage("stage").expect("unstage");
    run("debugfs", &["-w", "-R", "set_super_value state 2", text(&volume.image())]);
    let failure = volume.stage("stage").expect_err("it has errors");
    assert!(failure.message.contains("cannot be checked"), "{failure:?}");
    install(&stub, "#!/bin/sh\nPATH=/usr/sbin:/sbin:/usr/bin:/bin exec e2fsck \"$@\"\n");
    volume.stage("stage").expect("it is repaired");
    volume.unstage("stage").expect("unstage");
    daemon.assert_node_is_clean();
}
