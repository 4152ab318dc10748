//! Deleting a volume.
//!
//! Three processes where nothing is in the way: the right to delete is taken ([`right`](crate::backend::rbd::image::deletion_lock)), the
//! name is looked up, the image is removed. What a killed removal left is finished by the image's id, which
//! the volume's ID tells:
//!
//! | what it left | seen by name | by id | finished by |
//! |---|---|---|---|
//! | nothing done | there | there | starting over |
//! | on its way to the trash; the name cannot be given to another | absent | there | removal by name |
//! | in the trash, where no list shows it; the name is free | absent | there | purge by id |
//! | the header is gone, the rest is there | absent | absent | purge by id |

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::deletion_lock::{Asked, Right};
use crate::backend::rbd::image::outlived::needed_by;
use crate::backend::rbd::image::temporaries::held_id;
use crate::backend::rbd::tool::{Holder, Image, Info, Lockable, Removed, Spot, Watcher};
use crate::backend::{Begin, Deleted, Deletion};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// How often an image is looked at again that changes meanwhile.
const ATTEMPTS: usize = 4;

impl Rbd {
    pub(crate) fn resolve_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<Option<VolumeId>> {
        if id.incarnation.is_some() {
            return Ok(Some(id.clone()));
        }
        let spot = self.spot(&id.place, secrets)?;
        let found = self.look_up(call, &spot, id);
        let found = found.map_err(|error| error.context(format_args!("look for volume {id}")))?;
        Ok(found.map(|info| VolumeId { incarnation: Some(info.id), ..id.clone() }))
    }

    pub(crate) fn delete_volume(
        &self,
        call: &Call,
        deletion: &Deletion<'_>,
        begin: Begin<'_>,
    ) -> Result<Deleted> {
        let id = deletion.id;
        let spot = self.spot(&id.place, deletion.secrets)?;
        let outcome = self.delete_at(call, &spot, deletion, begin);
        let outcome = outcome.map_err(|error| error.context(format_args!("delete volume {id}")))?;
        self.records.forget(&id.key());
        self.gone.remember(id);
        Ok(outcome)
    }

    fn delete_at(
        &self,
        call: &Call,
        spot: &Spot,
        deletion: &Deletion<'_>,
        begin: Begin<'_>,
    ) -> Result<Deleted> {
        let Deletion { id, snapshots_may_outlive, .. } = *deletion;
        let mut image = match &id.incarnation {
            Some(image) if !self.gone.knows(id) => image.clone(),
            // Nothing is written, to the cluster or the journal, for a volume that is most likely gone.
            _ => match self.look_up(call, spot, id)? {
                Some(info) => info.id,
                None => return Ok(Deleted::Absent),
            },
        };
        begin()?;
        for _ in 0..ATTEMPTS {
            let right = match self.take_right(call, spot, &image, snapshots_may_outlive)? {
                Asked::Ours(right) => right,
                Asked::Published(nodes) => return self.refuse_published(call, spot, id, &image, &nodes),
                Asked::Theirs => return self.follow(call, spot, &image, snapshots_may_outlive),
            };
            let outcome = self.delete_rightly(call, spot, id, &image, right);
            match outcome {
                Ok(Outcome::Over(deleted)) => return Ok(deleted),
                Ok(Outcome::Other(meant)) => image = meant,
                Err(error) => {
                    self.give_right_back(call, spot, &image);
                    return Err(error);
                }
            }
        }
        Err(Error::unavailable("others make and delete it at this moment: try again"))
    }

    /// Deletes the volume if its name means the image we may delete.
    fn delete_rightly(
        &self,
        call: &Call,
        spot: &Spot,
        id: &VolumeId,
        image: &str,
        right: Right,
    ) -> Result<Outcome> {
        match self.look_up(call, spot, id)? {
            Some(info) if info.id == image => {
                self.dispose(call, spot, info, right).map(|()| Outcome::Over(Deleted::Gone))
            }
            // A mirrored image: the ID tells the id it had in the other cluster.
            Some(info) => {
                self.tool.remove_lockable(call, spot, Lockable::Header(image))?;
                Ok(Outcome::Other(info.id))
            }
            None => self.finish(call, spot, &id.object, image, right).map(Outcome::Over),
        }
    }

    /// Removes an image in the way its snapshots and its size ask for. The caller holds the right to.
    pub(crate) fn dispose(&self, call: &Call, spot: &Spot, info: Info, right: Right) -> Result<()> {
        let mut info = info;
        self.end_flattening(call, spot, &info.id, &info.name)?;
        for _ in 0..ATTEMPTS {
            let removed = self.dispose_once(call, spot, &info, right)?;
            if removed {
                return Ok(());
            }
            // By the name that may be removed: the id would also find it in the trash, when the name means
            // another.
            info = match self.tool.info(call, spot, Image::Named(&info.name))? {
                Some(now) if now.id == info.id => now,
                _ => return Ok(()),
            };
        }
        Err(Error::unavailable("others change it at this moment: try again"))
    }

    /// False if the image is not what `info` says any more.
    fn dispose_once(&self, call: &Call, spot: &Spot, info: &Info, right: Right) -> Result<bool> {
        if info.snapshots > 0 {
            let Some(live) = self.live_snapshots(call, spot, &info.id)? else { return Ok(true) };
            if self.remove_copies(call, spot, &info.id, &live)? {
                return Ok(false);
            }
            if !live.is_empty() && held_id(&info.name) == Some(&info.id) {
                return Ok(true);
            }
            match (live.is_empty(), right.snapshots_may_outlive) {
                (true, _) => {}
                (false, true) => return self.hold(call, spot, info, right).map(|()| true),
                (false, false) => return Err(needed_by(&live)),
            }
        } else if info.size > crate::backend::rbd::image::trash::LARGE {
            return self.move_aside(call, spot, info, right);
        }
        self.remove_rightly(call, spot, &info.name, &info.id, right)
    }

