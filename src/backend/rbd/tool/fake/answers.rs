//! The tool's questions, answered from memory.

use std::collections::BTreeMap;

use super::state::{Disk, Link, Place, Shot, State, path};
use super::{FLATTENER, FakeCluster, Fault};
use crate::backend::ceph::Access;
use crate::backend::rbd::tests::await_that;
use crate::backend::rbd::tool::{
    Changed, Entry, Handed, Hold, Holder, Image, Info, Layout, Limits, Lockable, Made, NewClone, NewImage,
    Parent, RbdTool, Removed, Renamed, Room, Snap, Spot, Taken, Trashed, Watcher,
};
use crate::call::Call;
use crate::error::{Error, Result};

/// An image in the record of steps.
fn told(image: Image<'_>) -> String {
    match image {
        Image::Named(name) => name.to_string(),
        Image::Id(id) => format!("#{id}"),
    }
}

impl FakeCluster {
    /// A step that only reads.
    fn ask<T>(&self, step: String, spot: &Spot, read: impl FnOnce(&State) -> T) -> Result<T> {
        self.step(step, |state| state.check(spot).map(|()| read(state)))
    }

    /// A step that changes one image, known by name.
    fn change(
        &self,
        step: String,
        spot: &Spot,
        image: &str,
        change: impl FnOnce(&mut Disk) -> Result<()>,
    ) -> Result<Changed> {
        self.step(step, |state| {
            state.check_room(spot)?;
            match state.find_mut(spot, Image::Named(image)) {
                Some(disk) => change(disk).map(|()| Changed::Done),
                None => Ok(Changed::Absent),
            }
        })
    }
}

impl FakeCluster {
    /// Nobody has closed the image when it was broken off.
    fn flatten_endlessly(&self, call: &Call, spot: &Spot, image: &str) -> Result<Changed> {
        self.step(format!("flatten {image}"), |state| state.check_room(spot))?;
        self.watch(spot, image, FLATTENER);
        await_that(|| call.expired());
        Err(Error::timeout(format!("flatten {image}: killed")))
    }
}

impl State {
    fn create(&mut self, spot: &Spot, image: &NewImage<'_>) -> Result<Made> {
        self.check_layout(spot, image.layout)?;
        if self.taken(spot, image.name) {
            return Ok(Made::Taken);
        }
        let disk = self.add(spot, image.name, image.size, image.layout);
        disk.metadata =
            image.metadata.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
        Ok(Made::New)
    }

    fn create_half(&mut self, spot: &Spot, image: &NewImage<'_>) {
        if self.check_layout(spot, image.layout).is_ok() && !self.taken(spot, image.name) {
            self.half_made.insert(path(spot, image.name));
        }
    }

    /// A snapshot that can be cloned.
    fn link(&self, spot: &Spot, image: &str, snapshot: &str) -> Option<(Link, u64)> {
        let disk = self.find(spot, Image::Named(image))?;
        let shot = disk.snapshot(snapshot)?;
        Some((Link { image: disk.id.clone(), snapshot: shot.number }, shot.snap.size))
    }

    fn clone_half(&mut self, source: Option<(Link, u64)>, to: &Spot, name: &str, layout: &Layout) {
        if let (Some((_, size)), Ok(()), false) =
            (source, self.check_layout(to, layout), self.taken(to, name))
        {
            self.add(to, name, size, layout);
        }
    }

