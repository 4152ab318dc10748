//! The command line against a daemon.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::Daemon;
use super::daemon::binary;

/// Runs `cephlet` with these words and this stdin.
pub fn command(daemon: &Daemon, line: &str, stdin: &str) -> Output {
    let mut command = Command::new(binary());
    command.env_clear().env("CEPHLET_RUNTIME_DIR", daemon.path("run"));
    command.args(line.split_whitespace()).arg("--socket").arg(daemon.path("csi.sock"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start cephlet");
    child.stdin.take().expect("stdin is piped").write_all(stdin.as_bytes()).expect("write to cephlet");
    child.wait_with_output().expect("wait for cephlet")
}

/// A command that succeeds; gives what it prints.
#[track_caller]
pub fn done(daemon: &Daemon, line: &str) -> String {
    let output = command(daemon, line, "");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cephlet {line}: {}\n{stderr}", output.status);
    assert_eq!(stderr, "", "cephlet {line} says something on the side");
    stdout.trim_end().to_string()
}

/// A command that succeeds; gives its JSON.
#[track_caller]
pub fn json(daemon: &Daemon, line: &str) -> Value {
    serde_json::from_str(&done(daemon, &format!("{line} --json"))).expect("JSON")
}

/// A command that fails; gives its exit status and what it says.
#[track_caller]
pub fn refused(daemon: &Daemon, line: &str) -> (i32, String) {
    let output = command(daemon, line, "");
    assert!(output.stdout.is_empty(), "cephlet {line} prints {}", String::from_utf8_lossy(&output.stdout));
    (
        output.status.code().expect("an exit status"),
        String::from_utf8_lossy(&output.stderr).trim_end().to_string(),
    )
}
