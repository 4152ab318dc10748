//! The operator's own service: volumes that are published on this node without an orchestrator, or beside
//! one, and the settings that the daemon runs with.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use cephlet::{Change, Journal, RealDisk, Table};
use serde_json::json;

use crate::support::cli::{done, json, refused};
use crate::support::daemon::binary;
use crate::support::machine::{exists, is_mounted, loops_below, mount_at, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Daemon, Scratch, Setup, TestVolume};

/// Removes what a boot removes after the daemon was killed: mounts, devices, and the ID of the boot.
fn boot(daemon: &mut Daemon) {
    daemon.kill9();
    for mount in mounts_below(&daemon.path("")).iter().rev() {
        run("umount", &[text(&mount.point)]);
    }
    for (device, _) in loops_below(&daemon.local_dir()) {
        run("losetup", &["--detach", text(&device)]);
    }
    let disk = RealDisk::open(&daemon.path("state")).expect("open the state directory");
    let journal = Journal::open(Arc::new(disk), |error| panic!("{error}")).expect("open the journal");
    for (key, mut record) in journal.entries(Table::Volumes) {
        record["boot"] = "an earlier one".into();
        journal.write(&[Change::put(Table::Volumes, key, record)]).expect("write the record");
    }
    drop(journal);
    daemon.restart();
}

/// The nodes to which a volume is published, as its controller reports them.
fn published_nodes(daemon: &Daemon, id: &str) -> serde_json::Value {
    json(daemon, &format!("volume show {id}"))["published_nodes"].clone()
}

#[test]
fn a_publish_that_fails_leaves_the_volume_as_it_was() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 32M");
    fs::write(daemon.path("target"), "somebody's file").expect("write a file");
    let (_, message) = refused(&daemon, &format!("volume publish {id} {}", daemon.text("target")));
    assert!(!message.contains("is not undone"), "{message}");
    daemon.assert_node_is_clean();
    assert_eq!(fs::read_to_string(daemon.path("target")).expect("read the file"), "somebody's file");
    assert_eq!(published_nodes(&daemon, &id), json!([]));
    done(&daemon, &format!("volume delete {id}"));
}

#[test]
fn a_second_path_that_fails_and_a_publish_that_is_repeated_leave_the_first_alone() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 32M");
    let publish = |name: &str, options: &str| format!("volume publish {id} {} {options}", daemon.text(name));
    let mode = "--mode single-node-single-writer";
    for _ in 0..2 {
        done(&daemon, &publish("first", mode));
    }
    let (status, message) = refused(&daemon, &publish("second", mode));
    assert!(status == 5 && message.contains(&daemon.text("first")), "{message}");
    let (status, message) = refused(&daemon, &publish("first", &format!("{mode} --read-only")));
    assert!(status == 4 && message.contains("unpublish it first"), "{message}");
    assert!(is_mounted(&daemon.path("first")) && !exists(&daemon.path("second")));
    let shown = json(&daemon, &format!("volume show {id}"));
    assert_eq!(
        (&shown["targets"], &shown["published_nodes"]),
        (&json!([daemon.text("first")]), &json!(["node-1"]))
    );
    let left = json(&daemon, &format!("volume unpublish {id} {}", daemon.text("second")));
    assert_eq!(left["detached"], false);
    let left = json(&daemon, &format!("volume unpublish {id} {}", daemon.text("first")));
    assert_eq!(left["detached"], true);
    daemon.assert_node_is_clean();
    done(&daemon, &format!("volume delete {id}"));
}

#[test]
fn a_volume_that_is_first_published_read_only_is_read_only_at_every_path() {
    let daemon = Daemon::start();
    let (id, first, second) =
        (done(&daemon, "volume create web --size 32M"), daemon.text("first"), daemon.text("second"));
    done(&daemon, &format!("volume publish {id} {first}"));
    done(&daemon, &format!("volume unpublish {id} {first}"));
    done(&daemon, &format!("volume publish {id} {first} --read-only"));
    let (device, _) = loops_below(&daemon.local_dir()).remove(0);
    let name = device.file_name().expect("a name").display().to_string();
    assert_eq!(fs::read_to_string(format!("/sys/block/{name}/ro")).expect("the device").trim(), "1");
    let (_, message) = refused(&daemon, &format!("volume publish {id} {second}"));
    assert!(message.contains("read-only") && message.contains("unpublish it"), "{message}");
    done(&daemon, &format!("volume publish {id} {second} --read-only"));
    for target in [&first, &second] {
        assert!(mount_at(Path::new(target)).expect("mounted").options.starts_with("ro,"));
        done(&daemon, &format!("volume unpublish {id} {target}"));
    }
    done(&daemon, &format!("volume delete {id}"));
    daemon.assert_node_is_clean();
}

