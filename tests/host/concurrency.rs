//! Many calls at once: equal ones, different ones on the same volumes, and others while one is stuck.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use protobuf::Message;

use crate::support::client::{Answer, Client, Failure};
use crate::support::machine::images;
use crate::support::requests::*;
use crate::support::stub::Hanging;
use crate::support::{Code, Daemon, MIB, PATIENCE, Scratch, Setup, is_full, raw, refused};

#[test]
fn identical_creations_make_one_volume() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let start = Barrier::new(32);
    let answers: Vec<_> = thread::scope(|scope| {
        let create = || {
            start.wait();
            client.create(&volume("one"))
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    let first = answers[0].clone().expect("create");
    assert!(answers.iter().all(|answer| answer.as_ref() == Ok(&first)), "{answers:?}");
    assert_eq!(images(&daemon.local_dir()).len(), 1);
}

#[test]
fn of_different_creations_of_one_name_one_wins() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let answers: Vec<Answer<i64>> = thread::scope(|scope| {
        let create =
            |size: i64| client.create(&volume_as("one", size * MIB, block())).map(|made| made.capacity_bytes);
        let threads: Vec<_> = (1..=16).map(|size| scope.spawn(move || create(size))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    let made: BTreeSet<i64> = answers.iter().filter_map(|answer| answer.as_ref().ok()).copied().collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    // The existing volume satisfies a smaller request; a larger request is for a different volume.
    assert!(
        answers
            .iter()
            .flat_map(|answer| answer.as_ref().err())
            .all(|error| error.code == Code::ALREADY_EXISTS),
        "{answers:?}"
    );
    assert_eq!(images(&daemon.local_dir()).len(), 1);
}

#[test]
fn a_storm_on_few_volumes_ends_in_order() {
    let daemon = Setup::new().set("CEPHLET_LOCK_WAIT", "300s").start();
    thread::scope(|scope| {
        for seed in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || Storm::new(daemon, seed).blow(if is_full() { 60 } else { 20 }));
        }
    });
    let client = daemon.client();
    for name in NAMES {
        let id = client.create(&volume(name)).expect("create").volume_id;
        client
            .node_unpublish_volume(&unpublish(&id, &daemon.text(&format!("{name}-target"))))
            .expect("unpublish");
        client.node_unstage_volume(&unstage(&id, &daemon.text(&format!("{name}-stage")))).expect("unstage");
        client.controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back");
        client.delete_volume(&delete(&id)).expect("delete");
    }
    for entry in client.list_snapshots(&snapshot_page(0, "")).expect("list").entries {
        client.delete_snapshot(&delete_snapshot(&entry.snapshot.snapshot_id)).expect("delete");
    }
    assert!(images(&daemon.local_dir()).is_empty());
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Errors that the state of a volume may cause. Valid calls may get no other error.
const IN_ORDER: [Code; 4] =
    [Code::NOT_FOUND, Code::FAILED_PRECONDITION, Code::ALREADY_EXISTS, Code::OUT_OF_RANGE];

/// One client that does one thing after the other, the same in every run.
struct Storm<'a> {
    daemon: &'a Daemon,
    client: Client,
    state: u32,
}

impl<'a> Storm<'a> {
    fn new(daemon: &'a Daemon, seed: u32) -> Self {
        Self { daemon, client: daemon.client(), state: seed.wrapping_mul(2_654_435_769).wrapping_add(12_345) }
    }

    /// The next number of a linear congruential sequence; its high bits are the better ones.
    fn number(&mut self, below: u32) -> u32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 16) % below
    }

    fn blow(&mut self, count: u32) {
        for _ in 0..count {
            let name = NAMES[self.number(3) as usize];
            let step = self.number(11);
            if let Err(error) = self.step(name, step) {
                assert!(IN_ORDER.contains(&error.code), "step {step} on {name}: {error:?}");
            }
        }
    }

    fn step(&self, name: &str, step: u32) -> Answer<()> {
        let client = &self.client;
        // This ID is the present one; by the time it is used the name may have another volume.
        let id = client.create(&volume(name))?.volume_id;
        let (staging, target) =
            (self.daemon.text(&format!("{name}-stage")), self.daemon.text(&format!("{name}-target")));
        match step {
            0 | 1 => client.node_stage_volume(&stage(&id, &staging, mount("ext4"))).map(drop),
            2 | 3 => client.node_publish_volume(&publish(&id, &staging, &target, mount("ext4"))).map(drop),
            4 => client.node_unpublish_volume(&unpublish(&id, &target)).map(drop),
            5 => client.node_unstage_volume(&unstage(&id, &staging)).map(drop),
            6 => client.delete_volume(&delete(&id)).map(drop),
            7 => client.controller_publish_volume(&publish_to(&id, "node-1")).map(drop),
            8 => client.controller_unpublish_volume(&unpublish_from(&id, "")).map(drop),
            9 => client.create_snapshot(&snapshot(&format!("{name}-snap"), &id)).map(drop),
            _ => client.list_volumes(&page(2, "")).map(drop),
        }
    }
}

/// A daemon with a volume whose formatting has begun and hangs.
struct Stuck {
    daemon: Daemon,
    stub: Hanging,
    id: String,
    stage: Option<thread::JoinHandle<Answer<()>>>,
}

