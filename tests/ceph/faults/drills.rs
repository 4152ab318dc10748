//! Commands that are killed while they make, change and take away volumes, for any backend.

use super::killer::Killer;
use crate::support::machine::Checksum;
use crate::support::place::MIBS;
use crate::support::requests::*;
use crate::support::{Client, MIB, Place};

/// The size of a volume in bytes.
const SIZE: i64 = MIBS * MIB;

/// A volume with content, and its checksum.
pub fn filled<P: Place>(killer: &Killer<P>) -> (String, Checksum) {
    let id = killer.client().create(&killer.corner.request("source")).expect("create").volume_id;
    killer.corner.fill(&id);
    let sum = killer.corner.content(&id);
    (id, sum)
}

pub fn snapshot_of(client: &Client, name: &str, id: &str) -> String {
    client.create_snapshot(&snapshot(name, id)).expect("snapshot").snapshot.snapshot_id.clone()
}

/// Copies of a volume with content, which is deleted itself, and the checksum of their content.
fn copies<P: Place>(killer: &Killer<P>) -> (Vec<String>, Checksum) {
    let (source, sum) = filled(killer);
    let snap = snapshot_of(&killer.client(), "origin", &source);
    let copy = |client: &Client, number: &usize| {
        let request = from_snapshot(killer.corner.request(&format!("copy-{number}")), &snap);
        client.create(&request).expect("copy").volume_id
    };
    let ids = killer.each(&(0..P::REQUESTS).collect::<Vec<_>>(), copy);
    killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
    killer.client().delete_volume(&delete(&source)).expect("delete the source");
    (ids, sum)
}

/// The number of volumes.
pub fn volumes<P: Place>(killer: &Killer<P>) -> usize {
    killer.corner.volumes().len()
}

pub fn assert_contents<P: Place>(killer: &Killer<P>, ids: &[String], sum: &Checksum) {
    for id in ids {
        assert_eq!(&killer.corner.content(id), sum, "{id}");
    }
}

/// Volumes that are made.
pub fn creations<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let ask = |client: &Client, number: usize| {
            client.create(&killer.corner.request(&format!("new-{number}"))).map(|it| it.volume_id)
        };
        let ids = killer.torment(P::REQUESTS, ask);
        assert_eq!(volumes(&killer), P::REQUESTS);
        for (number, id) in ids.iter().enumerate() {
            let got = killer.client().controller_get_volume(&get(id)).expect("get");
            assert_eq!(
                (got.volume.capacity_bytes, ask(&killer.client(), number).expect("again")),
                (SIZE, id.clone())
            );
        }
        killer.clear(&ids);
    });
}

/// Copies of a snapshot.
pub fn clones_of_a_snapshot<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let snap = snapshot_of(&killer.client(), "snap", &source);
        let mut ids = killer.torment(P::REQUESTS, |client, number| {
            let request = from_snapshot(killer.corner.request(&format!("new-{number}")), &snap);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_eq!(volumes(&killer), P::REQUESTS + 1);
        assert_contents(&killer, &ids, &sum);
        killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
        ids.push(source);
        killer.clear(&ids);
    });
}

/// Copies of a volume.
pub fn clones_of_a_volume<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let mut ids = killer.torment(P::REQUESTS / 2, |client, number| {
            let request = from_volume(killer.corner.request(&format!("new-{number}")), &source);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_eq!(volumes(&killer), P::REQUESTS / 2 + 1);
        assert_contents(&killer, &ids, &sum);
        ids.push(source);
        killer.clear(&ids);
    });
}

/// Snapshots that are taken and deleted.
pub fn snapshots<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (ids, sum) = copies(&killer);
        let snaps = killer.torment(ids.len(), |client, number| {
            client
                .create_snapshot(&snapshot(&format!("snap-{number}"), &ids[number]))
                .map(|it| it.snapshot.snapshot_id.clone())
        });
        let restored: Vec<String> = snaps
            .iter()
            .step_by(5)
            .enumerate()
            .map(|(number, snap)| {
                let request = from_snapshot(killer.corner.request(&format!("restored-{number}")), snap);
                killer.client().create(&request).expect("restore").volume_id
            })
            .collect();
        assert_contents(&killer, &restored, &sum);
        killer
            .torment(snaps.len(), |client, number| client.delete_snapshot(&delete_snapshot(&snaps[number])));
        killer.clear(&[restored, ids].concat());
    });
}

/// Volumes that are deleted, half of them with a snapshot that outlives them.
pub fn deletions<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (ids, sum) = copies(&killer);
        // Half of the copies have a snapshot, which outlives them.
        let snaps: Vec<String> = ids
            .iter()
            .step_by(2)
            .enumerate()
            .map(|(number, id)| snapshot_of(&killer.client(), &format!("snap-{number}"), id))
            .collect();
        killer.torment(ids.len(), |client, number| client.delete_volume(&delete(&ids[number])));
        let restored: Vec<String> = snaps
            .iter()
            .take(2)
            .enumerate()
            .map(|(number, snap)| {
                let request = from_snapshot(killer.corner.request(&format!("restored-{number}")), snap);
                killer.client().create(&request).expect("restore").volume_id
            })
            .collect();
        assert_contents(&killer, &restored, &sum);
        killer.each(&snaps, |client, snap| client.delete_snapshot(&delete_snapshot(snap)).expect("delete"));
        killer.clear(&restored);
    });
}

/// Volumes that grow.
pub fn expansions<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (ids, sum) = copies(&killer);
        killer.torment(ids.len(), |client, number| {
            client.controller_expand_volume(&expand(&ids[number], 2 * SIZE))
        });
        for id in &ids {
            assert_eq!(killer.corner.size(id), 2 * SIZE, "{id}");
        }
        assert_contents(&killer, &ids, &sum);
        killer.clear(&ids);
    });
}
