//! The operator's mistakes are reported so that the operator can correct them.

use std::fs;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;

use super::shared::setup;
use crate::support::client::Answer;
use crate::support::corner::unused_name;
use crate::support::requests::*;
use crate::support::{Client, Cluster, Code, Daemon, MIB, Scratch, Setup, await_that, cluster, refused};

/// A key of the right form, which no user has.
const WRONG_KEY: &str = "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==";

/// A daemon that runs as `user` with this key.
fn with_key(user: &str, key: &str) -> Daemon {
    let scratch = Arc::new(Scratch::new());
    let keyring = scratch.path("keyring");
    fs::write(&keyring, format!("[client.{user}]\n\tkey = {key}\n")).expect("write the keyring");
    Setup::within(scratch).on(cluster(), user).set("CEPHLET_CEPH_KEYRING", keyring.display()).start()
}

fn volume_at(name: &str, parameters: &[(&str, &str)]) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest { parameters: map(parameters), ..volume_as(name, 8 * MIB, block()) }
}

/// Every call that asks the cluster about this volume and answers with an error if the user may not ask.
fn every_call(client: &Client, id: &str) -> Vec<(&'static str, Answer<()>)> {
    vec![
        ("create", client.create(&volume_at("refused", &[])).map(drop)),
        ("get", client.controller_get_volume(&get(id)).map(drop)),
        ("expand", client.controller_expand_volume(&expand(id, 64 * MIB)).map(drop)),
        ("publish", client.controller_publish_volume(&publish_to(id, "node-1")).map(drop)),
        ("snapshot", client.create_snapshot(&snapshot("refused", id)).map(drop)),
        ("clone", client.create(&from_volume(volume_at("refused-clone", &[]), id)).map(drop)),
        ("delete", client.delete_volume(&delete(id)).map(drop)),
        ("list", client.list_volumes(&page(0, "")).map(drop)),
        ("capacity", client.get_capacity(&wire::GetCapacityRequest::default()).map(drop)),
    ]
}

/// An image for calls.
fn image(name: &str) -> String {
    let name = unused_name(name);
    cluster().rbd(&["create", "--size", "32M", &format!("rbd/{name}")]);
    format!("rbd:ceph:rbd::{name}")
}

#[test]
fn a_wrong_key_is_refused() {
    let id = image("wrong-key");
    let daemon = with_key("cephlet", WRONG_KEY);
    for (what, answer) in every_call(&daemon.client(), &id) {
        let parts = ["client.cephlet", "\"ceph\"", "ceph auth get client.cephlet", &daemon.text("keyring")];
        let failure = answer.expect_err(what);
        assert_eq!(failure.code, Code::UNAUTHENTICATED, "{what}: {failure:?}");
        assert!(parts.iter().all(|part| failure.message.contains(part)), "{what}: {failure:?}");
        assert!(!failure.message.contains(WRONG_KEY), "{what}: {failure:?}");
    }
    assert!(daemon.client().is_ready());
    assert!(!daemon.log.text().contains(WRONG_KEY));
}

#[test]
fn an_unknown_user_is_refused() {
    let id = image("unknown-user");
    let daemon = with_key("nobody", WRONG_KEY);
    for (what, answer) in every_call(&daemon.client(), &id) {
        let failure = answer.expect_err(what);
        assert_eq!(failure.code, Code::UNAUTHENTICATED, "{what}: {failure:?}");
        assert!(failure.message.contains("ceph auth get client.nobody"), "{what}: {failure:?}");
    }
}

#[test]
fn a_key_that_is_none_disables_the_cluster() {
    let daemon = with_key("cephlet", "AQDQ8UNl-cut-short");
    let said =
        refused(daemon.client().create(&volume_at("x", &[])), Code::UNAVAILABLE, &["\"ceph\"", "base64"]);
    assert!(said.contains(&daemon.text("keyring")) && !said.contains("cut-short"), "{said}");
    let probe = daemon.client().probe(&wire::ProbeRequest::default());
    assert!(!daemon.log.text().contains("cut-short"), "{probe:?}");
}

