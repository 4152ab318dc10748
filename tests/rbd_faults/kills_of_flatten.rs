//! Deep chains of clones are flattened in the background; that is killed and goes on later.

use std::time::{Duration, Instant};

use super::killer::{Killer, kills};
use crate::support::requests::*;
use crate::support::{Client, MIB};

/// So many parents an image may have.
const DEEPEST: usize = 8;
const SIZE: i64 = 8 * MIB;
/// What failed is tried again after a minute.
const SETTLED: Duration = Duration::from_secs(180);

fn copy(killer: &Killer, client: &Client, name: &str, of: Option<&str>) -> String {
    let parameters = map(&[("namespace", killer.space.name.as_str())]);
    let request = cephlet::grpc::proto::csi_v1::CreateVolumeRequest { parameters, ..volume_as(name, SIZE, block()) };
    let request = of.map_or(request.clone(), |snap| from_snapshot(request, snap));
    client.create(&request).expect("create").volume_id
}

fn object(id: &str) -> &str {
    id.split(':').nth(4).expect("the ID names the object")
}

#[test]
fn a_flattening_that_is_killed_is_done_later() {
    let killer = Killer::start("kill-flatten");
    let client = killer.client();
    let mut chain = vec![copy(&killer, &client, "link-0", None)];
    killer.space.fill(object(&chain[0]));
    let sum = killer.space.checksum(object(&chain[0]), SIZE);
    let mut snaps = Vec::new();
    for link in 0..=DEEPEST {
        snaps.push(client.create_snapshot(&snapshot(&format!("snap-{link}"), &chain[link])).expect("snapshot").snapshot.snapshot_id.clone());
        if link < DEEPEST {
            chain.push(copy(&killer, &client, &format!("link-{}", link + 1), snaps.last().map(String::as_str)));
        }
    }
    let numbers: Vec<usize> = (0..kills()).collect();
    // The commands that make them are few enough to be spared: what is killed is chosen by its name.
    killer.only("flatten");
    killer.arm(kills());
    let last = snaps.last().expect("the deepest").clone();
    let leaves: Vec<String> = killer.many(&numbers, |client, number| copy(&killer, client, &format!("leaf-{number}"), Some(&last)));
    let until = Instant::now() + SETTLED;
    loop {
        let images = killer.space.images();
        let deep = leaves.iter().filter(|leaf| !images[object(leaf)]["parent"].is_null()).count();
        if deep == 0 {
            break;
        }
        assert!(Instant::now() < until, "{deep} of {} are not flattened:\n{}", leaves.len(), killer.daemon.log.text());
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(killer.left(), 0, "no more was killed");
    for leaf in &leaves {
        assert_eq!(killer.space.checksum(object(leaf), SIZE), sum, "{leaf}");
    }
    killer.each(&leaves, |client, id| drop(client.delete_volume(&delete(id)).expect("delete")));
    for (id, snap) in chain.iter().zip(&snaps).rev() {
        client.delete_snapshot(&delete_snapshot(snap)).expect("delete the snapshot");
        client.delete_volume(&delete(id)).expect("delete");
    }
    killer.space.await_objects(&[]);
    killer.daemon.assert_well();
}
