#![allow(clippy::unwrap_used)]
//! That the fake does what Ceph was seen to do.

use std::time::Duration;

use super::{FakeCluster, Fault};
use crate::backend::rbd::tool::*;
use crate::call::Call;
use crate::error::Kind;

const GIB: u64 = 1 << 30;

fn call() -> Call {
    Call::internal("test")
}

/// A cluster with an image `a` that has data, metadata and a snapshot `s`.
fn with_snapshot() -> (FakeCluster, Spot) {
    let cluster = FakeCluster::new();
    let spot = cluster.spot();
    assert_eq!(create(&cluster, "a"), Made::New);
    cluster.write(&spot, "a", "old");
    assert_eq!(cluster.take_snapshot(&call(), &spot, "a", "s").unwrap(), Some(Made::New));
    cluster.write(&spot, "a", "new");
    (cluster, spot)
}

fn create(cluster: &FakeCluster, name: &str) -> Made {
    let image = NewImage { name, size: GIB, layout: &Layout::default(), metadata: &[(".record", name)] };
    cluster.create(&call(), &cluster.spot(), &image).unwrap()
}

fn clone(cluster: &FakeCluster, from: &str, to: &str) -> crate::error::Result<Option<Made>> {
    let spot = cluster.spot();
    let layout = Layout::default();
    cluster.clone_image(
        &call(),
        &NewClone { from: &spot, image: from, snapshot: "s", to: &spot, name: to, layout: &layout },
    )
}

fn id(cluster: &FakeCluster, name: &str) -> String {
    cluster.info(&call(), &cluster.spot(), Image::Named(name)).unwrap().expect("it exists").id
}

fn hold(cookie: &str, shared: Option<&str>) -> Hold {
    Hold { cookie: cookie.into(), description: "d".into(), shared: shared.map(Into::into), seconds: Some(60) }
}

#[test]
fn a_clone_has_the_data_of_its_snapshot_and_the_metadata_of_its_parent() {
    let (cluster, spot) = with_snapshot();
    assert_eq!(clone(&cluster, "a", "b").unwrap(), Some(Made::New));
    assert_eq!(cluster.content(&spot, "b"), "old");
    assert_eq!(cluster.metadata(&call(), &spot, "b", ".record").unwrap().as_deref(), Some("a"));
    assert_ne!(id(&cluster, "a"), id(&cluster, "b"));
    let info = cluster.info(&call(), &spot, Image::Named("a")).unwrap().unwrap();
    assert!(info.features.contains("operations") && info.snapshots == 1 && info.parent.is_none());
    assert_eq!(clone(&cluster, "a", "b").unwrap(), Some(Made::Taken));
    assert_eq!(clone(&cluster, "x", "c").unwrap(), None);
}

#[test]
fn clones_keep_snapshots_and_images_until_the_last_one_goes() {
    let (cluster, spot) = with_snapshot();
    clone(&cluster, "a", "b").unwrap();
    clone(&cluster, "a", "c").unwrap();
    assert_eq!(cluster.remove(&call(), &spot, "a").unwrap(), Removed::HasSnapshots);
    assert_eq!(cluster.remove_snapshot(&call(), &spot, Image::Named("a"), "s").unwrap(), Removed::Gone);
    assert_eq!(cluster.remove_snapshot(&call(), &spot, Image::Named("a"), "s").unwrap(), Removed::Absent);
    let snaps = cluster.snapshots(&call(), &spot, Image::Named("a")).unwrap().unwrap();
    assert!(snaps.len() == 1 && snaps[0].trashed && snaps[0].name == "s");
    assert_eq!(cluster.remove(&call(), &spot, "a").unwrap(), Removed::Gone);
    assert_eq!(
        cluster.dump(),
        "image rbd/b 1073741824 of rbd/a@s\n\
         image rbd/c 1073741824 of rbd/a@s\n\
         snapshot rbd/a@s 1073741824 trashed\n\
         trash rbd/a 1073741824 for clones"
    );
    let trash = cluster.trash(&call(), &spot).unwrap();
    assert!(trash[0].by_clones);
    assert_eq!(cluster.purge(&call(), &spot, &trash[0].id).unwrap(), Removed::HasSnapshots);
    assert_eq!(cluster.flatten(&call(), &spot, "b").unwrap(), Changed::Done);
    assert_eq!(cluster.remove(&call(), &spot, "c").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "image rbd/b 1073741824");
}

