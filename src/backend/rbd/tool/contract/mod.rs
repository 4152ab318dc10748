#![allow(clippy::unwrap_used)]
//! What every implementation of the tool's traits answers. Each scenario runs on the fake, and on a real
//! cluster by the programs and by the session: so the tests on the fake mean what they say, and the session
//! says what the programs say.

mod cluster;
mod images;
mod locks;
mod snapshots;

use std::any::Any;
use std::sync::Arc;

use super::fake::{FakeCluster, Fault};
use super::*;
use crate::backend::ceph::PoolRef;
use crate::error::Kind;

/// The size of an image, unless it matters.
const SIZE: u64 = 8 << 20;

/// An implementation, in a namespace that is empty at first.
struct Site {
    tool: Arc<dyn RbdTool>,
    call: Call,
    at: PoolRef,
    /// Another empty namespace of the same pool.
    beside: PoolRef,
    others: Box<dyn Others>,
}

/// What others do in the namespace of a site.
trait Others {
    /// An operator moves an image to the trash.
    fn put_aside(&self, image: &str);

    /// An operator protects a snapshot.
    fn protect(&self, image: &str, snapshot: &str);

    /// A rename is killed and leaves an image a second name.
    fn add_name(&self, image: &str, second: &str);

    /// The creation of an image is killed.
    fn half_make(&self, image: &str);

    /// The removal of an image is killed while the image is on its way to the trash.
    fn half_remove(&self, image: &str);

    /// The removal of an image is killed while the image is in the trash: that of its name, or that of an
    /// image that an operator had moved there.
    fn half_purge(&self, image: &str, by_name: bool);

    /// A client opens an image, until the returned value is dropped.
    fn open(&self, image: &str) -> Box<dyn Any>;
}

impl Site {
    fn tool(&self) -> Box<dyn PoolTool + '_> {
        self.tool.bind(&self.call, &self.at)
    }

    fn tool_at<'a>(&'a self, at: &'a PoolRef) -> Box<dyn PoolTool + 'a> {
        self.tool.bind(&self.call, at)
    }

    /// Makes an image without metadata, and returns its id.
    fn create(&self, name: &str) -> String {
        let image = NewImage { name, size: SIZE, layout: &Layout::default(), metadata: &[] };
        assert_ne!(self.tool().create(&image).unwrap(), MadeImage::Taken);
        self.info(name).id
    }

    /// Makes an image with a snapshot `s`, and returns its id.
    fn create_with_snapshot(&self, name: &str) -> String {
        let id = self.create(name);
        assert_eq!(self.tool().create_snapshot(name, "s").unwrap(), Some(Made::New));
        id
    }

    fn info(&self, name: &str) -> ImageInfo {
        self.tool().info(ImageRef::Name(name)).unwrap().expect("the image exists")
    }

    fn snapshots(&self, name: &str) -> Vec<SnapshotInfo> {
        self.tool().snapshots(ImageRef::Name(name)).unwrap().expect("the image exists")
    }

    /// Clones a snapshot `s`.
    fn clone_image(&self, image: &str, to: &PoolRef, name: &str) -> Result<Option<Made>> {
        let (from, layout) = (&self.at, &Layout::default());
        self.tool().clone_image(&NewClone { from, image, snapshot: "s", to, name, layout })
    }
}

/// Asserts that a request fails because `name` is missing.
#[track_caller]
fn assert_lacks<T: std::fmt::Debug>(name: &str, doing: &str, answer: Result<T>) {
    let error = answer.expect_err(doing);
    let is_named = error.message().contains(&format!("{name:?}"));
    assert!(error.kind() == Kind::Precondition && is_named, "{doing}: {error}");
}

/// The fake's client, operator and killed commands.
struct OthersOfFake(FakeCluster, PoolRef);

impl Others for OthersOfFake {
    fn put_aside(&self, image: &str) {
        self.0.put_aside(&self.1, image);
    }

    fn protect(&self, image: &str, snapshot: &str) {
        let snapshots = self.0.on(&self.1).snapshots(ImageRef::Name(image)).unwrap().unwrap();
        let found = snapshots.iter().find(|it| it.name == snapshot).expect("the snapshot exists");
        self.0.protect_snapshot(&self.1, image, found.id);
    }

    fn add_name(&self, image: &str, second: &str) {
        self.0.fail_at(1, Fault::HalfMade);
        self.0.on(&self.1).rename(image, second).unwrap_err();
    }

    fn half_make(&self, image: &str) {
        self.0.fail_at(1, Fault::HalfMade);
        let image = NewImage { name: image, size: SIZE, layout: &Layout::default(), metadata: &[] };
        self.0.on(&self.1).create(&image).unwrap_err();
    }

    fn half_remove(&self, image: &str) {
        self.0.fail_at(1, Fault::HalfMoved);
        self.0.on(&self.1).remove(image).unwrap_err();
    }

    fn half_purge(&self, image: &str, by_name: bool) {
        if !by_name {
            return self.put_aside(image);
        }
        self.0.fail_at(1, Fault::HalfMade);
        self.0.on(&self.1).remove(image).unwrap_err();
    }

    fn open(&self, image: &str) -> Box<dyn Any> {
        const ADDRESS: &str = "10.0.0.7:0/1";
        struct Open(FakeCluster);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.unwatch(ADDRESS);
            }
        }
        self.0.watch(&self.1, image, ADDRESS);
        Box::new(Open(self.0.clone()))
    }
}

fn fake() -> Site {
    let cluster = FakeCluster::new();
    cluster.add_pool("data");
    let [at, beside] = ["one", "two"].map(|namespace| {
        cluster.add_namespace("rbd", namespace);
        cluster.at_pool("rbd", namespace)
    });
    let others = Box::new(OthersOfFake(cluster.clone(), at.clone()));
    Site { tool: Arc::new(cluster), call: Call::internal("test"), at, beside, others }
}

/// Makes each scenario a test of the fake, and lists all of them for the other implementations.
macro_rules! scenarios {
    ($($module:ident::$scenario:ident,)*) => {
        const SCENARIOS: &[(&str, fn(&Site))] = &[$((stringify!($scenario), $module::$scenario)),*];
        $(
            #[test]
            fn $scenario() {
                $module::$scenario(&fake());
            }
        )*
    };
}

scenarios! {
    images::an_image_is_made_once_and_found_by_name_and_by_id,
    images::a_layout_is_kept,
    images::metadata_is_any_text,
    images::a_limit_of_zero_is_none,
    images::lists_show_snapshots_and_parents,
    images::a_pool_has_options,
    images::an_image_is_removed_unless_it_is_needed,
    images::a_renamed_image_keeps_its_id,
    images::a_second_name_goes_without_the_image,
    images::an_image_only_grows,
    images::what_a_kill_left_is_among_the_names_alone,
    images::what_a_kill_left_in_the_trash_is_where_it_was,
    images::what_is_missing_is_named,
    snapshots::a_snapshot_is_taken_once_and_removed_once,
    snapshots::a_snapshot_is_removed_by_its_number,
    snapshots::a_protected_snapshot_stays,
    snapshots::a_clone_keeps_its_snapshot,
    snapshots::a_clone_may_be_elsewhere,
    snapshots::a_clone_inherits,
    snapshots::features_are_disabled_and_enabled,
    snapshots::the_trash_is_purged_by_id,
    locks::an_exclusive_lock_has_one_holder,
    locks::a_shared_lock_has_one_tag,
    locks::a_lock_dies_with_its_object,
    locks::an_object_needs_a_pool_but_no_namespace,
}
