//! A cluster that stands still: calls end at their deadlines, the daemon answers probes, and when the cluster
//! goes on, the same calls succeed.

use std::thread;
use std::time::{Duration, Instant};

use cephlet::proto::{Rpc, csi_v1 as wire};

use crate::support::client::{Answer, Failure, ask};
use crate::support::requests::*;
use crate::support::{Client, Cluster, Code, Daemon, LONG_PATIENCE, PATIENCE, Setup, object_of};

/// How long a client waits while the cluster stands still.
const DEADLINE: Duration = Duration::from_secs(35);
/// The time after which a command is killed. Commands of a cluster that runs take less.
const TOOL_TIMEOUT: &str = "20s";
const MIBS: i64 = 8;

/// A cluster for this test alone, and a daemon that serves it.
struct Scene {
    cluster: Cluster,
    daemon: Daemon,
    /// A volume to copy, one to delete, one to take a snapshot of, one to publish.
    volumes: Vec<String>,
}

fn volume_of(name: &str) -> wire::CreateVolumeRequest {
    volume_as(name, MIBS << 20, block())
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::start();
        let setup = Setup::new().in_own_session().on(&cluster, "cephlet");
        let daemon = setup
            .set("CEPHLET_TOOL_TIMEOUT", TOOL_TIMEOUT)
            .set("CEPHLET_TOOLS", 8)
            .set("CEPHLET_WORKERS", 12)
            .start();
        let make = |name| daemon.client().create(&volume_of(name)).expect("create").volume_id;
        let volumes = ["source", "deleted", "shot", "published"].map(make).into();
        Self { cluster, daemon, volumes }
    }

    /// The calls under test, by a client with this deadline.
    fn calls(&self, deadline: Duration) -> Vec<(&'static str, Call)> {
        let [source, deleted, shot, published] = self.volumes.clone().try_into().expect("four volumes");
        let copy = from_volume(volume_of("copy"), &source);
        let publication = wire::ControllerPublishVolumeRequest {
            volume_capability: protobuf::MessageField::some(block()),
            ..publish_to(&published, "node-1")
        };
        vec![
            ("create", asking(volume_of("new"), deadline)),
            ("copy", asking(copy, deadline)),
            ("delete", asking(delete(&deleted), deadline)),
            ("snapshot", asking(snapshot("snap", &shot), deadline)),
            ("publish", asking(publication, deadline)),
            ("list", asking(page(0, ""), deadline)),
        ]
    }

    /// Makes all calls while a daemon of the cluster stands still; half of them begin before it does.
    fn endure(&self, who: &str) {
        let calls = self.calls(DEADLINE);
        let client = self.daemon.client();
        thread::scope(|scope| {
            let begin = |(what, call): &(&'static str, Call)| (*what, call(&client));
            let (early, late) = calls.split_at(calls.len() / 2);
            let mut running: Vec<_> = early.iter().map(|call| scope.spawn(move || begin(call))).collect();
            thread::sleep(Duration::from_millis(40));
            let paused = self.cluster.pause(who);
            running.extend(late.iter().map(|call| scope.spawn(move || begin(call))));
            let mut probes = 0;
            while running.iter().any(|one| !one.is_finished()) {
                assert!(self.daemon.client().is_ready());
                probes += 1;
                thread::sleep(Duration::from_millis(20));
            }
            assert!(probes >= 5, "only {probes} probes were answered while calls waited");
            for one in running {
                let (what, answer) = one.join().expect("a call");
                eprintln!("{who} stopped, {what}: {answer:?}");
                assert!(answer.is_ok() || answer.as_ref().is_err_and(is_for_now), "{what}: {answer:?}");
            }
            drop(paused);
        });
        self.recover();
    }

    /// The same calls succeed now.
    fn recover(&self) {
        let client = self.daemon.client();
        for (what, call) in self.calls(PATIENCE) {
            self.insist(what, || call(&client));
        }
    }

    /// Calls until it succeeds. Until the cluster forgets a killed client, the call may be refused.
    fn insist<T>(&self, what: &str, call: impl Fn() -> Answer<T>) -> T {
        let until = Instant::now() + LONG_PATIENCE;
        loop {
            let failure = match call() {
                Ok(answer) => return answer,
                Err(failure) => failure,
            };
            let is_in_time = is_for_now(&failure) && Instant::now() < until;
            assert!(is_in_time, "{what}: {failure:?}\n{}", self.daemon.log.text());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Deletes everything, and asserts that nothing is left.
    fn clear(&self) {
        let client = self.daemon.client();
        let snap = client
            .create_snapshot(&snapshot("snap", &self.volumes[2]))
            .expect("the same")
            .snapshot
            .snapshot_id
            .clone();
        let made = ["new"].map(|name| client.create(&volume_of(name)).expect("the same").volume_id);
        let copy =
            client.create(&from_volume(volume_of("copy"), &self.volumes[0])).expect("the same").volume_id;
        client.controller_unpublish_volume(&unpublish_from(&self.volumes[3], "")).expect("unpublish");
        self.insist("delete the snapshot", || client.delete_snapshot(&delete_snapshot(&snap)));
        for id in self.volumes.iter().chain(&made).chain([&copy]) {
            self.insist("delete", || client.delete_volume(&delete(id)));
        }
        let fixtures =
            ["rbd_directory", "rbd_info", "rbd_children", "rbd_trash", "rbd_task", "rbd_namespace"];
        let left = || {
            let all = self.cluster.rados(&["--pool=rbd", "ls"]);
            all.lines().filter(|name| !fixtures.contains(name)).map(String::from).collect::<Vec<_>>()
        };
        let until = Instant::now() + LONG_PATIENCE;
        while !left().is_empty() {
            assert!(Instant::now() < until, "left: {:?}\n{}", left(), self.daemon.log.text());
            thread::sleep(Duration::from_millis(100));
        }
        self.daemon.assert_well();
    }
}

type Call = Box<dyn Fn(&Client) -> Answer<()> + Send + Sync>;

/// The call that the request belongs to, by a client with this deadline.
fn asking<Q: Rpc>(request: Q, deadline: Duration) -> Call {
    Box::new(move |client| ask(&client.channel, &request, deadline).map(drop))
}

/// Whether a repeat may succeed.
fn is_for_now(failure: &Failure) -> bool {
    matches!(failure.code, Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED | Code::ABORTED)
        || failure.message.contains(" 30 s")
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_hanging_monitor_delays_no_call_beyond_its_deadline() {
    let scene = Scene::new();
    scene.endure("mon");
    scene.clear();
}

#[test]
fn a_hanging_osd_delays_no_call_beyond_its_deadline() {
    let scene = Scene::new();
    scene.endure("osd");
    scene.clear();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_daemon_that_dies_while_the_osd_hangs_starts_again() {
    let mut scene = Scene::new();
    let calls = scene.calls(DEADLINE);
    let client = scene.daemon.client();
    let paused = scene.cluster.pause("osd");
    let running: Vec<_> = calls
        .into_iter()
        .map(|(_, call)| {
            let client = client.clone();
            thread::spawn(move || call(&client))
        })
        .collect();
    scene.daemon.log.await_lines("call ", 1);
    thread::sleep(Duration::from_millis(500));
    scene.daemon.kill9();
    for one in running {
        assert!(one.join().expect("a call").is_err());
    }
    // The cluster still stands still.
    scene.daemon.restart();
    assert!(scene.daemon.client().is_ready());
    // A question about a volume whose cluster does not answer now.
    let answer = asking(get(&scene.volumes[0]), DEADLINE)(&scene.daemon.client());
    assert!(answer.is_err(), "{}", object_of(&scene.volumes[0]));
    drop(paused);
    scene.recover();
    scene.clear();
}
