//! Sessions that are killed at random moments, while volumes are made, copied, changed and removed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::process::Signal;

use super::killer::{FORGOTTEN, forget_the_dead};
use crate::session::Session;
use crate::support::client::Answer;
use crate::support::machine::Checksum;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, LONG_PATIENCE, MIB, is_full};

/// How many volumes live at once.
const VOLUMES: usize = 8;
const MIBS: i64 = 8;
/// How many sessions of one daemon are killed. After more within a minute it starts no other for a while.
const KILLS_OF_A_DAEMON: usize = 4;

fn kills() -> usize {
    if is_full() { 48 } else { 16 }
}

/// Repeats a request until it succeeds.
fn insist<T>(corner: &Corner, ask: impl Fn() -> Answer<T>) -> T {
    let (begun, mut forgotten) = (Instant::now(), false);
    loop {
        let failure = match ask() {
            Ok(answer) => return answer,
            Err(failure) => failure,
        };
        let again = matches!(failure.code, Code::UNAVAILABLE | Code::ABORTED | Code::DEADLINE_EXCEEDED)
            || failure.message.contains("forgotten after 30 s");
        assert!(again && begun.elapsed() < LONG_PATIENCE, "{failure:?}");
        if begun.elapsed() > FORGOTTEN && !std::mem::replace(&mut forgotten, true) {
            forget_the_dead(corner.cluster, &failure);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A volume with content, a snapshot of it, and the checksum.
struct Source {
    volume: String,
    snapshot: String,
    sum: Checksum,
}

impl Source {
    fn new(corner: &Corner, client: &Client) -> Self {
        let volume = client.create(&corner.volume("source", MIBS)).expect("create").volume_id;
        corner.fill(&volume);
        let sum = corner.checksum(&volume);
        let taken = client.create_snapshot(&snapshot("source", &volume)).expect("snapshot");
        Self { volume, snapshot: taken.snapshot.snapshot_id.clone(), sum }
    }
}

/// The life of a volume and of a copy, each step until it succeeds.
fn live(corner: &Corner, client: &Client, source: &Source, name: &str) {
    let id = insist(corner, || client.create(&corner.volume(name, MIBS))).volume_id;
    insist(corner, || client.controller_publish_volume(&publish_to(&id, "node-1")));
    insist(corner, || client.controller_unpublish_volume(&unpublish_from(&id, "node-1")));
    let copied = from_snapshot(corner.volume(&format!("{name}-copy"), MIBS), &source.snapshot);
    let copy = insist(corner, || client.create(&copied)).volume_id;
    assert_eq!(corner.checksum(&copy), source.sum, "UNSAFE: a copy has lost data");
    let taken = insist(corner, || client.create_snapshot(&snapshot(name, &copy)));
    insist(corner, || client.controller_expand_volume(&expand(&copy, 2 * MIBS * MIB)));
    insist(corner, || client.delete_snapshot(&delete_snapshot(&taken.snapshot.snapshot_id)));
    for id in [&id, &copy] {
        insist(corner, || client.delete_volume(&delete(id)));
    }
}

/// Kills sessions of a daemon while volumes live; returns how many.
fn storm(corner: &Corner, daemon: &Daemon, source: &Source, round: usize) -> usize {
    let (killed, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let killing = scope.spawn(|| {
            let mut state = UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
            eprintln!("seed {state:#x}");
            while killed.load(Ordering::Relaxed) < KILLS_OF_A_DAEMON && !over.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The work of a session has begun, or is at some point of its first second.
                thread::sleep(Duration::from_millis(50 + (state >> 33) % 1000));
                if let Some(session) = Session::find(daemon) {
                    session.signal(Signal::KILL);
                    killed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let living: Vec<_> = (0..VOLUMES)
            .map(|number| {
                let name = format!("new-{round}-{number}");
                scope.spawn(move || live(corner, &daemon.client(), source, &name))
            })
            .collect();
        living.into_iter().for_each(|one| one.join().expect("a life"));
        over.store(true, Ordering::Relaxed);
        killing.join().expect("the kills");
    });
    killed.into_inner()
}

/// The clients that are shut out: those of dead owners of an image's lock.
fn shut_out(corner: &Corner) -> usize {
    corner.cluster.ceph(&["osd", "blocklist", "ls"]).lines().count()
}

#[test]
#[ignore = "random: tests/run --full"]
fn sessions_that_are_killed_lose_nothing() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let source = Source::new(&corner, &daemon.client());
    let (mut killed, before) = (0, shut_out(&corner));
    for round in 0.. {
        killed += storm(&corner, &daemon, &source, round);
        if killed >= kills() {
            break;
        }
        daemon.restart();
    }
    eprintln!("{killed} sessions were killed, {} clients shut out", shut_out(&corner) - before);
    daemon.client().delete_snapshot(&delete_snapshot(&source.snapshot)).expect("delete the snapshot");
    daemon.client().delete_volume(&delete(&source.volume)).expect("delete");
    corner.await_objects(&[]);
    daemon.assert_well();
}
