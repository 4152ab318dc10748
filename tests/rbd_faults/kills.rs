//! Commands that are killed while they make, change and take away.

use super::killer::Killer;
use crate::support::requests::*;
use crate::support::{Client, MIB};

/// So many requests at once: each is hit several times.
const REQUESTS: usize = 20;
const SIZE: i64 = 8 * MIB;

fn request(killer: &Killer, name: &str) -> cephlet::grpc::proto::csi_v1::CreateVolumeRequest {
    let parameters = map(&[("namespace", killer.space.name.as_str())]);
    cephlet::grpc::proto::csi_v1::CreateVolumeRequest { parameters, ..volume_as(name, SIZE, block()) }
}

/// The image's name in a volume's ID.
fn object(id: &str) -> &str {
    id.split(':').nth(4).expect("the ID names the object")
}

/// A volume with content, and what its content comes to.
fn filled(killer: &Killer) -> (String, String) {
    let id = killer.client().create(&request(killer, "source")).expect("create").volume_id;
    killer.space.fill(object(&id));
    let sum = killer.space.checksum(object(&id), SIZE);
    (id, sum)
}

fn snapshot_of(client: &Client, name: &str, id: &str) -> String {
    client.create_snapshot(&snapshot(name, id)).expect("snapshot").snapshot.snapshot_id.clone()
}

/// Copies of one volume with content, which is gone itself, and what their content comes to.
fn copies(killer: &Killer) -> (Vec<String>, String) {
    let (source, sum) = filled(killer);
    let snap = snapshot_of(&killer.client(), "origin", &source);
    let copy = |number| {
        let request = from_snapshot(request(killer, &format!("copy-{number}")), &snap);
        killer.client().create(&request).expect("copy").volume_id
    };
    let ids = (0..REQUESTS).map(copy).collect();
    killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
    killer.client().delete_volume(&delete(&source)).expect("delete the source");
    (ids, sum)
}

fn assert_contents(killer: &Killer, ids: &[String], sum: &str) {
    for id in ids {
        assert_eq!(killer.space.checksum(object(id), SIZE), sum, "{id}");
    }
}

/// Deletes these; nothing is left.
fn clear(killer: &Killer, ids: &[String]) {
    killer.each(ids, |client, id| drop(client.delete_volume(&delete(id)).expect("delete")));
    killer.space.await_objects(&[]);
    killer.daemon.assert_well();
}

#[test]
fn creations_whose_commands_are_killed() {
    let killer = Killer::start("kill-create");
    let ask = |client: &Client, number: usize| client.create(&request(&killer, &format!("new-{number}"))).map(|it| it.volume_id);
    let ids = killer.torment(REQUESTS, ask);
    assert_eq!(killer.space.images().len(), REQUESTS);
    for (number, id) in ids.iter().enumerate() {
        let got = killer.client().controller_get_volume(&get(id)).expect("get");
        assert_eq!((got.volume.capacity_bytes, ask(&killer.client(), number).expect("again")), (SIZE, id.clone()));
    }
    clear(&killer, &ids);
}

#[test]
fn clones_of_a_snapshot_whose_commands_are_killed() {
    let killer = Killer::start("kill-clone");
    let (source, sum) = filled(&killer);
    let snap = snapshot_of(&killer.client(), "snap", &source);
    let before = killer.space.images().len();
    let mut ids = killer.torment(REQUESTS, |client, number| {
        let request = from_snapshot(request(&killer, &format!("new-{number}")), &snap);
        client.create(&request).map(|it| it.volume_id)
    });
    assert_eq!(killer.space.images().len(), before + REQUESTS);
    assert_contents(&killer, &ids, &sum);
    killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
    ids.push(source);
    clear(&killer, &ids);
}

#[test]
fn clones_of_a_volume_whose_commands_are_killed() {
    let killer = Killer::start("kill-copy");
    let (source, sum) = filled(&killer);
    let mut ids = killer.torment(REQUESTS / 2, |client, number| {
        let request = from_volume(request(&killer, &format!("new-{number}")), &source);
        client.create(&request).map(|it| it.volume_id)
    });
    assert_eq!(killer.space.images().len(), REQUESTS / 2 + 1);
    assert_contents(&killer, &ids, &sum);
    ids.push(source);
    clear(&killer, &ids);
}

#[test]
fn snapshots_whose_commands_are_killed() {
    let killer = Killer::start("kill-snapshot");
    let (ids, sum) = copies(&killer);
    let snaps = killer.torment(ids.len(), |client, number| {
        client.create_snapshot(&snapshot(&format!("snap-{number}"), &ids[number])).map(|it| it.snapshot.snapshot_id.clone())
    });
    let restored: Vec<String> = snaps.iter().step_by(5).enumerate().map(|(number, snap)| {
        let request = from_snapshot(request(&killer, &format!("restored-{number}")), snap);
        killer.client().create(&request).expect("restore").volume_id
    }).collect();
    assert_contents(&killer, &restored, &sum);
    killer.torment(snaps.len(), |client, number| client.delete_snapshot(&delete_snapshot(&snaps[number])));
    clear(&killer, &[restored, ids].concat());
}

#[test]
fn deletions_whose_commands_are_killed() {
    let killer = Killer::start("kill-delete");
    let (ids, sum) = copies(&killer);
    // Half of them have a snapshot, which outlives them.
    let snaps: Vec<String> =
        ids.iter().step_by(2).enumerate().map(|(number, id)| snapshot_of(&killer.client(), &format!("snap-{number}"), id)).collect();
    killer.torment(ids.len(), |client, number| client.delete_volume(&delete(&ids[number])));
    let restored: Vec<String> = snaps.iter().take(2).enumerate().map(|(number, snap)| {
        let request = from_snapshot(request(&killer, &format!("restored-{number}")), snap);
        killer.client().create(&request).expect("restore").volume_id
    }).collect();
    assert_contents(&killer, &restored, &sum);
    killer.each(&snaps, |client, snap| drop(client.delete_snapshot(&delete_snapshot(snap)).expect("delete")));
    clear(&killer, &restored);
}

#[test]
fn expansions_whose_commands_are_killed() {
    let killer = Killer::start("kill-expand");
    let (ids, sum) = copies(&killer);
    killer.torment(ids.len(), |client, number| client.controller_expand_volume(&expand(&ids[number], 2 * SIZE)));
    for (name, row) in killer.space.images() {
        let is_volume = ids.iter().any(|id| object(id) == name);
        assert!(!is_volume || row["size"] == 2 * SIZE, "{row}");
    }
    assert_contents(&killer, &ids, &sum);
    clear(&killer, &ids);
}