#[test]
fn wrong_secrets_are_refused_and_right_ones_help() {
    let cluster = cluster();
    let daemon = with_key("cephlet", WRONG_KEY);
    let client = daemon.client();
    let with = |pairs: &[(&str, &str)]| {
        let request = wire::CreateVolumeRequest { secrets: map(pairs), ..volume_at("secrets", &[]) };
        client.create(&request)
    };
    let said = refused(with(&[("userID", "cephlet")]), Code::INVALID_ARGUMENT, &["userKey"]);
    assert!(said.contains("\"ceph\""), "{said}");
    refused(
        with(&[("userID", "cephlet"), ("userKey", "no key")]),
        Code::INVALID_ARGUMENT,
        &["userKey", "base64"],
    );
    refused(
        with(&[("userID", "cephlet"), ("userKey", &cluster.key("admin"))]),
        Code::UNAUTHENTICATED,
        &["the secret userKey"],
    );
    refused(with(&[("userID", "nobody"), ("userKey", WRONG_KEY)]), Code::UNAUTHENTICATED, &["client.nobody"]);
    with(&[("userID", "client.cephlet"), ("userKey", &cluster.key("cephlet"))])
        .expect("secrets win over the cluster's own key");
}

#[test]
fn a_read_only_user_is_refused_with_what_it_lacks() {
    let id = image("read-only");
    let daemon = setup("reader", &["rbd"], &[""]).start();
    let client = daemon.client();
    for (what, answer) in every_call(&client, &id) {
        match (what, answer) {
            ("list" | "capacity" | "get", answer) => {
                answer.unwrap_or_else(|error| panic!("{what}: {error:?}"))
            }
            (_, answer) => {
                let parts = ["client.reader", "ceph auth caps", "profile rbd"];
                let failure = answer.expect_err(what);
                assert_eq!(failure.code, Code::FAILED_PRECONDITION, "{what}: {failure:?}");
                assert!(parts.iter().all(|part| failure.message.contains(part)), "{what}: {failure:?}");
            }
        }
    }
    assert!(cluster().rbd(&["ls", "rbd"]).contains("read-only"));
}

