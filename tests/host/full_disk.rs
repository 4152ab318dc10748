//! A disk that is full to the last byte, under the journal and the volumes: volumes can be deleted. This does
//! not hold for a btrfs after a restart, which may not find the space again that it has just freed.

use std::fs;
use std::path::Path;

use crate::support::requests::*;
use crate::support::scratch::fill_up;
use crate::support::{Client, Code, Setup, TestVolume, refused};

/// Empties a file system of this type and so many MiB once it is full.
fn empty(fs_type: &str, mib: i64) {
    let setup = Setup::new();
    let disk = setup.scratch.small_disk("disk", fs_type, mib);
    let below = |name: &str| disk.join(name).display().to_string();
    let setup = setup.set("CEPHLET_STATE_DIR", below("state")).set("CEPHLET_LOCAL_DIR", below("local"));
    let mut daemon = setup.start();
    let in_use = TestVolume::in_use(&daemon, "in use");
    in_use.publish("stage", "target-2").expect("publish again");
    let client = daemon.client();
    let others: Vec<String> = (0..20).map(|number| create(&client, &format!("v{number}"))).collect();

    fill_up(&disk);
    let full = |client: &Client| {
        refused(client.create(&volume("one more")), Code::RESOURCE_EXHAUSTED, &[]);
    };
    full(&client);
    // A target is recorded before it is made, but not in the room that is kept for removals.
    let publish_until_full = || {
        for _ in 0..100 {
            match in_use.publish("stage", "target-3") {
                Ok(_) => in_use.unpublish("target-3").expect(fs_type),
                failure => return refused(failure, Code::RESOURCE_EXHAUSTED, &["journal", "full"]),
            };
        }
        panic!("{fs_type} is not full")
    };
    publish_until_full();
    let in_use = in_use.id.clone();
    // The record of one target is removed, and that of the other stays; a new daemon removes the rest.
    client.node_unpublish_volume(&unpublish(&in_use, &daemon.text("target-2"))).expect(fs_type);
    client.delete_volume(&delete(&others[0])).expect(fs_type);
    fill_up(&disk);
    daemon.restart();
    let client = daemon.client();
    full(&client);
    client.node_unpublish_volume(&unpublish(&in_use, &daemon.text("target"))).expect(fs_type);
    client.node_unstage_volume(&unstage(&in_use, &daemon.text("stage"))).expect(fs_type);
    for id in others.iter().chain([&in_use]) {
        client.delete_volume(&delete(id)).unwrap_or_else(|error| panic!("{fs_type}: {id}: {error:?}"));
    }
    assert_eq!(client.list_volumes(&page(0, "")).expect("list").entries.len(), 0);
    remove_ballast(&disk);
    create(&client, "after");
    daemon.assert_well();
}

fn create(client: &Client, name: &str) -> String {
    client.create(&volume(name)).expect("create").volume_id
}

/// XFS counts the blocks of a removed file as free some time later, those of a truncated one at once.
fn remove_ballast(disk: &Path) {
    let ballast = disk.join("ballast");
    fs::File::options().write(true).open(&ballast).expect("the ballast").set_len(0).expect("cut it off");
    fs::remove_file(ballast).expect("remove the ballast");
}

#[test]
#[ignore = "rare: tests/run --full"]
fn a_full_ext4_can_be_emptied() {
    empty("ext4", 64);
}

#[test]
fn a_full_tmpfs_can_be_emptied() {
    empty("tmpfs", 64);
}

#[test]
#[ignore = "rare: tests/run --full"]
fn a_full_xfs_can_be_emptied() {
    empty("xfs", 300);
}
