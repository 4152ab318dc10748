//! Options of a pool and of the cluster that change what Ceph's tools do, and the number of snapshots.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use serde_json::Value;

use super::shared::setup;
use crate::support::corner::{await_that, entry, unused_name};
use crate::support::machine::{limited, text};
use crate::support::requests::*;
use crate::support::{Code, Corner, Daemon, LONG_PATIENCE, MIB, Scratch, Setup, cluster, object_of, refused};

/// A pool for one test alone, with options.
struct Pool(String);

impl Pool {
    fn new(options: &[(&str, &str)]) -> Self {
        let (cluster, name) = (cluster(), unused_name("options-"));
        cluster.ceph(&["osd", "pool", "create", &name, "1"]);
        cluster.rbd(&["pool", "init", &name]);
        let pool = Self(name);
        pool.set(options);
        pool
    }

    fn set(&self, options: &[(&str, &str)]) {
        for (option, value) in options {
            cluster().rbd(&["config", "pool", "set", &self.0, option, value]);
        }
    }

    /// A daemon that may use this pool, and has read nothing of it yet. It is the admin, as the users for
    /// controllers may use only the usual pools.
    fn start(&self) -> Daemon {
        setup("admin", &[&self.0], &[""]).start()
    }

    fn volume(&self, name: &str) -> wire::CreateVolumeRequest {
        wire::CreateVolumeRequest {
            parameters: map(&[("pool", &self.0)]),
            ..volume_as(name, 8 * MIB, block())
        }
    }

    fn spec(&self, id: &str) -> String {
        format!("{}/{}", self.0, object_of(id))
    }

    /// `rbd info`, as far as options change it.
    fn layout(&self, id: &str) -> (Value, Value, Value, Value) {
        let said = cluster().rbd(&["info", &self.spec(id), "--format", "json"]);
        let mut info: Value = serde_json::from_str(&said).expect("JSON");
        let mut take = |key: &str| info[key].take();
        (take("features"), take("object_size"), take("stripe_unit"), take("data_pool"))
    }

    /// Images, trash and data.
    fn left(&self) -> String {
        let cluster = cluster();
        let data = cluster.rados(&["--pool", &self.0, "ls"]);
        let data: Vec<&str> = data.lines().filter(|name| name.starts_with("rbd_data.")).collect();
        let [images, trash] =
            [cluster.rbd(&["ls", &self.0]), cluster.rbd(&["trash", "ls", "--all", &self.0])];
        format!("{images}{trash}{}", data.join(" "))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        cluster().ceph(&["osd", "pool", "rm", &self.0, &self.0, "--yes-i-really-really-mean-it"]);
    }
}

const LAYOUT: [(&str, &str); 4] = [
    ("rbd_default_features", "1"),
    ("rbd_default_order", "20"),
    ("rbd_default_stripe_unit", "65536"),
    ("rbd_default_stripe_count", "3"),
];

#[test]
fn a_pools_options_make_no_volume_that_cannot_be_written() {
    let pool = Pool::new(&LAYOUT);
    let daemon = pool.start();
    let client = daemon.client();
    let source = client.create(&pool.volume("source")).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot("taken", &source)).expect("snapshot");
    let copies = [
        from_snapshot(pool.volume("restored"), &taken.snapshot.snapshot_id),
        from_volume(pool.volume("copy"), &source),
    ];
    let copies = copies.map(|request| client.create(&request).expect("copy").volume_id);
    let (features, usual) = (serde_json::json!(["layering", "exclusive-lock"]), 4 * MIB);
    for id in [&[source][..], &copies].concat() {
        let (mut has, object_size, stripe_unit, data_pool) = pool.layout(&id);
        has.as_array_mut().expect("features").retain(|it| it != "operations");
        assert_eq!((has, object_size), (features.clone(), usual.into()), "{id}");
        assert_eq!((stripe_unit, data_pool), (Value::Null, Value::Null), "{id}");
        client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish it for writing");
    }
}

#[test]
fn options_that_nothing_overrides_are_named_with_what_mends_them() {
    let pool = Pool::new(&[("rbd_default_clone_format", "1")]);
    let daemon = pool.start();
    let client = daemon.client();
    let source = client.create(&pool.volume("source")).expect("create").volume_id;
    let copy = from_volume(pool.volume("copy"), &source);
    let command = format!("rbd config pool rm {} rbd_default_clone_format", pool.0);
    refused(client.create(&copy), Code::FAILED_PRECONDITION, &[&command]);
    cluster().type_in(&command, cluster().dir());
    client.create(&copy).expect("a copy after the command");
    pool.set(&[("rbd_default_data_pool", "absent")]);
    let parts = ["rbd_default_data_pool", "ceph osd pool create absent", "dataPool"];
    refused(pool.start().client().create(&pool.volume("more")), Code::FAILED_PRECONDITION, &parts);
    let mut own = pool.volume("more");
    own.parameters.insert("dataPool".to_string(), pool.0.clone());
    client.create(&own).expect("the pool itself is named");
}

