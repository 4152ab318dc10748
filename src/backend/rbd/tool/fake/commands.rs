//! What the commands do to the state of the cluster.

use super::Fault;
use super::state::{Disk, Link, Place, Shot, State, path};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{
    Changed, ImageRef, Layout, ListedImage, ListedSnapshot, Made, MadeImage, NewImage, Parent, Removed,
    RemovedByNumber, Renamed, SnapshotInfo, Trashed,
};
use crate::error::{Error, Result};

impl State {
    pub(super) fn create(&mut self, at: &PoolRef, image: &NewImage<'_>) -> Result<MadeImage> {
        self.check_layout(at, image.layout)?;
        if self.taken(at, image.name) {
            return Ok(MadeImage::Taken);
        }
        let disk = self.add(at, image.name, image.size, image.layout);
        disk.metadata =
            image.metadata.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
        Ok(MadeImage::New(None))
    }

    pub(super) fn create_half(&mut self, at: &PoolRef, image: &NewImage<'_>) {
        if self.check_layout(at, image.layout).is_ok() && !self.taken(at, image.name) {
            self.half_made.insert(path(at, image.name));
        }
    }

    /// A snapshot that can be cloned.
    pub(super) fn link(&self, at: &PoolRef, image: &str, snapshot: &str) -> Option<(Link, u64)> {
        let disk = self.find(at, ImageRef::Name(image))?;
        let shot = disk.snapshot(snapshot)?;
        Some((Link { image: disk.id.clone(), snapshot: shot.snap.id }, shot.snap.size))
    }

    pub(super) fn clone_half(
        &mut self,
        source: Option<(Link, u64)>,
        to: &PoolRef,
        name: &str,
        layout: &Layout,
    ) {
        if let (Some((_, size)), Ok(()), false) =
            (source, self.check_layout(to, layout), self.taken(to, name))
        {
            self.add(to, name, size, layout);
        }
    }

