//! The test cluster itself has the properties that the tests of RBD rely on.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::corner::unused_name;
use crate::support::machine::text;
use crate::support::{Cluster, LONG_PATIENCE, await_that, cluster};

#[test]
#[ignore = "of what the tests stand on: tests/run --full"]
fn a_cluster_is_as_its_script_describes_it() {
    let own = Cluster::start();
    has_pools_and_a_manager_that_takes_tasks(&own);
    stands_beside(&own, cluster());
    keeps_everyone_waiting_while_paused(&own);
    let dir = own.dir().to_path_buf();
    drop(own);
    assert!(!dir.exists());
}

fn has_pools_and_a_manager_that_takes_tasks(cluster: &Cluster) {
    assert_eq!(cluster.rbd(&["namespace", "ls", "rbd", "--format", "json"]), r#"[{"name":"team"}]"#);
    for pool in ["rbd/team", "second"] {
        cluster.rbd(&["create", "--size", "8M", "--data-pool", "data", &format!("{pool}/made")]);
        assert_eq!(cluster.rbd(&["ls", pool]), "made");
    }
    assert!(cluster.ceph(&["rbd", "task", "add", "remove", "rbd/team/made"]).contains("Removing image"));
    await_that("all is well", || match cluster.ceph(&["health"]).as_str() {
        "HEALTH_OK" => Ok(()),
        other => Err(other.to_string()),
    });
    assert!(!cluster.attempt("rbd", &["info", "second/none"]).status.success());
    assert!(cluster.rados(&["--pool", "second", "ls"]).contains("rbd_id.made"));
}

#[test]
#[ignore = "of what the tests stand on: tests/run --full"]
fn users_may_do_what_they_need_and_no_more() {
    let cluster = cluster();
    let allowed = |user: &str, arguments: &[&str]| {
        let mut rbd = Command::new("rbd");
        rbd.arg("--conf").arg(cluster.conf()).args(["--id", user, "--keyring", text(&cluster.keyring(user))]);
        rbd.args(arguments).output().expect("rbd").status.success()
    };
    let theirs = format!("rbd/{}", unused_name("theirs-"));
    assert!(allowed("cephlet", &["create", "--size", "8M", &theirs]));
    assert!(allowed("cephlet-node", &["lock", "add", &theirs, "me"]));
    assert!(allowed("reader", &["ls", "rbd"]));
    assert!(!allowed("reader", &["lock", "add", &theirs, "other"]));
    assert!(cluster.ceph(&["auth", "get-key", "client.cephlet"]) == cluster.key("cephlet"));
}

fn stands_beside(one: &Cluster, other: &Cluster) {
    assert_ne!(one.fsid(), other.fsid());
    assert_ne!(one.mon_host(), other.mon_host());
    assert_eq!(one.ceph(&["fsid"]), one.fsid());
    let both = format!("[v2:{}/0,v1:{}/0]", one.mon_host_v2(), one.mon_host());
    assert_eq!(one.mon_vector(), both);
    one.rbd(&["create", "--size", "8M", "rbd/only-here"]);
    assert!(!other.rbd(&["ls", "rbd"]).contains("only-here"));
}

fn keeps_everyone_waiting_while_paused(cluster: &Cluster) {
    let paused = cluster.pause("osd");
    let mut listing = cluster.command("rbd").args(["ls", "rbd"]).spawn().expect("rbd");
    std::thread::sleep(Duration::from_millis(300));
    assert!(listing.try_wait().expect("ask for its end").is_none(), "the OSD answered");
    drop(paused);
    assert!(listing.wait().expect("its end").success());
}

#[test]
#[ignore = "of what the tests stand on: tests/run --full"]
fn a_cluster_ends_with_its_owner() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("ceph");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster");
    let owner = Command::new("bash")
        .args(["-c", r#""$0" up "$1"; cat "$1"/run/*.pid >&2; kill -9 $$"#, script, text(&dir)])
        .output();
    let daemons = String::from_utf8(owner.expect("bash").stderr).expect("process IDs");
    assert_eq!(daemons.lines().count(), 4, "{daemons}");
    let deadline = Instant::now() + LONG_PATIENCE;
    while dir.exists() || daemons.lines().any(|pid| Path::new("/proc").join(pid).join("exe").exists()) {
        assert!(Instant::now() < deadline, "still there: {daemons}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
