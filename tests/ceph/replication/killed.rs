//! Daemons that are killed in the middle of a step.

use std::time::Duration;

use rustix::process::Signal;

use super::accepted;
use crate::support::log::Log;
use crate::support::sites::{Site, sites};
use crate::support::{Failure, object_of};

#[test]
#[ignore = "long: tests/run --full"]
fn a_daemon_that_is_killed_is_asked_again() {
    each_step_is_killed(&[("schedulingInterval", "1h")]);
}

/// The daemon is killed in the middle of each step of a volume that is replicated with these parameters, and
/// the step is asked for again.
pub fn each_step_is_killed(parameters: &[(&str, &str)]) {
    let [mut main, mut backup] = sites();
    let id = main.volume("killed", 8).expect("create").volume_id;
    main.fill(&id, 1, 11);
    killed(&mut main, &id, |it| it.enable(&id, parameters));
    accepted("the copy arrives", || main.destination(&id));
    main.fill(&id, 1, 22);
    let written = main.checksum(&id);
    killed(&mut main, &id, |it| it.demote(&id, false));
    killed(&mut backup, &id, |it| it.promote(&id, false, &[]));
    assert!(backup.checksum(&id) == written, "UNSAFE: it is not what was written");
    backup.fill(&id, 1, 33);
    let written = backup.checksum(&id);
    killed(&mut backup, &id, |it| it.demote(&id, false));
    killed(&mut main, &id, |it| it.promote(&id, false, &[]));
    assert!(main.checksum(&id) == written, "UNSAFE: it is not what was written");
    killed(&mut main, &id, |it| it.disable(&id, &[]));
    assert_eq!(main.is_primary(&id), None);
}

/// Repeats `act` until it is done, and kills the daemon meanwhile: once one of the commands for the volume
/// has ended, then once two have, and so on.
#[track_caller]
pub fn killed(site: &mut Site, id: &str, act: impl Fn(&Site) -> Result<(), Failure> + Sync) {
    for count in 1..=4 {
        let (daemon, site_now) = (&site.daemon, &*site);
        let ended = || commands(&daemon.log, id);
        let before = ended();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| act(site_now).is_ok());
            while ended() < before + count && !asked.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            daemon.signal(Signal::KILL);
            asked.join().expect("a client");
        });
        site.daemon.wait();
        site.daemon.restart();
    }
    accepted("it is done at last", || act(site));
}

/// How many commands about a volume have ended.
fn commands(log: &Log, id: &str) -> usize {
    log.lines_with("` took ").iter().filter(|line| line.contains(object_of(id))).count()
}