    /// Images by name; those that are half made, or half removed, are not in the list.
    pub(super) fn entries(&self, at: &PoolRef) -> Vec<ListedImage> {
        let shown = |Shot { snap, .. }: &Shot| ListedSnapshot { name: snap.name.clone(), size: snap.size };
        let entry = |disk: &Disk| ListedImage {
            name: disk.name.clone(),
            id: disk.id.clone(),
            size: disk.size,
            parent: self.told_parent(disk).map(|parent| Parent { id: None, in_trash: false, ..parent }),
            snapshots: disk.snapshots.iter().filter(|shot| !shot.snap.trashed).map(shown).collect(),
        };
        let listed = self.images_in(at).filter(|disk| disk.place == Place::Directory);
        let mut entries: Vec<ListedImage> = listed.map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// Names of images, also of those that are half made or half removed.
    pub(super) fn names(&self, at: &PoolRef) -> Vec<String> {
        let seen = |disk: &&Disk| matches!(disk.place, Place::Directory | Place::Removing | Place::Moving);
        let whole = self.images_in(at).filter(seen).map(|disk| disk.name.clone());
        let half_made = self
            .half_made
            .iter()
            .filter(|(pool, namespace, _)| (pool, namespace) == (&at.pool, &at.namespace));
        let mut names: Vec<String> = whole.chain(half_made.map(|(.., name)| name.clone())).collect();
        names.sort();
        names
    }

    /// Removes by name an image, or what is left of a broken-off creation or removal. In a pool that takes no
    /// writes it reports that there is nothing of this name.
    pub(super) fn remove_named(&mut self, at: &PoolRef, name: &str) -> Removed {
        if self.check_room(at).is_err() {
            return Removed::Absent;
        }
        if self.half_made.remove(&path(at, name)) {
            return Removed::Gone;
        }
        if let Some(id) = self.second_names.get(&path(at, name)).cloned() {
            return self.remove_by_second_name(at, name, &id);
        }
        let is_trashed = self.pools.get(&at.pool).is_some_and(|pool| pool.options.trashes_removed);
        if let Some(disk) = self.find_mut(at, ImageRef::Name(name)).filter(|_| is_trashed) {
            disk.place = Place::Trash;
            return Removed::Gone;
        }
        let id = self.find(at, ImageRef::Name(name)).or_else(|| self.half_removed(at, name));
        id.map(|disk| disk.id.clone()).map_or(Removed::Absent, |id| self.remove(&id))
    }

    /// Removes the image, but reports that it was not there. The image's own name stays taken, by no image.
    fn remove_by_second_name(&mut self, at: &PoolRef, name: &str, id: &str) -> Removed {
        let own = self.images.get(id).map(|disk| path(at, &disk.name));
        match self.remove(id) {
            Removed::Gone => {
                self.second_names.remove(&path(at, name));
                self.half_made.extend(own);
                Removed::Absent
            }
            // The image went by its own name.
            Removed::Absent => {
                self.second_names.remove(&path(at, name));
                Removed::Gone
            }
            refused => refused,
        }
    }

    /// The image whose removal was broken off.
    fn half_removed(&self, at: &PoolRef, name: &str) -> Option<&Disk> {
        self.images_in(at)
            .find(|disk| matches!(disk.place, Place::Removing | Place::Moving) && disk.name == name)
    }

    /// An earlier point of a removal: the name no longer finds its image, but is still in the list of names.
    pub(super) fn move_half(&mut self, at: &PoolRef, name: &str) {
        let free = |disk: &&mut Disk| disk.snapshots.is_empty() && disk.watchers.is_empty();
        if let Some(disk) = self.find_mut(at, ImageRef::Name(name)).filter(free) {
            disk.place = Place::Moving;
        }
    }

    /// The real tool looks whether the image can be removed, moves it to a part of the trash that no list
    /// shows, and empties it.
    pub(super) fn remove_half(&mut self, at: &PoolRef, name: &str) {
        let free = |disk: &&mut Disk| disk.snapshots.is_empty() && disk.watchers.is_empty();
        if let Some(disk) = self.find_mut(at, ImageRef::Name(name)).filter(free) {
            disk.place = Place::Removing;
        }
    }

    pub(super) fn rename(&mut self, at: &PoolRef, from: &str, to: &str) -> Renamed {
        let (taken, overtaken) = (self.taken(at, to), self.overtakes_renames);
        match self.find_mut(at, ImageRef::Name(from)) {
            None => Renamed::Absent,
            Some(_) if taken && overtaken => Renamed::Done,
            Some(_) if taken => Renamed::Taken,
            Some(disk) if disk.name != from => Renamed::Absent,
            Some(disk) => {
                let id = disk.id.clone();
                disk.name = to.to_string();
                if self.leaves_old_names {
                    self.second_names.insert(path(at, from), id);
                }
                Renamed::Done
            }
        }
    }

    /// The real tool makes the new name, changes the directory and removes the old name.
    pub(super) fn rename_half(&mut self, at: &PoolRef, from: &str, to: &str, fault: Fault) {
        let free = !self.taken(at, to);
        let Some(disk) = self.find_mut(at, ImageRef::Name(from)).filter(|disk| free && disk.name == from)
        else {
            return;
        };
        let second = if fault == Fault::HalfMoved {
            std::mem::replace(&mut disk.name, to.to_string())
        } else {
            to.to_string()
        };
        let id = disk.id.clone();
        self.second_names.insert(path(at, &second), id);
    }

    pub(super) fn create_snapshot(&mut self, at: &PoolRef, image: &str, name: &str) -> Option<Made> {
        let (id, created) = (self.number(), self.time());
        let disk = self.find_mut(at, ImageRef::Name(image))?;
        if disk.snapshot(name).is_some() {
            return Some(Made::Taken);
        }
        let (name, size) = (name.to_string(), disk.size);
        let snap = SnapshotInfo { id, name, size, created, trashed: false };
        let content = disk.content.clone();
        disk.snapshots.push(Shot { snap, is_protected: false, content });
        Some(Made::New)
    }

    /// Deletes a snapshot, or moves it to the image's trash, where its name is free for another.
    pub(super) fn remove_snapshot(
        &mut self,
        at: &PoolRef,
        image: ImageRef<'_>,
        name: &str,
    ) -> Result<Removed> {
        let Some(disk) = self.find(at, image) else { return Ok(Removed::Absent) };
        let Some(shot) = disk.snapshot(name) else { return Ok(Removed::Absent) };
        if shot.is_protected {
            return Err(Error::precondition(format!("delete snapshot {name}: it is protected")));
        }
        let link = Link { image: disk.id.clone(), snapshot: shot.snap.id };
        self.trash_snapshot(&link);
        Ok(Removed::Gone)
    }

    /// Moves a snapshot to its image's trash, which it leaves at once if no clone reads from it.
    fn trash_snapshot(&mut self, link: &Link) {
        if let Some(disk) = self.images.get_mut(&link.image) {
            let it = disk.snapshots.iter_mut().filter(|shot| shot.snap.id == link.snapshot);
            it.for_each(|shot| shot.snap.trashed = true);
        }
        self.let_go(link);
    }

    pub(super) fn remove_snapshot_by_number(&mut self, link: &Link) -> RemovedByNumber {
        let is_it = |shot: &&Shot| shot.snap.id == link.snapshot;
        let shot = self.images.get(&link.image).and_then(|disk| disk.snapshots.iter().find(is_it));
        let Some(shot) = shot else { return RemovedByNumber::Absent };
        if shot.is_protected || (shot.snap.trashed && self.has_children(link)) {
            return RemovedByNumber::Protected;
        }
        self.trash_snapshot(link);
        RemovedByNumber::Gone
    }

    pub(super) fn clone_image(
        &mut self,
        source: Option<(Link, u64)>,
        to: &PoolRef,
        name: &str,
        layout: &Layout,
    ) -> Result<Option<Made>> {
        self.check_layout(to, layout)?;
        let Some((link, _)) = source else { return Ok(None) };
        if self.taken(to, name) {
            return Ok(Some(Made::Taken));
        }
        self.add_clone(link, to, name, layout);
        Ok(Some(Made::New))
    }

    pub(super) fn flatten(&mut self, at: &PoolRef, image: &str) -> Result<Changed> {
        let Some(disk) = self.find_mut(at, ImageRef::Name(image)) else { return Ok(Changed::Absent) };
        let link = disk
            .parent
            .take()
            .ok_or_else(|| Error::internal(format!("image {image:?} has no parent to flatten from")))?;
        let relies_on_map = disk.features.contains("object-map") && !disk.is_map_invalid;
        if disk.is_half_flat && relies_on_map {
            disk.content = format!("a part of {:?}", disk.content);
        }
        self.let_go(&link);
        Ok(Changed::Done)
    }

    /// The object map may already list objects that were about to be written: a second flatten passes over
    /// them.
    pub(super) fn flatten_half(&mut self, at: &PoolRef, image: &str) {
        if let Some(disk) = self.find_mut(at, ImageRef::Name(image)) {
            disk.is_half_flat = true;
        }
    }

    pub(super) fn in_trash(&self, at: &PoolRef) -> Vec<Trashed> {
        let trashed = |disk: &Disk| Trashed { name: disk.name.clone(), id: disk.id.clone() };
        self.images_in(at).filter(|disk| disk.place == Place::Trash).map(trashed).collect()
    }

    pub(super) fn purge(&mut self, at: &PoolRef, id: &str) -> Removed {
        let is_there = |disk: &Disk| disk.id == id && matches!(disk.place, Place::Trash | Place::Removing);
        if self.images_in(at).any(is_there) { self.remove(id) } else { Removed::Absent }
    }
}
