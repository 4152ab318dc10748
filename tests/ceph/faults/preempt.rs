//! A flattening that goes on for long is ended for those who want the image, and does not outlive the daemon.
//! On a cluster that forgets a dead client as late as Ceph does by default: this is how long one waits for it
//! in earnest.

use std::time::{Duration, Instant};

use super::chain::Chain;
use crate::support::cluster::patient_cluster;
use crate::support::requests::*;
use crate::support::stub::{BEHIND, fifo, install};
use crate::support::{Corner, Daemon, await_that};

/// A daemon whose flattenings have the image open, and go on for ever.
fn start(corner: &Corner) -> Daemon {
    let setup = corner.setup().in_own_session();
    let (directory, endless) = (setup.scratch.dir("scripts"), setup.scratch.path("endless"));
    drop(fifo(&endless));
    let script = format!(
        "#!/bin/bash\n\
         PATH={BEHIND}\n\
         case \" $* \" in *' flatten '*)\n\
         words=()\n\
         for word; do case $word in flatten) words+=(watch) ;; --no-progress) ;; *) words+=(\"$word\") ;; esac; done\n\
         exec rbd \"${{words[@]}}\" 0<>{} ;;\n\
         esac\n\
         exec rbd \"$@\"\n",
        endless.display()
    );
    install(&directory.join("rbd"), &script);
    setup.set("CEPHLET_TOOL_PATH", format!("{}:{BEHIND}", directory.display())).start()
}

/// Waits until a copy is flattened, the `number`-th of this daemon: commands that prepare that have it open,
/// too.
fn await_flattening(daemon: &Daemon, number: usize, corner: &Corner, id: &str) {
    daemon.log.await_lines(" feature enable ", number);
    await_that("it is flattened", || match corner.status(id)["watchers"].as_array() {
        Some(watchers) if !watchers.is_empty() => Ok(()),
        watchers => Err(format!("{watchers:?}")),
    });
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_flattening_is_preempted_by_a_single_writer_and_dies_with_the_daemon() {
    let corner = Corner::of(patient_cluster());
    let mut daemon = start(&corner);
    let client = daemon.client();
    let chain = Chain::grow(&corner, &client);
    let published = chain.copy(&client, "published");
    await_flattening(&daemon, 1, &corner, &published);
    let begun = Instant::now();
    client
        .controller_publish_volume(&publish_to(&published, "node-1"))
        .expect("its client is dead, and waited for");
    assert!(begun.elapsed() > Duration::from_secs(20), "forgotten after {:?}", begun.elapsed());

    let elsewhere = chain.copy(&client, "elsewhere");
    await_flattening(&daemon, 2, &corner, &elsewhere);
    let other = corner.setup_of(2).start();
    other
        .client()
        .controller_publish_volume(&publish_to(&elsewhere, "node-2"))
        .expect("the first controller sees that another one needs it");

    let flattened = chain.copy(&client, "flattened");
    await_flattening(&daemon, 3, &corner, &flattened);
    daemon.kill9();
    daemon.await_leftovers();
}
