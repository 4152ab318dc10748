//! Volumes that are mirrored between two clusters, with a controller at each.

mod drill;
mod journal;
mod killed;
mod races;

use cephlet::proto::replication as wire;
use drill::replicated;
use grpcio::RpcStatusCode as Code;

use crate::support::addons;
use crate::support::requests::{delete, map, page, publish_to, unpublish_from};
use crate::support::sites::{Site, sites, sites_with};
use crate::support::stub::Hanging;
use crate::support::{Failure, await_that, object_of, refused};

/// Repeats a call until it is not refused.
#[track_caller]
fn accepted<T>(what: &str, call: impl Fn() -> Result<T, Failure>) -> T {
    await_that(what, || {
        call().map_err(|refused| {
            assert_ne!(refused.code, Code::INTERNAL, "{what}: {}", refused.message);
            refused.message
        })
    })
}

/// An unused volume moves from one site to the other, with the data that was written last.
#[track_caller]
fn fail_over(from: &Site, to: &Site, id: &str, byte: u8) {
    from.fill(id, 1, byte);
    let before = from.checksum(id);
    accepted("the other site follows", || from.demote(id, false));
    from.demote(id, false).expect("once more");
    accepted("the demotion arrives", || to.promote(id, false, &[]));
    to.promote(id, false, &[]).expect("once more");
    assert_eq!((from.is_primary(id), to.is_primary(id)), (Some(false), Some(true)));
    assert!(to.checksum(id) == before, "UNSAFE: it is not what was written");
}

fn roles(site: &Site) -> Vec<Option<String>> {
    let listed = site.daemon.client().list_volumes(&page(0, "")).expect("list");
    let role =
        |volume: &cephlet::proto::csi_v1::Volume| volume.volume_context.get("replicationRole").cloned();
    listed.entries.iter().map(|entry| role(&entry.volume)).collect()
}

/// At the other site a volume is found by either name, and is not changed.
#[track_caller]
fn is_left_alone(backup: &Site, id: &str) {
    let there = backup.daemon.client();
    for name in [id, &id.replacen("rbd:main:", "rbd:backup:", 1)] {
        let awaited = ["secondary", "delete that volume there, or disable its replication there"];
        refused(there.delete_volume(&delete(name)), Code::FAILED_PRECONDITION, &awaited);
        refused(
            there.controller_publish_volume(&publish_to(name, "node-1")),
            Code::FAILED_PRECONDITION,
            &["promote it first"],
        );
    }
    refused(backup.promote(id, false, &[]), Code::UNAVAILABLE, &["not yet", "demote it there"]);
}

/// The copy is deleted once the first site has disabled the replication and the rbd-mirror of the second one
/// has heard of that.
#[track_caller]
fn goes_with_its_primary(main: &Site, backup: &Site, id: &str) {
    let there = backup.daemon.client();
    let paused = backup.cluster.pause("rbd-mirror");
    main.disable(id, &[]).expect("disable");
    main.disable(id, &[]).expect("once more");
    refused(there.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &["the rbd-mirror here"]);
    drop(paused);
    accepted("the copy goes", || there.delete_volume(&delete(id)));
    assert_eq!(backup.image(id), None);
    let by_its_other_name = id.replacen("rbd:main:", "rbd:backup:", 1);
    there.delete_volume(&delete(&by_its_other_name)).expect("delete");
}

