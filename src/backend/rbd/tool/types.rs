//! The types in questions and answers.

use std::collections::BTreeSet;
use std::time::SystemTime;

use serde::Deserialize;

use super::Mirroring;
use crate::backend::ceph::PoolRef;
use crate::backend::size::LARGEST;

/// An image, by the name it has now or by the id it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRef<'a> {
    /// By name.
    Name(&'a str),
    /// By id; also finds images that were renamed, and those in the trash.
    Id(&'a str),
}

/// How an image is laid out. For None the cluster's default holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where the data goes, if not to the image's own pool (erasure-coded pools hold nothing but data).
    pub data_pool: Option<String>,
    /// Features by rbd's names.
    pub features: Option<BTreeSet<String>>,
    /// Bytes of an object.
    pub object_size: Option<u64>,
    /// Bytes of a stripe unit, and the number of objects that the stripes go round.
    pub striping: Option<(u64, u64)>,
    /// The request did not name the data pool: an option of the pool or of the cluster did.
    pub is_default_data_pool: bool,
}

/// Options that change what commands do in a pool. The pool's own options override the cluster's, and those
/// of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// The features of new images, by rbd's names (`rbd_default_features`).
    pub features: BTreeSet<String>,
    /// The pool for the data of new images, if there is one (`rbd_default_data_pool`).
    pub data_pool: Option<String>,
    /// The pool's own `rbd_move_to_trash_on_remove`: `rbd rm` leaves images in the trash.
    pub trashes_removed: bool,
}

impl Layout {
    /// The largest size of an image with this layout. Ceph's defaults have an object map.
    pub fn largest_size(&self) -> u64 {
        let has_object_map = self.features.as_ref().is_none_or(|features| features.contains(OBJECT_MAP));
        let stripe_count = self.striping.map_or(1, |(_, count)| count);
        largest_size(has_object_map, self.object_size.unwrap_or(DEFAULT_OBJECT_SIZE), stripe_count)
    }
}

/// Features that a new image can be asked for, each with its bit (`RBD_FEATURE_…`, librbd/features.h). The
/// others follow from the layout.
pub const FEATURES: [(&str, u64); 6] = [
    ("layering", 1 << 0),
    ("exclusive-lock", 1 << 2),
    ("object-map", 1 << 3),
    ("fast-diff", 1 << 4),
    ("deep-flatten", 1 << 5),
    ("journaling", 1 << 6),
];

/// The feature of an image that keeps account of its objects.
pub const OBJECT_MAP: &str = "object-map";

/// The size of an object by default, in bytes.
pub const DEFAULT_OBJECT_SIZE: u64 = 4 << 20;

/// The most objects that an object map can have (cls/rbd/cls_rbd_types.h, `MAX_OBJECT_MAP_OBJECT_COUNT`).
const MAX_MAPPED_OBJECTS: u64 = 256_000_000;

/// The largest size that an image can have, in bytes. With stripes its objects come in sets.
pub fn largest_size(has_object_map: bool, object_size: u64, stripe_count: u64) -> u64 {
    let objects = MAX_MAPPED_OBJECTS - MAX_MAPPED_OBJECTS % stripe_count.max(1);
    if has_object_map { objects.saturating_mul(object_size).min(LARGEST) } else { LARGEST }
}

/// An image that is to exist.
#[derive(Clone, Debug)]
pub struct NewImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its size in bytes.
    pub size: u64,
    /// Its layout.
    pub layout: &'a Layout,
    /// The metadata that it gets when it is made.
    pub metadata: &'a [(&'a str, &'a str)],
}

/// A clone that is to exist, perhaps in another pool.
#[derive(Clone, Debug)]
pub struct NewClone<'a> {
    /// Where its parent is.
    pub from: &'a PoolRef,
    /// The parent.
    pub image: &'a str,
    /// The snapshot it starts from.
    pub snapshot: &'a str,
    /// Where it is to be.
    pub to: &'a PoolRef,
    /// Its name.
    pub name: &'a str,
    /// Its layout.
    pub layout: &'a Layout,
}

/// Whether something was made under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made now.
    New,
    /// The name is taken.
    Taken,
}

/// Whether an image was made under a name.
#[derive(Debug, PartialEq, Eq)]
pub enum MadeImage {
    /// It was made now: the image, if the cluster has shown it already.
    New(Option<Box<ImageInfo>>),
    /// The name is taken.
    Taken,
}

