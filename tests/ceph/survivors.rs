//! Commands that outlive their daemon, which was killed: nothing is begun that they could undo.

use std::sync::Arc;
use std::thread;

use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::stub::Hanging;
use crate::support::{Client, Code, Corner, Daemon, Scratch, Setup, await_that, refused};

/// Kills the daemon while the stub's tool runs for the call that `begin` makes, and starts another one.
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
    daemon.restart();
}

/// The answer, or the refusal in words.
fn told<T>(answer: Answer<T>) -> Result<T, String> {
    answer.map_err(|refused| format!("{refused:?}"))
}

#[test]
fn a_formatting_that_goes_on_holds_up_its_volume_alone() {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let setup = Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path());
    let mut daemon = setup.set("CEPHLET_LOCK_WAIT", "1s").start();
    let id = daemon.client().create(&volume("one")).expect("create").volume_id;
    let request = stage(&id, &daemon.text("stage"), mount("ext4"));
    let same = request.clone();
    kill_during(&mut daemon, &stub, move |client| client.node_stage_volume(&same));

    let client = daemon.client();
    let earlier = ["`mkfs.ext4", "of an earlier daemon (process "];
    refused(client.node_stage_volume(&request), Code::ABORTED, &earlier);
    refused(client.delete_volume(&delete(&id)), Code::ABORTED, &earlier);
    let other = client.create(&volume("other")).expect("another volume").volume_id;
    client.node_stage_volume(&stage(&other, &daemon.text("other"), mount("ext4"))).expect("is not held up");

    // Never killed, however long it takes: it ends by itself.
    stub.release();
    await_that("the formatting is over", || told(client.node_stage_volume(&request)));
    daemon.assert_well();
}

/// A daemon on a cluster whose first `rbd rm` hangs; it was killed meanwhile.
fn with_a_hanging_removal(corner: &Corner, tool_timeout: &str) -> (Daemon, Hanging) {
    let setup = corner.setup();
    let stub = Hanging::when(&setup.scratch, "rbd", "*' rm '*|'rm '*");
    let setup = setup.set("CEPHLET_TOOL_PATH", stub.tool_path()).set("CEPHLET_TOOL_TIMEOUT", tool_timeout);
    let mut daemon = setup.set("CEPHLET_LOCK_WAIT", "2s").start();
    let id = daemon.client().create(&corner.volume("one", 8)).expect("create").volume_id;
    kill_during(&mut daemon, &stub, move |client| client.delete_volume(&delete(&id)));
    (daemon, stub)
}

#[test]
fn nothing_is_made_that_a_removal_of_an_earlier_daemon_would_remove() {
    let corner = Corner::new();
    let (daemon, stub) = with_a_hanging_removal(&corner, "1h");
    let client = daemon.client();
    refused(client.create(&corner.volume("one", 8)), Code::ABORTED, &[" rm ", "of an earlier daemon"]);
    client.create(&corner.volume("other", 8)).expect("another volume is not held up");
    stub.release();
    let made = await_that("the removal is over", || told(client.create(&corner.volume("one", 8))));
    assert_eq!(corner.info(&made.volume_id)["size"], 8 << 20, "the removal came before");
    daemon.assert_well();
}

#[test]
fn what_outlives_its_deadline_is_ended() {
    let corner = Corner::new();
    // Every other command of both daemons has that time, too, and must not need it.
    let (daemon, _stub) = with_a_hanging_removal(&corner, "30s");
    let made = await_that("it was killed", || told(daemon.client().create(&corner.volume("one", 8))));
    assert_eq!(corner.info(&made.volume_id)["size"], 8 << 20);
    daemon.log.await_lines("of an earlier daemon (process", 2);
    daemon.assert_well();
}
