//! Answers as Ceph 16.2 gave them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::backend::ceph::Programs;
use crate::clusters::{Cluster, Credentials, parse_monitors};
use crate::dispatch::Call;
use crate::exec::fake::FakeRunner;
use crate::exec::{Class, Cmd, Tool};
use crate::secrets::Secrets;

fn access() -> ClusterAccess {
    let mut cluster = Cluster::named("main");
    cluster.monitors = parse_monitors("10.0.0.1:6789").unwrap();
    cluster.key_from = String::from("/etc/cephlet/main.key");
    cluster.credentials = Some(Credentials { user: "web".into(), key: None });
    ClusterAccess::new(Arc::new(cluster), &Secrets::default()).unwrap()
}

fn failure(status: i32, stderr: &str) -> Failure {
    let runner = Arc::new(FakeRunner::default());
    runner.expect_failure(&["rbd", "info"], status, stderr);
    let cmd = Cmd::new(Tool::Rbd, Class::Question).arg("info");
    Programs::new(runner, None).run(&Call::internal("test"), &access(), &cmd).unwrap_err()
}

/// A library's log line: it appears before, after or within the tool's own message.
const BAD_METHOD: &str = "2026-11-21T08:49:20.190+0000 7fd91f5726c0 -1 monclient(hunting): \
                          handle_auth_bad_method server allowed_methods [2] but i only support [2,1]\n";
/// About a keyring that is not needed, as a key file was given.
const NO_KEYRING: &str = "2026-11-24T22:07:36.289+0000 7fbb8c3ff6c0 -1 auth: unable to find a keyring on \
                          /etc/ceph/keyring,: (2) No such file or directory\n";
const AUTHENTICATE: &str =
    "2026-11-22T02:25:20.953+0000 7f4420298380  0 monclient(hunting): authenticate timed out after 20\n";
const NO_WATCH: &str = "2026-11-22T02:27:39.849+0000 7f52563666c0 -1 librbd::Watcher: 0x7f523c0075f0 \
                        handle_register_watch: failed to register watch: (110) Connection timed out\n";
const NO_TRASH: &str = "2026-11-22T02:27:36.781+0000 7fb9eb7fe6c0 -1 librbd::trash::MoveRequest: \
                        0x7fb9dc016720 handle_trash_add: failed to add image to trash: (122) Disk quota \
                        exceeded\n";

/// The exit status of a tool, a log line, and its own words.
type Answer = (i32, &'static str, &'static str);

#[track_caller]
fn all_mean(reason: Reason, kind: Kind, parts: &[&str], answers: &[Answer]) {
    for (status, log, words) in answers {
        for stderr in [format!("{log}{words}"), format!("{words}{log}")] {
            let failure = failure(*status, &stderr);
            assert_eq!(failure.reason(), Some(reason), "{stderr}");
            let error = failure.into_error("volume v");
            assert_eq!((error.kind(), error.exit_status()), (kind, Some(*status)), "{error}");
            for part in parts.iter().chain(&["volume v: ", "\"main\""]) {
                assert!(error.message().contains(part), "{part:?} is missing: {error}");
            }
        }
    }
}

#[test]
fn no_monitor_answers() {
    // No process listens there, or the monitor is stopped: no tool tells the two apart.
    let parts = ["v1:10.0.0.1:6789", "check that they run"];
    all_mean(
        Reason::Unreachable,
        Kind::Unavailable,
        &parts,
        &[
            (110, AUTHENTICATE, "rbd: couldn't connect to the cluster!\n"),
            (
                110,
                AUTHENTICATE,
                "rbd: couldn't connect to the cluster!\nrbd: listing images failed: (110) Connection timed out\n",
            ),
            (1, "", "failed to fetch mon config (--no-mon-config to skip)\n"),
            (1, AUTHENTICATE, "couldn't connect to cluster: (110) Connection timed out\n"),
            (1, "", "timed out\n"),
            (1, "", "Cluster connection interrupted or timed out\n"),
            // The message of later versions of `ceph`.
            (1, "", "[errno 110] RADOS timed out (error connecting to the cluster)\n"),
            (22, "", "unable to parse addrs in 'nohost'\nrbd: couldn't connect to the cluster!\n"),
        ],
    );
}