#[test]
fn a_volume_is_unpublished_after_the_daemon_was_killed_and_where_its_target_has_vanished() {
    let mut daemon = Daemon::start();
    let (id, target) = (done(&daemon, "volume create web --size 32M"), daemon.text("target"));
    done(&daemon, &format!("volume publish {id} {target}"));
    daemon.kill9();
    let (status, message) = refused(&daemon, &format!("volume unpublish {id} {target}"));
    assert_eq!(status, 6, "{message}");
    assert!(message.contains("UNAVAILABLE: no daemon answers at"), "{message}");
    daemon.restart();
    done(&daemon, &format!("volume unpublish {id} {target}"));
    daemon.assert_node_is_clean();
    done(&daemon, &format!("volume publish {id} {target}"));
    run("umount", &[&target]);
    fs::remove_dir(&target).expect("remove the target");
    for _ in 0..2 {
        let left = json(&daemon, &format!("volume unpublish {id} {target}"));
        assert_eq!(left["detached"], true);
    }
    daemon.assert_node_is_clean();
    assert_eq!(published_nodes(&daemon, &id), json!([]));
    done(&daemon, &format!("volume delete {id}"));
}

/// An orchestrator's publication outlives the boot: the orchestrator ends it.
#[test]
fn after_a_boot_the_node_gives_back_what_the_operator_had_published() {
    let mut daemon = Daemon::start();
    let made = ["one", "two"].map(|name| done(&daemon, &format!("volume create {name} --size 32M")));
    let words = |daemon: &Daemon, at: usize| format!("{} {}", made[at], daemon.text(["one", "two"][at]));
    let theirs = daemon.client().create(&volume("theirs")).expect("create").volume_id;
    daemon.client().controller_publish_volume(&publish_to(&theirs, "node-1")).expect("publish");
    daemon.client().node_stage_volume(&stage(&theirs, &daemon.text("stage"), mount("ext4"))).expect("stage");
    for at in 0..2 {
        done(&daemon, &format!("volume publish {}", words(&daemon, at)));
    }
    boot(&mut daemon);
    for id in &made {
        assert_eq!(published_nodes(&daemon, id), json!([]));
    }
    assert_eq!(published_nodes(&daemon, &theirs), json!(["node-1"]));
    done(&daemon, &format!("volume unpublish {}", words(&daemon, 0)));
    done(&daemon, &format!("volume publish {}", words(&daemon, 1)));
    done(&daemon, &format!("volume unpublish {}", words(&daemon, 1)));
    made.iter().for_each(|id| drop(done(&daemon, &format!("volume delete {id}"))));
    done(&daemon, &format!("volume reclaim {theirs} node-1"));
    done(&daemon, &format!("volume delete {theirs}"));
    daemon.assert_node_is_clean();
}

#[test]
fn what_an_orchestrator_has_in_use_stays_as_it_is_beside_the_operators_paths() {
    let daemon = Daemon::start();
    for is_operator_first in [true, false] {
        let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
        let (id, client) = (&volume.id, &volume.client);
        let ours = |verb: &str| json(&daemon, &format!("volume {verb} {id} {}", daemon.text("ours")));
        if is_operator_first {
            ours("publish");
        }
        let publish = wire::ControllerPublishVolumeRequest {
            volume_capability: protobuf::MessageField::some(mount("")),
            ..publish_to(id, "node-1")
        };
        client.controller_publish_volume(&publish).expect("publish to the node");
        volume.stage("stage").expect("stage");
        volume.publish("stage", "theirs").expect("publish");
        if !is_operator_first {
            ours("publish");
        }
        assert_eq!(ours("unpublish")["detached"], false);
        let elsewhere = json(&daemon, &format!("volume unpublish {id} {}", daemon.text("elsewhere")));
        assert_eq!(elsewhere["detached"], false);
        assert!(is_mounted(&daemon.path("theirs")) && !exists(&daemon.path("ours")));
        assert_eq!(published_nodes(&daemon, id), json!(["node-1"]));
        volume.unpublish("theirs").expect("unpublish");
        volume.unstage("stage").expect("unstage");
        assert_eq!(published_nodes(&daemon, id), json!(["node-1"]), "its controller unpublishes it");
        client.controller_unpublish_volume(&unpublish_from(id, "node-1")).expect("unpublish from the node");
        client.delete_volume(&delete(id)).expect("delete");
        daemon.assert_node_is_clean();
    }
}

