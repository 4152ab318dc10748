//! What Ceph 16.2 really said.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::call::Call;
use crate::clusters::{Cluster, Credentials, parse_monitors};
use crate::exec::fake::FakeRunner;
use crate::exec::{Class, Cmd, Tool};

fn access() -> Access {
    let mut cluster = Cluster::named("main");
    cluster.monitors = parse_monitors("10.0.0.1:6789").unwrap();
    cluster.key_from = String::from("/etc/cephlet/main.key");
    let credentials = Credentials { user: "web".into(), key: None };
    cluster.credentials = Some(credentials.clone());
    Access { cluster: Arc::new(cluster), credentials }
}

fn failure(status: i32, stderr: &str) -> Failure {
    let runner = FakeRunner::default();
    runner.expect_failure(&["rbd", "info"], status, stderr);
    access()
        .run(&runner, &Call::internal("test"), &Cmd::new(Tool::Rbd, Class::Question).arg("info"))
        .unwrap_err()
}

#[track_caller]
fn means(status: i32, stderr: &str, kind: Kind, parts: &[&str]) {
    let failure = failure(status, stderr);
    let error = failure.into_error("volume v");
    assert_eq!((error.kind(), error.exit_status()), (kind, Some(status)), "{error}");
    for part in parts.iter().chain(&["volume v: ", "\"main\""]) {
        assert!(error.message().contains(part), "{part:?} is missing: {error}");
    }
}

const BAD_METHOD: &str = "2026-11-21T08:49:20.190+0000 7fd91f5726c0 -1 monclient(hunting): \
                          handle_auth_bad_method server \
                          allowed_methods [2] but i only support [2,1]\n";

#[test]
fn a_user_that_is_refused() {
    let parts = ["client.web", "/etc/cephlet/main.key", "ceph auth get"];
    let kind = Kind::Unauthenticated;
    means(13, &format!("rbd: couldn't connect to the cluster!\n{BAD_METHOD}"), kind, &parts);
    means(1, &format!("{BAD_METHOD}rbd: couldn't connect to the cluster!\n"), kind, &parts);
    means(1, &format!("{BAD_METHOD}failed to fetch mon config (--no-mon-config to skip)\n"), kind, &parts);
    means(13, "[errno 13] RADOS permission denied (error connecting to the cluster)\n", kind, &parts);
    means(22, "auth: failed to decode key\nrbd: couldn't connect to the cluster!\n", kind, &parts);
    means(13, "rbd: couldn't connect to the cluster!\n", kind, &parts);
}

#[test]
fn a_cluster_that_is_not_reached() {
    let parts = ["v1:10.0.0.1:6789", "check that they run"];
    let timed_out =
        "2026-11-21T08:49:26.894+0000 7fa8c9878380  0 monclient(hunting): authenticate timed out after 20\n";
    means(110, &format!("{timed_out}rbd: couldn't connect to the cluster!\n"), Kind::Unavailable, &parts);
    means(1, "failed to fetch mon config (--no-mon-config to skip)\n", Kind::Unavailable, &parts);
    means(
        1,
        &format!("{timed_out}couldn't connect to cluster: (110) Connection timed out\n"),
        Kind::Unavailable,
        &parts,
    );
    means(1, "[errno 110] RADOS timed out (error connecting to the cluster)\n", Kind::Unavailable, &parts);
    means(
        22,
        "unable to parse addrs in 'nohost'\nrbd: couldn't connect to the cluster!\n",
        Kind::Unavailable,
        &parts,
    );
}

#[test]
fn a_user_that_may_not() {
    let parts = ["profile rbd", "client.web"];
    for stderr in [
        "rbd: create error: (1) Operation not permitted\n",
        "error putting rbd/x: (1) Operation not permitted\n",
        "rados_nobjects_list_next2: Operation not permitted\n",
    ] {
        means(1, stderr, Kind::Precondition, &parts);
    }
    means(
        13,
        "Error EACCES: access denied: does your client key have mgr caps?\n",
        Kind::Precondition,
        &parts,
    );
}

#[test]
fn a_cluster_that_is_full_or_has_shut_us_out() {
    means(28, "rbd: create error: (28) No space left on device\n", Kind::NoSpace, &["ceph df"]);
    means(122, "rbd: create error: (122) Disk quota exceeded\n", Kind::NoSpace, &["quota"]);
    let shut_out = "rbd: error opening image i: (108) Cannot send after transport endpoint shutdown\n";
    means(108, shut_out, Kind::Unavailable, &["ceph osd blocklist ls"]);
}

#[test]
fn what_hangs_is_told_with_its_monitors() {
    let after = Duration::from_secs(30);
    let hung = CommandError::TimedOut {
        command: "rbd info".into(),
        after,
        reaped: true,
        stderr_tail: String::new(),
    };
    let error = Failure::new(&access(), hung).into_error("volume v");
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(
        error.message().contains("\"main\" (monitors v1:10.0.0.1:6789) did not answer in time"),
        "{error}"
    );
    let waiting = CommandError::Expired { command: "rbd info".into(), waited: after };
    let error = Failure::new(&access(), waiting).into_error("volume v");
    assert!(
        error.kind() == Kind::Timeout && error.message().contains("\"main\" (monitors v1:10.0.0.1:6789)"),
        "{error}"
    );
}

#[test]
fn what_the_tool_was_asked_is_left_to_the_caller() {
    let failure = failure(
        2,
        &format!("rbd: error opening image i: (2) No such file or directory\n{}", "2026-11-21T08:57 log\n"),
    );
    assert_eq!(failure.status(), Some(2));
    assert!(failure.says("No such file") && !failure.says("namespace"));
    let error = failure.into_error("volume v");
    let message =
        "volume v: rbd: error opening image i: (2) No such file or directory (exit status 2 of `rbd info`)";
    assert_eq!(
        (error.kind(), error.message()),
        (Kind::Internal, message),
        "the tool's own words, not a library's log"
    );
}