/// Whether an image was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was changed.
    Done,
    /// There is no such image, or snapshot.
    Absent,
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is gone now.
    Gone,
    /// It was not there. `rbd rm` also reports this for a whole image in a pool that takes no writes (at its
    /// quota), and for an image that it has destroyed by its second name.
    Absent,
    /// A client watches the image: it is in use, or the client died less than half a minute ago.
    Watched,
    /// The image has snapshots, perhaps only some that stay in its trash for their clones.
    HasSnapshots,
}

/// How a renaming ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// The image has the new name, or another image was given that name at the same moment: librbd 16.2
    /// checks that the name is free, and then ignores the result of its attempt to take it.
    Done,
    /// There is no image of the old name.
    Absent,
    /// The new name is taken.
    Taken,
}

/// The feature with which the cluster keeps a second writer out.
pub const EXCLUSIVE_LOCK: &str = "exclusive-lock";

/// The feature of an image that is a copy by snapshots.
pub const NON_PRIMARY: &str = "non-primary";

/// What the cluster reports about an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The name it has now.
    pub name: String,
    /// The id it keeps.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// The largest size that it can have, in bytes; lists do not tell it.
    pub largest: u64,
    /// Snapshots, those in its trash included.
    pub snapshots: u64,
    /// Features by rbd's names.
    pub features: BTreeSet<String>,
    /// When it was made; 1970 where the cluster does not know.
    pub created: SystemTime,
    /// What it is a clone of.
    pub parent: Option<Parent>,
    /// How it is mirrored, if it is; lists do not tell it.
    pub mirroring: Option<Mirroring>,
}

impl ImageInfo {
    /// Whether it is a copy that follows an image of another cluster.
    pub fn is_secondary(&self) -> bool {
        self.mirroring.as_ref().is_some_and(Mirroring::is_secondary)
    }

    /// Whether its promotion or demotion was broken off: it counts as primary, but no client can write to it.
    /// Seen with Ceph 16.2: `primary` is that of its newest mirror snapshot. The feature `non-primary`, which
    /// makes it read-only, goes after a promotion's snapshot and comes before a demotion's.
    pub fn is_between_roles(&self) -> bool {
        self.mirroring.as_ref().is_some_and(|it| it.primary) && self.features.contains(NON_PRIMARY)
    }
}

/// The snapshot that a clone still reads from, as `rbd` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Parent {
    /// The pool of the parent.
    pub pool: String,
    /// Its namespace.
    #[serde(rename = "pool_namespace", default)]
    pub namespace: String,
    /// The parent's name.
    pub image: String,
    /// The parent's id; lists do not tell it.
    pub id: Option<String>,
    /// The snapshot's name; random digits once the snapshot is in its image's trash.
    pub snapshot: String,
    /// The parent is in the trash; lists do not tell it.
    #[serde(rename = "trash", default)]
    pub in_trash: bool,
}

/// An image in the list of a pool, with its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedImage {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// What it is a clone of.
    pub parent: Option<Parent>,
    /// Its snapshots that are not in the trash.
    pub snapshots: Vec<ListedSnapshot>,
}

/// A snapshot, as the list of a pool shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Its name.
    pub name: String,
    /// The image's size when it was taken, in bytes.
    pub size: u64,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its number, which no other snapshot of the pool has.
    pub id: u64,
    /// Its name; one in the trash has the name it had.
    pub name: String,
    /// The image's size when it was taken, in bytes.
    pub size: u64,
    /// When it was taken.
    pub created: SystemTime,
    /// Deleted, but kept for the clones that read from it.
    pub trashed: bool,
}

/// The outcome of deleting a snapshot by its number, in an image given by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedByNumber {
    /// It is gone; a snapshot that clones read from went to the image's trash.
    Gone,
    /// It was not there.
    Absent,
    /// It stays: it is protected, or in the trash and clones read from it.
    Protected,
}

/// A client that has an image open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Its address, as `10.0.0.7:0/1234567`.
    pub address: String,
    /// `client.4711`
    pub client: String,
    /// It is the kernel's driver.
    pub is_kernel: bool,
}

/// An image in the trash of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Trashed {
    /// The name it had.
    pub name: String,
    /// Its id.
    pub id: String,
}

/// The limits of an image, by the cluster's names (`rbd_qos_iops_limit`, …); zero is no limit.
pub type Limits<'a> = &'a [(&'a str, u64)];
