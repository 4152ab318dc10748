//! Snapshots: taking, finding and deleting them. They are RBD's own; an ID names the image by its id,
//! whatever it is called by now.

pub(crate) mod list;
pub(crate) mod name_lock;

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use crate::backend::rbd::locations::place_of;
use crate::backend::rbd::snapshot::name_lock::{Claim, Claimed, NameState};
use crate::backend::rbd::tool::{Image, Info, Lockable, Made, Removed, Snap, Spot};
use crate::backend::rbd::{Rbd, names};
use crate::backend::{Begin, Deleted, NewSnapshot, Snapshot};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// Where the image of a deleted volume keeps the name it had as one.
pub(crate) const OBJECT: &str = "cephlet.object";
/// So many snapshots are remembered; beyond that all are forgotten.
const MOST: usize = 8192;

/// What is remembered of snapshots, by the image's id and the snapshot's digits.
#[derive(Debug, Default)]
pub(crate) struct Shots(Mutex<HashMap<(String, String), Shot>>);

/// What never changes of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    pub created: SystemTime,
    /// The name in the request that took it, if that was asked here.
    name: Option<String>,
}

impl Shots {
    pub fn of(&self, image: &str, digits: &str) -> Option<Shot> {
        self.0.lock().get(&(image.to_string(), digits.to_string())).cloned()
    }

    pub fn remember(&self, image: &str, digits: &str, created: SystemTime, name: Option<&str>) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(
            (image.to_string(), digits.to_string()),
            Shot { created, name: name.map(str::to_string) },
        );
    }

    fn forget(&self, id: &SnapshotId) {
        self.0.lock().remove(&(id.source.clone(), id.snapshot.clone()));
    }
}

impl Rbd {
    pub(crate) fn take_snapshot(&self, call: &Call, new: &NewSnapshot, begin: Begin<'_>) -> Result<Snapshot> {
        let spot = self.spot(&new.source.place, &new.secrets)?;
        names::refuse_internal(&new.source.object)?;
        let info = self.existing(call, &spot, &new.source)?;
        let id = SnapshotId {
            place: new.source.place.clone(),
            source: info.id.clone(),
            snapshot: new.digits.clone(),
        };
        let known =
            self.shots.of(&id.source, &id.snapshot).is_some_and(|shot| shot.name.as_ref() == Some(&new.name));
        let present = if known { self.snap(call, &spot, &id)? } else { None };
        let snap = match present {
            Some(snap) => snap,
            None => {
                begin()?;
                let snap = self.take_claimed(call, &spot, new, &info, &id);
                snap.map_err(|error| error.context(format_args!("take snapshot {:?}", new.name)))?
            }
        };
        self.shots.remember(&id.source, &id.snapshot, snap.created, Some(&new.name));
        let source =
            VolumeId { incarnation: new.source.incarnation.clone().or(Some(info.id)), ..new.source.clone() };
        Ok(Snapshot { id, source, size: snap.size, created: snap.created })
    }

    /// Claims the name and takes the snapshot, or finds the one of the same request.
    fn take_claimed(
        &self,
        call: &Call,
        spot: &Spot,
        new: &NewSnapshot,
        info: &Info,
        id: &SnapshotId,
    ) -> Result<Snap> {
        let claim = Claim { spot, digits: &new.digits, name: &new.name, image: &info.id, object: &info.name };
        let since = Instant::now();
        let claimed = self.claim(call, &claim)?;
        if let Claimed::Before(_) = claimed
            && let Some(snap) = self.snap(call, spot, id)?
        {
            return Ok(snap);
        }
        let made = self.tool.take_snapshot(call, spot, &info.name, &names::snapshot(&new.digits))?;
        match (made, &claimed) {
            (None, _) => {
                let state = self.claim_of(call, spot, &new.digits, &info.id)?;
                self.give_back(call, spot, &new.digits, &state)?;
                return Err(Error::not_found(format!("volume {} was deleted at this moment", new.source)));
            }
            (Some(Made::New), Claimed::Before(holder)) => {
                // It may be given back at this moment, by one who deleted the former snapshot of this name.
                self.tool.unlock(call, spot, Lockable::SnapshotName(&new.digits), holder)?;
                self.claim(call, &claim)?;
            }
            (Some(made), _) => self.check_claim(call, &claim, since, made)?,
        }
        self.snap(call, spot, id)?.ok_or_else(|| {
            Error::unavailable("it was deleted by others at the moment it was taken: try again")
        })
    }

