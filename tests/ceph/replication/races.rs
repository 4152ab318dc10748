//! Two controllers of a site are asked for the same at the same time.

use std::thread;

use super::accepted;
use crate::support::addons::Client;
use crate::support::client::Answer;
use crate::support::sites::{Site, sites};

#[test]
#[ignore = "long: tests/run --full"]
fn what_two_controllers_are_asked_for_at_once_is_done_once() {
    let [main, backup] = sites();
    let others = [&main, &backup].map(Site::another_controller);
    let [at_main, at_backup] =
        [(&main, &others[0]), (&backup, &others[1])].map(|(site, other)| [site.client(), Client::of(other)]);
    let id = main.volume("raced", 8).expect("create").volume_id;
    at_once("enabled", &at_main, |it| it.enable(&id, &[("schedulingInterval", "1h")]));
    backup.await_copy(&id);
    for (byte, from, to, at_from, at_to) in
        [(11, &main, &backup, &at_main, &at_backup), (22, &backup, &main, &at_backup, &at_main)]
    {
        from.fill(&id, 1, byte);
        let written = from.checksum(&id);
        at_once("demoted", at_from, |it| it.demote(&id, false));
        at_once("promoted", at_to, |it| it.promote(&id, false, &[]));
        assert_eq!((from.is_primary(&id), to.is_primary(&id)), (Some(false), Some(true)));
        assert!(to.checksum(&id) == written, "UNSAFE: it is not what was written");
    }
    at_once("disabled", &at_main, |it| it.disable(&id, &[]));
    assert_eq!(main.is_primary(&id), None);
    [&main.daemon, &backup.daemon].into_iter().chain(&others).for_each(|daemon| daemon.assert_well());
}

/// Repeats the call at both controllers until it has succeeded at both.
#[track_caller]
fn at_once(what: &str, controllers: &[Client; 2], act: impl Fn(&Client) -> Answer<()> + Sync) {
    thread::scope(|scope| {
        for controller in controllers {
            scope.spawn(|| accepted(what, || act(controller)));
        }
    });
}
