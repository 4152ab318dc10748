//! A daemon is killed while its commands run: a command that changes the cluster dies with it, a command that
//! formats a volume goes on alone.

use std::sync::Arc;
use std::thread;

use crate::faults::chain::Chain;
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::stub::Hanging;
use crate::support::{Client, Code, Corner, Daemon, Scratch, Setup, await_that, refused};

/// Kills the daemon while the stub's tool runs for the call that `begin` makes.
fn kill_during<T: Send + 'static>(
    daemon: &mut Daemon,
    stub: &Hanging,
    begin: impl FnOnce(Client) -> T + Send + 'static,
) {
    let client = daemon.client();
    let call = thread::spawn(move || drop(begin(client)));
    stub.await_start();
    daemon.kill9();
    call.join().expect("the client");
}

/// The answer, or the refusal as text.
fn told<T>(answer: Answer<T>) -> Result<T, String> {
    answer.map_err(|refused| format!("{refused:?}"))
}

/// Kills the daemon while this tool hangs during the call that `begin` makes for a volume.
#[track_caller]
fn dies_during<T: Send + 'static>(
    tool: &str,
    words: &str,
    begin: impl FnOnce(&Client, &str) -> T + Send + 'static,
) {
    let corner = Corner::new();
    let setup = corner.setup().in_own_session();
    let stub = Hanging::when(&setup.scratch, tool, words);
    let mut daemon = setup.with_tools(stub.tool_path()).set("CEPHLET_TOOL_TIMEOUT", "1h").start();
    let id = daemon.client().create(&corner.volume("one", 8)).expect("create").volume_id;
    kill_during(&mut daemon, &stub, move |client| begin(&client, &id));
    daemon.await_leftovers();
    // From now on no command of the killed daemon can undo anything.
    daemon.restart();
    let made = daemon.client().create(&corner.volume("one", 8)).expect("create it again");
    assert_eq!(corner.info(&made.volume_id)["size"], 8 << 20);
    daemon.assert_well();
}

#[test]
fn a_removal_dies_with_its_daemon() {
    dies_during("rbd", "*' rm '*|'rm '*", |client, id| client.delete_volume(&delete(id)));
}

#[test]
fn a_snapshot_dies_with_its_daemon() {
    dies_during("rbd", "*' snap create '*", |client, id| client.create_snapshot(&snapshot("dies", id)));
}

#[test]
fn a_lock_dies_with_its_daemon() {
    dies_during("rados", "*' lock get '*", |client, id| {
        client.controller_publish_volume(&publish_to(id, "node-1"))
    });
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_flatten_dies_with_its_daemon_and_the_copy_is_begun_again() {
    let corner = Corner::new();
    let setup = corner.setup().in_own_session();
    let stub = Hanging::when(&setup.scratch, "rbd", "*' flatten '*");
    let mut daemon = setup.with_tools(stub.tool_path()).start();
    let chain = Chain::grow(&corner, &daemon.client());
    let (sum, request) = (corner.checksum(&chain.volumes[0]), chain.request("copy"));
    let same = request.clone();
    kill_during(&mut daemon, &stub, move |client| client.create(&same));
    daemon.await_leftovers();
    assert!(corner.images().iter().any(|name| name.starts_with("csi-tmp-")), "it was not being made");

    daemon.restart();
    let client = daemon.client();
    let copy = client.create(&request).expect("copy").volume_id;
    assert!(corner.info(&copy)["parent"].is_null(), "it has too many parents");
    assert_eq!(corner.checksum(&copy), sum, "UNSAFE: a copy has lost data");
    client.delete_volume(&delete(&copy)).expect("delete");
    chain.delete(&client);
    corner.await_empty();
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_same_request_waits_while_a_copy_is_flattened() {
    let corner = Corner::new();
    let setup = corner.setup();
    let stub = Hanging::when(&setup.scratch, "rbd", "*' flatten '*");
    let daemon = setup.with_tools(stub.tool_path()).start();
    let client = daemon.client();
    let chain = Chain::grow(&corner, &client);
    let request = chain.request("copy");
    let create = || client.create(&request).expect("copy").volume_id;
    let ids = thread::scope(|scope| {
        let first = scope.spawn(create);
        stub.await_start();
        let second = scope.spawn(create);
        // A call that needs the source does not wait.
        client.create_snapshot(&snapshot("meanwhile", chain.volumes.last().expect("one"))).expect("snapshot");
        stub.release();
        [first, second].map(|call| call.join().expect("the client"))
    });
    assert_eq!(ids[0], ids[1]);
    assert_eq!(daemon.log.text().matches(": flattening csi-tmp-").count(), 1, "it was copied twice");
}

#[test]
fn a_formatting_that_goes_on_is_left_alone() {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let setup = Setup::within(scratch).with_tools(stub.tool_path());
    let mut daemon = setup.start();
    let id = daemon.client().create(&volume("one")).expect("create").volume_id;
    let request = stage(&id, &daemon.text("stage"), mount("ext4"));
    let same = request.clone();
    kill_during(&mut daemon, &stub, move |client| client.node_stage_volume(&same));

    daemon.restart();
    let client = daemon.client();
    let earlier = ["still being formatted by a command of an earlier cephlet", "formatting-locks"];
    refused(client.node_stage_volume(&request), Code::UNAVAILABLE, &earlier);
    refused(client.node_unstage_volume(&unstage(&id, &daemon.text("stage"))), Code::UNAVAILABLE, &earlier);
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &[&id]);
    let other = client.create(&volume("other")).expect("another volume").volume_id;
    client.node_stage_volume(&stage(&other, &daemon.text("other"), mount("ext4"))).expect("is not held up");

    // The formatting is never killed, however long it takes: it ends by itself.
    stub.release();
    await_that("the formatting is over", || told(client.node_stage_volume(&request)));
    daemon.assert_well();
}
