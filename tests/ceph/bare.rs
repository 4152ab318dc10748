//! A node with no part of Ceph but the kernel's: no tool, no library. The controller runs on another machine.
//!
//! For `tests/vm/run --prepare`: the first run is on the host and makes the volumes, the second in the VM
//! uses them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use cephlet::proto::csi_v1 as wire;
use serde_json::{Value, from_str, json};

use crate::support::machine::mounts_below;
use crate::support::requests::*;
use crate::support::{Daemon, MIB, Setup, cluster};

/// The directory where the host leaves a file for the VM: named by a variable on the host, fixed in the VM.
const PREPARE: &str = "PREPARE";
const OUT: &str = "/out";

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn a_node_with_the_kernel_alone_has_volumes() {
    match std::env::var(PREPARE) {
        Ok(out) => prepare(Path::new(&out)),
        Err(_) => serve(&fs::read_to_string(Path::new(OUT).join("volumes")).expect("what the host has made")),
    }
}

fn prepare(out: &Path) {
    let daemon = Setup::new().on(cluster(), "cephlet").set("CEPHLET_SERVICES", "controller").start();
    let client = daemon.client();
    let make = |(name, capability): (&str, wire::VolumeCapability)| {
        let id = client.create(&volume_as(name, 32 * MIB, capability.clone())).expect("create").volume_id;
        let mut request = publish_to(&id, "node-1");
        request.volume_capability = Some(capability).into();
        let told = client.controller_publish_volume(&request).expect("give it to the node").publish_context;
        json!({"id": id, "told": told})
    };
    let made: Vec<Value> = [("files", mount("ext4")), ("device", block())].into_iter().map(make).collect();
    fs::write(out.join("volumes"), json!(made).to_string()).expect("tell the VM");
}

fn serve(told: &str) {
    for name in ["rbd", "rados", "ceph", "rbd-nbd"] {
        assert!(
            !["/usr/bin", "/usr/sbin"].iter().any(|place| Path::new(place).join(name).exists()),
            "{name} is here"
        );
    }
    let daemon = Setup::new().on(cluster(), "cephlet-node").set("CEPHLET_SERVICES", "node").start();
    let volumes: Vec<Value> = from_str(told).expect("JSON");
    for (volume, capability) in volumes.iter().zip([mount("ext4"), block()]) {
        use_volume(&daemon, volume, &capability);
    }
    daemon.assert_well();
}

fn use_volume(daemon: &Daemon, volume: &Value, capability: &wire::VolumeCapability) {
    let id = volume["id"].as_str().expect("an ID");
    let told: HashMap<String, String> =
        serde_json::from_value(volume["told"].clone()).expect("a publish context");
    let (client, staging, target) = (daemon.client(), daemon.text("stage"), daemon.text("target"));
    for round in 0..2 {
        let mut staged = stage(id, &staging, capability.clone());
        staged.publish_context = told.clone();
        client.node_stage_volume(&staged).expect("stage");
        client.node_publish_volume(&publish(id, &staging, &target, capability.clone())).expect("publish");
        if capability.has_mount() {
            let file = daemon.path("target/file");
            assert_eq!(fs::read_to_string(&file).unwrap_or_default(), "content".repeat(round));
            fs::write(&file, "content").expect("write");
        }
        client.node_get_volume_stats(&stats(id, &target)).expect("stats");
        client.node_unpublish_volume(&unpublish(id, &target)).expect("unpublish");
        client.node_unstage_volume(&unstage(id, &staging)).expect("unstage");
        assert!(mounts_below(&daemon.path("")).is_empty());
        assert_eq!(fs::read_dir("/sys/bus/rbd/devices").expect("the driver").count(), 0);
    }
}
