//! Images that are not mapped through the kernel's own files: by `rbd device map`, and by rbd-nbd.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::lost_nodes::write;
use super::scene::{Scene, connected, device, devices, fill, size_at};
use crate::support::client::Answer;
use crate::support::machine::{checksum, loops_below, mount_at, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, TestVolume, refused};

#[test]
#[ignore = "long: tests/run --full"]
fn a_process_maps_and_outlives_the_daemon() {
    let mut scene = Scene::alone();
    // A feature that the kernel does not have.
    let features = "layering,exclusive-lock,journaling";
    let volume =
        scene.use_volume("one", 32, mount("ext4"), &[("mounter", "rbd-nbd"), ("imageFeatures", features)]);
    let [nbd] = connected().try_into().expect("one device");
    assert_eq!(mount_at(&scene.path("target")).expect("mounted").source, text(&nbd));
    fill(&scene.path("target/file"), 1_000_001);
    let before = checksum(&scene.path("target/file"));
    scene.node.kill9();
    fs::write(scene.path("target/more"), "content").expect("it goes on working");
    scene.node.restart();
    scene.stage(&volume, "stage").expect("stage what is staged");
    scene.publish(&volume, "stage", "second").expect("publish again");
    assert_eq!(connected(), [nbd]);
    assert_eq!(checksum(&scene.path("second/file")), before);
    assert_eq!(scene.expand(&volume, "target", 64 * MIB), 64 * MIB);
    assert!(size_at(&scene.path("target")) > 50 * MIB);
    let stats = scene.stats(&volume, "target").expect("stats");
    assert!(!stats.volume_condition.abnormal, "{stats:?}");
    scene.retire(&volume, &["target", "second"], &["stage"]);
    assert!(connected().is_empty());
    scene.assert_clean();
}

/// Another image takes the place of the volume after the node has looked at it.
#[test]
#[ignore = "long: tests/run --full"]
fn a_process_that_maps_another_image_is_ended() {
    let scene = Scene::alone();
    let volume = scene.give("one", 32, mount("ext4"), &[("mounter", "rbd-nbd")]);
    scene.cluster().rbd(&["rename", &volume.spec(), "rbd/away"]);
    scene.cluster().rbd(&["create", "--size", "32M", &volume.spec()]);
    let wanted = volume.id.rsplit(':').next().expect("the image's id");
    refused(scene.stage(&volume, "stage"), Code::NOT_FOUND, &[wanted, "another image"]);
    assert!(connected().is_empty());
    scene.cluster().rbd(&["rm", "--no-progress", &volume.spec()]);
    scene.cluster().rbd(&["rename", "rbd/away", &volume.spec()]);
    scene.stage(&volume, "stage").expect("the volume is back");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_process_that_died_is_reported_and_replaced() {
    let scene = Scene::alone();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[("mounter", "rbd-nbd")]);
    let [nbd] = connected().try_into().expect("one device");
    let name = nbd.file_name().expect("a name").display().to_string();
    let pid = fs::read_to_string(format!("/sys/block/{name}/pid")).expect("its process");
    run("kill", &["-9", pid.trim()]);
    let said = scene.await_trouble(&volume, "target", || ());
    assert!(said.contains("rbd-nbd"), "{said}");
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    scene.stage(&volume, "stage").expect("stage it again");
    scene.publish(&volume, "stage", "target").expect("publish it again");
    fs::write(scene.path("target/file"), "content").expect("write");
    scene.retire(&volume, &["target"], &["stage"]);
    assert!(connected().is_empty());
    scene.assert_clean();
}

/// As `rbd unmap -o force` does it.
fn take_away(device: &Path) {
    let number = text(device).trim_start_matches("/dev/rbd");
    fs::write("/sys/bus/rbd/remove_single_major", format!("{number} force")).expect("take it away");
}

