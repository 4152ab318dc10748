//! Mirroring: what the image is here, and what the test sets for the other site. Nothing connects the two.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::mirrored::MirroredDisk;
use super::state::{Disk, State};
use super::{FakeCluster, FakePool};
use crate::backend::MirroringMode;
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::types::NON_PRIMARY;
use crate::backend::rbd::tool::{
    ImageRef, MirrorScope, MirrorSnapshot, MirrorSnapshotKind as Kind, MirrorState, MirrorStatus, MirrorTool,
    Mirroring, Promoted,
};
use crate::backend::replication::Schedule;
use crate::error::{Error, Result};

impl FakeCluster {
    /// Sets how all pools are mirrored from now on.
    pub fn set_mirror_pool(&self, scope: MirrorScope, peers: &[&str]) {
        let is_alone = scope == MirrorScope::Images && peers.is_empty();
        self.0.lock().state.mirror.pool = if is_alone { MirrorScope::Alone } else { scope };
    }

    /// Sets how an image is mirrored by snapshots from now on.
    pub fn set_mirrored(&self, at: &PoolRef, image: &str, state: MirrorState, primary: bool) {
        self.set_mirrored_by(at, image, MirroringMode::Snapshot, state, primary);
    }

    /// The same in another mode.
    pub fn set_mirrored_by(
        &self,
        at: &PoolRef,
        image: &str,
        mode: MirroringMode,
        state: MirrorState,
        primary: bool,
    ) {
        let mirroring = Mirroring { mode, state, primary };
        self.disk(at, image, |disk| {
            disk.mirror.mirroring = Some(mirroring);
            if primary {
                take_snapshot(&mut disk.mirror, Kind::Primary);
            }
        });
    }

    /// Sets the mirror snapshots that an image has.
    pub fn set_mirror_snapshots(&self, at: &PoolRef, image: &str, snapshots: Vec<MirrorSnapshot>) {
        self.disk(at, image, |disk| disk.mirror.snapshots = snapshots);
    }

    /// Sets what the sites report about an image.
    pub fn set_mirror_status(&self, at: &PoolRef, image: &str, status: MirrorStatus) {
        self.disk(at, image, |disk| disk.mirror.status = Some(status));
    }

    /// Leaves an image as a promotion does that was broken off at its end.
    pub fn leave_between_roles(&self, at: &PoolRef, image: &str) {
        self.set_mirrored(at, image, MirrorState::Enabled, true);
        self.disk(at, image, |disk| disk.features.insert(NON_PRIMARY.to_string()));
    }

    /// Leaves an image as a demotion does that was broken off before it was written into the journal.
    pub fn leave_bare_tag(&self, at: &PoolRef, image: &str) {
        self.disk(at, image, |disk| disk.mirror.bare_tag = true);
    }

    /// The schedules by which an image is mirrored.
    pub fn schedules_of(&self, at: &PoolRef, image: &str) -> Vec<Schedule> {
        self.disk(at, image, |disk| disk.mirror.schedules.clone())
    }

    /// Sets whether a promotion of an image by force, begun by an earlier daemon, goes on.
    pub fn set_promoted_by_force(&self, image: &str, is_promoted: bool) {
        let promotions = &mut self.0.lock().state.mirror.promotions;
        match is_promoted {
            true => promotions.insert(image.to_string()),
            false => promotions.remove(image),
        };
    }

    /// Makes a client of a pool a daemon of rbd-mirror.
    pub fn call_mirror(&self, client: &str) {
        self.0.lock().state.mirror.daemons.insert(client.to_string());
    }

    /// Has a daemon of rbd-mirror open an image.
    pub fn watch_by_mirror(&self, at: &PoolRef, image: &str, address: &str) {
        self.watch(at, image, address);
        let client = self.disk(at, image, |disk| disk.watchers.last().map(|it| it.client.clone()));
        self.0.lock().state.mirror.daemons.extend(client);
    }
}