impl Stuck {
    fn start(setting: (&str, &str)) -> Self {
        let scratch = Arc::new(Scratch::new());
        let stub = Hanging::new(&scratch, "mkfs.ext4");
        let setup = Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path());
        // No call that waits for the volume gives up before the test is done, unless the test says so.
        let daemon = setup.set("CEPHLET_LOCK_WAIT", "300s").set(setting.0, setting.1).start();
        let client = daemon.client();
        let id = client.create(&volume("stuck")).expect("create").volume_id;
        let request = stage(&id, &daemon.text("stage"), mount("ext4"));
        let stage = thread::spawn(move || client.node_stage_volume(&request).map(drop));
        stub.await_start();
        Self { daemon, stub, id, stage: Some(stage) }
    }

    /// Lets the formatting go on; the stage must be answered well.
    fn release(&mut self) {
        self.stub.release();
        let stage = self.stage.take().expect("released once");
        stage.join().expect("the client").expect("stage");
    }

    /// Lets the formatting fail; returns the answer of the stage.
    fn fail(&mut self) -> Failure {
        self.stub.fail();
        let stage = self.stage.take().expect("ended once");
        stage.join().expect("the client").expect_err("formatting failed")
    }
}

#[test]
fn a_stuck_volume_blocks_no_other() {
    let mut stuck = Stuck::start(("CEPHLET_QUEUE", "256"));
    let client = stuck.daemon.client();
    let (sender, answers) = channel();
    for number in 0..100 {
        let (client, sender, id) = (client.clone(), sender.clone(), stuck.id.clone());
        // All different, so that none joins another.
        let request = expand(&id, (32 + number) * MIB);
        thread::spawn(move || sender.send(client.controller_expand_volume(&request).map(drop)));
    }
    for number in 0..10 {
        let made = client.create(&volume(&format!("v{number}"))).expect("others are made");
        assert!(client.is_ready());
        let at = stuck.daemon.text(&format!("s{number}"));
        client.node_stage_volume(&stage(&made.volume_id, &at, mount("ext4"))).expect("others are staged");
    }
    assert!(answers.try_recv().is_err(), "the volume is stuck still");
    stuck.release();
    let answers: Vec<Answer<()>> =
        (0..100).map(|_| answers.recv_timeout(PATIENCE).expect("an answer")).collect();
    let failed: Vec<_> = answers.iter().flat_map(|answer| answer.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    stuck.daemon.assert_well();
}

#[test]
fn a_call_that_waits_too_long_names_the_call_it_waits_for() {
    let mut stuck = Stuck::start(("CEPHLET_LOCK_WAIT", "1s"));
    let client = stuck.daemon.client();
    let began = Instant::now();
    let said = refused(
        client.controller_get_volume(&get(&stuck.id)),
        Code::ABORTED,
        &["NodeStageVolume", "mkfs.ext4"],
    );
    assert!(said.contains(" s"), "no age in {said}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    stuck.release();
    client.controller_get_volume(&get(&stuck.id)).expect("free again");
}

#[test]
fn a_repeated_request_joins_the_one_in_progress() {
    let mut stuck = Stuck::start(("CEPHLET_LOCK_WAIT", "300s"));
    let client = stuck.daemon.client();
    let request = stage(&stuck.id, &stuck.daemon.text("stage"), mount("ext4"));
    let bytes = request.write_to_bytes().expect("encodes");
    let repeat = |_| raw::begin(&client.channel, "/csi.v1.Node/NodeStageVolume", bytes.clone());
    let repeats: Vec<_> = (0..5).map(repeat).collect();
    stuck.daemon.log.await_lines("waits behind another", 5);
    // Only the first formatting fails: a repeat on its own would succeed.
    let failure = stuck.fail();
    for mut repeat in repeats {
        assert_eq!(Failure::from(repeat.receive_sync().expect_err("it joined")), failure);
    }
    client.node_stage_volume(&request).expect("one that comes later runs by itself");
}

#[test]
fn a_full_queue_refuses_at_once() {
    let mut stuck = Stuck::start(("CEPHLET_QUEUE", "4"));
    let client = stuck.daemon.client();
    let (sender, answers) = channel();
    for number in 0..40 {
        let (client, sender, id) = (client.clone(), sender.clone(), stuck.id.clone());
        let request = expand(&id, (32 + number) * MIB);
        thread::spawn(move || sender.send(client.controller_expand_volume(&request).map(drop)));
    }
    // The queue holds four; as many as there are workers may be on their way into it.
    for _ in 0..28 {
        let answer = answers.recv_timeout(PATIENCE).expect("refused at once");
        refused(answer, Code::UNAVAILABLE, &["CEPHLET_QUEUE"]);
    }
    assert!(client.is_ready(), "a health check needs no queue");
    stuck.release();
    for _ in 28..40 {
        if let Err(error) = answers.recv_timeout(PATIENCE).expect("an answer") {
            assert_eq!(error.code, Code::UNAVAILABLE, "{}", error.message);
        }
    }
    client.controller_get_volume(&get(&stuck.id)).expect("room again");
}

#[test]
fn a_call_whose_client_gave_up_is_not_run() {
    let mut stuck = Stuck::start(("CEPHLET_LOCK_WAIT", "300s"));
    let client = stuck.daemon.client();
    assert!(client.is_ready(), "it is connected");
    let method = "/csi.v1.Controller/ControllerExpandVolume";
    let bytes = expand(&stuck.id, 999 * MIB).write_to_bytes().expect("encodes");
    let answer = raw::call_within(&client.channel, method, bytes, Duration::from_secs(15));
    refused(answer, Code::DEADLINE_EXCEEDED, &[]);
    // The daemon's clock for the call began when the call arrived: later than the client's.
    let ended = stuck.daemon.log.await_lines(method, 1).remove(0);
    assert!(ended.contains("DEADLINE_EXCEEDED"), "{ended}");
    stuck.release();
    let found = stuck.daemon.client().controller_get_volume(&get(&stuck.id)).expect("get");
    assert_eq!(found.volume.capacity_bytes, 32 * MIB);
}
