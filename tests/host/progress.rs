//! How far work is: in the list of jobs, in `volume show`, and on a terminal of the command that waits.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;

use crate::support::cli::{done, json};
use crate::support::daemon::binary;
use crate::support::machine::is_mounted;
use crate::support::stub::Hanging;
use crate::support::{Scratch, Setup, await_that};

#[test]
fn work_that_takes_long_is_shown_with_how_far_it_is() {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path()).start();
    let id = done(&daemon, "volume create web --size 32M");
    assert_eq!(json(&daemon, "jobs"), json!([]));

    // script(1) gives the command a terminal, and copies what that shows.
    let line = format!(
        "{} volume publish web {} --socket {}",
        binary(),
        daemon.text("target"),
        daemon.text("csi.sock")
    );
    let mut waits = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script: install Debian's package bsdutils");
    stub.await_start();

    await_that("the percentage arrives", || match json(&daemon, "jobs") {
        jobs if jobs[0]["percent"] == 42 => Ok(()),
        jobs => Err(jobs.to_string()),
    });
    let jobs = json(&daemon, "jobs");
    assert_eq!((&jobs[0]["operation"], &jobs[0]["subject"]), (&json!("PublishHere"), &json!(id)));
    assert!(jobs[0]["step"].as_str().expect("a step").starts_with("mkfs.ext4 "), "{jobs}");
    await_that("the volume shows it", || match json(&daemon, "jobs")[0]["seconds"].as_u64() {
        Some(1..) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let shown = json(&daemon, "volume show web");
    assert_eq!((&shown["name"], &shown["under_way"][0]["percent"]), (&json!("web"), &json!(42)));
    assert!(done(&daemon, "volume show web").contains(", 42 %, for "));

    let mut terminal = waits.stdout.take().expect("stdout is piped");
    let mut said = String::new();
    while !said.contains(", 42 %, for ") {
        let mut bytes = [0; 256];
        let length = terminal.read(&mut bytes).expect("read the terminal");
        assert_ne!(length, 0, "the command has ended: {said}");
        said += &String::from_utf8_lossy(&bytes[..length]);
    }
    stub.release();
    terminal.read_to_string(&mut said).expect("read the terminal");
    assert!(waits.wait().expect("the command").success() && said.ends_with("\r\u{1b}[K"), "{said:?}");
    assert!(is_mounted(&daemon.path("target")));
    assert_eq!(json(&daemon, "jobs"), json!([]));
    done(&daemon, &format!("volume unpublish web {}", daemon.text("target")));
    done(&daemon, "volume delete web");
}