#[test]
fn a_user_that_is_refused() {
    // A wrong key, an unknown user, and one without caps at the monitors: the answers are the same.
    let parts = ["client.web", "/etc/cephlet/main.key", "ceph auth get"];
    all_mean(
        Reason::Refused,
        Kind::Unauthenticated,
        &parts,
        &[
            (13, BAD_METHOD, "rbd: couldn't connect to the cluster!\n"),
            (
                13,
                BAD_METHOD,
                "rbd: couldn't connect to the cluster!\nrbd: listing images failed: (13) Permission denied\n",
            ),
            (1, BAD_METHOD, "rbd: couldn't connect to the cluster!\n"),
            (1, BAD_METHOD, "failed to fetch mon config (--no-mon-config to skip)\n"),
            (13, BAD_METHOD, "[errno 13] RADOS permission denied (error connecting to the cluster)\n"),
            (1, "", "[errno 1] RADOS permission error (error connecting to the cluster)\n"),
            (22, "", "auth: failed to decode key\nrbd: couldn't connect to the cluster!\n"),
            (13, "", "rbd: couldn't connect to the cluster!\n"),
        ],
    );
}

#[test]
fn a_user_that_may_not() {
    let parts = ["profile rbd", "client.web"];
    all_mean(
        Reason::Forbidden,
        Kind::Precondition,
        &parts,
        &[
            (1, "", "rbd: create error: (1) Operation not permitted\n"),
            (1, "", "rbd: error opening image there: (1) Operation not permitted\n"),
            (
                1,
                "",
                "Removing image: 0% complete...failed.\nrbd: delete error: (1) Operation not permitted\n",
            ),
            (1, "", "rbd: trash list: (1) Operation not permitted\n"),
            (1, "", "error putting rbd/x: (1) Operation not permitted\n"),
            (
                1,
                "",
                "ERROR: failed locking: (1) Operation not permitted\nerror 1: (1) Operation not permitted\n",
            ),
            (1, "", "rados_nobjects_list_next2: Operation not permitted\n"),
            (13, "", "Error EACCES: access denied: does your client key have mgr caps?\n"),
            (13, NO_KEYRING, "Error EACCES: access denied\n"),
        ],
    );
}

#[test]
fn a_cluster_that_is_full() {
    all_mean(
        Reason::Full,
        Kind::NoSpace,
        &["ceph df", "quota"],
        &[
            (28, "", "rbd: create error: (28) No space left on device\n"),
            (122, "", "rbd: create error: (122) Disk quota exceeded\n"),
            (2, NO_TRASH, "rbd: delete error: (2) No such file or directory\n"),
        ],
    );
}

#[test]
fn osds_that_do_not_answer() {
    // A pool that has been full for a while gives the same answers.
    let parts = ["OSDs", "v1:10.0.0.1:6789", "ceph health detail"];
    all_mean(
        Reason::Stalled,
        Kind::Timeout,
        &parts,
        &[
            (110, NO_WATCH, "rbd: error opening image there: (110) Connection timed out\n"),
            (110, "", "rbd: image creation failed\nrbd: import failed: (110) Connection timed out\n"),
            (1, "", "error creating rbd/foo: (110) Connection timed out\n"),
            (
                1,
                "",
                "ERROR: failed locking: (110) Connection timed out\nerror 110: (110) Connection timed out\n",
            ),
        ],
    );
}

#[test]
fn a_cluster_that_has_shut_us_out() {
    let shut_out = "rbd: error opening image i: (108) Cannot send after transport endpoint shutdown\n";
    let answers = [(108, "", shut_out)];
    all_mean(Reason::Blocklisted, Kind::Unavailable, &["ceph osd blocklist ls"], &answers);
}

#[test]
fn what_hangs_is_told_with_its_monitors() {
    let after = Duration::from_secs(30);
    let hung = Why::TimedOut { after, reaped: true, stderr_tail: String::new() };
    let error = Failure::new(&access(), hung.of("rbd info")).into_error("volume v");
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(
        error.message().contains("\"main\" (monitors v1:10.0.0.1:6789) did not answer in time"),
        "{error}"
    );
    let error = Failure::new(&access(), Why::Expired(after).of("rbd info")).into_error("volume v");
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
    assert_eq!(failure.reason(), None);
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