#[test]
fn an_image_in_use_can_be_trashed_and_renamed_but_not_removed() {
    let (cluster, spot) = (FakeCluster::new(), FakeCluster::new().spot());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.watch(&spot, "a", "10.0.0.7:0/1");
    assert_eq!(cluster.remove(&call(), &spot, "a").unwrap(), Removed::Watched);
    assert_eq!(cluster.rename(&call(), &spot, "a", "b").unwrap(), Renamed::Done);
    assert_eq!(cluster.move_to_trash(&call(), &spot, "b").unwrap(), Changed::Done);
    assert_eq!(cluster.info(&call(), &spot, Image::Named("b")).unwrap(), None);
    assert_eq!(cluster.info(&call(), &spot, Image::Id(&id)).unwrap().unwrap().name, "b");
    assert_eq!(cluster.purge(&call(), &spot, &id).unwrap(), Removed::Watched);
    assert_eq!(cluster.restore_from_trash(&call(), &spot, &id, "a").unwrap(), Renamed::Done);
    cluster.unwatch("10.0.0.7:0/1");
    assert_eq!(cluster.remove(&call(), &spot, "a").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn the_manager_purges_when_it_gets_to_it() {
    let (cluster, spot) = (FakeCluster::new(), FakeCluster::new().spot());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.move_to_trash(&call(), &spot, "a").unwrap();
    cluster.set_manager(false);
    assert_eq!(cluster.purge_by_manager(&call(), &spot, &id).unwrap(), Handed::NoManager);
    cluster.set_manager(true);
    assert_eq!(cluster.purge_by_manager(&call(), &spot, "10").unwrap(), Handed::Absent);
    assert_eq!(cluster.purge_by_manager(&call(), &spot, &id).unwrap(), Handed::Over);
    assert_eq!(cluster.dump(), "task rbd/a\ntrash rbd/a 1073741824");
    cluster.run_manager();
    assert_eq!(cluster.dump(), "");
}

#[test]
fn locks_are_exclusive_or_shared_under_one_tag_and_run_out() {
    let (cluster, spot) = (FakeCluster::new(), FakeCluster::new().spot());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    let lock =
        |cookie: &str, tag| cluster.lock(&call(), &spot, Lockable::Header(&id), &hold(cookie, tag)).unwrap();
    assert_eq!(lock("n1", Some("rw")), Taken::Now);
    assert_eq!(lock("n2", Some("rw")), Taken::Now);
    assert_eq!(lock("n3", Some("ro")), Taken::Held);
    assert_eq!(lock("n3", None), Taken::Held);
    for holder in cluster.holders(&call(), &spot, Lockable::Header(&id)).unwrap() {
        cluster.unlock(&call(), &spot, Lockable::Header(&id), &holder).unwrap();
    }
    assert_eq!(lock("n3", None), Taken::Now);
    assert_eq!(lock("n3", None), Taken::Held);
    assert_eq!(cluster.dump(), "image rbd/a 1073741824\nlock image rbd/a: n3 \"d\"");
    cluster.advance(Duration::from_secs(60));
    assert_eq!(lock("n4", None), Taken::Now);
}

#[test]
fn a_lock_dies_with_its_image_and_one_that_comes_later_is_a_stray() {
    let (cluster, spot) = (FakeCluster::new(), FakeCluster::new().spot());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.lock(&call(), &spot, Lockable::Header(&id), &hold("n1", None)).unwrap();
    cluster.remove(&call(), &spot, "a").unwrap();
    assert_eq!(cluster.dump(), "");
    assert_eq!(cluster.lock(&call(), &spot, Lockable::Header(&id), &hold("n1", None)).unwrap(), Taken::Now);
    assert_eq!(cluster.dump(), format!("object header rbd/{id}: n1 \"d\""));
    cluster.remove_lockable(&call(), &spot, Lockable::Header(&id)).unwrap();
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_missing_pool_or_namespace_is_an_error_that_names_it() {
    let cluster = FakeCluster::new();
    for (spot, name) in [(cluster.spot_in("nope", ""), "nope"), (cluster.spot_in("rbd", "team"), "team")] {
        let error = cluster.info(&call(), &spot, Image::Named("a")).unwrap_err();
        assert!(error.kind() == Kind::InvalidArgument && error.message().contains(name), "{error}");
    }
    cluster.add_namespace("rbd", "team");
    assert_eq!(cluster.list(&call(), &cluster.spot_in("rbd", "team")).unwrap(), []);
    cluster.set_room("rbd", Room { available: 0, full: true });
    let image = NewImage { name: "a", size: GIB, layout: &Layout::default(), metadata: &[] };
    assert_eq!(cluster.create(&call(), &cluster.spot(), &image).unwrap_err().kind(), Kind::NoSpace);
}

#[test]
fn what_is_half_made_looks_as_it_does_on_a_real_cluster() {
    let (cluster, spot) = with_snapshot();
    let image = NewImage { name: "b", size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.fail_at(1, Fault::HalfMade);
    assert_eq!(cluster.create(&call(), &spot, &image).unwrap_err().kind(), Kind::Timeout);
    assert_eq!(cluster.info(&call(), &spot, Image::Named("b")).unwrap(), None);
    assert_eq!(create(&cluster, "b"), Made::Taken);
    assert_eq!(cluster.remove(&call(), &spot, "b").unwrap(), Removed::Gone);
    cluster.fail_at(1, Fault::HalfMade);
    assert!(clone(&cluster, "a", "b").is_err());
    assert_eq!(cluster.info(&call(), &spot, Image::Named("b")).unwrap().unwrap().parent, None);
    assert_eq!(cluster.content(&spot, "b"), "");
    cluster.fail_at(1, Fault::HalfMade);
    assert!(cluster.remove(&call(), &spot, "b").is_err());
    assert_eq!(cluster.trash(&call(), &spot).unwrap(), [], "it is not shown");
    assert!(cluster.dump().contains("trash rbd/b 1073741824 unseen"));
    assert_eq!(cluster.remove(&call(), &spot, "b").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "image rbd/a 1073741824\nsnapshot rbd/a@s 1073741824");
}

#[test]
fn an_image_on_its_way_to_the_trash_keeps_its_name_until_it_is_removed_by_it() {
    let (cluster, spot) = (FakeCluster::new(), FakeCluster::new().spot());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.fail_at(1, Fault::HalfMoved);
    assert!(cluster.remove(&call(), &spot, "a").is_err());
    assert_eq!(cluster.info(&call(), &spot, Image::Named("a")).unwrap(), None);
    assert_eq!(cluster.info(&call(), &spot, Image::Id(&id)).unwrap().unwrap().name, "a");
    assert_eq!(create(&cluster, "a"), Made::Taken);
    assert_eq!(cluster.purge(&call(), &spot, &id).unwrap(), Removed::Absent);
    assert_eq!(cluster.remove(&call(), &spot, "a").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_dead_daemon_takes_no_steps_until_it_is_back() {
    let (cluster, spot) = with_snapshot();
    cluster.forget_steps();
    cluster.crash_at(2, Fault::After);
    assert!(clone(&cluster, "a", "b").is_ok() && cluster.fault_pending());
    assert!(clone(&cluster, "a", "c").is_err() && !cluster.fault_pending());
    assert!(cluster.remove(&call(), &spot, "b").is_err());
    assert_eq!(cluster.steps(), ["clone_image a@s b", "clone_image a@s c"]);
    cluster.restart();
    assert_eq!(cluster.list(&call(), &spot).unwrap().len(), 3);
}

#[test]
fn others_act_between_two_steps() {
    let cluster = FakeCluster::new();
    cluster.on_step(1, |other| assert_eq!(create(other, "b"), Made::New));
    assert_eq!(create(&cluster, "a"), Made::New);
    assert_eq!(create(&cluster, "b"), Made::Taken);
    assert_eq!(cluster.steps(), ["create a", "create b"]);
}