    /// Images by name; those that are half made, or half removed, are not in the list.
    fn entries(&self, spot: &Spot) -> Vec<Entry> {
        let name_and_size = |shot: &Shot| (shot.snap.name.clone(), shot.snap.size);
        let entry = |disk: &Disk| Entry {
            name: disk.name.clone(),
            id: disk.id.clone(),
            size: disk.size,
            parent: self.told_parent(disk).map(|parent| Parent { id: None, ..parent }),
            snapshots: disk.snapshots.iter().filter(|shot| !shot.snap.trashed).map(name_and_size).collect(),
        };
        let listed = self.images_in(spot).filter(|disk| disk.place == Place::Directory);
        let mut entries: Vec<Entry> = listed.map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// Names of images, also of those that are half made or half removed.
    fn names(&self, spot: &Spot) -> Vec<String> {
        let seen = |disk: &&Disk| matches!(disk.place, Place::Directory | Place::TrashUnseen | Place::Moving);
        let whole = self.images_in(spot).filter(seen).map(|disk| disk.name.clone());
        let half_made = self
            .half_made
            .iter()
            .filter(|(pool, namespace, _)| (pool, namespace) == (&spot.pool, &spot.namespace));
        whole.chain(half_made.map(|(.., name)| name.clone())).collect()
    }

    /// Removes by name: an image, what is left of a broken-off creation, or of a broken-off removal.
    fn remove_named(&mut self, spot: &Spot, name: &str) -> Removed {
        if self.half_made.remove(&path(spot, name)) {
            return Removed::Gone;
        }
        if let Some(id) = self.second_names.get(&path(spot, name)).cloned() {
            return self.remove_by_second_name(spot, name, &id);
        }
        let id = self
            .find(spot, Image::Named(name))
            .or_else(|| self.unseen(spot, name))
            .map(|disk| disk.id.clone());
        id.map_or(Removed::Absent, |id| self.remove(&id))
    }

    /// The image goes, and its own name is taken by nothing.
    fn remove_by_second_name(&mut self, spot: &Spot, name: &str, id: &str) -> Removed {
        let own = self.images.get(id).map(|disk| path(spot, &disk.name));
        let removed = self.remove(id);
        if matches!(removed, Removed::Gone | Removed::Absent) {
            self.second_names.remove(&path(spot, name));
            self.half_made.extend(own);
            return Removed::Gone;
        }
        removed
    }

    /// The image whose removal was broken off.
    fn unseen(&self, spot: &Spot, name: &str) -> Option<&Disk> {
        self.images_in(spot)
            .find(|disk| matches!(disk.place, Place::TrashUnseen | Place::Moving) && disk.name == name)
    }

    /// Before that, the name has lost its image and is still in the list of names.
    fn move_half(&mut self, spot: &Spot, name: &str) {
        let free = |disk: &&mut Disk| disk.snapshots.is_empty() && disk.watchers.is_empty();
        if let Some(disk) = self.find_mut(spot, Image::Named(name)).filter(free) {
            disk.place = Place::Moving;
        }
    }

    /// The real tool looks whether the image can be removed, moves it to a part of the trash that no list
    /// shows, and empties it.
    fn remove_half(&mut self, spot: &Spot, name: &str) {
        let free = |disk: &&mut Disk| disk.snapshots.is_empty() && disk.watchers.is_empty();
        if let Some(disk) = self.find_mut(spot, Image::Named(name)).filter(free) {
            disk.place = Place::TrashUnseen;
        }
    }

    fn rename(&mut self, spot: &Spot, from: &str, to: &str) -> Renamed {
        let taken = self.taken(spot, to);
        match self.find_mut(spot, Image::Named(from)) {
            None => Renamed::Absent,
            Some(_) if taken => Renamed::Taken,
            Some(disk) if disk.name != from => Renamed::Absent,
            Some(disk) => {
                disk.name = to.to_string();
                Renamed::Done
            }
        }
    }

    /// The real tool makes the new name, changes the directory and removes the old name.
    fn rename_half(&mut self, spot: &Spot, from: &str, to: &str, fault: Fault) {
        let free = !self.taken(spot, to);
        let Some(disk) = self.find_mut(spot, Image::Named(from)).filter(|disk| free && disk.name == from)
        else {
            return;
        };
        let second = if fault == Fault::HalfMoved {
            std::mem::replace(&mut disk.name, to.to_string())
        } else {
            to.to_string()
        };
        let id = disk.id.clone();
        self.second_names.insert(path(spot, &second), id);
    }

    fn restore(&mut self, spot: &Spot, id: &str, name: &str) -> Renamed {
        let taken = self.taken(spot, name);
        match self.trashed(spot, id) {
            None => Renamed::Absent,
            Some(_) if taken => Renamed::Taken,
            Some(disk) => {
                (disk.place, disk.name) = (Place::Directory, name.to_string());
                Renamed::Done
            }
        }
    }

    fn take_snapshot(&mut self, spot: &Spot, image: &str, name: &str) -> Option<Made> {
        let (number, created) = (self.number(), self.time());
        let disk = self.find_mut(spot, Image::Named(image))?;
        if disk.snapshot(name).is_some() {
            return Some(Made::Taken);
        }
        let snap = Snap { name: name.to_string(), size: disk.size, created, trashed: false };
        disk.snapshots.push(Shot { number, snap, content: disk.content.clone() });
        Some(Made::New)
    }

    /// Deletes a snapshot, or moves it to the image's trash, where its name is free for another.
    fn remove_snapshot(&mut self, spot: &Spot, image: Image<'_>, name: &str) -> Removed {
        let Some(disk) = self.find(spot, image) else { return Removed::Absent };
        let Some(shot) = disk.snapshot(name) else { return Removed::Absent };
        let link = Link { image: disk.id.clone(), snapshot: shot.number };
        if let Some(disk) = self.images.get_mut(&link.image) {
            let it = disk.snapshots.iter_mut().filter(|shot| shot.number == link.snapshot);
            it.for_each(|shot| shot.snap.trashed = true);
        }
        self.let_go(&link);
        Removed::Gone
    }

    fn clone_image(
        &mut self,
        source: Option<(Link, u64)>,
        to: &Spot,
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

    fn flatten(&mut self, spot: &Spot, image: &str) -> Result<Changed> {
        let Some(disk) = self.find_mut(spot, Image::Named(image)) else { return Ok(Changed::Absent) };
        let link = disk
            .parent
            .take()
            .ok_or_else(|| Error::internal(format!("image {image:?} has no parent to flatten from")))?;
        self.let_go(&link);
        Ok(Changed::Done)
    }

    fn in_trash(&self, spot: &Spot) -> Vec<Trashed> {
        let seen =
            self.images_in(spot).filter(|disk| matches!(disk.place, Place::Trash | Place::TrashForClones));
        let trashed = |disk: &Disk| Trashed {
            name: disk.name.clone(),
            id: disk.id.clone(),
            by_clones: disk.place == Place::TrashForClones,
        };
        seen.map(trashed).collect()
    }

    fn purge(&mut self, spot: &Spot, id: &str) -> Removed {
        if self.trashed(spot, id).is_some() { self.remove(id) } else { Removed::Absent }
    }

    fn purge_by_manager(&mut self, spot: &Spot, id: &str) -> Handed {
        if !self.manager {
            return Handed::NoManager;
        }
        if self.trashed(spot, id).is_none() {
            return Handed::Absent;
        }
        if !self.tasks.iter().any(|task| task == id) {
            self.tasks.push(id.to_string());
        }
        Handed::Over
    }
}

impl RbdTool for FakeCluster {
    fn usable(&self) -> Result<()> {
        Ok(())
    }

    fn create(&self, _: &Call, spot: &Spot, image: &NewImage<'_>) -> Result<Made> {
        let step = format!("create {}", image.name);
        self.half_step(step, |state| state.create(spot, image), |state| state.create_half(spot, image))
    }

    fn info(&self, _: &Call, spot: &Spot, image: Image<'_>) -> Result<Option<Info>> {
        let step = format!("info {}", told(image));
        let told = |info: Info| match image {
            Image::Named(name) => Info { name: name.to_string(), ..info },
            Image::Id(_) => info,
        };
        self.ask(step, spot, |state| state.find(spot, image).map(|disk| told(state.info(disk))))
    }

    fn metadata(&self, _: &Call, spot: &Spot, image: &str, key: &str) -> Result<Option<String>> {
        let value = |state: &State| state.find(spot, Image::Named(image))?.metadata.get(key).cloned();
        self.ask(format!("metadata {image} {key}"), spot, value)
    }

    fn metadata_of(&self, _: &Call, spot: &Spot, image: &str) -> Result<Option<BTreeMap<String, String>>> {
        let all = |state: &State| state.find(spot, Image::Named(image)).map(|disk| disk.metadata.clone());
        self.ask(format!("metadata_of {image}"), spot, all)
    }

    fn set_metadata(&self, _: &Call, spot: &Spot, image: &str, key: &str, value: &str) -> Result<Changed> {
        self.change(format!("set_metadata {image} {key}"), spot, image, |disk| {
            disk.metadata.insert(key.to_string(), value.to_string());
            Ok(())
        })
    }

    fn names(&self, _: &Call, spot: &Spot) -> Result<Vec<String>> {
        self.ask("names".to_string(), spot, |state| state.names(spot))
    }

    fn list(&self, _: &Call, spot: &Spot) -> Result<Vec<Entry>> {
        self.ask("list".to_string(), spot, |state| state.entries(spot))
    }

    fn remove(&self, _: &Call, spot: &Spot, image: &str) -> Result<Removed> {
        let act = |state: &mut State| state.check(spot).map(|()| state.remove_named(spot, image));
        self.broken_step(format!("remove {image}"), act, |state, fault| match fault {
            Fault::HalfMoved => state.move_half(spot, image),
            _ => state.remove_half(spot, image),
        })
    }

    fn rename(&self, _: &Call, spot: &Spot, from: &str, to: &str) -> Result<Renamed> {
        let act = |state: &mut State| state.check(spot).map(|()| state.rename(spot, from, to));
        self.broken_step(format!("rename {from} {to}"), act, |state, fault| {
            state.rename_half(spot, from, to, fault)
        })
    }

    fn remove_name(&self, _: &Call, spot: &Spot, name: &str) -> Result<()> {
        let act =
            |state: &mut State| state.check(spot).map(|()| state.second_names.remove(&path(spot, name)));
        self.step(format!("remove_name {name}"), act).map(drop)
    }

    fn resize(&self, _: &Call, spot: &Spot, image: &str, size: u64) -> Result<Changed> {
        self.change(format!("resize {image}"), spot, image, |disk| {
            if size < disk.size {
                return Err(Error::internal(format!(
                    "image {image:?} has {} bytes: it is not made smaller",
                    disk.size
                )));
            }
            disk.size = size;
            Ok(())
        })
    }

    fn watchers(&self, _: &Call, spot: &Spot, image: &str) -> Result<Option<Vec<Watcher>>> {
        let watchers =
            |state: &State| state.find(spot, Image::Named(image)).map(|disk| disk.watchers.clone());
        self.ask(format!("watchers {image}"), spot, watchers)
    }

    fn take_snapshot(&self, _: &Call, spot: &Spot, image: &str, snapshot: &str) -> Result<Option<Made>> {
        let act =
            |state: &mut State| state.check_room(spot).map(|()| state.take_snapshot(spot, image, snapshot));
        self.step(format!("take_snapshot {image}@{snapshot}"), act)
    }

    fn snapshots(&self, _: &Call, spot: &Spot, image: Image<'_>) -> Result<Option<Vec<Snap>>> {
        let all = |disk: &Disk| disk.snapshots.iter().map(|shot| shot.snap.clone()).collect();
        self.ask(format!("snapshots {}", told(image)), spot, |state| state.find(spot, image).map(all))
    }

    fn remove_snapshot(&self, _: &Call, spot: &Spot, image: Image<'_>, snapshot: &str) -> Result<Removed> {
        let act =
            |state: &mut State| state.check(spot).map(|()| state.remove_snapshot(spot, image, snapshot));
        self.step(format!("remove_snapshot {}@{snapshot}", told(image)), act)
    }

    fn clone_image(&self, _: &Call, clone: &NewClone<'_>) -> Result<Option<Made>> {
        let NewClone { from, image, snapshot, to, name, layout } = *clone;
        let act = |state: &mut State| {
            state.check(from)?;
            state.clone_image(state.link(from, image, snapshot), to, name, layout)
        };
        let half = |state: &mut State| state.clone_half(state.link(from, image, snapshot), to, name, layout);
        self.half_step(format!("clone_image {image}@{snapshot} {name}"), act, half)
    }

    fn flatten(&self, call: &Call, spot: &Spot, image: &str) -> Result<Changed> {
        if self.0.lock().state.endless_flattenings {
            return self.flatten_endlessly(call, spot, image);
        }
        self.step(format!("flatten {image}"), |state| {
            state.check_room(spot).and_then(|()| state.flatten(spot, image))
        })
    }

    fn move_to_trash(&self, _: &Call, spot: &Spot, image: &str) -> Result<Changed> {
        self.change(format!("move_to_trash {image}"), spot, image, |disk| {
            disk.place = Place::Trash;
            Ok(())
        })
    }

    fn trash(&self, _: &Call, spot: &Spot) -> Result<Vec<Trashed>> {
        self.ask("trash".to_string(), spot, |state| state.in_trash(spot))
    }

    fn restore_from_trash(&self, _: &Call, spot: &Spot, id: &str, name: &str) -> Result<Renamed> {
        let act = |state: &mut State| state.check(spot).map(|()| state.restore(spot, id, name));
        self.step(format!("restore_from_trash #{id} {name}"), act)
    }

    fn purge(&self, _: &Call, spot: &Spot, id: &str) -> Result<Removed> {
        self.step(format!("purge #{id}"), |state| state.check(spot).map(|()| state.purge(spot, id)))
    }

    fn purge_by_manager(&self, _: &Call, spot: &Spot, id: &str) -> Result<Handed> {
        self.step(format!("purge_by_manager #{id}"), |state| {
            state.check(spot).map(|()| state.purge_by_manager(spot, id))
        })
    }

    fn lock(&self, _: &Call, spot: &Spot, on: Lockable<'_>, hold: &Hold) -> Result<Taken> {
        self.step(format!("lock {on:?} {}", hold.cookie), |state| {
            state.check_room(spot).map(|()| state.lock(spot, on, hold))
        })
    }

    fn holders(&self, _: &Call, spot: &Spot, on: Lockable<'_>) -> Result<Vec<Holder>> {
        self.step(format!("holders {on:?}"), |state| state.check(spot).map(|()| state.holders(spot, on)))
    }

    fn unlock(&self, _: &Call, spot: &Spot, on: Lockable<'_>, holder: &Holder) -> Result<()> {
        let act = |state: &mut State| state.check(spot).map(|()| state.unlock(spot, on, holder));
        self.step(format!("unlock {on:?} {}", holder.cookie), act)
    }

    fn remove_lockable(&self, _: &Call, spot: &Spot, on: Lockable<'_>) -> Result<()> {
        self.step(format!("remove_lockable {on:?}"), |state| {
            state.check(spot).map(|()| state.remove_object(spot, on))
        })
    }

    fn pools(&self, _: &Call, _: &Access) -> Result<Vec<String>> {
        self.step("pools".to_string(), |state| Ok(state.pools.keys().cloned().collect()))
    }

    fn namespaces(&self, _: &Call, spot: &Spot) -> Result<Vec<String>> {
        self.step(format!("namespaces {}", spot.pool), |state| {
            Ok(state.pool(&spot.pool)?.namespaces.iter().cloned().collect())
        })
    }

    fn room(&self, _: &Call, spot: &Spot, pool: &str) -> Result<Room> {
        self.step(format!("room {pool}"), |state| {
            state.check(spot).and_then(|()| state.pool(pool).map(|pool| pool.room))
        })
    }

    fn set_limits(&self, _: &Call, spot: &Spot, image: &str, limits: Limits<'_>) -> Result<Changed> {
        self.change(format!("set_limits {image}"), spot, image, |disk| {
            // That is where the cluster keeps them, so clones take them over with the rest.
            disk.metadata
                .extend(limits.iter().map(|(name, value)| (format!("conf_{name}"), value.to_string())));
            Ok(())
        })
    }

    fn blocklist(&self, _: &Call, _: &Access) -> Result<Vec<String>> {
        self.step("blocklist".to_string(), |state| Ok(state.blocklist.clone()))
    }
}
