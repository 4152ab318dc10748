//! Both protocols at once on the same volumes: they see the same, and neither blocks the other for ever.

use std::thread;

use crate::support::client::Answer;
use crate::support::machine::images;
use crate::support::requests;
use crate::support::stub::Hanging;
use crate::support::v0::{self, mount};
use crate::support::{Code, Daemon, MIB, Scratch, Setup, is_full, refused};

/// A volume as both protocols tell it: ID, size, attributes.
type Seen = (String, i64, Vec<(String, String)>);

fn through_v1(client: &crate::support::Client) -> Vec<Seen> {
    let entries = client.list_volumes(&requests::page(0, "")).expect("list").entries;
    let sorted = |map: &std::collections::HashMap<String, String>| {
        let mut pairs: Vec<_> = map.clone().into_iter().collect();
        pairs.sort();
        pairs
    };
    entries
        .iter()
        .map(|it| (it.volume.volume_id.clone(), it.volume.capacity_bytes, sorted(&it.volume.volume_context)))
        .collect()
}

fn through_v0(client: &v0::Client) -> Vec<Seen> {
    let sorted = |map: std::collections::HashMap<String, String>| {
        let mut pairs: Vec<_> = map.into_iter().collect();
        pairs.sort();
        pairs
    };
    let size = |bytes: u64| i64::try_from(bytes).expect("a size");
    client
        .list()
        .into_iter()
        .map(|it| (it.id.clone(), size(it.capacity_bytes), sorted(it.attributes)))
        .collect()
}

#[test]
fn both_see_the_same_volumes_under_the_same_ids() {
    let daemon = Daemon::start();
    let (new, old) = (daemon.client(), v0::Client::of(&daemon));
    let first = new.create(&requests::volume("by-v1")).expect("create");
    let second = old.create(&v0::volume("by-0.1")).expect("create");
    assert_eq!(old.create(&v0::volume("by-v1")).expect("the same").id, first.volume_id);
    assert_eq!(new.create(&requests::volume("by-0.1")).expect("the same").volume_id, second.id);
    assert_eq!(through_v1(&new), through_v0(&old));
    assert_eq!(through_v0(&old).len(), 2);
    old.controller_publish_volume(&v0::publish_to(&first.volume_id, "node-1", mount("ext4")))
        .expect("publish");
    assert_eq!(
        new.controller_get_volume(&requests::get(&first.volume_id)).expect("get").status.published_node_ids,
        ["node-1"]
    );
    new.controller_publish_volume(&requests::publish_to(&first.volume_id, "node-1"))
        .expect("published in the same way");
    refused(new.delete_volume(&requests::delete(&first.volume_id)), Code::FAILED_PRECONDITION, &["node-1"]);
    new.controller_unpublish_volume(&requests::unpublish_from(&first.volume_id, "")).expect("take back");
    old.delete_volume(&v0::delete(&first.volume_id)).expect("delete");
    new.delete_volume(&requests::delete(&second.id)).expect("delete");
    assert!(through_v1(&new).is_empty() && through_v0(&old).is_empty());
    // A difference: unpublishing an absent volume succeeds in v1.
    new.controller_unpublish_volume(&requests::unpublish_from(&second.id, "node-1")).expect("absent");
    refused(
        old.controller_unpublish_volume(&v0::unpublish_from(&second.id, "node-1")),
        Code::NOT_FOUND,
        &[&second.id],
    );
}

/// The same request through both protocols at one moment: each gets its own answer, of one volume.
#[test]
fn the_same_creation_through_both_is_one_volume() {
    let daemon = Daemon::start();
    for round in 0..8 {
        let name = format!("v{round}");
        let (new, old) = (daemon.client(), v0::Client::of(&daemon));
        let ids: Vec<String> = thread::scope(|scope| {
            let new = || new.create(&requests::volume(&name)).map(|made| made.volume_id);
            let old = || old.create(&v0::volume(&name)).map(|made| made.id);
            let threads: Vec<_> = (0..8)
                .map(|number| if number % 2 == 0 { scope.spawn(new) } else { scope.spawn(old) })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a client").expect("create")).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
    assert_eq!(images(&daemon.local_dir()).len(), 8);
}

/// Calls that wait for the same volume through the two protocols get the answers of their own protocol: OK in
/// v1, NOT_FOUND in 0.1.
#[test]
fn answers_of_one_protocol_are_not_given_through_the_other() {
    let daemon = Daemon::start();
    let gone = daemon.client().create(&requests::volume("gone")).expect("create").volume_id;
    daemon.client().delete_volume(&requests::delete(&gone)).expect("delete");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (new, old) = (daemon.client(), v0::Client::of(&daemon));
                for _ in 0..50 {
                    new.controller_unpublish_volume(&requests::unpublish_from(&gone, "node-1"))
                        .expect("absent");
                    refused(
                        old.controller_unpublish_volume(&v0::unpublish_from(&gone, "node-1")),
                        Code::NOT_FOUND,
                        &[],
                    );
                }
            });
        }
    });
}

