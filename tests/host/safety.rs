//! Data is never formatted over, and a failure leaves nothing half made.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use cephlet::{Change, Journal, RealDisk, Table};

use crate::support::client;
use crate::support::machine::{checksum, images, mount_at, picture, run, text};
use crate::support::requests::*;
use crate::support::scratch::poke;
use crate::support::stub::{Hanging, install};
use crate::support::{Code, Daemon, MIB, Scratch, Setup, TestVolume, refused};

/// A volume whose content was made by `fill` is refused as an ext4, says what it holds, and keeps every byte.
fn is_not_formatted(mib: i64, says: &str, fill: impl Fn(&Path)) {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", mib, mount("ext4"));
    fill(&volume.image());
    let before = checksum(&volume.image());
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &[&volume.id, says]);
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &[&volume.id, says]);
    assert_eq!(checksum(&volume.image()), before, "its content was changed");
    daemon.assert_node_is_clean();
}

#[test]
fn another_file_system_is_not_formatted() {
    is_not_formatted(320, "xfs", |image| drop(run("mkfs.xfs", &["-q", text(image)])));
    is_not_formatted(128, "btrfs", |image| drop(run("mkfs.btrfs", &["-q", text(image)])));
}

#[test]
fn swap_is_not_formatted() {
    is_not_formatted(32, "swap", |image| drop(run("mkswap", &[text(image)])));
}

#[test]
fn unknown_data_is_not_formatted() {
    for offset in [0, 1024, 65536, (16 << 20) + 1, (32 << 20) - 1] {
        is_not_formatted(32, "format", |image| poke(image, offset, b"!"));
    }
}

#[test]
fn a_partition_table_is_not_formatted() {
    is_not_formatted(32, "format", |image| poke(image, 510, &[0x55, 0xaa]));
}

#[test]
fn half_a_file_system_of_somebody_else_is_not_formatted() {
    is_not_formatted(32, "format", |image| {
        run("mkfs.ext4", &["-q", text(image)]);
        poke(image, 1024, &[0; 1024]);
    });
}

#[test]
fn a_file_system_that_is_there_is_used() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    run("mkfs.ext4", &["-q", "-L", "theirs", text(&volume.image())]);
    volume.stage("stage").expect("stage");
    let device = mount_at(&volume.path("stage")).expect("mounted").source;
    assert_eq!(run("e2label", &[&device]), "theirs");
    volume.retire(&[], &["stage"]);
}

#[test]
fn a_formatter_that_fails_says_so_and_leaves_nothing() {
    let (daemon, stub) = with_formatter("#!/bin/sh\necho 'the moon is in the wrong phase' >&2\nexit 7\n");
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4", "7", "wrong phase", &volume.id]);
    daemon.assert_node_is_clean();
    fs::remove_file(stub).expect("take the stub away");
    volume.client.delete_volume(&delete(&volume.id)).expect("nothing holds it");
}

#[test]
fn a_missing_tool_is_named() {
    let scratch = Arc::new(Scratch::new());
    let empty = scratch.dir("empty").display().to_string();
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", &empty).start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4", &empty]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_formatting_that_was_interrupted_is_begun_again() {
    let (mut daemon, stub) = with_formatter(HALF_AND_KILL);
    let id = daemon.client().create(&volume("one")).expect("create").volume_id;
    let at = daemon.text("stage");
    let request = stage(&id, &at, mount("ext4"));
    for _ in 0..2 {
        assert!(daemon.client().node_stage_volume(&request).is_err());
        daemon.wait();
        daemon.restart();
    }
    // A volume that is given up is blank for its next user.
    daemon.client().node_unstage_volume(&unstage(&id, &at)).expect("unstage");
    assert!(daemon.client().node_stage_volume(&request).is_err());
    daemon.wait();
    fs::remove_file(stub).expect("take the stub away");
    daemon.restart();
    daemon.client().node_stage_volume(&request).expect("what was blank before is formatted");
    daemon.client().node_unstage_volume(&unstage(&id, &at)).expect("unstage");
    daemon.assert_node_is_clean();
}