/// A volume that the node has published to itself is staged anew by a caller that knows its secrets.
#[test]
#[ignore = "long: tests/run --full"]
fn a_device_of_the_nodes_own_that_is_taken_away_is_replaced_by_a_stage() {
    let scene = Scene::new();
    let volume = scene.make(volume_as("own", 32 * MIB, mount("ext4")));
    scene.stage(&volume, "stage").expect("stage");
    scene.publish(&volume, "stage", "target").expect("publish");
    take_away(&device(&volume));
    let parts = ["its device is gone"];
    refused(scene.publish(&volume, "stage", "second"), Code::FAILED_PRECONDITION, &parts);
    scene.unpublish(&volume, "target").expect("unpublish");
    refused(scene.publish(&volume, "stage", "target"), Code::FAILED_PRECONDITION, &parts);
    // An operator unmounts the real mount: only the staging path is left of the volume.
    let [real] = mounts_below(&scene.node.path("run")).try_into().expect("one mount");
    run("umount", &[text(&real.point)]);
    refused(scene.publish(&volume, "stage", "target"), Code::FAILED_PRECONDITION, &parts);
    scene.stage(&volume, "stage").expect("stage it again");
    scene.publish(&volume, "stage", "target").expect("publish");
    write(&scene, "target/file", "after").expect("write");
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_device_that_is_taken_away_under_its_users_is_replaced() {
    for capability in [mount("ext4"), block()] {
        let scene = Scene::new();
        let file = if capability == block() { "target" } else { "target/file" };
        let volume = scene.use_volume("one", 32, capability, &[]);
        write(&scene, file, "before").expect("write");
        take_away(&device(&volume));
        let parts = ["its device is gone", "target"];
        refused(scene.publish(&volume, "stage", "second"), Code::FAILED_PRECONDITION, &parts);
        refused(scene.stage(&volume, "stage"), Code::FAILED_PRECONDITION, &parts);
        assert!(devices(&volume).is_empty(), "it is mapped beside what can only fail");
        scene.unpublish(&volume, "target").expect("unpublish");
        scene.publish(&volume, "stage", "target").expect("it is made ready anew by itself");
        let mut read = [0; 6];
        fs::File::open(scene.path(file)).and_then(|mut it| it.read_exact(&mut read)).expect("read");
        assert_eq!(&read, b"before");
        write(&scene, file, "after").expect("write");
        scene.retire(&volume, &["target"], &["stage"]);
        scene.assert_clean();
    }
}

/// Lets device-mapper hold a device, without a process or a mount.
fn hold(device: &Path, name: &str) {
    run("modprobe", &["dm-mod"]);
    let table = format!("0 8192 linear {} 0", text(device));
    run("dmsetup", &["create", "--noudevsync", "--noudevrules", name, "--table", &table]);
}

/// The command that the refusal names releases the device.
#[track_caller]
fn release(answer: Answer<()>, name: &str) {
    let release = format!("dmsetup remove {name}");
    refused(answer, Code::FAILED_PRECONDITION, &[&format!("held by {name} (dm-"), &format!("`{release}`")]);
    run("dmsetup", &["remove", "--noudevsync", name]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn what_stands_on_a_device_is_named_with_the_command_that_releases_it() {
    let scene = Scene::alone();
    for mounter in ["rbd", "rbd-nbd"] {
        let volume = scene.use_volume("one", 8, block(), &[("mounter", mounter)]);
        let mapped = if mounter == "rbd" { device(&volume) } else { connected().remove(0) };
        hold(&mapped, "held-rbd");
        scene.unpublish(&volume, "target").expect("unpublish");
        release(scene.unstage(&volume, "stage"), "held-rbd");
        scene.retire(&volume, &[], &["stage"]);
    }
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    hold(&loops_below(&volume.image()).remove(0).0, "held-loop");
    release(volume.unstage("stage"), "held-loop");
    volume.stage("stage").expect("it can be used still");
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
    scene.assert_clean();
}

/// rbd-nbd also unmaps a device in use, and reports success.
#[test]
#[ignore = "long: tests/run --full"]
fn a_process_is_not_ended_under_its_users() {
    let scene = Scene::alone();
    let volume = scene.give("one", 32, block(), &[("mounter", "rbd-nbd")]);
    scene.stage(&volume, "stage").expect("stage");
    let [nbd] = connected().try_into().expect("one device");
    let open = fs::File::open(&nbd).expect("open the device");
    refused(scene.unstage(&volume, "stage"), Code::FAILED_PRECONDITION, &["open in"]);
    drop(open);

    // Mounted where this mount namespace does not see it.
    run("mkfs.ext4", &["-q", text(&nbd)]);
    let at = scene.path("elsewhere");
    fs::create_dir(&at).expect("make a directory");
    let script = r#"mount "$0" "$1" && echo mounted && read go && echo data >"$1/file" && sync -f "$1" && echo written"#;
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--mount", "sh", "-c", script, text(&nbd), text(&at)]);
    let mut elsewhere = elsewhere.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
    let mut said = BufReader::new(elsewhere.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert_eq!(said.next().as_deref(), Some("mounted"));
    refused(scene.unstage(&volume, "stage"), Code::FAILED_PRECONDITION, &["another mount namespace"]);
    assert_eq!(connected(), [nbd]);
    writeln!(elsewhere.stdin.take().expect("piped"), "go").expect("let it go on");
    assert_eq!(said.next().as_deref(), Some("written"), "UNSAFE: its device was taken away under it");
    assert!(elsewhere.wait().expect("its end").success());
    scene.retire(&volume, &[], &["stage"]);
    assert!(connected().is_empty());
    scene.assert_clean();
}
