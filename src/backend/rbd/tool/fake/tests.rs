#![allow(clippy::unwrap_used)]
//! Checks that the fake behaves as Ceph was seen to behave.

use std::time::Duration;

use super::{FakeCluster, Fault};
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::*;
use crate::error::Kind;

const GIB: u64 = 1 << 30;

/// A cluster with an image `a` that has data, metadata and a snapshot `s`.
fn with_snapshot() -> (FakeCluster, PoolRef) {
    let cluster = FakeCluster::new();
    let at = cluster.at();
    assert_ne!(create(&cluster, "a"), MadeImage::Taken);
    cluster.write(&at, "a", "old");
    assert_eq!(cluster.on(&at).create_snapshot("a", "s").unwrap(), Some(Made::New));
    cluster.write(&at, "a", "new");
    (cluster, at)
}

fn create(cluster: &FakeCluster, name: &str) -> MadeImage {
    let image = NewImage { name, size: GIB, layout: &Layout::default(), metadata: &[(".record", name)] };
    cluster.here().create(&image).unwrap()
}

fn clone(cluster: &FakeCluster, from: &str, to: &str) -> crate::error::Result<Option<Made>> {
    let at = cluster.at();
    let layout = Layout::default();
    let clone = NewClone { from: &at, image: from, snapshot: "s", to: &at, name: to, layout: &layout };
    cluster.here().clone_image(&clone)
}

fn id(cluster: &FakeCluster, name: &str) -> String {
    cluster.here().info(ImageRef::Name(name)).unwrap().expect("it exists").id
}

fn hold(cookie: &str, shared: Option<&str>) -> LockRequest {
    LockRequest {
        cookie: cookie.into(),
        description: "d".into(),
        shared: shared.map(Into::into),
        seconds: Some(60),
    }
}

#[test]
fn a_clone_has_the_data_of_its_snapshot_and_all_metadata_of_its_parent() {
    let (cluster, at) = with_snapshot();
    assert_eq!(clone(&cluster, "a", "b").unwrap(), Some(Made::New));
    assert_eq!(cluster.content(&at, "b"), "old");
    assert_eq!(cluster.on(&at).metadata("b", ".record").unwrap().as_deref(), Some("a"));
    assert_ne!(id(&cluster, "a"), id(&cluster, "b"));
    let info = cluster.on(&at).info(ImageRef::Name("a")).unwrap().unwrap();
    assert!(info.features.contains("operations") && info.snapshots == 1 && info.parent.is_none());
    assert_eq!(clone(&cluster, "a", "b").unwrap(), Some(Made::Taken));
    assert_eq!(clone(&cluster, "x", "c").unwrap(), None);
}

#[test]
fn clones_keep_a_snapshot_until_the_last_one_goes() {
    let (cluster, at) = with_snapshot();
    clone(&cluster, "a", "b").unwrap();
    clone(&cluster, "a", "c").unwrap();
    assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::HasSnapshots);
    assert_eq!(cluster.on(&at).remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Gone);
    assert_eq!(cluster.on(&at).remove_snapshot(ImageRef::Name("a"), "s").unwrap(), Removed::Absent);
    let snaps = cluster.on(&at).snapshots(ImageRef::Name("a")).unwrap().unwrap();
    assert!(snaps.len() == 1 && snaps[0].trashed && snaps[0].name == "s");
    assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::HasSnapshots);
    cluster.put_aside(&at, "a");
    assert_eq!(
        cluster.dump(),
        "image rbd/b 1073741824 of rbd/a@s\n\
         image rbd/c 1073741824 of rbd/a@s\n\
         snapshot rbd/a@s 1073741824 trashed\n\
         trash rbd/a 1073741824"
    );
    let trash = cluster.on(&at).trash().unwrap();
    assert_eq!(cluster.on(&at).purge(&trash[0].id).unwrap(), Removed::HasSnapshots);
    assert_eq!(cluster.on(&at).flatten("b").unwrap(), Changed::Done);
    assert_eq!(cluster.on(&at).remove("c").unwrap(), Removed::Gone);
    assert_eq!(cluster.on(&at).purge(&trash[0].id).unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "image rbd/b 1073741824");
}

#[test]
fn an_image_in_use_can_be_trashed_and_renamed_but_not_removed() {
    let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.watch(&at, "a", "10.0.0.7:0/1");
    assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::Watched);
    assert_eq!(cluster.on(&at).rename("a", "b").unwrap(), Renamed::Done);
    cluster.put_aside(&at, "b");
    assert_eq!(cluster.on(&at).info(ImageRef::Name("b")).unwrap(), None);
    assert_eq!(cluster.on(&at).info(ImageRef::Id(&id)).unwrap().unwrap().name, "b");
    assert_eq!(cluster.on(&at).purge(&id).unwrap(), Removed::Watched);
    cluster.unwatch("10.0.0.7:0/1");
    assert_eq!(cluster.on(&at).purge(&id).unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "");
}