    /// After a long time another controller may have thought our claim dead.
    fn check_claim(&self, call: &Call, claim: &Claim<'_>, since: Instant, made: Made) -> Result<()> {
        if !self.may_have_lost(since) {
            return Ok(());
        }
        if let NameState::Ours(_) = self.claim_of(call, claim.spot, claim.digits, claim.image)? {
            return Ok(());
        }
        if made == Made::New {
            self.tool.remove_snapshot(
                call,
                claim.spot,
                Image::Id(claim.image),
                &names::snapshot(claim.digits),
            )?;
        }
        Err(Error::unavailable("it took so long that another controller took its name: try again"))
    }

    /// The snapshot as the cluster has it; None where image or snapshot are gone.
    fn snap(&self, call: &Call, spot: &Spot, id: &SnapshotId) -> Result<Option<Snap>> {
        let name = names::snapshot(&id.snapshot);
        let all = self.tool.snapshots(call, spot, Image::Id(&id.source))?;
        Ok(all.into_iter().flatten().find(|snap| !snap.trashed && snap.name == name))
    }

    pub(crate) fn look_up_snapshot(
        &self,
        call: &Call,
        id: &SnapshotId,
        secrets: &Secrets,
    ) -> Result<Option<Snapshot>> {
        let spot = self.spot(&id.place, secrets)?;
        let Some(snap) = self.snap(call, &spot, id)? else { return Ok(None) };
        let name = match self.records.name_of(&id.place, &id.source) {
            Some(name) => Some(name),
            None => self.tool.info(call, &spot, Image::Id(&id.source))?.map(|info| info.name),
        };
        let Some(name) = name else { return Ok(None) };
        let source = self.volume_of(call, &spot, &name, &id.source)?;
        Ok(Some(Snapshot { id: id.clone(), source, size: snap.size, created: snap.created }))
    }

    /// The volume that an image is, or was before it was deleted.
    pub(crate) fn volume_of(&self, call: &Call, spot: &Spot, image: &str, id: &str) -> Result<VolumeId> {
        let former = if image.starts_with(names::HELD) {
            self.tool.metadata(call, spot, image, OBJECT)?
        } else {
            None
        };
        let object = former.unwrap_or_else(|| image.to_string());
        Ok(VolumeId { place: place_of(spot), object, incarnation: Some(id.to_string()) })
    }

    /// Deletes a snapshot: the snapshot first, then its name, then perhaps the image that was only kept for
    /// it.
    pub(crate) fn drop_snapshot(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        let spot = self.spot(&id.place, secrets)?;
        let deleted = self.drop_at(call, &spot, id);
        deleted.map_err(|error| error.context(format_args!("delete snapshot {id}")))
    }

    fn drop_at(&self, call: &Call, spot: &Spot, id: &SnapshotId) -> Result<Deleted> {
        let state = self.claim_of(call, spot, &id.snapshot, &id.source)?;
        let removed =
            self.tool.remove_snapshot(call, spot, Image::Id(&id.source), &names::snapshot(&id.snapshot))?;
        let deleted = match removed {
            Removed::Gone => Deleted::Gone,
            Removed::Absent => Deleted::Absent,
            Removed::Watched | Removed::HasSnapshots => {
                return Err(Error::precondition("it is in use: look at the image with `rbd status`"));
            }
        };
        self.shots.forget(id);
        self.give_back(call, spot, &id.snapshot, &state)?;
        // Asked afterwards: its volume may be deleted at this moment.
        match self.tool.info(call, spot, Image::Id(&id.source))? {
            Some(info) if info.name.starts_with(names::HELD) => self.release_held(call, spot, &id.source)?,
            _ => {}
        }
        Ok(deleted)
    }
}