#[test]
fn what_is_deleted_is_gone_though_the_pool_moves_it_to_the_trash() {
    let keeps =
        [("rbd_move_to_trash_on_remove", "true"), ("rbd_move_to_trash_on_remove_expire_seconds", "3600")];
    let pool = Pool::new(&keeps);
    let daemon = pool.start();
    let client = daemon.client();
    let source = client.create(&pool.volume("source")).expect("create").volume_id;
    let mut watch = cluster().command("rbd");
    watch.args(["watch", &pool.spec(&source)]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut watch = watch.stderr(Stdio::null()).spawn().expect("rbd");
    await_that("the image is open", || {
        let status = cluster().rbd(&["status", &pool.spec(&source), "--format", "json"]);
        if status.contains("\"client\"") { Ok(()) } else { Err(status) }
    });
    refused(client.delete_volume(&delete(&source)), Code::FAILED_PRECONDITION, &["in use"]);
    drop(watch.stdin.take());
    watch.wait().expect("its end");
    await_that("the image is closed", || {
        let status = cluster().rbd(&["status", &pool.spec(&source), "--format", "json"]);
        if status.contains("\"client\"") { Err(status) } else { Ok(()) }
    });
    let copy = client.create(&from_volume(pool.volume("copy"), &source)).expect("copy").volume_id;
    let taken = client.create_snapshot(&snapshot("taken", &source)).expect("snapshot").snapshot;
    for id in [&source, &copy] {
        client.delete_volume(&delete(id)).expect("delete");
    }
    client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete the snapshot");
    await_that("UNSAFE: something is left", || match pool.left() {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
}

/// The command line precedes the cluster's options; here they are those of a conf.
#[test]
fn the_clusters_options_change_nothing() {
    let corner = Corner::new();
    let scratch = Arc::new(Scratch::new());
    let (conf, file) = (scratch.path("ceph.conf"), scratch.path("clusters.toml"));
    let clusters = fs::read_to_string(corner.cluster.conf()).expect("the conf");
    let options = "rbd move to trash on remove = true\nrbd default clone format = 1\n\
                   rbd default features = 1\nrbd default order = 20\n";
    fs::write(&conf, format!("{clusters}{options}")).expect("write the conf");
    let known = entry("main", corner.cluster, "cephlet");
    let known = known.replace(text(&corner.cluster.conf()), text(&conf));
    let usable = format!("pools = [\"rbd\"]\nnamespaces = [{:?}]\n", corner.namespace);
    fs::write(&file, format!("{known}{usable}")).expect("write the file");
    let setup = Setup::within(scratch).set("CEPHLET_BACKENDS", "rbd");
    let daemon = setup.set("CEPHLET_CLUSTERS", file.display()).start();
    let client = daemon.client();
    let source = client.create(&corner.volume("source", 8)).expect("create").volume_id;
    let copy = client.create(&from_volume(corner.volume("copy", 8), &source)).expect("copy").volume_id;
    for id in [&source, &copy] {
        let info = corner.info(id);
        assert_eq!(info["object_size"], 4 * MIB, "{info}");
        client.controller_publish_volume(&publish_to(id, "node-1")).expect("publish it for writing");
        client.controller_unpublish_volume(&unpublish_from(id, "node-1")).expect("take it back");
    }
    for id in [&source, &copy] {
        client.delete_volume(&delete(id)).expect("delete");
    }
    corner.await_empty();
}

#[test]
fn features_without_the_lock_that_writers_need_are_refused() {
    let corner = Corner::new();
    let daemon = corner.start();
    let request = corner.volume_with("one", 8, &[("imageFeatures", "layering")]);
    let parts = ["imageFeatures", "exclusive-lock"];
    refused(daemon.client().create(&request), Code::INVALID_ARGUMENT, &parts);
    assert!(corner.images().is_empty());
    let readers = vec![block_as(AccessModeOf::MULTI_NODE_READER_ONLY)];
    let request = wire::CreateVolumeRequest { volume_capabilities: readers, ..request };
    let id = daemon.client().create(&request).expect("for readers").volume_id;
    let validated = |capability| {
        let reply = daemon.client().validate_volume_capabilities(&validate(&id, capability));
        let reply = reply.expect("validate");
        (reply.confirmed.is_some(), reply.message)
    };
    assert!(validated(block_as(AccessModeOf::MULTI_NODE_READER_ONLY)).0);
    let (is_confirmed, why) = validated(block());
    assert!(!is_confirmed && why.contains("rbd feature enable") && why.contains("exclusive-lock"), "{why}");
}

/// Takes so many snapshots of an image in one process.
const TAKE: &str = "\
import rados, rbd, sys
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
pool = cluster.open_ioctx('rbd')
pool.set_namespace(sys.argv[2])
with rbd.Image(pool, sys.argv[3]) as image:
    for number in range(int(sys.argv[4])):
        image.create_snap('by-hand-%d' % number)
";

/// Snapshots in the trash of the image count. A repeated request for one that exists still succeeds.
#[test]
#[ignore = "takes 450 snapshots: tests/run --full"]
fn an_image_gets_no_more_snapshots_than_the_kernel_takes() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let source = client.create(&corner.volume("source", 8)).expect("create").volume_id;
    let copy = from_volume(corner.volume("copy", 8), &source);
    client.create(&copy).expect("copy");
    let conf = corner.cluster.dir().join("admin.conf").display().to_string();
    let words = ["-c", TAKE, &conf, &corner.namespace, object_of(&source), "448"];
    assert!(limited(LONG_PATIENCE, "/usr/bin/python3").args(words).status().expect("python3-rbd").success());
    let last = client.create_snapshot(&snapshot("last", &source)).expect("the last one");
    assert_eq!(corner.info(&source)["snapshot_count"], 450, "with that of the copy, which is in the trash");
    let parts = ["450 snapshots", "delete snapshots", "rbd flatten"];
    refused(client.create_snapshot(&snapshot("more", &source)), Code::RESOURCE_EXHAUSTED, &parts);
    let more = from_volume(corner.volume("more", 8), &source);
    refused(client.create(&more), Code::RESOURCE_EXHAUSTED, &parts);
    let cold = corner.start();
    assert_eq!(cold.client().create_snapshot(&snapshot("last", &source)).expect("again"), last);
    cold.client().create(&copy).expect("the copy again");
}