/// Seen after every kill between two writes of `rbd rename`, and with second names that were made by hand.
#[test]
fn a_removal_by_a_second_name_destroys_the_image_and_says_that_there_was_none() {
    for (fault, own, second) in [(Fault::HalfMade, "a", "b"), (Fault::HalfMoved, "b", "a")] {
        let killed = || {
            let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
            create(&cluster, "a");
            cluster.fail_at(1, fault);
            cluster.on(&at).rename("a", "b").unwrap_err();
            assert_eq!(
                (id(&cluster, "a"), cluster.on(&at).names().unwrap()),
                (id(&cluster, "b"), vec![own.into()])
            );
            (cluster, at)
        };
        let (cluster, at) = killed();
        assert_eq!(cluster.on(&at).remove(second).unwrap(), Removed::Absent);
        assert_eq!(cluster.dump(), format!("half-made rbd/{own}"), "the directory has it still");
        assert_eq!(cluster.on(&at).remove(own).unwrap(), Removed::Gone);
        assert_eq!(cluster.dump(), "");
        let (cluster, at) = killed();
        assert_eq!(cluster.on(&at).remove(own).unwrap(), Removed::Gone);
        assert_eq!(create(&cluster, second), MadeImage::Taken);
        assert_eq!(cluster.on(&at).remove(second).unwrap(), Removed::Gone);
        assert_eq!(cluster.dump(), "");
        let (cluster, at) = killed();
        cluster.on(&at).remove_name(second).unwrap();
        assert_eq!(cluster.dump(), format!("image rbd/{own} {GIB}"));
    }
}

#[test]
fn a_removal_in_a_full_pool_says_that_there_is_no_image() {
    let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
    create(&cluster, "a");
    cluster.set_room("rbd", FreeSpace { available: 0, full: true });
    assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::Absent);
    assert_eq!(cluster.dump(), format!("image rbd/a {GIB}"));
}

#[test]
fn what_a_killed_removal_left_is_beside_a_new_image_of_the_name() {
    for headless in [false, true] {
        let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
        create(&cluster, "a");
        let old = id(&cluster, "a");
        cluster.fail_at(1, Fault::HalfMade);
        cluster.on(&at).remove("a").unwrap_err();
        if headless {
            cluster.remove_header(&old);
        }
        let found = cluster.on(&at).info(ImageRef::Id(&old)).unwrap();
        assert_eq!((found.is_none(), cluster.on(&at).trash().unwrap()), (headless, Vec::new()));
        create(&cluster, "a");
        assert_eq!(cluster.on(&at).names().unwrap(), ["a", "a"]);
        assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::Gone);
        assert_eq!(cluster.on(&at).info(ImageRef::Name("a")).unwrap(), None, "the new one goes first");
        assert_eq!(cluster.on(&at).purge(&old).unwrap(), Removed::Gone);
        assert_eq!(cluster.dump(), "");
    }
}

#[test]
fn locks_are_exclusive_or_shared_under_one_tag_and_run_out() {
    let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    let lock = |cookie: &str, tag| cluster.on(&at).lock(LockTarget::Header(&id), &hold(cookie, tag)).unwrap();
    assert_eq!(lock("n1", Some("rw")), Locked::Now);
    assert_eq!(lock("n2", Some("rw")), Locked::Now);
    assert_eq!(lock("n3", Some("ro")), Locked::Held);
    assert_eq!(lock("n3", None), Locked::Held);
    for holder in cluster.on(&at).holders(LockTarget::Header(&id)).unwrap() {
        cluster.on(&at).unlock(LockTarget::Header(&id), &holder).unwrap();
    }
    assert_eq!(lock("n3", None), Locked::Now);
    assert_eq!(lock("n3", None), Locked::Held);
    assert_eq!(cluster.dump(), "image rbd/a 1073741824\nlock image rbd/a: n3 \"d\"");
    cluster.advance(Duration::from_secs(60));
    assert_eq!(lock("n4", None), Locked::Now);
}

