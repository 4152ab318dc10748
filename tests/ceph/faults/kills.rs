//! Commands that are killed while they make, change and take away images.

use super::chain::Chain;
use super::drills::{self, assert_contents, delete_snap, filled, snapshot_of, volumes};
use super::killer::{Killer, kills};
use crate::support::place::MIBS;
use crate::support::requests::*;
use crate::support::{Client, Corner, Place, object_of};

/// The number of requests at once: each is hit several times.
const REQUESTS: usize = Corner::REQUESTS;
/// The duration of a flatten in microseconds: half of it passes before anything is copied.
const FLATTEN: usize = 120_000;

#[test]
#[ignore = "random: tests/run --full"]
fn creations_whose_commands_are_killed() {
    drills::creations::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_snapshot_whose_commands_are_killed() {
    drills::clones_of_a_snapshot::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn clones_of_a_volume_whose_commands_are_killed() {
    drills::clones_of_a_volume::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn snapshots_whose_commands_are_killed() {
    drills::snapshots::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn deletions_whose_commands_are_killed() {
    drills::deletions::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn expansions_whose_commands_are_killed() {
    drills::expansions::<Corner>();
}

#[test]
#[ignore = "random: tests/run --full"]
fn copies_whose_flattens_are_killed() {
    let killer: Killer = Killer::of(&["flatten"]);
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
    let killer: Killer = Killer::of(&["rename"]);
    killer.rounds(|| {
        let (source, sum) = filled(&killer);
        let snap = snapshot_of(&killer, "snap", &source);
        let ids = killer.torment(REQUESTS, |client, number| {
            let request = from_snapshot(killer.corner.volume(&format!("new-{number}"), MIBS), &snap);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_contents(&killer, &ids, &sum);
        let kept = killer.each(&ids, |id| snapshot_of(&killer, &format!("of {id}"), id));
        killer.torment(ids.len(), |client, number| client.delete_volume(&delete(&ids[number])));
        assert_eq!(volumes(&killer), 1, "a deleted volume has still a volume's name");
        let restored = killer.torment(kept.len(), |client, number| {
            let request =
                from_snapshot(killer.corner.volume(&format!("restored-{number}"), MIBS), &kept[number]);
            client.create(&request).map(|it| it.volume_id)
        });
        assert_contents(&killer, &restored, &sum);
        killer.each(&[kept, vec![snap]].concat(), |snap| delete_snap(&killer, snap));
        killer.clear(&[restored, vec![source]].concat());
    });
}

/// The names are used again while the removals of their former images are killed.
#[test]
#[ignore = "random: tests/run --full"]
fn removals_that_are_killed_take_no_later_image_of_the_name() {
    let killer: Killer = Killer::of(&["rm"]);
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
            killer.insist(|client| client.controller_get_volume(&get(id)));
        }
        assert_eq!(volumes(&killer), REQUESTS);
        killer.clear(&ids);
    });
}
