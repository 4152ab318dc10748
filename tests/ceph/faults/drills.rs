//! Commands that are killed while they make, change and take away volumes, for any backend.
//!
//! What follows the kills is repeated like a client's calls, too ([`Killer::insist`]): the cluster may still
//! be busy with what was begun for the dead, for longer than a call waits.

use cephlet::proto::csi_v1::CreateVolumeRequest;

use super::killer::Killer;
use crate::support::machine::Checksum;
use crate::support::place::MIBS;
use crate::support::requests::*;
use crate::support::{Client, MIB, Place};

/// The size of a volume in bytes.
const SIZE: i64 = MIBS * MIB;

/// A volume with content, and its checksum.
pub fn filled<P: Place>(killer: &Killer<P>) -> (String, Checksum) {
    let id = create(killer, &killer.corner.request("source"));
    killer.corner.fill(&id);
    let sum = killer.corner.content(&id);
    (id, sum)
}

fn create<P: Place>(killer: &Killer<P>, request: &CreateVolumeRequest) -> String {
    killer.insist(|client| client.create(request)).volume_id
}

pub fn snapshot_of<P: Place>(killer: &Killer<P>, name: &str, id: &str) -> String {
    let request = snapshot(name, id);
    killer.insist(|client| client.create_snapshot(&request)).snapshot.snapshot_id.clone()
}

/// Deletes a snapshot.
pub fn delete_snap<P: Place>(killer: &Killer<P>, snap: &str) {
    killer.insist(|client| client.delete_snapshot(&delete_snapshot(snap)));
}

/// Copies of a volume with content, which is deleted itself, and the checksum of their content.
fn copies<P: Place>(killer: &Killer<P>) -> (Vec<String>, Checksum) {
    let (source, sum) = filled(killer);
    let snap = snapshot_of(killer, "origin", &source);
    let copy = |number: &usize| {
        create(killer, &from_snapshot(killer.corner.request(&format!("copy-{number}")), &snap))
    };
    let ids = killer.each(&(0..P::REQUESTS).collect::<Vec<_>>(), copy);
    delete_snap(killer, &snap);
    killer.insist(|client| client.delete_volume(&delete(&source)));
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
            let got = killer.insist(|client| client.controller_get_volume(&get(id)));
            let again = killer.insist(|client| ask(client, number));
            assert_eq!((got.volume.capacity_bytes, &again), (SIZE, id));
        }
        killer.clear(&ids);
    });
}

/// Copies of a snapshot.
pub fn clones_of_a_snapshot<P: Place>() {
    let killer = Killer::<P>::start();
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let snap = snapshot_of(&killer, "snap", &source);
        let mut ids = killer.torment(P::REQUESTS, |client, number| {
            let request = from_snapshot(killer.corner.request(&format!("new-{number}")), &snap);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_eq!(volumes(&killer), P::REQUESTS + 1);
        assert_contents(&killer, &ids, &sum);
        delete_snap(&killer, &snap);
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
                create(&killer, &request)
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
            .map(|(number, id)| snapshot_of(&killer, &format!("snap-{number}"), id))
            .collect();
        killer.torment(ids.len(), |client, number| client.delete_volume(&delete(&ids[number])));
        let restored: Vec<String> = snaps
            .iter()
            .take(2)
            .enumerate()
            .map(|(number, snap)| {
                let request = from_snapshot(killer.corner.request(&format!("restored-{number}")), snap);
                create(&killer, &request)
            })
            .collect();
        assert_contents(&killer, &restored, &sum);
        killer.each(&snaps, |snap| delete_snap(&killer, snap));
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