#[test]
fn what_an_orchestrator_left_published_is_reclaimed_as_the_refusal_says() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 32M");
    daemon.client().controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    let (status, message) = refused(&daemon, &format!("volume delete {id}"));
    assert_eq!(status, 5, "{message}");
    let way_out = message.split('`').nth(1).expect("a command").trim_start_matches("cephlet ");
    assert!(way_out.starts_with("volume reclaim "), "{message}");
    done(&daemon, way_out);
    done(&daemon, &format!("volume delete {id}"));
}

#[test]
fn a_daemon_that_serves_the_node_alone_publishes_and_one_without_the_node_says_so() {
    let scratch = Arc::new(Scratch::new());
    let image = scratch.dir("local/volumes/disk").join("image");
    fs::File::create(&image).and_then(|image| image.set_len(32 << 20)).expect("make an image");
    let node = Setup::within(scratch).set("CEPHLET_SERVICES", "node").start();
    let (id, target) = ("local:node-1:::disk", node.text("target"));
    done(&node, &format!("volume publish {id} {target}"));
    assert!(is_mounted(&node.path("target")));
    assert_eq!(json(&node, &format!("volume unpublish {id} {target}"))["detached"], true);
    assert!(!exists(&node.path("local/volumes/disk/published")), "the directory is another daemon's");
    node.assert_node_is_clean();
    let controller = Setup::new().set("CEPHLET_SERVICES", "controller").start();
    let id = done(&controller, "volume create web --size 32M");
    for verb in ["publish", "unpublish"] {
        let (status, message) = refused(&controller, &format!("volume {verb} {id} {target}"));
        assert!(status == 10 && message.contains("CEPHLET_SERVICES"), "{message}");
    }
    assert_eq!(json(&controller, &format!("volume show {id}"))["targets"], json!([]));
    let (status, message) = refused(&node, "volume list");
    assert!(status == 10 && message.contains("CEPHLET_SERVICES"), "{message}");
}

#[test]
fn config_shows_what_the_daemon_runs_with_and_the_check_what_is_in_the_environment() {
    let mut daemon = Setup::new().set("CEPHLET_WORKERS", "9").start();
    let setting = |shown: serde_json::Value, name: &str| {
        let all = shown["settings"].as_array().expect("an array").clone();
        all.into_iter().find(|it| it["variable"] == name).expect("a setting")
    };
    // The client's own environment does not have this setting.
    let shown = setting(json(&daemon, "config"), "CEPHLET_WORKERS");
    assert_eq!((&shown["value"], &shown["from"]), (&json!("9"), &json!("environment")));
    assert_eq!(setting(json(&daemon, "config"), "CEPHLET_TOOLS")["from"], "default");
    daemon.kill9();
    let (status, message) = refused(&daemon, "config");
    assert!(status == 6 && message.contains("cephlet config --check"), "{message}");
    let check = |workers: &str| {
        let mut command = Command::new(binary());
        command.args(["config", "--check"]).env_clear().env("CSI_ENDPOINT", "unix:///run/x.sock");
        command.env("CEPHLET_WORKERS", workers).output().expect("run cephlet")
    };
    let right = check("7");
    let text = String::from_utf8_lossy(&right.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("CEPHLET_WORKERS")).expect("a line");
    assert!(right.status.success() && line.split_whitespace().nth(1) == Some("7"), "{text}");
    assert_eq!(check("many").status.code(), Some(2));
    daemon.restart();
}
