//! The command line against a daemon: what an operator and scripts see.

use std::fs;
use std::io::Write;
use std::process::Command;

use serde_json::json;

use crate::support::cli::{command, done, json, refused};
use crate::support::daemon::binary;
use crate::support::machine::{exists, is_mounted, mount_at};
use crate::support::{Daemon, Setup};

#[test]
fn a_volume_has_the_room_that_its_file_system_needs() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 100M --fs xfs");
    assert_eq!(json(&daemon, &format!("volume show {id}"))["size_bytes"], 300 << 20);
    let capacity = json(&daemon, "capacity --parameter csi.storage.k8s.io/fstype=xfs");
    assert_eq!(capacity["smallest_bytes"], 300 << 20);
    let (_, said) = refused(&daemon, "volume create db --size 100M --limit 200M --fs xfs");
    assert!(said.contains("OUT_OF_RANGE") && said.contains("xfs needs at least 314572800"), "{said}");
}

#[test]
fn a_volume_lives_its_life_by_the_command_line() {
    let daemon = Daemon::start();
    assert_eq!(done(&daemon, "probe"), "ready");
    let id = done(&daemon, "volume create web --size 320M --fs xfs");
    assert_eq!(done(&daemon, "volume create web --size 320M --fs xfs"), id);

    let (first, second) = (daemon.text("first"), daemon.text("second"));
    done(&daemon, &format!("volume publish {id} {first}"));
    assert_eq!(
        mount_at(daemon.path("first").as_path()).expect("a mount").fs_type,
        "xfs",
        "as the volume was created"
    );
    fs::write(daemon.path("first/page"), "hello").expect("write to the volume");
    done(&daemon, &format!("volume publish {id} {second} --read-only"));
    assert_eq!(fs::read_to_string(daemon.path("second/page")).expect("read from the volume"), "hello");
    assert!(fs::write(daemon.path("second/page"), "no").is_err(), "published for reading only");

    let shown = json(&daemon, &format!("volume show {id}"));
    assert_eq!((&shown["id"], &shown["size_bytes"]), (&json!(id), &json!(320 << 20)));
    assert_eq!((&shown["targets"], &shown["published_nodes"]), (&json!([first, second]), &json!(["node-1"])));
    assert!(shown["usage"]["used_bytes"].as_i64().is_some_and(|used| used > 0), "{shown}");

    let expanded = json(&daemon, &format!("volume expand {id} --size 400M"));
    assert_eq!(expanded, json!({"id": id, "size_bytes": 400 << 20, "expanded_at": first}));
    let grown = json(&daemon, &format!("volume show {id}"));
    assert!(grown["usage"]["total_bytes"].as_i64() > shown["usage"]["total_bytes"].as_i64(), "{grown}");

    done(&daemon, &format!("volume unpublish {id} {first}"));
    assert!(is_mounted(&daemon.path("second")) && !exists(&daemon.path("first")));
    done(&daemon, &format!("volume unpublish {id} {second}"));
    daemon.assert_node_is_clean();
    done(&daemon, &format!("volume delete {id}"));
    assert_eq!(done(&daemon, "volume list"), "");
}

#[test]
fn a_snapshot_brings_back_what_was() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 32M");
    let target = daemon.text("target");
    done(&daemon, &format!("volume publish {id} {target}"));
    fs::write(daemon.path("target/page"), "before").expect("write to the volume");
    done(&daemon, &format!("volume unpublish {id} {target}"));
    let snapshot = done(&daemon, &format!("snapshot create {id} nightly"));
    assert_eq!(done(&daemon, &format!("snapshot create {id} nightly")), snapshot);
    let listed = json(&daemon, &format!("snapshot list --volume {id}"));
    assert_eq!(
        (&listed[0]["id"], &listed[0]["volume_id"], &listed[0]["ready"]),
        (&json!(snapshot), &json!(id), &json!(true))
    );
    assert!(listed[0]["created"].as_str().is_some_and(|time| time.ends_with('Z')), "{listed}");
    assert_eq!(json(&daemon, &format!("snapshot show {snapshot}")), listed[0]);

    let copy = done(&daemon, &format!("volume create restored --from-snapshot {snapshot}"));
    done(&daemon, &format!("volume publish {copy} {target}"));
    assert_eq!(fs::read_to_string(daemon.path("target/page")).expect("read from the copy"), "before");
    done(&daemon, &format!("volume unpublish {copy} {target}"));
    done(&daemon, &format!("snapshot delete {snapshot}"));
    assert_eq!(json(&daemon, "snapshot list"), json!([]));
}

#[test]
fn a_block_volume_becomes_a_file_that_is_its_device() {
    let daemon = Daemon::start();
    let (id, target) = (done(&daemon, "volume create disk --size 8M --block"), daemon.text("disk"));
    done(&daemon, &format!("volume publish {id} {target} --block"));
    fs::OpenOptions::new()
        .write(true)
        .open(&target)
        .and_then(|mut disk| disk.write_all(b"raw"))
        .expect("write to the device");
    done(&daemon, &format!("volume unpublish {id} {target}"));
    daemon.assert_node_is_clean();
    assert!(!exists(&daemon.path("disk")));
}

#[test]
fn scripts_tell_failures_by_their_exit_status() {
    let daemon = Daemon::start();
    let (id, target) = (done(&daemon, "volume create web --size 32M --limit 32M"), daemon.text("target"));
    done(&daemon, &format!("volume publish {id} {target}"));
    for (line, expected, name) in [
        ("volume create", 2, "NAME is missing"),
        ("volume create web --parameter colour=blue", 2, "INVALID_ARGUMENT"),
        ("volume show no-such-volume", 3, "NOT_FOUND"),
        ("volume create web --size 64M --limit 64M", 4, "ALREADY_EXISTS"),
        (&format!("volume delete {id}"), 5, "FAILED_PRECONDITION"),
    ] {
        let (status, message) = refused(&daemon, line);
        assert!(
            status == expected && message.starts_with("cephlet: ") && message.contains(name),
            "{line}: {status}: {message}"
        );
    }
    done(&daemon, &format!("volume unpublish {id} {target}"));
    let node = Setup::new().set("CEPHLET_SERVICES", "node").start();
    assert_eq!(refused(&node, "volume list").0, 10);
    assert_eq!(json(&node, "info")["controller"], json!([]));
}

#[test]
fn secrets_come_on_standard_input_and_go_no_further() {
    let daemon = Daemon::start();
    let output = command(&daemon, "volume create web --size 8M --secrets -", "userKey=swordfish\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = command(&daemon, "volume create web --size 8M --secrets -", "swordfish\n");
    assert_eq!(output.status.code(), Some(2));
    let said = [output.stdout, output.stderr].concat();
    assert!(
        !String::from_utf8_lossy(&said).contains("swordfish") && !daemon.log.text().contains("swordfish")
    );
}

#[test]
fn help_and_version_need_no_daemon() {
    let run =
        |line: &str| Command::new(binary()).env_clear().args(line.split_whitespace()).output().expect("run");
    for line in ["--help", "volume --help", "volume publish --help", "--version", "version"] {
        let output = run(line);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{line}");
    }
    assert_eq!(
        String::from_utf8_lossy(&run("--version").stdout),
        concat!("cephlet ", env!("CARGO_PKG_VERSION"), "\n")
    );
    assert_eq!(run("volume").status.code(), Some(2));
}