#[test]
fn a_pool_that_is_not_there_is_named() {
    let daemon = setup("admin", &["rbd", "absent"], &[""]).start();
    let client = daemon.client();
    let parts = ["cluster \"ceph\"", "\"absent\"", "`ceph osd pool create absent`", "`rbd pool init absent`"];
    let new = [&parts[..], &["--parameter pool="]].concat();
    refused(client.create(&volume_at("x", &[("pool", "absent")])), Code::FAILED_PRECONDITION, &new);
    let id = "rbd:ceph:absent::csi-vol-00:10ab";
    refused(client.controller_get_volume(&get(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.controller_publish_volume(&publish_to(id, "node-1")), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.create_snapshot(&snapshot("s", id)), Code::FAILED_PRECONDITION, &parts);
    let request = wire::GetCapacityRequest { parameters: map(&[("pool", "absent")]), ..Default::default() };
    refused(client.get_capacity(&request), Code::FAILED_PRECONDITION, &new);
}

/// `rbd` words its error differently for the pool that it uses by default.
#[test]
fn a_default_pool_that_is_not_there_is_named() {
    let scratch = Arc::new(Scratch::new());
    let (conf, file) = (scratch.path("ceph.conf"), scratch.path("clusters.toml"));
    let usual = fs::read_to_string(cluster().conf()).expect("the cluster's ceph.conf");
    fs::write(&conf, format!("{usual}\n[client]\nrbd default pool = absent\n")).expect("write the conf");
    let keyring = cluster().keyring("cephlet");
    let entry = format!("[cluster.main]\nconf = {conf:?}\nuser = \"cephlet\"\nkeyring = {keyring:?}\n");
    fs::write(&file, format!("{entry}pools = [\"absent\"]\n")).expect("write the file");
    let setup = Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "rbd");
    let daemon = setup.start();
    let client = daemon.client();
    let parts = ["cluster \"main\"", "\"absent\"", "`ceph osd pool create absent`", "`rbd pool init absent`"];
    let new = [&parts[..], &["--parameter pool="]].concat();
    refused(client.create(&volume_at("x", &[])), Code::FAILED_PRECONDITION, &new);
    let id = "rbd:main:absent::csi-vol-00:10ab";
    refused(client.controller_get_volume(&get(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.list_volumes(&page(0, "")), Code::FAILED_PRECONDITION, &parts);
}

#[test]
fn a_data_pool_that_is_not_there_is_named() {
    let daemon = setup("cephlet", &["rbd"], &[""]).start();
    let client = daemon.client();
    let source = unused_name("data-source");
    cluster().rbd(&["create", "--size", "8M", &format!("rbd/{source}")]);
    let parts = [
        "cluster \"ceph\"",
        "data pool \"absent\"",
        "`ceph osd pool create absent`",
        "`rbd pool init absent`",
        "--parameter dataPool=",
    ];
    let request = volume_at("no-data-pool", &[("dataPool", "absent")]);
    refused(client.create(&request), Code::FAILED_PRECONDITION, &parts);
    let copy = from_volume(request, &format!("rbd:ceph:rbd::{source}"));
    refused(client.create(&copy), Code::FAILED_PRECONDITION, &parts);
}

#[test]
fn a_pool_the_user_may_not_use_is_no_pool_that_is_not_there() {
    let cluster = cluster();
    cluster.ceph(&["osd", "pool", "create", "forbidden"]);
    cluster.rbd(&["pool", "init", "forbidden"]);
    let daemon = setup("cephlet", &["rbd", "forbidden"], &[""]).start();
    let parts = ["client.cephlet", "ceph auth caps"];
    let request = volume_at("x", &[("pool", "forbidden")]);
    refused(daemon.client().create(&request), Code::FAILED_PRECONDITION, &parts);
    let id = "rbd:ceph:forbidden::csi-vol-00:10ab";
    refused(daemon.client().delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &parts);
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let daemon = setup("cephlet", &["rbd"], &["", "absent"]).start();
    let client = daemon.client();
    let parts = ["\"absent\"", "rbd namespace create --pool rbd --namespace absent"];
    let new = [&parts[..], &["cluster \"ceph\"", "--parameter namespace="]].concat();
    refused(client.create(&volume_at("x", &[("namespace", "absent")])), Code::FAILED_PRECONDITION, &new);
    let id = "rbd:ceph:rbd:absent:csi-vol-00:10ab";
    refused(client.controller_get_volume(&get(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &parts);
    refused(client.controller_publish_volume(&publish_to(id, "node-1")), Code::FAILED_PRECONDITION, &parts);
}

#[test]
fn a_cluster_that_is_gone_is_reported_with_its_monitors() {
    let own = Cluster::start();
    // A session goes on with the connections that it has.
    let daemon = Setup::new().on(&own, "cephlet").set("CEPHLET_SESSION", "off").start();
    let client = daemon.client();
    let made = client.create(&volume_at("known", &[])).expect("create").volume_id;
    let monitors = || {
        let told = client.node_get_storage_health(&Default::default()).expect("health").backend_health;
        told.into_iter().filter(|it| it.reason.starts_with("Monitors")).collect::<Vec<_>>()
    };
    // On a busy machine a look may take too long.
    await_that("the monitor answers", || match monitors().as_slice() {
        [] => Ok(()),
        told => Err(format!("{told:?}")),
    });
    own.kill("mon");
    let told = await_that("the node sees that it is gone", || monitors().pop().ok_or("well".to_string()));
    assert_eq!((told.reason.as_str(), told.status.value()), ("MonitorsUnreachable", 2));
    assert!(told.message.contains("\"ceph\"") && told.message.contains(&own.mon_host()), "{told:?}");
    std::thread::scope(|scope| {
        let known = scope.spawn(|| client.controller_get_volume(&get(&made)));
        let health = scope.spawn(|| client.controller_get_volume_health(&health(&made)));
        let failure = client.create(&volume_at("x", &[])).expect_err("it is gone");
        assert!(matches!(failure.code, Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED), "{failure:?}");
        assert!(
            failure.message.contains("\"ceph\"") && failure.message.contains(&own.mon_host()),
            "{failure:?}"
        );
        let status = known
            .join()
            .expect("a client")
            .expect("what is known is told")
            .status
            .into_option()
            .expect("a status");
        let condition = status.volume_condition.into_option().expect("a condition");
        assert!(condition.abnormal && condition.message.contains("cannot be reached"), "{condition:?}");
        let health = health.join().expect("a client").expect("what is known is told").volume_health;
        let told: Vec<_> = health.health_statuses.iter().map(|it| (it.status.value(), &*it.reason)).collect();
        assert_eq!(told, [(2, "ClusterUnreachable")]);
    });
    daemon.assert_well();
}