#[test]
fn a_volume_goes_to_the_other_site_and_comes_home() {
    let [main, backup] = sites();
    let id = main.volume("moves", 8).expect("create").volume_id;
    let (client, name) = (main.daemon.client(), object_of(&id).to_string());
    refused(main.promote(&id, false, &[]), Code::FAILED_PRECONDITION, &["not replicated"]);
    refused(main.info(&id), Code::FAILED_PRECONDITION, &["replication enable"]);
    for wrong in [("schedulingInterval", "0m"), ("mirroringMode", "pool"), ("schedulinginterval", "1h")] {
        refused(main.enable(&id, &[wrong]), Code::INVALID_ARGUMENT, &[wrong.0]);
    }
    for _ in 0..2 {
        main.enable(&id, &[("schedulingInterval", "1h")]).expect("enable");
    }
    refused(main.enable(&id, &[("mirroringMode", "journal")]), Code::FAILED_PRECONDITION, &["snapshot"]);
    backup.await_copy(&id);
    assert_ne!(backup.image(&id).expect("the copy")["id"], main.image(&id).expect("the volume")["id"]);

    backup.await_word_of_primary(&id);
    is_left_alone(&backup, &id);
    assert_eq!(roles(&main), [Some("primary".to_string())]);
    assert_eq!(roles(&backup), [Some("secondary".to_string())]);
    accepted("it goes with its primary", || backup.disable(&id, &[]));

    // A volume is not demoted while a node has it.
    client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    refused(main.demote(&id, false), Code::FAILED_PRECONDITION, &["\"node-1\""]);
    client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");

    fail_over(&main, &backup, &id, 11);
    let abroad = id.replacen("rbd:main:", "rbd:backup:", 1);
    assert_eq!(accepted("the site answers", || main.destination(&id)), abroad, "the first id goes with it");
    assert_eq!(accepted("the site answers", || backup.destination(&abroad)), id);
    let schedules = ["mirror", "snapshot", "schedule", "ls", "--pool", "rbd", "--image", &name];
    assert!(backup.cluster.rbd(&schedules).contains("every 1h"), "the schedule goes with it");
    let there = backup.daemon.client();
    there.controller_publish_volume(&publish_to(&id, "node-2")).expect("it is for writing there now");
    there.controller_unpublish_volume(&unpublish_from(&id, "node-2")).expect("unpublish");
    fail_over(&backup, &main, &id, 22);
    // Until then the copy belongs to no primary, and would stay if the replication were disabled.
    backup.await_promotion(&id);

    goes_with_its_primary(&main, &backup, &id);
    client.delete_volume(&delete(&id)).expect("delete");
    for site in [&main, &backup] {
        for user in ["cephlet", "admin"] {
            assert!(!site.daemon.log.text().contains(&site.cluster.key(user)), "UNSAFE: a key was logged");
        }
        site.daemon.assert_well();
    }
}