impl MirrorTool for FakePool {
    fn mirror_pool(&self) -> Result<MirrorScope> {
        self.ask("mirror_pool".to_string(), |state| state.mirror.pool)
    }

    fn mirror_daemons(&self) -> Result<BTreeSet<String>> {
        self.ask("mirror_daemons".to_string(), |state| state.mirror.daemons.clone())
    }

    fn mirror_status(&self, image: &str) -> Result<Option<MirrorStatus>> {
        let status =
            |state: &State| mirrored(state, &self.at, image).and_then(|disk| disk.mirror.status.clone());
        self.ask(format!("mirror_status {image}"), status)
    }

    fn mirrored_images(&self) -> Result<Vec<(String, Option<bool>)>> {
        self.ask("mirrored_images".to_string(), |state| {
            let images = state.images_in(&self.at).filter_map(|disk| {
                let mirroring = disk.mirror.mirroring.as_ref()?;
                Some((disk.name.clone(), Some(mirroring.primary)))
            });
            images.collect()
        })
    }

    fn mirror_snapshots(&self, image: &str) -> Result<Option<Vec<MirrorSnapshot>>> {
        let all = |state: &State| {
            state.find(&self.at, ImageRef::Name(image)).map(|disk| disk.mirror.snapshots.clone())
        };
        self.ask(format!("mirror_snapshots {image}"), all)
    }

    fn has_bare_tag(&self, image: &str, _: &str) -> Result<bool> {
        self.ask(format!("has_bare_tag {image}"), |state| {
            mirrored(state, &self.at, image).is_some_and(|disk| disk.mirror.bare_tag)
        })
    }

    fn enable_mirroring(&self, image: &str, mode: MirroringMode) -> Result<()> {
        self.mirror(format!("enable_mirroring {image} {}", mode.word()), image, |disk| {
            if disk.mirroring.is_some() {
                return Err(refused("mirrored already"));
            }
            let state = MirrorState::Enabled;
            disk.mirroring = Some(Mirroring { mode, state, primary: true });
            take_snapshot(disk, Kind::Primary);
            Ok(())
        })
    }

    fn disable_mirroring(&self, image: &str, force: bool) -> Result<()> {
        let step = format!("disable_mirroring {image}{}", if force { " --force" } else { "" });
        let act = |disk: &mut MirroredDisk| {
            let is_copy = disk.snapshots.last().is_some_and(|top| top.kind != Kind::Primary);
            if disk.mirroring.as_ref().is_some_and(|it| !it.primary) && is_copy && !force {
                return Err(refused("not primary"));
            }
            (disk.mirroring, disk.snapshots) = (None, Vec::new());
            Ok(())
        };
        self.half_step(
            step,
            |state| on_mirrored(state, &self.at, image, act),
            |state| {
                let half = |disk: &mut MirroredDisk| {
                    let ending =
                        |it: &mut Mirroring| (it.state, it.primary) = (MirrorState::Disabling, false);
                    disk.mirroring.as_mut().map(ending).ok_or_else(|| refused("not mirrored"))
                };
                drop(on_mirrored(state, &self.at, image, half));
            },
        )
    }

    fn promote(&self, image: &str) -> Result<Promoted> {
        self.step(format!("promote {image}"), |state| {
            let mut outcome = Promoted::Done;
            on_mirrored(state, &self.at, image, |disk| {
                let newest = disk.snapshots.last().map(|it| it.kind);
                let is_free = matches!(newest, Some(Kind::Demoted | Kind::CopyOfDemoted));
                outcome = if is_free { Promoted::Done } else { Promoted::PeerIsPrimary };
                if is_free { set_primary(disk, true) } else { Ok(()) }
            })?;
            if let Some(disk) = state.find_mut(&self.at, ImageRef::Name(image)) {
                disk.features.remove(NON_PRIMARY);
            }
            Ok(outcome)
        })
    }

