//! CEPHLET_STAGING=off: the node for an orchestrator that never unstages what it has staged (Docker Swarm).
//! One call attaches, mounts and publishes; the last unpublishing takes the device from the node.

use std::fs;

use cephlet::proto::csi_v1 as wire;
use wire::node_service_capability::{Type, rpc::Type as Capability};

use crate::support::cli::done;
use crate::support::machine::{exists, loops_below, mount_at, run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, Setup, refused};

fn offered(daemon: &Daemon) -> Vec<Capability> {
    let answer = daemon.client().node_get_capabilities(&Default::default()).expect("capabilities");
    let kinds = answer.capabilities.into_iter().filter_map(|capability| match capability.type_ {
        Some(Type::Rpc(rpc)) => rpc.type_.enum_value().ok(),
        _ => None,
    });
    kinds.collect()
}

#[test]
fn what_belongs_to_staging_is_offered_only_with_it() {
    let of_a_stage = [Capability::STAGE_UNSTAGE_VOLUME, Capability::VOLUME_MOUNT_GROUP];
    let with = offered(&Daemon::start());
    let without = offered(&Setup::new().set("CEPHLET_STAGING", "off").start());
    assert!(of_a_stage.iter().all(|kind| with.contains(kind) && !without.contains(kind)), "{without:?}");
    assert_eq!(with.len(), without.len() + of_a_stage.len());
}

#[test]
fn one_call_makes_a_volume_ready_and_one_takes_it_back() {
    let mut daemon = Setup::new().set("CEPHLET_STAGING", "off").start();
    let (client, target) = (daemon.client(), daemon.text("target"));
    let id = client.create(&volume("web")).expect("create").volume_id;
    let request = publish(&id, "", &target, mount("ext4"));
    for _ in 0..2 {
        client.node_publish_volume(&request).expect("publish");
    }
    assert_eq!(mount_at(&daemon.path("target")).expect("it is mounted").fs_type, "ext4");
    fs::write(daemon.path("target/file"), "data").expect("write");
    daemon.kill9();
    daemon.restart();
    let client = daemon.client();
    client.node_publish_volume(&request).expect("publish again");
    assert_eq!(fs::read_to_string(daemon.path("target/file")).expect("read"), "data");
    for _ in 0..2 {
        client.node_unpublish_volume(&unpublish(&id, &target)).expect("unpublish");
    }
    assert!(!exists(&daemon.path("target")), "the target is the plugin's to remove: NodeUnpublishVolume");
    assert!(loops_below(&daemon.local_dir()).is_empty(), "UNSAFE: the device is still attached");
    client.delete_volume(&delete(&id)).expect("delete");
    daemon.assert_node_is_clean();
}

#[test]
fn a_mount_group_is_refused_and_not_left_out() {
    let daemon = Setup::new().set("CEPHLET_STAGING", "off").start();
    let client = daemon.client();
    let id = client.create(&volume("shared")).expect("create").volume_id;
    let request = publish(&id, "", &daemon.text("target"), shared_with(mount("ext4"), "100"));
    refused(client.node_publish_volume(&request), Code::INVALID_ARGUMENT, &["volume_mount_group"]);
    daemon.assert_node_is_clean();
}

/// Docker takes away the targets of a plugin that it stops, and Swarm publishes none of them again.
#[test]
fn a_target_that_was_taken_away_is_back_when_the_daemon_is() {
    let mut daemon = Setup::new().set("CEPHLET_STAGING", "off").start();
    let (client, target) = (daemon.client(), daemon.text("target"));
    let id = client.create(&volume("web")).expect("create").volume_id;
    client.node_publish_volume(&publish(&id, "", &target, mount("ext4"))).expect("publish");
    fs::write(daemon.path("target/file"), "data").expect("write");
    daemon.kill9();
    run("umount", &[&target]);
    daemon.restart();
    assert_eq!(fs::read_to_string(daemon.path("target/file")).expect("UNSAFE: nothing is mounted"), "data");
    daemon.client().node_unpublish_volume(&unpublish(&id, &target)).expect("unpublish");
    daemon.assert_node_is_clean();
}

/// Only targets of an orchestrator are mounted again.
#[test]
fn a_target_of_the_operator_that_was_unmounted_is_told() {
    let mut daemon = Setup::new().set("CEPHLET_STAGING", "off").start();
    let target = daemon.text("target");
    done(&daemon, "volume create web --size 32M");
    done(&daemon, &format!("volume publish web {target}"));
    daemon.kill9();
    run("umount", &[&target]);
    daemon.restart();
    daemon.log.await_lines("1 of its targets are not mounted", 1);
    assert!(!daemon.log.text().contains("mounted again"), "{}", daemon.log.text());
    done(&daemon, &format!("volume unpublish web {target}"));
    done(&daemon, "volume delete web");
    daemon.assert_node_is_clean();
}

/// In a container, which the variable `container` tells, as systemd's container interface has it.
#[test]
fn a_container_publishes_only_where_the_host_sees_it() {
    let daemon = Setup::new().set("CEPHLET_STAGING", "off").set("container", "oci").start();
    let client = daemon.client();
    let id = client.create(&volume("web")).expect("create").volume_id;
    let place = daemon.path("place");
    fs::create_dir(&place).expect("a directory");
    run("mount", &["-t", "tmpfs", "tmpfs", text(&place)]);
    run("mount", &["--make-private", text(&place)]);
    let (target, staged) = (daemon.text("place/target"), daemon.text("stage"));
    let said = [text(&place), "rshared"];
    let unstaged = publish(&id, "", &target, mount("ext4"));
    refused(client.node_publish_volume(&unstaged), Code::FAILED_PRECONDITION, &said);
    client.node_stage_volume(&stage(&id, &staged, mount("ext4"))).expect("the host need not see a stage");
    let request = publish(&id, &staged, &target, mount("ext4"));
    refused(client.node_publish_volume(&request), Code::FAILED_PRECONDITION, &said);
    assert!(!exists(&daemon.path("place/target")), "something is left of a refused publishing");

    run("mount", &["--make-shared", text(&place)]);
    client.node_publish_volume(&request).expect("publish where the host sees it");
    client.node_unpublish_volume(&unpublish(&id, &target)).expect("unpublish");
    client.node_unstage_volume(&unstage(&id, &staged)).expect("unstage");
    run("umount", &[text(&place)]);
    daemon.assert_node_is_clean();
}