/// A volume that is stuck through one protocol is busy through the other, which still says that the plugin is
/// well.
#[test]
fn a_volume_that_is_stuck_is_busy_for_both() {
    let scratch = std::sync::Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let setup =
        Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path()).set("CEPHLET_LOCK_WAIT", "1s");
    let daemon = setup.start();
    let old = v0::Client::of(&daemon);
    let id = old.create(&v0::volume("stuck")).expect("create").id;
    let publish = v0::publish(&id, &daemon.text("target"), mount("ext4"));
    thread::scope(|scope| {
        let (old, publish) = (&old, &publish);
        let first = scope.spawn(move || old.publish(publish));
        stub.await_start();
        let parts = ["csi.Node/NodePublishVolume", "mkfs.ext4"];
        refused(daemon.client().controller_get_volume(&requests::get(&id)), Code::ABORTED, &parts);
        refused(old.delete_volume(&v0::delete(&id)), Code::ABORTED, &parts);
        let probe = cephlet::proto::csi::NodeProbeRequest { version: v0::version(), ..Default::default() };
        old.node_probe(&probe).expect("a health check waits for no volume");
        stub.release();
        first.join().expect("the client").expect("publish");
    });
    old.publish(&publish).expect("again");
    daemon
        .client()
        .node_unpublish_volume(&requests::unpublish(&id, &daemon.text("target")))
        .expect("unpublish");
    daemon.assert_node_is_clean();
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Errors that the state of a volume may cause. Valid calls may get no other error.
const IN_ORDER: [Code; 4] =
    [Code::NOT_FOUND, Code::FAILED_PRECONDITION, Code::ALREADY_EXISTS, Code::OUT_OF_RANGE];

/// One thing after the other on few volumes, through both protocols, the same in every run.
struct Storm<'a> {
    daemon: &'a Daemon,
    new: crate::support::Client,
    old: v0::Client,
    state: u32,
}

impl Storm<'_> {
    /// The next number of a linear congruential sequence; its high bits are the better ones.
    fn number(&mut self, below: u32) -> u32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 16) % below
    }

    fn blow(&mut self, count: u32) {
        for _ in 0..count {
            let (name, step) = (NAMES[self.number(3) as usize], self.number(14));
            if let Err(error) = self.step(name, step) {
                assert!(IN_ORDER.contains(&error.code), "step {step} on {name}: {error:?}");
            }
        }
    }

    fn step(&self, name: &str, step: u32) -> Answer<()> {
        let Self { new, old, daemon, .. } = self;
        let id = match step % 2 {
            0 => new.create(&requests::volume(name))?.volume_id,
            _ => old.create(&v0::volume(name))?.id,
        };
        let [staging, target, other] =
            ["stage", "target", "v0"].map(|part| daemon.text(&format!("{name}-{part}")));
        match step {
            0 => new.node_stage_volume(&requests::stage(&id, &staging, requests::mount("ext4"))).map(drop),
            1 => new
                .node_publish_volume(&requests::publish(&id, &staging, &target, requests::mount("ext4")))
                .map(drop),
            2 => new.node_unpublish_volume(&requests::unpublish(&id, &target)).map(drop),
            3 => new.node_unstage_volume(&requests::unstage(&id, &staging)).map(drop),
            4 => new.delete_volume(&requests::delete(&id)).map(drop),
            5 => new.controller_publish_volume(&requests::publish_to(&id, "node-1")).map(drop),
            6 => new.controller_unpublish_volume(&requests::unpublish_from(&id, "")).map(drop),
            7 | 8 => old.publish(&v0::publish(&id, &other, mount("ext4"))),
            9 | 10 => old.node_unpublish_volume(&v0::unpublish(&id, &other)).map(drop),
            11 => old.delete_volume(&v0::delete(&id)).map(drop),
            12 => old.controller_publish_volume(&v0::publish_to(&id, "node-1", mount("ext4"))).map(drop),
            _ => old.controller_unpublish_volume(&v0::unpublish_from(&id, "node-1")).map(drop),
        }
    }
}

#[test]
fn a_storm_through_both_ends_in_order() {
    let daemon = Setup::new().set("CEPHLET_LOCK_WAIT", "300s").start();
    thread::scope(|scope| {
        for seed in 0..8_u32 {
            let (new, old, state) =
                (daemon.client(), v0::Client::of(&daemon), seed.wrapping_mul(2_654_435_769));
            let mut storm = Storm { daemon: &daemon, new, old, state };
            scope.spawn(move || storm.blow(if is_full() { 60 } else { 20 }));
        }
    });
    let (new, old) = (daemon.client(), v0::Client::of(&daemon));
    for name in NAMES {
        let id = new
            .create(&requests::volume_as(name, 32 * MIB, requests::mount("ext4")))
            .expect("create")
            .volume_id;
        let [staging, target, other] =
            ["stage", "target", "v0"].map(|part| daemon.text(&format!("{name}-{part}")));
        old.node_unpublish_volume(&v0::unpublish(&id, &other)).expect("unpublish");
        new.node_unpublish_volume(&requests::unpublish(&id, &target)).expect("unpublish");
        new.node_unstage_volume(&requests::unstage(&id, &staging)).expect("unstage");
        old.controller_unpublish_volume(&v0::unpublish_from(&id, "")).expect("take back");
        old.delete_volume(&v0::delete(&id)).expect("delete");
    }
    assert!(images(&daemon.local_dir()).is_empty());
    daemon.assert_node_is_clean();
    daemon.assert_well();
}
