//! Daemons that are killed in the middle of a step.

use rustix::process::Signal;

use super::accepted;
use crate::support::Failure;
use crate::support::sites::{Site, sites};

#[test]
#[ignore = "long: tests/run --full"]
fn a_daemon_that_is_killed_is_asked_again() {
    each_step_is_killed(&[("schedulingInterval", "1h")]);
}

/// The daemon is killed in the middle of each step of a volume that is replicated so, and the step is asked
/// for again.
pub fn each_step_is_killed(parameters: &[(&str, &str)]) {
    let [mut main, mut backup] = sites();
    let id = main.volume("killed", 8).expect("create").volume_id;
    main.fill(&id, 1, 11);
    killed(&mut main, |it| it.enable(&id, parameters));
    accepted("the copy arrives", || main.destination(&id));
    main.fill(&id, 1, 22);
    let written = main.checksum(&id);
    killed(&mut main, |it| it.demote(&id, false));
    killed(&mut backup, |it| it.promote(&id, false, &[]));
    assert!(backup.checksum(&id) == written, "UNSAFE: it is not what was written");
    backup.fill(&id, 1, 33);
    let written = backup.checksum(&id);
    killed(&mut backup, |it| it.demote(&id, false));
    killed(&mut main, |it| it.promote(&id, false, &[]));
    assert!(main.checksum(&id) == written, "UNSAFE: it is not what was written");
    killed(&mut main, |it| it.disable(&id, &[]));
    assert_eq!(main.is_primary(&id), None);
}

/// Does something whose daemon is killed while it does so, at one moment after another, until it is done.
#[track_caller]
pub fn killed(site: &mut Site, act: impl Fn(&Site) -> Result<(), Failure> + Sync) {
    for pause in [10, 40, 80, 120] {
        let (daemon, site_now) = (&site.daemon, &*site);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| act(site_now).is_ok());
            std::thread::sleep(std::time::Duration::from_millis(pause));
            daemon.signal(Signal::KILL);
            asked.join().expect("a client");
        });
        site.daemon.wait();
        site.daemon.restart();
    }
    accepted("it is done at last", || act(site));
}
