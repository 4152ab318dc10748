//! Mirroring: the command lines, and what the answers mean.

use super::*;
use crate::backend::MirroringMode;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::*;
use crate::backend::replication::Schedule;
use crate::error::Kind;

#[test]
fn an_image_says_its_part() {
    let it = Fixture::new();
    let info = |mirroring: &str| {
        let text =
            format!("{{\"name\":\"web\",\"id\":\"1f\",\"size\":4096,\"object_size\":4194304{mirroring}}}");
        it.prints("rbd info --format=json --pool=vms --image=web", &text);
        it.at().info(ImageRef::Name("web")).unwrap().unwrap()
    };
    let part = |mirroring: &str| {
        let found = info(&format!(",\"mirroring\":{{{mirroring}}}"));
        found.mirroring.map(|it| (it.mode, it.state, it.primary, it.is_primary(), it.is_secondary()))
    };
    use MirrorState::*;
    use MirroringMode::*;
    let text = "\"mode\":\"snapshot\",\"state\":\"enabled\",\"global_id\":\"84b9\",\"primary\":true";
    assert_eq!(part(text), Some((Snapshot, Enabled, true, true, false)));
    let text = "\"mode\":\"journal\",\"state\":\"enabled\",\"global_id\":\"84b9\",\"primary\":false";
    assert_eq!(part(text), Some((Journal, Enabled, false, false, true)));
    let text = "\"mode\":\"snapshot\",\"state\":\"disabling\",\"primary\":false";
    assert_eq!(part(text), Some((Snapshot, Disabling, false, false, false)), "it was a primary perhaps");
    assert_eq!(part("\"mode\":\"journal\",\"state\":\"disabled\""), None);
    assert_eq!(info("").mirroring, None);
}

#[test]
fn a_pool_says_which_images_are_mirrored() {
    let it = Fixture::new();
    let line = "rbd mirror pool info --format=json --pool=vms";
    for (printed, scope) in [
        ("{\"mode\":\"disabled\"}", MirrorScope::Nothing),
        ("{\"mode\":\"image\",\"site_name\":\"site-a\",\"peers\":[]}", MirrorScope::Alone),
        ("{\"mode\":\"image\",\"peers\":[{\"site_name\":\"b\"}]}", MirrorScope::Images),
        ("{\"mode\":\"pool\",\"peers\":[{\"site_name\":\"b\"}]}", MirrorScope::Pool),
    ] {
        it.prints(line, printed);
        assert_eq!(it.at().mirror_pool().unwrap(), scope);
    }
    it.fails(line, 2, NO_POOL);
    assert_eq!(it.at().mirror_pool().unwrap_err().kind(), Kind::Precondition);
}

#[test]
fn statuses_are_read_and_what_is_not_mirrored_has_none() {
    let it = Fixture::new();
    let line = "rbd mirror image status --format=json --pool=vms --image=web";
    it.prints(line, &recorded::text("healthy-primary"));
    let status = it.at().mirror_status("web").unwrap().unwrap();
    assert!(status.own.is_primary() && status.own.site.is_empty());
    let [peer] = status.peers.as_slice() else { panic!("{status:?}") };
    assert_eq!((peer.site.as_str(), peer.is_up, peer.replay), ("site-b", true, Replay::Replaying));
    assert_eq!((peer.description.as_str(), peer.progress.bytes), ("replaying", Some(0)));
    it.fails(line, 22, "rbd: mirroring not enabled on the image\n");
    assert_eq!(it.at().mirror_status("web").unwrap(), None);
    it.fails(line, 2, NO_IMAGE);
    assert_eq!(it.at().mirror_status("web").unwrap(), None);
}

#[test]
fn changes_are_typed_with_options() {
    let it = Fixture::new();
    it.prints("rbd ~ mirror image enable --pool=vms --image=web snapshot", "Mirroring enabled\n");
    it.at().enable_mirroring("web", MirroringMode::Snapshot).unwrap();
    assert!(it.was(Class::Change));
    it.prints("rbd ~ mirror image disable --pool=vms --namespace=team --image=-x", "");
    it.team().disable_mirroring("-x", false).unwrap();
    it.prints("rbd ~ mirror image demote --pool=vms --image=web", "");
    it.at().demote("web").unwrap();
    it.prints("rbd ~ mirror image resync --pool=vms --image=web", "");
    it.at().request_resync("web").unwrap();
    it.fails(
        "rbd ~ mirror image disable --pool=vms --image=web",
        16,
        "mirroring is enabled on one or more children\n",
    );
    let error = it.at().disable_mirroring("web", false).unwrap_err();
    assert!(error.kind() == Kind::Precondition && error.message().contains("clones"), "{error}");
    assert!(it.at().demote("a/b").is_err(), "rbd would take it for another image");
}

#[test]
fn a_promotion_says_whether_the_peer_is_primary() {
    let it = Fixture::new();
    let line = "rbd ~ mirror image promote --pool=vms --image=web";
    it.prints(line, "Image promoted to primary\n");
    assert_eq!(it.at().promote("web").unwrap(), Promoted::Done);
    let refused = "image is primary within a remote cluster or demotion is not propagated yet\n";
    it.fails(line, 16, refused);
    assert_eq!(it.at().promote("web").unwrap(), Promoted::PeerIsPrimary);
    for (status, kind) in [(22, Kind::Internal), (30, Kind::Unavailable)] {
        it.fails(line, status, "failed to promote image\n");
        assert_eq!(it.at().promote("web").unwrap_err().kind(), kind);
    }
}

