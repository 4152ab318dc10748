//! Two sites on real clusters: the cost of replication beside that of the bare tool for similar work.

use std::thread;
use std::time::Duration;

use crate::figure;
use crate::load::{percentile, timed};
use crate::process::{Started, started_by};
use crate::show;
use crate::support::object_of;
use crate::support::sites::{Site, sites};

/// How often a volume goes to the other site and comes home, in each way.
const ROUNDS: usize = 3;
/// The pause between two attempts while the demotion has not arrived.
const POLL: Duration = Duration::from_millis(100);

/// All figures of replication.
pub fn measure() {
    println!("\n{:<58} {:>14}   should be", "two sites", "measured");
    let sites = sites();
    fail_over(&sites);
    show(&commands(&sites));
}

/// Repeats `done` until it succeeds.
fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::sleep(POLL);
    }
}

fn replicated(main: &Site, backup: &Site, name: &str) -> String {
    let id = main.volume(name, 8).unwrap().volume_id;
    main.enable(&id, &[]).unwrap();
    backup.await_copy(&id);
    id
}

/// An unused volume goes to the other site and comes back, by cephlet's calls and by the bare tool in turns.
/// Most of the time is spent on waiting for the daemons of rbd-mirror.
fn fail_over([main, backup]: &[Site; 2]) {
    let id = replicated(main, backup, "moves");
    let ours = |from: &Site, to: &Site| {
        from.demote(&id, false).unwrap();
        until(|| to.promote(&id, false, &[]).is_ok());
    };
    let theirs = |from: &Site, to: &Site| {
        from.cluster.rbd(&["mirror", "image", "demote", object_of(&id)]);
        let promote = ["mirror", "image", "promote", object_of(&id)];
        until(|| to.cluster.attempt("rbd", &promote).status.success());
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        first.extend(timed(1, |_| ours(main, backup)));
        // A mirror that has not looked while the other site was primary never hears of the demotion.
        main.await_promotion(&id);
        second.extend(timed(1, |_| theirs(backup, main)));
        backup.await_promotion(&id);
        second.extend(timed(1, |_| theirs(main, backup)));
        main.await_promotion(&id);
        first.extend(timed(1, |_| ours(backup, main)));
        backup.await_promotion(&id);
    }
    let (ours, theirs) = (percentile(&first, 50), percentile(&second, 50));
    figure("planned failover of an idle volume, median", format!("{ours:.1} s"), "");
    figure("  the bare tool", format!("{theirs:.1} s"), "");
    figure("  more", format!("{:.1} s", ours - theirs), "≤ 5 s");
}

/// The processes of each rpc.
fn commands([main, backup]: &[Site; 2]) -> Vec<Started> {
    let id = main.volume("counted", 8).unwrap().volume_id;
    let mut found = Vec::new();
    let mut count = |site: &Site, name: &'static str, rpc: &mut dyn FnMut()| {
        found.push(started_by(&site.daemon, name, rpc));
    };
    let every_hour = [("schedulingInterval", "1h")];
    count(main, "EnableVolumeReplication with a schedule", &mut || main.enable(&id, &every_hour).unwrap());
    count(main, "EnableVolumeReplication, again", &mut || main.enable(&id, &every_hour).unwrap());
    backup.await_copy(&id);
    count(main, "GetVolumeReplicationInfo", &mut || drop(main.info(&id).unwrap()));
    count(main, "DemoteVolume", &mut || main.demote(&id, false).unwrap());
    backup.await_demotion(&id);
    count(backup, "PromoteVolume", &mut || backup.promote(&id, false, &[]).unwrap());
    count(backup, "PromoteVolume, again", &mut || backup.promote(&id, false, &[]).unwrap());
    count(backup, "DisableVolumeReplication", &mut || backup.disable(&id, &[]).unwrap());
    found
}
