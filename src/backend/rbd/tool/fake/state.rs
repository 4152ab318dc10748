//! What the cluster holds, and the rules by which images, snapshots and clones keep each other alive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::mirrored::{MirrorSetup, MirroredDisk};
use super::object::{Lock, Object};
use crate::backend::ceph::monitor::Command;
use crate::backend::ceph::monitor::fake::{FakeMonitors, text};
use crate::backend::ceph::monitor::pools::ListedPool;
use crate::backend::ceph::{FreeSpace, PoolRef};
use crate::backend::rbd::tool::{
    ImageInfo, ImageRef, Layout, LockTarget, OBJECT_MAP, Parent, PoolOptions, Removed, SnapshotInfo, Watcher,
};
use crate::error::{Error, Result};
use crate::exec::{Output, Why};

/// A pool, a namespace and a name in it.
pub(super) type Path = (String, String, String);

/// The features of new images by librbd's default.
pub(super) const FEATURES: [&str; 5] =
    ["layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten"];

/// Features that follow from what an image is, and that a clone does not take over.
const IMPLICIT: [&str; 3] = ["data-pool", "operations", "striping"];

/// A pool.
pub(super) struct Pool {
    pub(super) room: FreeSpace,
    pub(super) namespaces: BTreeSet<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) options: PoolOptions,
}

/// Where an image is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Under its name.
    Directory,
    /// In the trash, moved there by hand, or by a removal in a pool that asks for that.
    Trash,
    /// Its removal was broken off: it is in the trash, but not listed there, and still among the names.
    Removing,
    /// Its way to the trash was broken off: its name opens nothing, and cannot be given to another image.
    Moving,
}

/// The snapshot a clone reads from.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) image: String,
    pub(super) snapshot: u64,
}

/// A snapshot with the data of its time.
pub(super) struct Shot {
    pub(super) snap: SnapshotInfo,
    /// It may not be deleted.
    pub(super) is_protected: bool,
    pub(super) content: String,
}

/// An image.
pub(super) struct Disk {
    pub(super) id: String,
    pub(super) pool: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) layout: Layout,
    pub(super) features: BTreeSet<String>,
    /// A flatten was broken off; a second one does not repair that.
    pub(super) is_half_flat: bool,
    /// No command relies on its object map.
    pub(super) is_map_invalid: bool,
    pub(super) created: SystemTime,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) parent: Option<Link>,
    pub(super) snapshots: Vec<Shot>,
    pub(super) place: Place,
    /// Its removal was broken off after the header was removed: its id does not find it any more.
    pub(super) is_headless: bool,
    pub(super) watchers: Vec<Watcher>,
    pub(super) content: String,
    pub(super) mirror: MirroredDisk,
}

/// The whole cluster.
pub(super) struct State {
    pub(super) now: SystemTime,
    pub(super) pools: BTreeMap<String, Pool>,
    /// By id.
    pub(super) images: BTreeMap<String, Disk>,
    /// Names that are taken, but mean no image.
    pub(super) half_made: BTreeSet<Path>,
    /// Names that a broken-off rename left beside the images' own names, with the images' ids.
    pub(super) second_names: BTreeMap<Path, String>,
    pub(super) objects: BTreeMap<(String, String, Object), Vec<Lock>>,
    /// Every removal is killed after it let go of a snapshot, and before it removes the snapshot.
    pub(super) leaves_snapshots: bool,
    /// Every rename finds the new name free, and another client takes the name before the rename writes it.
    pub(super) overtakes_renames: bool,
    /// Every rename leaves the old name, too.
    pub(super) leaves_old_names: bool,
    /// Pools that the user may not use.
    pub(super) forbidden: BTreeSet<String>,
    pub(super) monitors: FakeMonitors,
    pub(super) without_tools: bool,
    pub(super) mirror: MirrorSetup,
    numbers: u64,
}

impl Disk {
    /// The snapshot of this name that is not in the trash.
    pub(super) fn snapshot(&self, name: &str) -> Option<&Shot> {
        self.snapshots.iter().find(|shot| !shot.snap.trashed && shot.snap.name == name)
    }
}