#[test]
fn a_lock_dies_with_its_image_and_one_that_comes_later_is_a_stray() {
    let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.on(&at).lock(LockTarget::Header(&id), &hold("n1", None)).unwrap();
    cluster.on(&at).remove("a").unwrap();
    assert_eq!(cluster.dump(), "");
    assert_eq!(cluster.on(&at).lock(LockTarget::Header(&id), &hold("n1", None)).unwrap(), Locked::Now);
    assert_eq!(cluster.dump(), format!("object header rbd/{id}: n1 \"d\""));
    cluster.on(&at).remove_lockable(LockTarget::Header(&id)).unwrap();
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_missing_pool_or_namespace_is_an_error_that_names_it() {
    let cluster = FakeCluster::new();
    for (at, name) in [(cluster.at_pool("nope", ""), "nope"), (cluster.at_pool("rbd", "team"), "team")] {
        let error = cluster.on(&at).info(ImageRef::Name("a")).unwrap_err();
        assert!(error.kind() == Kind::Precondition && error.message().contains(name), "{error}");
    }
    cluster.add_namespace("rbd", "team");
    assert_eq!(cluster.on(&cluster.at_pool("rbd", "team")).list().unwrap(), []);
    cluster.set_room("rbd", FreeSpace { available: 0, full: true });
    let image = NewImage { name: "a", size: GIB, layout: &Layout::default(), metadata: &[] };
    assert_eq!(cluster.here().create(&image).unwrap_err().kind(), Kind::NoSpace);
}

#[test]
fn what_is_half_made_looks_as_it_does_on_a_real_cluster() {
    let (cluster, at) = with_snapshot();
    let image = NewImage { name: "b", size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.fail_at(1, Fault::HalfMade);
    assert_eq!(cluster.on(&at).create(&image).unwrap_err().kind(), Kind::Timeout);
    assert_eq!(cluster.on(&at).info(ImageRef::Name("b")).unwrap(), None);
    assert_eq!(create(&cluster, "b"), MadeImage::Taken);
    assert_eq!(cluster.on(&at).remove("b").unwrap(), Removed::Gone);
    cluster.fail_at(1, Fault::HalfMade);
    assert!(clone(&cluster, "a", "b").is_err());
    assert_eq!(cluster.on(&at).info(ImageRef::Name("b")).unwrap().unwrap().parent, None);
    assert_eq!(cluster.content(&at, "b"), "");
    cluster.fail_at(1, Fault::HalfMade);
    assert!(cluster.on(&at).remove("b").is_err());
    assert_eq!(cluster.on(&at).trash().unwrap(), [], "it is not shown");
    assert!(cluster.dump().contains("trash rbd/b 1073741824 unseen"));
    assert_eq!(cluster.on(&at).remove("b").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "image rbd/a 1073741824\nsnapshot rbd/a@s 1073741824");
}

#[test]
fn an_image_on_its_way_to_the_trash_keeps_its_name_until_it_is_removed_by_it() {
    let (cluster, at) = (FakeCluster::new(), FakeCluster::new().at());
    create(&cluster, "a");
    let id = id(&cluster, "a");
    cluster.fail_at(1, Fault::HalfMoved);
    assert!(cluster.on(&at).remove("a").is_err());
    assert_eq!(cluster.on(&at).info(ImageRef::Name("a")).unwrap(), None);
    assert_eq!(cluster.on(&at).info(ImageRef::Id(&id)).unwrap().unwrap().name, "a");
    assert_eq!(create(&cluster, "a"), MadeImage::Taken);
    assert_eq!(cluster.on(&at).purge(&id).unwrap(), Removed::Absent);
    assert_eq!(cluster.on(&at).remove("a").unwrap(), Removed::Gone);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_dead_daemon_takes_no_steps_until_it_is_back() {
    let (cluster, at) = with_snapshot();
    cluster.forget_steps();
    cluster.crash_at(2, Fault::After);
    assert!(clone(&cluster, "a", "b").is_ok() && cluster.fault_pending());
    assert!(clone(&cluster, "a", "c").is_err() && !cluster.fault_pending());
    assert!(cluster.on(&at).remove("b").is_err());
    assert_eq!(cluster.steps(), ["clone_image a@s b", "clone_image a@s c"]);
    cluster.restart();
    assert_eq!(cluster.on(&at).list().unwrap().len(), 3);
}

#[test]
fn others_act_between_two_steps() {
    let cluster = FakeCluster::new();
    cluster.on_step(1, |other| assert_ne!(create(other, "b"), MadeImage::Taken));
    assert_ne!(create(&cluster, "a"), MadeImage::Taken);
    assert_eq!(create(&cluster, "b"), MadeImage::Taken);
    assert_eq!(cluster.steps(), ["create a", "create b"]);
}
