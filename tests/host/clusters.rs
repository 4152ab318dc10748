//! The clusters file: what `cephlet config` shows of it, and how a daemon follows it.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::support::requests::{block, publish, stage};
use crate::support::{Code, Daemon, Scratch, Setup, refused};

/// A key of the right form, which no user has.
const KEY: &str = "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==";

/// Three clusters: one that works, one without credentials, one that cannot be used.
fn three(scratch: &Path) -> String {
    let key = scratch.join("main.key");
    fs::write(&key, format!("{KEY}\n")).expect("write the key");
    format!(
        "[cluster.main]\nmonitors = \"[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] 10.0.0.2\"\nuser = \"web\"\nkey_file = {key:?}\n\
         pools = [\"vms\"]\n[cluster.tenants]\nmonitors = [\"mon.example.org\"]\n[cluster.wrong]\nmonitors = [\"a\"]\npols = []\n"
    )
}

fn start() -> Daemon {
    let scratch = std::sync::Arc::new(Scratch::new());
    let file = scratch.replace("clusters.toml", &three(&scratch.path("")));
    Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).start()
}

/// The line of a cluster, word by word.
fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("{name} is missing:\n{text}")).split_whitespace().collect()
}

#[test]
fn config_shows_every_cluster_and_no_key() {
    let daemon = start();
    let text = daemon.setup.cephlet("config");
    assert!(!text.contains(KEY), "{text}");
    let monitors = "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300,v1:10.0.0.2:6789]";
    let key = daemon.text("main.key");
    assert_eq!(line(&text, "main"), ["main", monitors, "web", &key, "vms", "all", "ready"]);
    let tenants = line(&text, "tenants").join(" ");
    assert!(
        tenants.starts_with("tenants mon.example.org - ") && tenants.contains("reduced mode"),
        "{tenants}"
    );
    let wrong = line(&text, "wrong").join(" ");
    assert!(wrong.contains("disabled: ") && wrong.contains("did you mean \"pools\"?"), "{wrong}");
    assert!(!daemon.log.text().contains(KEY));
    daemon.log.await_lines("cluster \"wrong\" is disabled", 1);
}

#[test]
fn a_broken_file_is_reported_and_changes_nothing() {
    let daemon = start();
    daemon.scratch().replace("clusters.toml", "[cluster.main\n");
    daemon.signal(Signal::HUP);
    daemon.log.await_lines("the clusters stay as they were", 1);
    daemon.assert_well();
    assert!(daemon.setup.cephlet("config").contains("clusters.toml: "), "{}", daemon.setup.cephlet("config"));
    daemon.scratch().replace("clusters.toml", "[cluster.main]\nmonitors = \"10.0.0.9:6789\"\n");
    daemon.log.await_lines("monitors v1:10.0.0.9:6789", 1);
    daemon.assert_well();
}

#[test]
fn a_volume_of_a_cluster_that_is_not_set_up_is_not_said_to_be_gone() {
    let daemon = Daemon::start();
    let (client, at) = (daemon.client(), daemon.text("stage"));
    let id = "rbd:gone:rbd::csi-vol-web-abcdefghij234:10ab";
    let said = ["\"gone\", which is not set up here"];
    let staged = client.node_stage_volume(&stage(id, &at, block()));
    refused(staged, Code::FAILED_PRECONDITION, &said);
    let published = client.node_publish_volume(&publish(id, &at, &daemon.text("target"), block()));
    refused(published, Code::FAILED_PRECONDITION, &said);
}

#[test]
fn two_ways_to_set_clusters_up_are_one_too_many() {
    let scratch = std::sync::Arc::new(Scratch::new());
    let setup = Setup::within(scratch)
        .set("CEPHLET_CLUSTERS", "/etc/cephlet/clusters.toml")
        .set("CEPHLET_CEPH_USER", "web");
    let (code, said) = setup.fail();
    assert!(
        code == 2 && said.contains("CEPHLET_CEPH_USER: has no effect together with CEPHLET_CLUSTERS"),
        "{said}"
    );
}