/// The rbd-mirror of the second site, which would remove the copy, never runs again.
#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_is_deleted_without_rbd_mirror_once_its_primary_is_gone() {
    let [main, backup] = sites();
    let [deleted, disabled] = ["deleted", "disabled"].map(|name| {
        let id = main.volume(name, 8).expect("create").volume_id;
        main.enable(&id, &[]).expect("enable");
        backup.await_copy(&id);
        id
    });
    backup.cluster.kill("rbd-mirror");
    main.daemon.client().delete_volume(&delete(&deleted)).expect("delete");
    main.disable(&disabled, &[]).expect("disable");
    let there = backup.daemon.client();
    for id in [&deleted, &disabled] {
        let way_out = format!("`cephlet replication disable {id} --force`");
        await_that("it is known that the primary is gone", || match there.delete_volume(&delete(id)) {
            Err(refused) if refused.message.contains(&way_out) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        accepted("it becomes a volume of its own", || backup.disable(id, &[("force", "true")]));
        accepted("its last client is forgotten", || there.delete_volume(&delete(id)));
        assert_eq!(backup.image(id), None);
    }
    backup.daemon.assert_well();
}

#[test]
#[ignore = "long: tests/run --full"]
fn what_was_demoted_is_not_promoted_again_before_what_was_written_elsewhere_arrives() {
    written_elsewhere("snapshot");
}

/// The volume was written to elsewhere meanwhile, but both sites say "remote image is not primary" as before.
fn written_elsewhere(mode: &str) {
    let [main, backup] = sites();
    let id = replicated(&main, &backup, mode);
    accepted("the other site follows", || main.demote(&id, false));
    backup.await_word_of_demotion(&id);
    let paused = main.cluster.pause("rbd-mirror");
    accepted("the demotion arrives", || backup.promote(&id, false, &[]));
    backup.fill(&id, 1, 22);
    let written = backup.checksum(&id);
    let message = ["not yet", "has not begun to copy"];
    refused(backup.demote(&id, false), Code::UNAVAILABLE, &message);
    backup.demote(&id, true).expect("demote by force");
    main.await_word_of_demotion(&id);
    refused(main.promote(&id, false, &[]), Code::UNAVAILABLE, &["not yet", "force"]);
    drop(paused);
    // The rbd-mirror here has not seen the other image primary: it copies nothing until it does.
    backup.promote(&id, true, &[]).expect("nobody else has promoted it");
    main.await_content(&id, &written);
    accepted("the other site follows", || backup.demote(&id, false));
    accepted("the demotion arrives", || main.promote(&id, false, &[]));
    assert!(main.checksum(&id) == written, "UNSAFE: it is not what was written");
    [&main, &backup].into_iter().for_each(|site| site.daemon.assert_well());
}

/// A promotion in the middle of a copy would end as an older image, or as one that mixes two states.
#[test]
#[ignore = "long: tests/run --full"]
fn force_does_not_promote_in_the_middle_of_a_copy() {
    let [main, backup] = sites();
    let id = main.volume("torn", 200).expect("create").volume_id;
    main.fill(&id, 200, 11);
    main.enable(&id, &[]).expect("enable");
    backup.await_copy(&id);
    main.fill(&id, 200, 22);
    let newest = main.checksum(&id);
    begin_to_copy(&main, &backup, &id);
    // As the peer is alive, the promotion waits for the copy.
    accepted("the copy is whole", || backup.promote(&id, true, &[]));
    assert!(backup.checksum(&id) == newest, "UNSAFE: it is not what was copied last");
    backup.daemon.assert_well();
}

/// The copy becomes what it was one snapshot before (Ceph 16.2), and the caller is told that first.
#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_that_was_cut_off_in_the_middle_is_promoted_with_its_loss_alone() {
    let [main, backup] = sites();
    let id = main.volume("cut", 200).expect("create").volume_id;
    main.fill(&id, 200, 11);
    main.enable(&id, &[]).expect("enable");
    backup.await_copy(&id);
    let first = main.checksum(&id);
    main.fill(&id, 200, 22);
    main.cluster.rbd(&["mirror", "image", "snapshot", object_of(&id)]);
    let second = main.checksum(&id);
    backup.await_content(&id, &second);
    main.fill(&id, 200, 33);
    begin_to_copy(&main, &backup, &id);
    let _gone = main.cluster.lose();
    refused(backup.promote(&id, true, &[]), Code::FAILED_PRECONDITION, &["loses more", "acceptLoss"]);
    refused(backup.disable(&id, &[("force", "true")]), Code::FAILED_PRECONDITION, &["loses more"]);
    let accepting = [("acceptLoss", "true")];
    refused(backup.promote(&id, true, &accepting), Code::FAILED_PRECONDITION, &["stop all its daemons"]);
    let _stopped = backup.cluster.pause("rbd-mirror");
    accepted("the loss is accepted", || backup.promote(&id, true, &accepting));
    assert_eq!(backup.is_primary(&id), Some(true));
    let content = backup.checksum(&id);
    assert!(content == first || content == second, "UNSAFE: it mixes two states");
    backup.daemon.assert_well();
}

/// Starts a copy of what was written, and waits until the copying has begun.
fn begin_to_copy(main: &Site, backup: &Site, id: &str) {
    main.cluster.rbd(&["mirror", "image", "snapshot", object_of(id)]);
    await_that("it is being copied", || {
        let snapshots = backup.cluster.rbd(&["snap", "ls", "--all", object_of(id), "--format", "json"]);
        if snapshots.contains("\"complete\":false") { Ok(()) } else { Err(snapshots) }
    });
}