    fn promote_by_force(&self, image: &str) -> Result<()> {
        self.mirror(format!("promote_by_force {image}"), image, |disk| set_primary(disk, true))
    }

    fn is_promoted_by_force(&self, image: &str) -> Result<bool> {
        Ok(self.0.lock().state.mirror.promotions.contains(image))
    }

    fn demote(&self, image: &str) -> Result<()> {
        self.mirror(format!("demote {image}"), image, |disk| set_primary(disk, false))
    }

    fn request_resync(&self, image: &str) -> Result<()> {
        self.step(format!("request_resync {image}"), |state| {
            let disk = state.find_mut(&self.at, ImageRef::Name(image)).ok_or_else(|| refused("no image"))?;
            let wish = ("{\"resync_requested\": true}".to_string(), ".rbd_mirror.618b".to_string());
            disk.metadata.insert(wish.1, wish.0);
            Ok(())
        })
    }

    fn schedules(&self, image: &str) -> Result<Vec<Schedule>> {
        let all = |state: &State| mirrored(state, &self.at, image).map(|disk| disk.mirror.schedules.clone());
        self.ask(format!("schedules {image}"), all).map(Option::unwrap_or_default)
    }

    fn add_schedule(&self, image: &str, schedule: &Schedule) -> Result<()> {
        self.mirror(format!("add_schedule {image} {}", schedule.interval()), image, |disk| {
            if !disk.schedules.contains(schedule) {
                disk.schedules.push(schedule.clone());
            }
            Ok(())
        })
    }

    fn remove_schedule(&self, image: &str, unwanted: Option<&Schedule>) -> Result<()> {
        let which = unwanted.map_or("all".to_string(), Schedule::interval);
        self.mirror(format!("remove_schedule {image} {which}"), image, |disk| {
            disk.schedules.retain(|it| unwanted.is_some_and(|unwanted| it != unwanted));
            Ok(())
        })
    }
}

impl FakePool {
    /// A step that changes how an image is mirrored.
    fn mirror(
        &self,
        step: String,
        image: &str,
        change: impl FnOnce(&mut MirroredDisk) -> Result<()>,
    ) -> Result<()> {
        self.step(step, |state| on_mirrored(state, &self.at, image, change))
    }
}

fn on_mirrored(
    state: &mut State,
    at: &PoolRef,
    image: &str,
    change: impl FnOnce(&mut MirroredDisk) -> Result<()>,
) -> Result<()> {
    state.check_room(at)?;
    change(&mut state.find_mut(at, ImageRef::Name(image)).ok_or_else(|| refused("no image"))?.mirror)
}

/// Fails if the image has that role already.
fn set_primary(disk: &mut MirroredDisk, primary: bool) -> Result<()> {
    match &mut disk.mirroring {
        Some(mirroring) if mirroring.primary != primary => {
            (mirroring.primary, disk.bare_tag) = (primary, false);
            take_snapshot(disk, if primary { Kind::Primary } else { Kind::Demoted });
            Ok(())
        }
        _ => Err(refused("it is that already, or not mirrored")),
    }
}

/// Takes a mirror snapshot, as if a peer copied it at once.
fn take_snapshot(disk: &mut MirroredDisk, kind: Kind) {
    if disk.mirroring.as_ref().is_some_and(|it| it.mode == MirroringMode::Snapshot) {
        let id = disk.snapshots.iter().map(|it| it.id).max().unwrap_or(3) + 1;
        let created = SystemTime::UNIX_EPOCH;
        disk.snapshots.push(MirrorSnapshot { id, kind, complete: true, objects: 0, linked: false, created });
    }
}

fn refused(why: &str) -> Error {
    Error::internal(format!("exit status 22: {why}"))
}

/// The image, if it is mirrored.
fn mirrored<'a>(state: &'a State, at: &PoolRef, image: &str) -> Option<&'a Disk> {
    state.find(at, ImageRef::Name(image)).filter(|disk| disk.mirror.mirroring.is_some())
}
