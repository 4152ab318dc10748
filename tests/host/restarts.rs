//! The daemon ends, by force or in order: volumes stay mounted, go on working, and can be taken back
//! afterwards.

use std::fs;

use crate::support::machine::{exists, is_mounted, run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, refused};

/// A volume in use with a file in it, in a daemon that may be restarted; gives its ID.
fn use_volume(daemon: &Daemon) -> String {
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    client.node_stage_volume(&stage(&id, &staging, mount("ext4"))).expect("stage");
    client.node_publish_volume(&publish(&id, &staging, &target, mount("ext4"))).expect("publish");
    fs::write(daemon.path("target/file"), "data").expect("write");
    id
}

/// Takes everything back and deletes the volume.
fn take_back(daemon: &Daemon, id: &str) {
    let client = daemon.client();
    client.node_unpublish_volume(&unpublish(id, &daemon.text("target"))).expect("unpublish");
    client.node_unstage_volume(&unstage(id, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
    assert!(!exists(&daemon.path("target")), "we made it, in another life");
    client.delete_volume(&delete(id)).expect("delete");
}

#[test]
fn volumes_outlive_a_killed_daemon() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    daemon.kill9();
    fs::write(daemon.path("target/file"), "more").expect("it goes on working");
    assert!(is_mounted(&daemon.path("stage")));
    daemon.restart();
    refused(daemon.client().delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &[&id]);
    assert_eq!(fs::read_to_string(daemon.path("target/file")).expect("read"), "more");
    take_back(&daemon, &id);
}

#[test]
fn volumes_outlive_a_daemon_that_ends_in_order() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    fs::write(daemon.path("target/file"), "more").expect("it goes on working");
    daemon.restart();
    take_back(&daemon, &id);
}

/// Takes the journal away, as an operator does with a damaged one. The kernel still knows what is in use.
fn lose_journal(daemon: &mut Daemon) {
    daemon.kill9();
    fs::rename(daemon.path("state/journal"), daemon.path("lost-journal")).expect("move the journal away");
    daemon.restart();
}

#[test]
fn what_no_record_tells_of_is_taken_back_all_the_same() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    lose_journal(&mut daemon);
    let (client, target, staging) = (daemon.client(), daemon.text("target"), daemon.text("stage"));
    let unstaged = client.node_unstage_volume(&unstage(&id, &staging));
    assert!(unstaged.is_err(), "UNSAFE: it is in use at its target, and may be given to another node");
    refused(unstaged, Code::FAILED_PRECONDITION, &[&id, &target, "no record"]);
    for _ in 0..2 {
        client.node_unpublish_volume(&unpublish(&id, &target)).expect("unpublish");
        client.node_unstage_volume(&unstage(&id, &staging)).expect("unstage");
        assert!(!is_mounted(&daemon.path("target")), "UNSAFE: unpublished, and still mounted");
        daemon.assert_node_is_clean();
    }
    client.delete_volume(&delete(&id)).expect("delete");
}

#[test]
fn what_no_record_tells_of_is_not_another_volumes() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    let other = daemon.client().create(&volume("two")).expect("create").volume_id;
    lose_journal(&mut daemon);
    let client = daemon.client();
    client.node_unpublish_volume(&unpublish(&other, &daemon.text("target"))).expect("it is not there");
    client.node_unstage_volume(&unstage(&other, &daemon.text("stage"))).expect("it is not there");
    assert!(
        is_mounted(&daemon.path("target")) && is_mounted(&daemon.path("stage")),
        "UNSAFE: of another volume"
    );
    client.node_unpublish_volume(&unpublish(&id, &daemon.text("target"))).expect("unpublish");
    client.node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
}

#[test]
fn a_block_volume_without_a_record_is_taken_back() {
    let mut daemon = Daemon::start();
    let id = daemon.client().create(&volume_as("one", 8 << 20, block())).expect("create").volume_id;
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    daemon.client().node_stage_volume(&stage(&id, &staging, block())).expect("stage");
    daemon.client().node_publish_volume(&publish(&id, &staging, &target, block())).expect("publish");
    lose_journal(&mut daemon);
    let client = daemon.client();
    refused(
        client.node_unstage_volume(&unstage(&id, &staging)),
        Code::FAILED_PRECONDITION,
        &[&id, &target, "no record"],
    );
    client.node_unpublish_volume(&unpublish(&id, &target)).expect("unpublish");
    client.node_unstage_volume(&unstage(&id, &staging)).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn repeated_calls_after_a_restart_find_things_done() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    daemon.kill9();
    daemon.restart();
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    daemon.client().node_stage_volume(&stage(&id, &staging, mount("ext4"))).expect("stage again");
    daemon
        .client()
        .node_publish_volume(&publish(&id, &staging, &target, mount("ext4")))
        .expect("publish again");
    run("umount", &[text(&daemon.path("target"))]);
    assert!(!is_mounted(&daemon.path("target")), "it was mounted once");
    daemon
        .client()
        .node_publish_volume(&publish(&id, &staging, &target, mount("ext4")))
        .expect("publish what was lost");
    assert_eq!(fs::read_to_string(daemon.path("target/file")).expect("read"), "data");
    take_back(&daemon, &id);
}

#[test]
fn what_was_unmounted_meanwhile_is_unpublished_too() {
    let mut daemon = Daemon::start();
    let id = use_volume(&daemon);
    daemon.kill9();
    for name in ["target", "stage"] {
        run("umount", &[text(&daemon.path(name))]);
    }
    daemon.restart();
    take_back(&daemon, &id);
}

#[test]
fn a_volume_can_grow_after_a_restart() {
    let mut daemon = Daemon::start();
    let request = volume_as("one", 320 * crate::support::MIB, mount("xfs"));
    let id = daemon.client().create(&request).expect("create").volume_id;
    let staging = daemon.text("stage");
    daemon.client().node_stage_volume(&stage(&id, &staging, mount("xfs"))).expect("stage");
    daemon.restart();
    daemon.client().controller_expand_volume(&expand(&id, 352 * crate::support::MIB)).expect("expand");
    let reply = daemon.client().node_expand_volume(&node_expand(&id, &staging)).expect("expand on the node");
    assert_eq!(reply.capacity_bytes, 352 * crate::support::MIB);
    daemon.client().node_unstage_volume(&unstage(&id, &staging)).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn a_damaged_journal_is_not_built_upon() {
    let mut daemon = Daemon::start();
    use_volume(&daemon);
    daemon.kill9();
    let journal = daemon.text("state/journal");
    let mut bytes = fs::read(&journal).expect("read it");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&journal, &bytes).expect("damage it");
    let (_, said) = daemon.setup.fail();
    assert!(said.contains(&journal), "{said}");
    assert!(is_mounted(&daemon.path("target")), "what is mounted stays");
}
