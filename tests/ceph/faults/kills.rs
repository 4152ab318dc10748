//! Commands that are killed while they make, change and take away.

use super::chain::Chain;
use super::killer::{Killer, kills};
use crate::support::machine::Checksum;
use crate::support::requests::*;
use crate::support::shape::is_image_of;
use crate::support::{Client, MIB, object_of};

/// The number of requests at once: each is hit several times.
const REQUESTS: usize = 20;
const MIBS: i64 = 8;
const SIZE: i64 = MIBS * MIB;

/// A volume with content, and its checksum.
fn filled(killer: &Killer) -> (String, Checksum) {
    let id = killer.client().create(&killer.corner.volume("source", MIBS)).expect("create").volume_id;
    killer.corner.fill(&id);
    let sum = killer.corner.checksum_of_first(SIZE, &id);
    (id, sum)
}

fn snapshot_of(client: &Client, name: &str, id: &str) -> String {
    client.create_snapshot(&snapshot(name, id)).expect("snapshot").snapshot.snapshot_id.clone()
}

/// Copies of a volume with content, which is deleted itself, and the checksum of their content.
fn copies(killer: &Killer) -> (Vec<String>, Checksum) {
    let (source, sum) = filled(killer);
    let snap = snapshot_of(&killer.client(), "origin", &source);
    let copy = |number| {
        let request = from_snapshot(killer.corner.volume(&format!("copy-{number}"), MIBS), &snap);
        killer.client().create(&request).expect("copy").volume_id
    };
    let ids = (0..REQUESTS).map(copy).collect();
    killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
    killer.client().delete_volume(&delete(&source)).expect("delete the source");
    (ids, sum)
}

/// The duration of a flatten in microseconds: half of it passes before anything is copied.
const FLATTEN: u64 = 120_000;

/// The number of volumes. Leftovers of killed copies do not count, as they may be removed later.
fn volumes(killer: &Killer) -> usize {
    killer.corner.images().iter().filter(|name| name.starts_with("csi-vol-")).count()
}

fn assert_contents(killer: &Killer, ids: &[String], sum: &Checksum) {
    for id in ids {
        assert_eq!(&killer.corner.checksum_of_first(SIZE, id), sum, "{id}");
    }
}

#[test]
#[ignore = "random: tests/run --full"]
fn creations_whose_commands_are_killed() {
    let killer = Killer::start();
    killer.rounds(|| {
        let ask = |client: &Client, number: usize| {
            client.create(&killer.corner.volume(&format!("new-{number}"), MIBS)).map(|it| it.volume_id)
        };
        let ids = killer.torment(REQUESTS, ask);
        assert_eq!(volumes(&killer), REQUESTS);
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

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_snapshot_whose_commands_are_killed() {
    let killer = Killer::start();
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let snap = snapshot_of(&killer.client(), "snap", &source);
        let mut ids = killer.torment(REQUESTS, |client, number| {
            let request = from_snapshot(killer.corner.volume(&format!("new-{number}"), MIBS), &snap);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_eq!(volumes(&killer), REQUESTS + 1);
        assert_contents(&killer, &ids, &sum);
        killer.client().delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
        ids.push(source);
        killer.clear(&ids);
    });
}

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_volume_whose_commands_are_killed() {
    let killer = Killer::start();
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let mut ids = killer.torment(REQUESTS / 2, |client, number| {
            let request = from_volume(killer.corner.volume(&format!("new-{number}"), MIBS), &source);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_eq!(volumes(&killer), REQUESTS / 2 + 1);
        assert_contents(&killer, &ids, &sum);
        ids.push(source);
        killer.clear(&ids);
    });
}

#[test]
#[ignore = "random: tests/run --full"]
fn snapshots_whose_commands_are_killed() {
    let killer = Killer::start();
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
                let request = from_snapshot(killer.corner.volume(&format!("restored-{number}"), MIBS), snap);
                killer.client().create(&request).expect("restore").volume_id
            })
            .collect();
        assert_contents(&killer, &restored, &sum);
        killer
            .torment(snaps.len(), |client, number| client.delete_snapshot(&delete_snapshot(&snaps[number])));
        killer.clear(&[restored, ids].concat());
    });
}

