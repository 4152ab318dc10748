//! `cephlet doctor` in a cluster: each finding is made, named, mended as it says, and gone.

use serde_json::Value;

use crate::support::cli::{command, done};
use crate::support::corner::{await_that, entry};
use crate::support::{Cluster, Daemon, Setup};

/// A controller of a cluster of its own, whose user has the least rights.
fn start() -> (Cluster, Daemon) {
    let cluster = Cluster::start();
    let setup = Setup::new();
    let file = setup.scratch.path("clusters.toml");
    // Pools that are not named are passed over if the user has no rights there.
    let named = entry("main", &cluster, "cephlet") + "pools = [\"rbd\", \"second\"]\n";
    std::fs::write(&file, named).expect("write the file");
    let setup = setup.set("CEPHLET_SERVICES", "controller").set("CEPHLET_BACKENDS", "rbd");
    let daemon = setup.set("CEPHLET_CLUSTERS", file.display()).start();
    (cluster, daemon)
}

/// The names of the findings, each with what mends it.
fn findings(daemon: &Daemon) -> Vec<(String, String)> {
    let output = command(daemon, "doctor --json", "");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_string();
    found.as_array().expect("an array").iter().map(|it| (text(it, "name"), text(it, "mend"))).collect()
}

#[track_caller]
fn only(daemon: &Daemon, name: &str) -> String {
    match findings(daemon).as_slice() {
        [(found, mend)] if found == name => mend.clone(),
        found => panic!("not only {name}: {found:?}"),
    }
}

#[track_caller]
fn mend_ourselves(daemon: &Daemon, name: &str) {
    let mend = only(daemon, name);
    assert_eq!(done(daemon, mend.strip_prefix("cephlet ").expect("a command of ours")), "mended");
    assert_eq!(findings(daemon), []);
}

#[test]
fn leftovers_in_a_cluster_are_found_and_removed() {
    let (cluster, daemon) = start();
    done(&daemon, "volume create web --size 32M");
    assert_eq!(findings(&daemon), []);
    let tag = std::fs::read_to_string(daemon.path("state/tag")).expect("the tag");
    let copy = format!("csi-tmp-{}-abcdefghij234-abcd2345", tag.trim());
    let image = |name: &str| format!("rbd/{name}");
    cluster.rbd(&["create", "--size", "32M", &image(&copy)]);
    mend_ourselves(&daemon, &format!("CopyLeft:main/rbd/{copy}"));

    cluster.rbd(&["create", "--size", "32M", &image("x")]);
    let info: Value =
        serde_json::from_str(&cluster.rbd(&["info", &image("x"), "--format=json"])).expect("JSON");
    let held = format!("csi-held-{}", info["id"].as_str().expect("an id"));
    cluster.rbd(&["rename", &image("x"), &image(&held)]);
    mend_ourselves(&daemon, &format!("DeletedStays:main/rbd/{held}"));
    let images = cluster.rbd(&["ls", "rbd"]);
    assert!(images.starts_with("csi-vol-web-") && !images.contains('\n'), "{images}");

    // What is needed stays: a deleted volume with a snapshot.
    done(&daemon, "snapshot create web before");
    cluster.rbd(&["rename", &image(&images), &image("csi-held-x")]);
    let output = command(&daemon, "doctor --fix DeletedStays:main/rbd/csi-held-x", "");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cluster.rbd(&["ls", "rbd"]), "csi-held-x");
    cluster.rbd(&["rename", &image("csi-held-x"), &image(&images)]);
    done(&daemon, "snapshot delete web@before");
    done(&daemon, "volume delete web");
}

#[test]
fn what_a_cluster_refuses_and_has_shut_out_is_found() {
    let (cluster, mut daemon) = start();
    assert_eq!(findings(&daemon), []);
    // As cephlet does with a client that is lost.
    cluster.ceph(&["osd", "blocklist", "add", "10.9.8.7:0/123456", "315360000"]);
    assert_eq!(findings(&daemon), []);
    let host = "10.9.8.7:0/0";
    cluster.ceph(&["osd", "blocklist", "add", host, "315360000"]);
    let mend = only(&daemon, &format!("FenceStays:{host}"));
    let (_, typed) = mend.split_once("ceph ").expect("a command");
    cluster.ceph(&typed.split(' ').collect::<Vec<_>>());
    assert_eq!(findings(&daemon), []);

    let rights = cluster.ceph(&["auth", "get", "client.cephlet", "--format=json"]);
    let rights: Value = serde_json::from_str(&rights).expect("JSON");
    let of = |daemon: &str| rights[0]["caps"][daemon].as_str().unwrap_or("allow r").to_string();
    let give = |osd: &str| {
        cluster.ceph(&["auth", "caps", "client.cephlet", "mon", &of("mon"), "mgr", &of("mgr"), "osd", osd]);
    };
    give("profile rbd pool=second");
    // Connections keep the rights with which they were made.
    daemon.restart();
    let refused: Vec<String> = findings(&daemon).into_iter().map(|(name, _)| name).collect();
    assert_eq!(refused, ["PlaceRefused:main", "VolumeSilent"]);
    give(&of("osd"));
    daemon.restart();
    assert_eq!(findings(&daemon), []);
}

#[test]
fn a_cluster_with_an_error_is_found() {
    let (cluster, daemon) = start();
    let file_system = "cephfs";
    cluster.ceph(&["fs", "fail", file_system]);
    await_that("the error to be found", || match findings(&daemon).as_slice() {
        [(name, mend)] if name == "ClusterUnwell:main" && mend == "ceph health detail" => Ok(()),
        found => Err(format!("{found:?}")),
    });
    cluster.ceph(&["fs", "set", file_system, "joinable", "true"]);
    await_that("the cluster to be well", || match findings(&daemon).as_slice() {
        [] => Ok(()),
        found => Err(format!("{found:?}")),
    });
}
