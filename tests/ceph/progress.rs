//! How far rbd(8) itself says it is.

use std::io::Write;

use serde_json::json;

use crate::support::cli::json;
use crate::support::requests::*;
use crate::support::stub::{BEHIND, fifo, install};
use crate::support::{Corner, await_that};

#[test]
fn a_copy_that_is_flattened_tells_how_far_it_is() {
    let corner = Corner::new();
    let setup = corner.setup();
    let tools = setup.scratch.dir("tools");
    let mut go = fifo(&tools.join("go"));
    // What rbd has said stays the last word until the test has seen it.
    let script = format!(
        "#!/bin/sh\nPATH={BEHIND} rbd \"$@\"\nstatus=$?\ncase \"$*\" in *flatten*) read word <{}/go;; esac\nexit $status\n",
        tools.display()
    );
    install(&tools.join("rbd"), &script);
    let daemon = setup.set("CEPHLET_TOOL_PATH", format!("{}:{BEHIND}", tools.display())).start();
    let client = daemon.client();
    let mut chain = vec![client.create(&corner.volume("c0", 8)).expect("create").volume_id];
    let copy = |number: usize, of: &str| from_volume(corner.volume(&format!("c{number}"), 8), of);
    for number in 1..=8 {
        let request = copy(number, &chain[number - 1]);
        chain.push(client.create(&request).expect("copy").volume_id);
    }
    std::thread::scope(|scope| {
        let request = copy(9, &chain[8]);
        let other = daemon.client();
        let deep = scope.spawn(move || other.create(&request).expect("copy").volume_id);
        await_that("rbd has flattened it, and has said so", || match json(&daemon, "jobs") {
            jobs if jobs[0]["percent"] == 100 => Ok(()),
            jobs => Err(jobs.to_string()),
        });
        let jobs = json(&daemon, "jobs");
        assert_eq!((&jobs[0]["operation"], &jobs[0]["subject"]), (&json!("CreateVolume"), &json!("c9")));
        assert!(jobs[0]["step"].as_str().expect("a step").contains(" flatten "), "{jobs}");
        go.write_all(b"go\n").expect("let it go on");
        chain.push(deep.join().expect("the client"));
    });
    chain.iter().for_each(|id| drop(client.delete_volume(&delete(id)).expect("delete")));
    corner.await_empty();
}
