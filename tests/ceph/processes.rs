//! How many programs each call starts: a process costs 26 ms and 35 MB.

use crate::support::requests::*;
use crate::support::{Client, Corner, Daemon, MIB};

/// A daemon whose tools are counted.
pub(crate) struct Counted {
    daemon: Daemon,
    client: Client,
}

impl Counted {
    fn start(corner: &Corner) -> Self {
        Self::of(corner.start())
    }

    pub(crate) fn of(daemon: Daemon) -> Self {
        // Calls need not ask for what the sweep at the start has learnt.
        daemon.log.await_lines(" trash ls ", 1);
        let client = daemon.client();
        Self { daemon, client }
    }

    /// Runs a call; it may start no fewer and no more programs.
    #[track_caller]
    pub(crate) fn costs<T>(
        &self,
        range: std::ops::RangeInclusive<usize>,
        what: &str,
        call: impl FnOnce(&Client) -> T,
    ) -> T {
        let (answer, line) = self.logged(call);
        // This line has the call's number, and so have the lines of the call's programs, which distinguishes
        // them from those of the background.
        let number = line.split_whitespace().nth(2).expect("the call's number");
        let started = self.daemon.log.lines_with(&format!("call {number}: `"));
        let count = started.iter().filter(|line| line.contains("` took ")).count();
        assert!(range.contains(&count), "{what} takes {count}, not {range:?}:\n{}", started.join("\n"));
        answer
    }

    /// Runs a call, whatever it costs.
    pub(crate) fn run<T>(&self, call: impl FnOnce(&Client) -> T) -> T {
        self.logged(call).0
    }

    /// Runs a call; gives its line in the log, too, which comes after the answer.
    fn logged<T>(&self, call: impl FnOnce(&Client) -> T) -> (T, String) {
        let earlier = self.daemon.log.lines_with(" /csi.v1.").len();
        let answer = call(&self.client);
        (answer, self.daemon.log.await_lines(" /csi.v1.", earlier + 1).swap_remove(earlier))
    }
}

#[test]
fn volumes_are_cheap() {
    let corner = Corner::new();
    let counted = Counted::start(&corner);
    let request = corner.volume("one", 8);
    let made = counted.costs(1..=3, "create", |client| client.create(&request)).expect("create");
    let id = &made.volume_id;
    counted.costs(1..=2, "the same creation", |client| client.create(&request)).expect("again");
    counted
        .costs(1..=2, "expand", |client| client.controller_expand_volume(&expand(id, 16 * MIB)))
        .expect("expand");
    counted
        .costs(1..=2, "expand again", |client| client.controller_expand_volume(&expand(id, 16 * MIB)))
        .expect("again");
    // The first list learns of pools and namespaces.
    counted.run(|client| client.list_volumes(&page(0, ""))).expect("list");
    let listed = counted.costs(1..=1, "list", |client| client.list_volumes(&page(0, "")));
    assert_eq!(listed.expect("list").entries.len(), 1);
    counted.costs(1..=3, "delete", |client| client.delete_volume(&delete(id))).expect("delete");
    counted.costs(0..=3, "delete again", |client| client.delete_volume(&delete(id))).expect("again");
    let large = counted
        .costs(1..=3, "create", |client| client.create(&corner.volume("large", 8 << 10)))
        .expect("create");
    counted
        .costs(1..=7, "delete a large one", |client| client.delete_volume(&delete(&large.volume_id)))
        .expect("delete");
}

#[test]
fn the_daemon_that_did_not_make_a_volume_asks_once_more() {
    let corner = Corner::new();
    let maker = corner.start();
    let request = corner.volume("one", 8);
    let made = maker.client().create(&request).expect("create");
    let counted = Counted::start(&corner);
    // The call reads the pool's options, fails to make the image, looks at it, and reads its record.
    counted.costs(1..=4, "the same creation elsewhere", |client| client.create(&request)).expect("again");
    counted.costs(1..=2, "once more", |client| client.create(&request)).expect("again");
    counted.costs(1..=3, "delete", |client| client.delete_volume(&delete(&made.volume_id))).expect("delete");
    drop(maker);
    assert!(counted.daemon.client().is_ready());
}

#[test]
fn snapshots_and_publications_are_cheap() {
    let corner = Corner::new();
    let counted = Counted::start(&corner);
    let id = counted.run(|client| client.create(&corner.volume("one", 8))).expect("create").volume_id;
    let taken = counted
        .costs(2..=4, "snapshot", |client| client.create_snapshot(&snapshot("cheap", &id)))
        .expect("snapshot");
    counted
        .costs(1..=2, "the same snapshot", |client| client.create_snapshot(&snapshot("cheap", &id)))
        .expect("again");
    let taken = taken.snapshot.snapshot_id.clone();
    let copy = from_snapshot(corner.volume("copy", 8), &taken);
    counted.costs(2..=7, "copy", |client| client.create(&copy)).expect("copy");
    counted.costs(1..=2, "the same copy", |client| client.create(&copy)).expect("again");
    counted
        .costs(1..=7, "publish", |client| client.controller_publish_volume(&publish_to(&id, "node-1")))
        .expect("publish");
    counted
        .costs(1..=3, "the same", |client| client.controller_publish_volume(&publish_to(&id, "node-1")))
        .expect("again");
    // The lock that kept others away goes, too. Then the call looks for clients of nodes, and for the owner
    // of the image's lock, as no node with Ceph's tools has ever mapped it.
    counted
        .costs(1..=5, "unpublish", |client| {
            client.controller_unpublish_volume(&unpublish_from(&id, "node-1"))
        })
        .expect("back");
    counted
        .costs(1..=4, "delete snapshot", |client| client.delete_snapshot(&delete_snapshot(&taken)))
        .expect("delete");
    counted
        .costs(1..=8, "delete one that a copy needs", |client| client.delete_volume(&delete(&id)))
        .expect("delete");
}

#[test]
fn a_probe_starts_nothing() {
    let corner = Corner::new();
    let counted = Counted::start(&corner);
    counted.costs(0..=0, "probe", |client| assert!(client.is_ready()));
    counted
        .costs(0..=0, "an ID of nobody's", |client| client.delete_volume(&delete("x")))
        .expect("it never was");
}