/// A promotion that is broken off in the middle leaves a mix of two states, which a repetition declares good.
#[test]
#[ignore = "long: tests/run --full"]
fn a_promotion_by_force_outlives_its_daemon() {
    let mut stubs = Vec::new();
    let [main, mut backup] = sites_with(|setup| {
        let stub = Hanging::when(&setup.scratch, "rbd", "*promote*--force*");
        let setup = setup.with_tools(stub.tool_path());
        stubs.push(stub);
        setup
    });
    let id = main.volume("outlives", 8).expect("create").volume_id;
    main.fill(&id, 1, 11);
    main.enable(&id, &[]).expect("enable");
    backup.await_copy(&id);
    let copied = main.checksum(&id);
    let _gone = main.cluster.lose();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| backup.promote(&id, true, &[]));
        stubs[1].await_start();
        backup.daemon.signal(rustix::process::Signal::KILL);
        asked.join().expect("a client").expect_err("its daemon was killed");
    });
    backup.daemon.wait();
    backup.daemon.restart();
    refused(backup.promote(&id, true, &[]), Code::ABORTED, &["being promoted by force"]);
    refused(backup.disable(&id, &[("force", "true")]), Code::ABORTED, &["being promoted by force"]);
    assert_eq!(backup.is_primary(&id), Some(false));
    stubs[1].release();
    accepted("it is promoted", || backup.promote(&id, true, &[]));
    assert_eq!(backup.is_primary(&id), Some(true));
    assert!(backup.checksum(&id) == copied, "UNSAFE: it is not what was copied");
    backup.daemon.assert_well();
}

/// The manager keeps the schedules, and nothing else of a volume.
#[test]
#[ignore = "long: tests/run --full"]
fn a_schedule_waits_for_the_manager() {
    let [main, backup] = sites_with(|setup| setup.set("CEPHLET_TOOL_TIMEOUT", "30s"));
    let [id, other] = ["one", "other"].map(|name| main.volume(name, 8).expect("create").volume_id);
    let gone = main.cluster.pause("mgr");
    let refusal = main.enable(&id, &[("schedulingInterval", "1h")]).expect_err("there is no manager");
    assert!([Code::UNAVAILABLE, Code::DEADLINE_EXCEEDED].contains(&refusal.code), "{refusal:?}");
    main.enable(&other, &[]).expect("enable without a schedule");
    backup.await_copy(&other);
    fail_over(&main, &backup, &other, 11);
    drop(gone);
    accepted("the manager is back", || main.enable(&id, &[("schedulingInterval", "1h")]));
    let schedules = ["mirror", "snapshot", "schedule", "ls", "--pool", "rbd", "--image", object_of(&id)];
    assert!(main.cluster.rbd(&schedules).contains("every 1h"));
    main.daemon.assert_well();
}

#[test]
fn sources_are_named_in_two_ways_that_agree() {
    use wire::replication_source::{Type, VolumeGroupSource};
    let corner = crate::support::Corner::new();
    let daemon = corner.start();
    let client = addons::Client::of(&daemon);
    let ask = |volume_id: &str, group: Option<&str>| {
        let group = group.map(|id| {
            let group = VolumeGroupSource { volume_group_id: id.into(), ..Default::default() };
            wire::ReplicationSource { type_: Some(Type::Volumegroup(group)), ..Default::default() }
        });
        let asked = wire::DemoteVolumeRequest {
            volume_id: volume_id.into(),
            replication_source: group.into(),
            parameters: map(&[]),
            ..Default::default()
        };
        client.ask(&asked).map(drop)
    };
    let absent = format!("rbd:main:rbd:{}:csi-vol-none:1f", corner.namespace);
    let absent = absent.as_str();
    refused(ask("", None), Code::INVALID_ARGUMENT, &["volume_id"]);
    refused(ask(absent, Some("rbd:main:rbd::other")), Code::INVALID_ARGUMENT, &["both alike"]);
    refused(ask("", Some("group-1")), Code::UNIMPLEMENTED, &["group-1"]);
    for answer in [ask(absent, None), ask("", Some(absent)), ask("nonsense", None)] {
        refused(answer, Code::NOT_FOUND, &[]);
    }
    refused(ask("local:none:::x", None), Code::NOT_FOUND, &[]);
}