#[test]
#[ignore = "random: tests/run --full"]
fn deletions_whose_commands_are_killed() {
    let killer = Killer::start();
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
                let request = from_snapshot(killer.corner.volume(&format!("restored-{number}"), MIBS), snap);
                killer.client().create(&request).expect("restore").volume_id
            })
            .collect();
        assert_contents(&killer, &restored, &sum);
        killer.each(&snaps, |client, snap| client.delete_snapshot(&delete_snapshot(snap)).expect("delete"));
        killer.clear(&restored);
    });
}

#[test]
#[ignore = "random: tests/run --full"]
fn expansions_whose_commands_are_killed() {
    let killer = Killer::start();
    killer.rounds(|| {
        let (ids, sum) = copies(&killer);
        killer.torment(ids.len(), |client, number| {
            client.controller_expand_volume(&expand(&ids[number], 2 * SIZE))
        });
        for (name, row) in killer.corner.rows() {
            assert!(!is_image_of(&name, &ids) || row["size"] == 2 * SIZE, "{row}");
        }
        assert_contents(&killer, &ids, &sum);
        killer.clear(&ids);
    });
}

#[test]
#[ignore = "random: tests/run --full"]
fn copies_whose_flattens_are_killed() {
    let killer = Killer::of(&["flatten"]);
    let client = killer.client();
    let chain = Chain::grow(&killer.corner, &client);
    let sum = killer.corner.checksum(&chain.volumes[0]);
    let copies = std::cell::Cell::new(0);
    killer.rounds(|| {
        killer.kills.arm(FLATTEN, kills() - killer.kills.killed());
        let name = format!("copy-{}", copies.replace(copies.get() + 1));
        let copy = killer.insist(|client| chain.try_copy(client, &name));
        killer.kills.spare();
        assert_eq!(killer.corner.checksum(&copy), sum, "UNSAFE: a copy has lost data");
        assert!(killer.corner.rows()[object_of(&copy)]["parent"].is_null(), "it has too many parents");
        killer.insist(|client| client.delete_volume(&delete(&copy)));
    });
    chain.delete(&client);
    killer.clear(&[]);
}

/// `rbd rename` writes the new name, changes the directory, and removes the old name: killed in between, both
/// names open the image, and `rbd rm` by the one that the directory does not show destroys it.
#[test]
#[ignore = "random: tests/run --full"]
fn renames_that_are_killed_lose_no_image() {
    let killer = Killer::of(&["rename"]);
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let snap = snapshot_of(&killer.client(), "snap", &source);
        let ids = killer.torment(REQUESTS, |client, number| {
            let request = from_snapshot(killer.corner.volume(&format!("new-{number}"), MIBS), &snap);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_contents(&killer, &ids, &sum);
        let kept = killer.each(&ids, |client, id| snapshot_of(client, &format!("of {id}"), id));
        killer.torment(ids.len(), |client, number| client.delete_volume(&delete(&ids[number])));
        assert_eq!(volumes(&killer), 1, "a deleted volume has still a volume's name");
        let restored = killer.torment(kept.len(), |client, number| {
            let request =
                from_snapshot(killer.corner.volume(&format!("restored-{number}"), MIBS), &kept[number]);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_contents(&killer, &restored, &sum);
        killer.each(&[kept, vec![snap]].concat(), |client, snap| {
            killer.insist(|_| client.delete_snapshot(&delete_snapshot(snap)));
        });
        killer.clear(&[restored, vec![source]].concat());
    });
}

/// The names are used again while the removals of their former images are killed.
#[test]
#[ignore = "random: tests/run --full"]
fn removals_that_are_killed_take_no_later_image_of_the_name() {
    let killer = Killer::of(&["rm"]);
    killer.rounds(|| {
        let ask = |client: &Client, number: usize| {
            client.create(&killer.corner.volume(&format!("new-{number}"), MIBS)).map(|it| it.volume_id)
        };
        let earlier = killer.torment(REQUESTS, ask);
        let ids = killer.torment(REQUESTS, |client, number| {
            let delete = || client.delete_volume(&delete(&earlier[number]));
            if delete().is_err() {
                ask(client, number)?;
                delete()?;
            }
            ask(client, number)
        });
        for id in &ids {
            killer.client().controller_get_volume(&get(id)).expect("the later image");
        }
        assert_eq!(volumes(&killer), REQUESTS);
        killer.clear(&ids);
    });
}
