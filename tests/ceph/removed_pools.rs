//! Pools that were removed with everything in them, as the clusters file says.

use std::fs;

use cephlet::proto::csi_v1 as wire;
use rustix::process::Signal;

use crate::support::corner::{entry, unused_name};
use crate::support::requests::*;
use crate::support::{Client, Code, Daemon, MIB, Scratch, Setup, cluster, refused};

/// A pool for no application: daemons of other tests do not see it.
fn pool() -> String {
    let pool = unused_name("old");
    cluster().ceph(&["osd", "pool", "create", &pool]);
    pool
}

fn remove(pool: &str) {
    cluster().ceph(&["osd", "pool", "delete", pool, pool, "--yes-i-really-really-mean-it"]);
}

/// A clusters file that allows these pools and says that those were removed.
fn write_file(path: &std::path::Path, pools: &[&str], removed: &[&str]) {
    let entry = entry("ceph", cluster(), "admin");
    let text = format!("{entry}pools = {pools:?}\nnamespaces = [\"\"]\nremoved_pools = {removed:?}\n");
    fs::write(path, text).expect("write the file");
}

fn start(pools: &[&str], removed: &[&str]) -> Daemon {
    let scratch = std::sync::Arc::new(Scratch::new());
    let file = scratch.path("clusters.toml");
    write_file(&file, pools, removed);
    let setup = Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display());
    setup.set("CEPHLET_BACKENDS", "rbd").start()
}

/// Makes the running daemon read another clusters file.
fn reload(daemon: &Daemon, pools: &[&str], removed: &[&str]) {
    write_file(&daemon.path("clusters.toml"), pools, removed);
    let is_read = "cluster \"ceph\" of";
    let before = daemon.log.lines_with(is_read).len();
    daemon.signal(Signal::HUP);
    daemon.log.await_lines(is_read, before + 1);
}

fn volume_in(pool: &str, name: &str) -> wire::CreateVolumeRequest {
    let parameters = map(&[("pool", pool)]);
    wire::CreateVolumeRequest { parameters, ..volume_as(name, 8 * MIB, block()) }
}

fn volumes(client: &Client) -> Vec<String> {
    let entries = client.list_volumes(&page(0, "")).expect("list").entries;
    entries.iter().map(|entry| entry.volume.volume_id.clone()).collect()
}

#[test]
fn objects_in_a_removed_pool_are_gone_once_the_clusters_file_says_so() {
    let pool = pool();
    let daemon = start(&[&pool], &[]);
    let client = daemon.client();
    let id = client.create(&volume_in(&pool, "web")).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot("daily", &id)).expect("snapshot").snapshot;
    let snapshot_id = taken.snapshot_id.clone();
    client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    remove(&pool);

    let unpublish = || client.controller_unpublish_volume(&unpublish_from(&id, "node-1"));
    let way_out = format!("removed_pools = [{pool:?}]");
    let parts = ["cluster \"ceph\"", &way_out, "[cluster.ceph]", "CEPHLET_CLUSTERS"];
    refused(unpublish(), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_snapshot(&delete_snapshot(&snapshot_id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.list_volumes(&page(0, "")), Code::FAILED_PRECONDITION, &parts);

    // A pool of another name is of no help.
    reload(&daemon, &[&pool], &["elsewhere"]);
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &parts);

    reload(&daemon, &[&pool], &[&pool]);
    assert_eq!(volumes(&client), [""; 0]);
    let snapshots = client.list_snapshots(&wire::ListSnapshotsRequest::default()).expect("list");
    assert!(snapshots.entries.is_empty(), "{snapshots:?}");
    unpublish().expect("unpublish");
    client.delete_snapshot(&delete_snapshot(&snapshot_id)).expect("delete the snapshot");
    client.delete_volume(&delete(&id)).expect("delete");
    let without_incarnation = id.rsplit_once(':').expect("an ID").0;
    client.delete_volume(&delete(without_incarnation)).expect("delete");
    for gone in [&id, &snapshot_id] {
        daemon.log.await_lines(&format!("{gone} counts as gone"), 1);
    }
    refused(client.create(&volume_in(&pool, "web")), Code::FAILED_PRECONDITION, &["was removed"]);
    let config = daemon.setup.cephlet("config");
    assert!(config.contains("what was in it counts as deleted"), "{config}");

    // A removed pool need not be among the pools that may be used.
    reload(&daemon, &["second"], &[&pool]);
    client.delete_volume(&delete(&id)).expect("delete");
    daemon.assert_well();
}

#[test]
fn a_pool_that_is_there_was_not_removed() {
    let pool = pool();
    let daemon = start(&[&pool], &[&pool]);
    let client = daemon.client();
    let id = client.create(&volume_in(&pool, "web")).expect("create").volume_id;
    assert_eq!(volumes(&client), [id.as_str()]);
    client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["node-1"]);
    client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");
    client.delete_volume(&delete(&id)).expect("delete");
    assert_eq!(cluster().rbd(&["ls", &pool]), "", "the image is removed, not forgotten");
    let config = daemon.setup.cephlet("config");
    for said in [config, daemon.log.await_lines(&format!("pool {pool:?} is there"), 1).concat()] {
        assert!(said.contains("`removed_pools` in the clusters file is ignored"), "{said}");
    }
    remove(&pool);
}