impl State {
    /// A cluster without pools, on 1 January 2026.
    pub(super) fn new() -> Self {
        Self {
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600),
            pools: BTreeMap::new(),
            images: BTreeMap::new(),
            half_made: BTreeSet::new(),
            second_names: BTreeMap::new(),
            objects: BTreeMap::new(),
            leaves_snapshots: false,
            overtakes_renames: false,
            leaves_old_names: false,
            forbidden: BTreeSet::new(),
            monitors: FakeMonitors::default(),
            without_tools: false,
            mirror: MirrorSetup::default(),
            numbers: 0,
        }
    }

    /// A number that was never given before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The time as the tools tell it: in whole seconds.
    pub(super) fn time(&self) -> SystemTime {
        let since = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }

    /// The pool of this name.
    pub(super) fn pool(&self, pool: &str) -> Result<&Pool> {
        if self.forbidden.contains(pool) {
            return Err(Error::precondition(format!("the user may not use pool {pool:?}")));
        }
        self.pools.get(pool).ok_or_else(|| Error::precondition(format!("pool {pool:?} does not exist")))
    }

    /// Checks that pool and namespace exist.
    pub(super) fn check(&self, at: &PoolRef) -> Result<()> {
        let (pool, namespace) = (&at.pool, &at.namespace);
        if namespace.is_empty() || self.pool(pool)?.namespaces.contains(namespace) {
            return self.pool(pool).map(drop);
        }
        Err(Error::precondition(format!("namespace {namespace:?} does not exist in pool {pool:?}")))
    }

    /// Checks that pool and namespace exist and take writes.
    pub(super) fn check_room(&self, at: &PoolRef) -> Result<()> {
        self.check(at)?;
        self.check_pool_room(&at.pool)
    }

    /// Checks that the pool exists and takes writes.
    pub(super) fn check_pool_room(&self, pool: &str) -> Result<()> {
        match self.pool(pool)?.room.full {
            true => Err(Error::no_space(format!("pool {pool:?} is full"))),
            false => Ok(()),
        }
    }

    /// Checks that an image can be made here.
    pub(super) fn check_layout(&self, at: &PoolRef, layout: &Layout) -> Result<()> {
        self.check_room(at)?;
        layout.data_pool.as_deref().map_or(Ok(()), |pool| self.pool(pool).map(drop))
    }

    /// All images of a pool and namespace, those in the trash included.
    pub(super) fn images_in(&self, at: &PoolRef) -> impl Iterator<Item = &Disk> {
        self.images.values().filter(|disk| disk.pool == at.pool && disk.namespace == at.namespace)
    }

    /// The image as it is found: by name only outside the trash.
    pub(super) fn find(&self, at: &PoolRef, image: ImageRef<'_>) -> Option<&Disk> {
        let second = |disk: &Disk, name: &str| self.second_names.get(&path(at, name)) == Some(&disk.id);
        let found = |disk: &&Disk| match image {
            ImageRef::Name(name) => {
                disk.place == Place::Directory && (disk.name == name || second(disk, name))
            }
            ImageRef::Id(id) => disk.id == id && !disk.is_headless,
        };
        self.images_in(at).find(found)
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, at: &PoolRef, image: ImageRef<'_>) -> Option<&mut Disk> {
        let id = self.find(at, image)?.id.clone();
        self.images.get_mut(&id)
    }

    /// Whether no image can be given this name.
    pub(super) fn taken(&self, at: &PoolRef, name: &str) -> bool {
        let moving = |disk: &Disk| disk.place == Place::Moving && disk.name == name;
        self.half_made.contains(&path(at, name))
            || self.second_names.contains_key(&path(at, name))
            || self.find(at, ImageRef::Name(name)).is_some()
            || self.images_in(at).any(moving)
    }

    /// Makes a blank image.
    pub(super) fn add(&mut self, at: &PoolRef, name: &str, size: u64, layout: &Layout) -> &mut Disk {
        let id = format!("10{:010x}", self.number() * 0x9e37);
        let mut features = layout
            .features
            .clone()
            .unwrap_or_else(|| FEATURES.iter().map(|feature| (*feature).to_string()).collect());
        features.extend(layout.data_pool.iter().map(|_| "data-pool".to_string()));
        if features.contains(OBJECT_MAP) {
            features.insert("fast-diff".to_string());
        }
        let is_plain = |(unit, count): &(u64, u64)| *count == 1 && layout.object_size == Some(*unit);
        let striping = layout.striping.filter(|striping| !is_plain(striping));
        features.extend(striping.map(|_| "striping".to_string()));
        let disk = Disk {
            id: id.clone(),
            pool: at.pool.clone(),
            namespace: at.namespace.clone(),
            name: name.to_string(),
            size,
            layout: layout.clone(),
            features,
            is_half_flat: false,
            is_map_invalid: false,
            created: self.time(),
            metadata: BTreeMap::new(),
            parent: None,
            snapshots: Vec::new(),
            place: Place::Directory,
            is_headless: false,
            watchers: Vec::new(),
            content: String::new(),
            mirror: MirroredDisk::default(),
        };
        self.images.entry(id).or_insert(disk)
    }

    /// Makes a clone. It gets the data and size of the snapshot, the metadata of the image and, by default,
    /// the image's features.
    pub(super) fn add_clone(&mut self, link: Link, at: &PoolRef, name: &str, layout: &Layout) {
        let Some(parent) = self.images.get(&link.image) else { return };
        let Some(shot) = parent.snapshots.iter().find(|shot| shot.snap.id == link.snapshot) else { return };
        let inherited =
            parent.features.iter().filter(|it| !IMPLICIT.contains(&it.as_str())).cloned().collect();
        let layout = Layout {
            features: layout.features.clone().or(Some(inherited)),
            object_size: layout.object_size.or(parent.layout.object_size),
            striping: layout.striping.or(parent.layout.striping),
            ..layout.clone()
        };
        let (size, content, metadata) = (shot.snap.size, shot.content.clone(), parent.metadata.clone());
        let disk = self.add(at, name, size, &layout);
        (disk.content, disk.metadata, disk.parent) = (content, metadata, Some(link));
    }

    /// Whether a snapshot has clones.
    pub(super) fn has_children(&self, link: &Link) -> bool {
        self.images.values().any(|disk| disk.parent.as_ref() == Some(link))
    }

    /// Whether any snapshot of an image has clones.
    pub(super) fn has_clones(&self, id: &str) -> bool {
        self.images.values().any(|disk| disk.parent.as_ref().is_some_and(|link| link.image == id))
    }

    /// Removes an image, unless it has snapshots or watchers.
    pub(super) fn remove(&mut self, id: &str) -> Removed {
        let Some(disk) = self.images.get(id) else { return Removed::Absent };
        if !disk.snapshots.is_empty() {
            return Removed::HasSnapshots;
        }
        if !disk.watchers.is_empty() {
            return Removed::Watched;
        }
        self.erase(id);
        Removed::Gone
    }

    /// Removes an image, and the locks on its header.
    fn erase(&mut self, id: &str) {
        let Some(disk) = self.images.remove(id) else { return };
        for on in [LockTarget::Header(id), LockTarget::Clients(id), LockTarget::Owner(id)] {
            self.objects.remove(&(disk.pool.clone(), disk.namespace.clone(), Object::of(on)));
        }
        if !self.leaves_snapshots {
            disk.parent.iter().for_each(|link| self.let_go(link));
        }
    }

    /// To be called when a snapshot has lost a clone: a trashed snapshot goes with its last clone.
    pub(super) fn let_go(&mut self, link: &Link) {
        if self.has_children(link) {
            return;
        }
        let Some(parent) = self.images.get_mut(&link.image) else { return };
        parent.snapshots.retain(|shot| shot.snap.id != link.snapshot || !shot.snap.trashed);
    }

    /// Has the monitors carry out commands. A client that is shut out loses its watches, but keeps its locks.
    pub(super) fn ask_monitors(&mut self, commands: &[Command]) -> std::result::Result<Output, Why> {
        let listed = |(name, pool): (&String, &Pool)| {
            (ListedPool { name: name.clone(), labels: pool.labels.clone() }, pool.room)
        };
        self.monitors.pools = self.pools.iter().map(listed).collect();
        self.monitors.now = self.now;
        for command in commands.iter().filter(|it| text(it, "blocklistop") == "add") {
            let is_out = |watcher: &Watcher| watcher.address == text(command, "addr");
            self.images.values_mut().for_each(|disk| disk.watchers.retain(|watcher| !is_out(watcher)));
        }
        self.monitors.answer(commands)
    }

    /// The parent of a clone, by the names it has now.
    pub(super) fn parent(&self, disk: &Disk) -> Option<Parent> {
        let link = disk.parent.as_ref()?;
        let parent = self.images.get(&link.image)?;
        let shot = parent.snapshots.iter().find(|shot| shot.snap.id == link.snapshot)?;
        Some(Parent {
            pool: parent.pool.clone(),
            namespace: parent.namespace.clone(),
            image: parent.name.clone(),
            id: Some(parent.id.clone()),
            snapshot: shot.snap.name.clone(),
            in_trash: parent.place != Place::Directory,
        })
    }

    /// The parent as a clone's `info` shows it: a snapshot in the trash has another name there.
    pub(super) fn told_parent(&self, disk: &Disk) -> Option<Parent> {
        let link = disk.parent.as_ref()?;
        let shots = &self.images.get(&link.image)?.snapshots;
        let trashed = shots.iter().any(|shot| shot.snap.id == link.snapshot && shot.snap.trashed);
        let parent = self.parent(disk)?;
        Some(if trashed {
            Parent { snapshot: format!("7945f682-5b21-4746-b3c7-{:012x}", link.snapshot), ..parent }
        } else {
            parent
        })
    }

    /// What `info` shows of an image. Clones and their parents have a feature that no request named.
    pub(super) fn info(&self, disk: &Disk) -> ImageInfo {
        let mut features = disk.features.clone();
        if self.has_clones(&disk.id) || disk.parent.is_some() {
            features.insert("operations".to_string());
        }
        ImageInfo {
            name: disk.name.clone(),
            id: disk.id.clone(),
            size: disk.size,
            largest: Layout { features: Some(disk.features.clone()), ..disk.layout.clone() }.largest_size(),
            snapshots: (disk.snapshots.len() + disk.mirror.snapshots.len()) as u64,
            features,
            created: disk.created,
            parent: self.told_parent(disk),
            mirroring: disk.mirror.mirroring.clone(),
        }
    }
}

/// The path of a name.
pub(super) fn path(at: &PoolRef, name: &str) -> Path {
    (at.pool.clone(), at.namespace.clone(), name.to_string())
}