/// No other node reaches the image, so after the boot it has only what the formatter left.
#[test]
fn a_formatting_that_a_boot_interrupted_is_begun_again() {
    let (mut daemon, stub) = with_formatter(HALF_AND_KILL);
    let id = daemon.client().create(&volume("one")).expect("create").volume_id;
    let at = daemon.text("stage");
    let request = stage(&id, &at, mount("ext4"));
    assert!(daemon.client().node_stage_volume(&request).is_err());
    daemon.wait();
    let disk = RealDisk::open(&daemon.path("state")).expect("open the state directory");
    let journal = Journal::open(Arc::new(disk), |error| panic!("{error}")).expect("open the journal");
    let [(key, mut record)] = journal.entries(Table::Volumes).try_into().expect("one volume");
    record["boot"] = "an earlier one".into();
    journal.write(&[Change::put(Table::Volumes, key, record)]).expect("write the record");
    drop(journal);
    fs::remove_file(stub).expect("take the stub away");
    daemon.restart();
    daemon.client().node_stage_volume(&request).expect("what was blank before is formatted");
    daemon.client().node_unstage_volume(&unstage(&id, &at)).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn a_full_disk_leaves_nothing_half_made() {
    let scratch = Arc::new(Scratch::new());
    let local = scratch.small_ext4("local", 24);
    let daemon = Setup::within(scratch).start();
    let client = daemon.client();
    let full = wire::CreateVolumeRequest { parameters: map(&[("preallocate", "true")]), ..volume("full") };
    let before = picture(&local);
    for (size, code) in [(64 * MIB, Code::RESOURCE_EXHAUSTED), (1 << 42, Code::OUT_OF_RANGE)] {
        let request = wire::CreateVolumeRequest { capacity_range: range(size, 0), ..full.clone() };
        refused(client.create(&request), code, &["ask for less"]);
        refused(client.create(&volume_as("sparse", size, mount("ext4"))), code, &["ask for less"]);
    }
    assert_eq!(picture(&local), before);
    let small = TestVolume::create(&daemon, "small", 8, block());
    refused(small.expand(64 * MIB), Code::RESOURCE_EXHAUSTED, &["free"]);
    assert_eq!(small.image().metadata().expect("the image").len(), 8 << 20);
    small.retire(&[], &[]);
    assert!(images(&local).is_empty());
    client
        .create(&wire::CreateVolumeRequest { capacity_range: range(8 * MIB, 0), ..full })
        .expect("what fits is made");
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing() {
    let scratch = Arc::new(Scratch::new());
    let local = scratch.small_ext4("local", 32);
    let daemon = Setup::within(scratch).start();
    let volume = TestVolume::create(&daemon, "one", 18, block());
    poke(&volume.image(), 0, &vec![9; 18 << 20]);
    let before = picture(&local);
    refused(volume.client.create_snapshot(&snapshot("snap", &volume.id)), Code::RESOURCE_EXHAUSTED, &[]);
    refused(
        volume.client.create(&from_volume(volume_as("copy", 18 * MIB, block()), &volume.id)),
        Code::RESOURCE_EXHAUSTED,
        &[],
    );
    assert_eq!(picture(&local), before);
    daemon.assert_well();
}

/// A daemon whose mkfs.ext4 is this script until [`fs::remove_file`] takes it away.
fn with_formatter(script: &str) -> (Daemon, std::path::PathBuf) {
    let scratch = Arc::new(Scratch::new());
    let stub = scratch.dir("stubs").join("mkfs.ext4");
    install(&stub, script);
    let path = format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", scratch.path("stubs").display());
    (Setup::within(scratch).set("CEPHLET_TOOL_PATH", path).start(), stub)
}

/// Writes half a file system, then kills the daemon, its parent.
const HALF_AND_KILL: &str =
    "#!/bin/sh\nfor device; do :; done\necho half > $device; sync\nkill -9 $PPID\nread never\n";

const HALF: &str = "#!/bin/sh\nfor device; do :; done\necho half > $device; sync\nexit 7\n";

#[test]
fn data_put_in_after_a_formatter_never_wrote_is_not_formatted() {
    let (daemon, stub) = with_formatter("#!/bin/sh\nexit 7\n");
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4"]);
    fs::remove_file(&stub).expect("take the stub away");
    poke(&volume.image(), 5000, b"put in by hand");
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["unknown data"]);
}

#[test]
fn a_file_system_made_by_hand_after_a_half_formatting_is_used() {
    let (daemon, stub) = with_formatter(HALF);
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4"]);
    fs::remove_file(&stub).expect("take the stub away");
    run("mkfs.ext4", &["-q", "-L", "theirs", text(&volume.image())]);
    volume.stage("stage").expect("stage");
    let device = mount_at(&volume.path("stage")).expect("mounted").source;
    assert_eq!(run("e2label", &[&device]), "theirs");
    volume.retire(&[], &["stage"]);
}

/// Another node may write to it next.
#[test]
fn what_is_half_formatted_is_blank_when_it_leaves() {
    let (daemon, stub) = with_formatter(HALF);
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4"]);
    assert!(fs::read(volume.image()).expect("the image").iter().all(|byte| *byte == 0));
    fs::remove_file(&stub).expect("take the stub away");
    poke(&volume.image(), 5000, b"written elsewhere");
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["unknown data"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_block_volume_is_not_formatted_for_a_half_formatting_before() {
    let (daemon, stub) = with_formatter(HALF);
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["mkfs.ext4"]);
    fs::remove_file(&stub).expect("take the stub away");
    volume.stage_as("stage", block()).expect("as a block volume");
    volume.publish_as("stage", "device", block()).expect("publish");
    poke(&volume.path("device"), 9000, b"written by its user");
    volume.unpublish("device").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    refused(volume.stage("stage"), Code::FAILED_PRECONDITION, &["unknown data"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_formatting_that_outlasts_its_call_goes_on_and_is_found_done() {
    let scratch = Arc::new(Scratch::new());
    let hanging = Hanging::new(&scratch, "mkfs.ext4");
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", hanging.tool_path()).start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let channel = daemon.client().channel;
    let request = stage(&volume.id, &daemon.text("stage"), mount("ext4"));
    // Long enough for the call to reach the formatting, which hangs until it is released.
    let soon = std::time::Duration::from_secs(30);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client::ask(&channel, &request, soon));
        hanging.await_start();
        call.join().expect("the client").expect_err("it gives up");
    });
    let ended = daemon.log.await_lines("NodeStageVolume", 1).remove(0);
    assert!(ended.contains("DEADLINE_EXCEEDED") && ended.contains("mkfs.ext4"), "{ended}");
    hanging.release();
    volume.stage("stage").expect("stage");
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
}
