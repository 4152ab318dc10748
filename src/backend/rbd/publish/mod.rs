//! Giving volumes to nodes and taking them back. What is given is written on the volume itself, as locks on
//! its image's header ([`Grant`]), where every controller sees it and the cluster decides who was first.
//!
//! A single writer must be alone, also among clients that know nothing of such locks. So it holds the volume
//! for the time being while it looks who has the image open, and for good when it found nobody: after a crash
//! in between nothing is given, and soon nothing held.

pub(crate) mod context;
pub(crate) mod lock;
pub(crate) mod unpublish;

use crate::backend::Publication;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::create::Found;
use crate::backend::rbd::publish::context::PublishContext;
use crate::backend::rbd::publish::lock::{By, Grant, Stage};
use crate::backend::rbd::tool::{Image, Info, Lockable, Spot, Taken, Watcher};
use crate::call::Call;
use crate::csi::{Capability, Map};
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId};
use crate::secrets::Secrets;

/// A node's claim to a volume.
struct Claim<'a> {
    rbd: &'a Rbd,
    call: &'a Call,
    spot: &'a Spot,
    id: &'a VolumeId,
    /// The id of the image.
    image: &'a str,
    wanted: &'a Grant,
}

impl Rbd {
    pub(crate) fn publish_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map> {
        if let Err(wrong) = ids::refuse_node(&publication.node) {
            return Err(Error::not_found(format!("there is no node {:?}: {wrong}", publication.node)));
        }
        self.give(call, id, &Grant::new(publication, By::Controller), secrets).map(|context| context.to_map())
    }

    /// Does for this node what the controller was not asked to do, and tells what it would have told.
    pub(crate) fn publish_here(
        &self,
        call: &Call,
        id: &VolumeId,
        capability: &Capability,
        read_only: bool,
        secrets: &Secrets,
    ) -> Result<PublishContext> {
        let publication = Publication { node: self.node.clone(), capability: capability.clone(), read_only };
        self.give(call, id, &Grant::new(&publication, By::Node), secrets)
    }

    fn give(&self, call: &Call, id: &VolumeId, wanted: &Grant, secrets: &Secrets) -> Result<PublishContext> {
        let spot = self.spot(&id.place, secrets)?;
        // Whether what was known a while ago is still true shows when the lock is held.
        let known =
            id.incarnation.clone().filter(|incarnation| self.records.of(&id.key(), incarnation).is_some());
        let image = match known {
            Some(incarnation) => incarnation,
            None => {
                let info = self.existing(call, &spot, id)?;
                self.with_record(call, &spot, &id.key(), info)?.info.id
            }
        };
        let info = Claim { rbd: self, call, spot: &spot, id, image: &image, wanted }.take()?;
        let found: Found = self.with_record(call, &spot, &id.key(), info)?;
        PublishContext::new(found, wanted.read_only)
    }
}