/// A promotion that is broken off would leave an image that mixes two states. So neither the command nor any
/// of its operations has a deadline.
#[test]
fn what_promotes_by_force_has_no_deadline() {
    let it = Fixture::new();
    for word in ["promote", "disable"] {
        it.prints(&format!("rbd mirror image {word} --force --pool=vms --namespace=team --image=web"), "");
        match word {
            "promote" => it.team().promote_by_force("web").unwrap(),
            _ => it.team().disable_mirroring("web", true).unwrap(),
        }
        assert!(it.was(Class::Unbounded));
        assert!(!it.last().to_string().contains("timeout=40"), "UNSAFE: {}", it.last());
        assert!(!it.team().is_promoted_by_force("web").unwrap(), "it is over");
    }
}

/// What Ceph 16.2 has printed after demotions that were killed at different moments.
#[test]
fn a_journal_says_whether_a_demotion_was_written_into_it() {
    let it = Fixture::new();
    let keys = "rados --pool=vms listomapkeys journal.10eaba2fcb04";
    let status = "rbd journal status --format=json --pool=vms --image=web";
    let peer = "{\"id\":\"ba21\",\"data\":\"00\",\"commit_position\":{\"object_positions\":[{\"object_number\":0,\"tag_tid\":\
                9,\"entry_tid\":1}]},\"state\":\"connected\"}";
    for (positions, is_bare) in [
        ("", true),
        (
            "{\"object_number\":3,\"tag_tid\":1,\"entry_tid\":3},{\"object_number\":2,\"tag_tid\":1,\"entry_tid\":2}",
            true,
        ),
        (
            "{\"object_number\":3,\"tag_tid\":1,\"entry_tid\":3},{\"object_number\":0,\"tag_tid\":2,\"entry_tid\":0}",
            false,
        ),
    ] {
        it.prints(keys, "client_\ntag_0000000000000001\ntag_0000000000000002\n");
        let own = format!(
            "{{\"id\":\"\",\"data\":\"00\",\"commit_position\":{{\"object_positions\":[{positions}]}}}}"
        );
        let clients = format!("{{\"minimum_set\":0,\"active_set\":0,\"registered_clients\":[{peer},{own}]}}");
        it.prints(status, &clients);
        assert_eq!(it.at().has_bare_tag("web", "10eaba2fcb04").unwrap(), is_bare, "{positions}");
    }
    it.fails(keys, 1, "error getting omap key set vms/journal.10eaba2fcb04: (2) No such file or directory\n");
    assert!(!it.at().has_bare_tag("web", "10eaba2fcb04").unwrap());
}

#[test]
fn schedules_are_set_and_read() {
    let it = Fixture::new();
    let schedule = |minutes, start: Option<&str>| Schedule { minutes, start: start.map(str::to_string) };
    let nightly = schedule(1440, Some("02:00:00+00:00"));
    it.prints("rbd ~ mirror snapshot schedule add --pool=vms --image=web 1d 02:00:00+00:00", "");
    it.at().add_schedule("web", &nightly).unwrap();
    it.prints("rbd ~ mirror snapshot schedule remove --pool=vms --image=web 5m", "");
    it.at().remove_schedule("web", Some(&schedule(5, None))).unwrap();
    it.prints("rbd ~ mirror snapshot schedule remove --pool=vms --image=web", "");
    it.at().remove_schedule("web", None).unwrap();
    let never_had_one = "rbd: rbd mirror snapshot schedule remove failed: (2) No such file or directory: [errno 2] \
                         RADOS object not found (Failed to operate write op for oid rbd_mirror_snapshot_schedule)\n";
    it.fails("rbd ~ mirror snapshot schedule remove --pool=vms --image=web", 2, never_had_one);
    it.at().remove_schedule("web", None).unwrap();
    let line = "rbd mirror snapshot schedule ls --pool=vms --image=web --format=json";
    let rows = "[{\"interval\":\"1d\",\"start_time\":\"02:00:00+00:00\"},{\"interval\":\"5m\",\"start_time\":\"\"},\
                {\"interval\":\"0d\",\"start_time\":\"\"}]";
    it.prints(line, rows);
    assert_eq!(it.at().schedules("web").unwrap(), [nightly, schedule(5, None)]);
    it.fails(line, 2, "");
    assert_eq!(it.at().schedules("web").unwrap(), [], "there is none");
    it.fails(line, 2, "rbd: couldn't connect to the cluster!\n");
    assert_eq!(it.at().schedules("web").unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn parts_are_listed_as_far_as_they_are_known() {
    let it = Fixture::new();
    let line = "rbd mirror pool status --verbose --format=json --pool=vms";
    let images =
        ["healthy-primary", "healthy-secondary", "first-copy-secondary", "both-demoted", "no-peer-primary"];
    let images = images.map(recorded::text).join(",");
    it.prints(line, &format!("{{\"summary\":{{}},\"images\":[{images}]}}"));
    let roles: Vec<Option<bool>> =
        it.at().mirrored_images().unwrap().into_iter().map(|(_, role)| role).collect();
    assert_eq!(roles, [Some(true), Some(false), Some(false), Some(false), None]);
    it.fails(line, 22, "rbd: mirroring not enabled on the pool\n");
    assert_eq!(it.at().mirrored_images().unwrap(), []);
}

#[test]
fn daemons_are_those_who_watch_the_pool() {
    let it = Fixture::new();
    let line = "rados --pool=vms listwatchers rbd_mirroring";
    it.prints(line, "watcher=10.0.0.7:0/1 client.4145 cookie=1\nwatcher=10.0.0.7:0/1 client.4145 cookie=2\n");
    assert_eq!(it.at().mirror_daemons().unwrap(), ["client.4145".to_string()].into());
    it.fails(line, 1, "error listing watchers vms/rbd_mirroring: (2) No such file or directory\n");
    assert!(it.at().mirror_daemons().unwrap().is_empty());
}
