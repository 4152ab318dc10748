//! Two controllers of one cluster, each with a state directory of its own, asked for the same at the same
//! moment.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cephlet::proto::csi_v1 as wire;

use crate::support::client::{Answer, Failure};
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, LONG_PATIENCE, is_full, object_of};

/// How often a test has its race: `all` times, or a few. The winner is chance: many races show all cases.
fn rounds(all: usize) -> usize {
    if is_full() { all } else { 2 }
}

/// Two controllers, and a client for each.
struct Two {
    corner: Corner,
    daemons: [Daemon; 2],
}

impl Two {
    fn start() -> Self {
        let corner = Corner::new();
        let daemons = [1, 2].map(|number| corner.setup_of(number).start());
        Self { corner, daemons }
    }

    fn clients(&self) -> [Client; 2] {
        [self.daemons[0].client(), self.daemons[1].client()]
    }

    /// Lets both controllers do something at the same moment.
    fn race<T: Send>(&self, what: impl Fn(usize, &Client) -> T + Sync) -> [T; 2] {
        let (start, what) = (Barrier::new(2), &what);
        let [one, two] = self.clients();
        thread::scope(|scope| {
            let run = |number: usize, client: Client| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    what(number, &client)
                })
            };
            let (one, two) = (run(0, one), run(1, two));
            [one.join().expect("a client"), two.join().expect("a client")]
        })
    }
}

/// Repeats a call until its answer no longer depends on the other controller.
#[track_caller]
pub(crate) fn settle<T>(mut call: impl FnMut() -> Answer<T>) -> T {
    let until = Instant::now() + LONG_PATIENCE;
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(failure) => assert!(is_passing(&failure) && Instant::now() < until, "{failure:?}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// "Try again" is allowed while another controller works on the same. A controller that is held up in the
/// middle looks like a client of the image; the message then says what to do if that client died, in 30 s. A
/// manager that dies or is busy does not answer in time.
fn is_passing(failure: &Failure) -> bool {
    matches!(failure.code, Code::UNAVAILABLE | Code::ABORTED | Code::DEADLINE_EXCEEDED)
        || failure.message.contains(" 30 s")
}

#[test]
fn the_same_fifty_names_are_fifty_images() {
    let two = Two::start();
    let names: Vec<String> = (0..50).map(|number| format!("fifty-{number}")).collect();
    let create_all = |_: usize, client: &Client| -> Vec<wire::Volume> {
        let create = |part: &[String]| -> Vec<wire::Volume> {
            part.iter().map(|name| settle(|| client.create(&two.corner.volume(name, 8)))).collect()
        };
        thread::scope(|scope| {
            let parts: Vec<_> = names.chunks(13).map(|part| scope.spawn(move || create(part))).collect();
            parts.into_iter().flat_map(|part| part.join().expect("a client")).collect()
        })
    };
    let [one, other] = two.race(create_all);
    assert_eq!(one, other);
    let objects: BTreeSet<&str> = one.iter().map(|made| object_of(&made.volume_id)).collect();
    assert_eq!(two.corner.images(), objects.into_iter().collect::<Vec<_>>());
    assert_eq!(two.corner.images().len(), 50);
}

#[test]
fn one_single_writer_at_most() {
    let two = Two::start();
    let mut published = 0;
    for round in 0..rounds(10) {
        let id = two.clients()[0]
            .create(&two.corner.volume(&format!("writer-{round}"), 8))
            .expect("create")
            .volume_id;
        let publish = |number: usize, client: &Client| {
            client.controller_publish_volume(&publish_to(&id, &format!("node-{number}")))
        };
        let answers = two.race(publish);
        let winners = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!(winners <= 1, "UNSAFE: {answers:?}");
        for failure in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(failure.code == Code::FAILED_PRECONDITION || is_passing(failure), "{failure:?}");
        }
        let status = two.clients()[1].controller_get_volume(&get(&id)).expect("get").status;
        assert!((winners..=1).contains(&status.published_node_ids.len()), "{status:?} {answers:?}");
        published += winners;
    }
    assert!(published > 0 || !is_full(), "no volume was published");
}

#[test]
fn the_same_publication_through_both_is_one() {
    let two = Two::start();
    for round in 0..rounds(5) {
        let id = two.clients()[0]
            .create(&two.corner.volume(&format!("same-{round}"), 8))
            .expect("create")
            .volume_id;
        two.race(|_, client| settle(|| client.controller_publish_volume(&publish_to(&id, "node-1"))));
        for client in two.clients() {
            client.controller_publish_volume(&publish_to(&id, "node-1")).expect("again");
            client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");
        }
    }
}

#[test]
fn creation_and_deletion_lose_no_image() {
    let two = Two::start();
    let request = two.corner.volume("disputed", 8);
    for round in 0..rounds(12) {
        let id = settle(|| two.clients()[round % 2].create(&request)).volume_id;
        let act = |number: usize, client: &Client| match number == round % 2 {
            true => client.delete_volume(&delete(&id)).map(|_| None),
            false => client.create(&request).map(Some),
        };
        let answers = two.race(act);
        for failure in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(is_passing(failure), "{failure:?}");
        }
        let made = answers.iter().flatten().flatten().next();
        // If a volume of another incarnation than the deleted one was acknowledged, it exists.
        if let Some(made) = made.filter(|made| made.volume_id != id) {
            two.clients()[0]
                .controller_get_volume(&get(&made.volume_id))
                .expect("an acknowledged volume is there");
        }
    }
    let last = settle(|| two.clients()[0].create(&request)).volume_id;
    assert_eq!(two.corner.images(), [object_of(&last)]);
    settle(|| two.clients()[1].delete_volume(&delete(&last)));
    two.corner.await_empty();
}