impl Claim<'_> {
    fn header(&self) -> Lockable<'_> {
        Lockable::Header(self.image)
    }

    /// Gives the volume to the node, or finds it given.
    fn take(&self) -> Result<Info> {
        let others = self.grants()?;
        let given = |grant: &Grant| grant.stage == Stage::Given;
        if others.iter().any(|grant| given(grant) && grant.node == self.wanted.node) {
            return self.verified(Stage::Given);
        }
        if !self.wanted.is_single_writer() {
            self.lock(Stage::Given)?;
            return self.verified(Stage::Given);
        }
        let info = self.make_sure(!others.iter().any(given))?;
        self.lock(Stage::Given)?;
        // One who was kept waiting for longer than it could keep others away finds them here.
        self.refuse_second_writer(Stage::Given)?;
        Ok(info)
    }

    /// Keeps others away and looks whether the node would be the only one to write. `first` says that the
    /// volume is given to nobody: then nobody may have it open either.
    fn make_sure(&self, first: bool) -> Result<Info> {
        self.lock(Stage::Asking)?;
        let info = self.verified(Stage::Asking)?;
        self.refuse_second_writer(Stage::Asking)?;
        if first {
            self.refuse_watchers()?;
        }
        Ok(info)
    }

    /// A writer beside readers shares the lock with them, so it has to look for another writer: of two, at
    /// least the later one sees the other. One for whom the node must be alone was not let in beside anybody.
    fn refuse_second_writer(&self, stage: Stage) -> Result<()> {
        match self.wanted.mode.is_multi_node() {
            true => self.grants().map(drop).or_else(|refusal| self.refuse(stage, refusal)),
            false => Ok(()),
        }
    }

    /// Takes the lock, to which our own flattening gives way.
    fn lock(&self, stage: Stage) -> Result<()> {
        match self.rbd.tool.lock(self.call, self.spot, self.header(), &self.wanted.hold(stage))? {
            Taken::Now => {
                self.rbd.flattenings.break_off(self.call, self.image);
                Ok(())
            }
            Taken::Held => {
                self.grants()?;
                Err(Error::unavailable(format!(
                    "volume {} was given to another node at this moment: try again",
                    self.id
                )))
            }
        }
    }

    /// To whom the volume is given.
    ///
    /// # Errors
    /// If that does not admit this claim.
    fn grants(&self) -> Result<Vec<Grant>> {
        let mut holders = self.rbd.tool.holders(self.call, self.spot, self.header())?;
        // What is given says more than what somebody only asks for.
        holders.sort_by_key(|holder| Grant::of(holder).is_none_or(|grant| grant.stage == Stage::Asking));
        let read = |holder| {
            Grant::of(holder).ok_or_else(|| {
                Error::unavailable(format!(
                    "is held for {:?} by {} ({}): try again",
                    holder.cookie, holder.description, holder.address
                ))
            })
        };
        let admitted = |grant: Grant| grant.admit(self.wanted).map(|()| grant);
        let grants: Result<Vec<Grant>> =
            holders.iter().map(|holder| read(holder).and_then(admitted)).collect();
        grants.map_err(|error| error.context(format_args!("volume {}", self.id)))
    }

    /// The image, now that nobody deletes it any more: if it is still the one whose header was locked.
    fn verified(&self, stage: Stage) -> Result<Info> {
        let Self { rbd, call, spot, id, image, .. } = self;
        match rbd.tool.info(call, spot, Image::Named(&id.object))? {
            Some(info) if info.id == *image => Ok(info),
            _ => {
                if !rbd.remove_stray(call, spot, image)? {
                    self.release(stage)?;
                }
                rbd.records.forget(&id.key());
                rbd.existing(call, spot, id)?;
                Err(Error::unavailable(format!("volume {id} was replaced at this moment: try again")))
            }
        }
    }

    fn refuse_watchers(&self) -> Result<()> {
        self.rbd.end_flattening(self.call, self.spot, self.image, &self.id.object)?;
        let watchers = self.rbd.staying_watchers(self.call, self.spot, &self.id.object)?;
        if watchers.is_empty() {
            return Ok(());
        }
        self.refuse(Stage::Asking, in_use(self.id, &watchers))
    }

    /// Lets the lock go again.
    fn refuse<T>(&self, stage: Stage, refusal: Error) -> Result<T> {
        self.release(stage)?;
        Err(refusal)
    }

    fn release(&self, stage: Stage) -> Result<()> {
        let Self { rbd, call, spot, wanted, .. } = self;
        let wanted = wanted.hold(stage);
        for holder in rbd.tool.holders(call, spot, self.header())? {
            if holder.cookie == wanted.cookie && holder.description == wanted.description {
                rbd.tool.unlock(call, spot, self.header(), &holder)?;
            }
        }
        Ok(())
    }
}

fn in_use(id: &VolumeId, watchers: &[Watcher]) -> Error {
    let addresses: Vec<&str> = watchers.iter().map(|watcher| watcher.address.as_str()).collect();
    Error::precondition(format!(
        "volume {id} is published to no node, but open at {}, which could write to it: unmap the image \
         there, and if that client is \
         dead, wait 30 s or shut it out (`ceph osd blocklist add ADDRESS`)",
        addresses.join(", ")
    ))
}