    /// False if it has snapshots after all, or was in use for a moment only.
    fn remove_rightly(
        &self,
        call: &Call,
        spot: &Spot,
        name: &str,
        image: &str,
        right: Right,
    ) -> Result<bool> {
        right.check()?;
        match self.tool.remove(call, spot, name)? {
            Removed::Gone => Ok(true),
            // A removal that its daemon did not survive was still under way, and may have ended half way.
            Removed::Absent => match self.tool.purge(call, spot, image)? {
                Removed::Watched => Err(broken_off()),
                _ => Ok(true),
            },
            Removed::HasSnapshots => Ok(false),
            Removed::Watched => {
                let watchers = self.staying_watchers(call, spot, name)?;
                if watchers.is_empty() { Ok(false) } else { Err(in_use(name, &watchers)) }
            }
        }
    }

    /// The name does not mean the image: finishes what a killed deletion has begun, or finds it finished.
    fn finish(&self, call: &Call, spot: &Spot, name: &str, image: &str, right: Right) -> Result<Deleted> {
        let found = self.tool.info(call, spot, Image::Id(image))?;
        match &found {
            Some(info) if info.name != name => {
                // Deleted, and held for its snapshots; or renamed by an operator, and so no volume any more.
                self.give_right_back(call, spot, image);
                return Ok(Deleted::Absent);
            }
            Some(info)
                if info.size > crate::backend::rbd::image::trash::LARGE
                    && self.is_trashed(call, spot, image)? =>
            {
                if !right.snapshots_may_outlive && self.restore_snapshotted(call, spot, info)? {
                    return Err(Error::unavailable(
                        "a snapshot was taken of it when it was moved to the trash: try again",
                    ));
                }
                self.purge_soon(call, spot, image, name)?;
                return Ok(Deleted::Gone);
            }
            _ => {}
        }
        match (self.tool.purge(call, spot, image)?, found) {
            (Removed::Gone, _) => Ok(Deleted::Gone),
            (Removed::Absent, None) => {
                // Taking the lock has made an object where no image is.
                self.tool.remove_lockable(call, spot, Lockable::Header(image))?;
                Ok(Deleted::Absent)
            }
            // On its way to the trash. As long as it is, nobody can make another image of the name.
            (Removed::Absent, Some(_)) => match self.remove_rightly(call, spot, name, image, right)? {
                true => Ok(Deleted::Gone),
                false => Err(Error::unavailable("others change it at this moment: try again")),
            },
            (Removed::HasSnapshots, _) => {
                // Kept for its clones, with the last of which it goes.
                self.give_right_back(call, spot, image);
                Ok(Deleted::Absent)
            }
            (Removed::Watched, _) => Err(broken_off()),
        }
    }

    /// Another controller has the right: once the image is in the trash, it needs no right any more.
    fn follow(&self, call: &Call, spot: &Spot, image: &str, snapshots_may_outlive: bool) -> Result<Deleted> {
        match self.tool.trash(call, spot)?.iter().find(|it| it.id == image) {
            Some(trashed) if trashed.by_clones => Ok(Deleted::Absent),
            Some(_) if !snapshots_may_outlive && self.has_live_snapshots(call, spot, image)? => {
                Err(self.theirs())
            }
            Some(trashed) if self.purge_soon(call, spot, image, &trashed.name)? => Ok(Deleted::Gone),
            _ => Err(self.theirs()),
        }
    }

    /// Says to whom the volume is given, unless there is no volume any more and the lock was taken too late.
    fn refuse_published(
        &self,
        call: &Call,
        spot: &Spot,
        id: &VolumeId,
        image: &str,
        nodes: &[Holder],
    ) -> Result<Deleted> {
        let there = self.look_up(call, spot, id)?.is_some()
            || self.tool.info(call, spot, Image::Id(image))?.is_some();
        if !there {
            self.tool.remove_lockable(call, spot, Lockable::Header(image))?;
            return Ok(Deleted::Absent);
        }
        let names: Vec<String> =
            nodes.iter().map(|node| format!("{:?} ({})", node.cookie, node.description)).collect();
        Err(Error::precondition(format!(
            "it is published to {}: take it back with ControllerUnpublishVolume first",
            names.join(", ")
        )))
    }
}

fn broken_off() -> Error {
    Error::unavailable(
        "its removal was broken off a moment ago: try again, it can go on half a minute from now at the \
         latest",
    )
}

/// What came of an attempt.
enum Outcome {
    /// The volume is deleted.
    Over(Deleted),
    /// The ID means the image of another id.
    Other(String),
}

/// The refusal of an image that clients have open.
pub(crate) fn in_use(name: &str, watchers: &[Watcher]) -> Error {
    let addresses: Vec<&str> = watchers.iter().map(|watcher| watcher.address.as_str()).collect();
    let by =
        if addresses.is_empty() { "a client that is gone by now".to_string() } else { addresses.join(", ") };
    Error::precondition(format!(
        "image {name:?} is in use by {by}: unmap it there, then try again; a client that died is forgotten \
         after 30 s"
    ))
}