#[test]
fn both_may_delete() {
    let two = Two::start();
    for round in 0..rounds(6) {
        let id = two.clients()[0]
            .create(&two.corner.volume(&format!("both-{round}"), 8))
            .expect("create")
            .volume_id;
        two.race(|_, client| settle(|| client.delete_volume(&delete(&id))));
    }
    two.corner.await_empty();
}

#[test]
fn a_volume_is_published_or_deleted() {
    let two = Two::start();
    let mut decided = 0;
    for round in 0..rounds(8) {
        let id = two.clients()[0]
            .create(&two.corner.volume(&format!("either-{round}"), 8))
            .expect("create")
            .volume_id;
        let act = |number: usize, client: &Client| match number {
            0 => client.delete_volume(&delete(&id)).map(drop),
            _ => client.controller_publish_volume(&publish_to(&id, "node-1")).map(drop),
        };
        let [deleted, published] = two.race(act);
        assert!(deleted.is_err() || published.is_err(), "UNSAFE: published and deleted");
        decided += usize::from(deleted.is_ok() || published.is_ok());
        let there = two.clients()[0].controller_get_volume(&get(&id));
        assert!(deleted.is_err() || there.is_err(), "{deleted:?} {there:?}");
        assert!(published.is_err() || there.is_ok(), "{published:?} {there:?}");
        two.clients()[1].controller_unpublish_volume(&unpublish_from(&id, "")).expect("unpublish");
        settle(|| two.clients()[0].delete_volume(&delete(&id)));
    }
    assert!(decided > 0 || !is_full(), "in no round one of both was done");
    two.corner.await_empty();
}

#[test]
fn a_name_of_a_snapshot_has_one_owner() {
    let two = Two::start();
    let ids = ["one", "other"]
        .map(|name| two.clients()[0].create(&two.corner.volume(name, 8)).expect("create").volume_id);
    let mut owned = 0;
    for round in 0..rounds(5) {
        let name = format!("contested-{round}");
        let take = |client: &Client, id: &String| match client.create_snapshot(&snapshot(&name, id)) {
            Ok(reply) => Ok(Some(reply.snapshot.snapshot_id.clone())),
            Err(failure) if failure.code == Code::ALREADY_EXISTS => Ok(None),
            Err(failure) => Err(failure),
        };
        let taken = two.race(|number, client| settle(|| take(client, &ids[number])));
        let taken: Vec<String> = taken.into_iter().flatten().collect();
        assert!(taken.len() <= 1, "UNSAFE: {taken:?}");
        owned += taken.len();
        let shared = snapshot(&format!("shared-{round}"), &ids[0]);
        let same = two.race(|_, client| settle(|| client.create_snapshot(&shared)));
        let same = same.map(|reply| reply.snapshot.into_option().expect("a snapshot"));
        assert_eq!(same[0], same[1]);
        for id in taken.iter().chain([&same[0].snapshot_id]) {
            two.race(|_, client| settle(|| client.delete_snapshot(&delete_snapshot(id))));
        }
    }
    assert!(owned > 0 || !is_full(), "no name got an owner");
    ids.iter().for_each(|id| drop(settle(|| two.clients()[1].delete_volume(&delete(id)))));
    two.corner.await_empty();
}

#[test]
fn the_same_copy_through_both_is_one() {
    let two = Two::start();
    let id = two.clients()[0].create(&two.corner.volume("source", 8)).expect("create").volume_id;
    two.corner.poke(&id, 0, b"content");
    let sum = two.corner.checksum(&id);
    for round in 0..rounds(4) {
        let request = from_volume(two.corner.volume(&format!("copy-{round}"), 8), &id);
        let [one, other] = two.race(|_, client| settle(|| client.create(&request)));
        assert_eq!(one, other);
        assert_eq!(two.corner.checksum(&one.volume_id), sum);
        settle(|| two.clients()[0].delete_volume(&delete(&one.volume_id)));
    }
    settle(|| two.clients()[0].delete_volume(&delete(&id)));
    two.corner.await_empty();
}
