//! Publishing a volume to a node. The volume itself records this, as a lock on its image's header: every
//! controller sees it there, and the cluster decides which request was first.
//!
//! A single writer must be alone, even among clients that do not know such locks. So its lock is in stage
//! `asking` while the controller looks for clients that have the image open, and in stage `given` once there
//! are none. After a crash in between nothing is published, and the lock soon expires.

use std::time::Duration;

use crate::backend::ceph::publication::request::{Request, nonce, while_client_waits};
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage, WHILE_ASKING};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::{existing_volume, with_record};
use crate::backend::rbd::image::layout::why_read_only;
use crate::backend::rbd::image::remove::exists_or_cleared;
use crate::backend::rbd::image::watchers::{addresses, await_dead, staying_watchers, users};
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::publish::context::PublishContext;
use crate::backend::rbd::publish::fence::{Owner, shut_out_dead_owner, shut_out_ended};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockTarget, Watcher};
use crate::backend::{self, PublishedBy};
use crate::clock;
use crate::csi::Capability;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::sys::address;

/// An attempt to publish a volume.
struct Attempt<'a> {
    pool: &'a Pool<'a>,
    id: &'a VolumeId,
    /// The id of the image.
    image: &'a str,
    wanted: NodePublication,
}

/// Publishes the volume to this node, if the controller was not asked to; returns the publish context.
pub(crate) fn publish_here(
    context: &Context,
    call: &Call,
    id: &VolumeId,
    (capability, read_only): (&Capability, bool),
    secrets: &Secrets,
) -> Result<PublishContext> {
    let node = context.identity.node.clone();
    let publication = backend::Publication { node, capability: capability.clone(), read_only };
    let wanted = NodePublication::new(&publication, PublishedBy::Node);
    context.within(call, (&id.place, secrets), |pool| publish(pool, id, wanted, secrets))
}

/// Publishes the volume, or finds it published; returns what the node needs to know.
pub(super) fn publish(
    pool: &Pool<'_>,
    id: &VolumeId,
    wanted: NodePublication,
    secrets: &Secrets,
) -> Result<PublishContext> {
    let image = image_id(pool, id)?;
    let mut attempt = Attempt { pool, id, image: &image, wanted };
    let outcome = attempt.run();
    let is_refused = outcome.as_ref().is_err_and(|error| error.kind() == Kind::Unauthenticated);
    if !pool.at.access.is_own() && !is_refused {
        // Even after a failed attempt: it may have left a lock.
        pool.memory().published_with.remember(pool.key_of(&id.object), secrets.clone());
    }
    PublishContext::new(with_record(pool, outcome?)?, &attempt.wanted)
}

/// The id of the volume's image. The id may be a remembered one; it is checked once the lock is held.
fn image_id(pool: &Pool<'_>, id: &VolumeId) -> Result<String> {
    match &id.incarnation {
        Some(image) if pool.memory().records.get(&pool.key_of(&id.object), image).is_some() => {
            Ok(image.clone())
        }
        _ => {
            let info = existing_volume(pool, id)?;
            Ok(with_record(pool, info)?.info.id)
        }
    }
}

impl Attempt<'_> {
    /// Publishes the volume, or finds it published.
    fn run(&mut self) -> Result<ImageInfo> {
        let others = self.admitting_locks()?;
        let is_given = |lock: &&PublicationLock| lock.stage == Stage::Given;
        let of_node: Vec<&PublicationLock> =
            others.iter().filter(|lock| lock.publication.node == self.wanted.node).collect();
        // A node gives back by itself what it took for itself: that is no publication by a controller.
        let by = self.wanted.by;
        let is_enough = |lock: &PublicationLock| by == PublishedBy::Node || lock.publication.by == by;
        let present = of_node.iter().copied().filter(is_given).find(|lock| is_enough(lock));
        self.wanted.nonce = nonce(present.into_iter().chain(of_node.iter().copied()))?;
        if let Some(present) = present {
            self.wanted.nonce.clone_from(&present.publication.nonce);
            // The lock is not this call's: it protects a node that may use the image.
            let info = self.verified(None)?;
            return self.refuse_writing_to_copy(&info).map(|()| info);
        }
        let has_node = of_node.iter().copied().any(|lock| is_given(&lock));
        if has_node || !self.wanted.is_single_writer() {
            shut_out_ended(self.pool, self.image)?;
            self.lock(Stage::Given)?;
            return self.verified_for_use(Stage::Given);
        }
        let (mut since, mut info) = (clock::since_boot(), self.check_alone()?);
        if clock::since_boot().saturating_sub(since) > Duration::from_secs(WHILE_ASKING / 2) {
            // The check had to wait for others. A new lock lasts as long as the rest may take.
            self.release(Stage::Asking)?;
            (since, info) = (clock::since_boot(), self.check_alone()?);
        }
        self.lock(Stage::Given).or_else(|refusal| self.release_and(Stage::Asking, refusal))?;
        if clock::since_boot().saturating_sub(since) > Duration::from_secs(WHILE_ASKING) {
            // The lock may have expired in between, and the volume may have been deleted.
            self.verified(Some(Stage::Given))?;
        }
        // Others may have come in if this took longer than the lock kept them away.
        self.refuse_second_writer(Stage::Given)?;
        Ok(info)
    }

    /// Keeps others away and checks whether the node would be the only writer. Every client that watches the
    /// image may write, even if the volume is published to readers: readers map it read-only, and a read-only
    /// mapping has no watch.
    fn check_alone(&self) -> Result<ImageInfo> {
        self.lock(Stage::Asking)?;
        let info = self.verified_for_use(Stage::Asking)?;
        self.refuse_second_writer(Stage::Asking)?;
        self.refuse_users(&info).or_else(|refusal| self.release_and(Stage::Asking, refusal))?;
        Ok(info)
    }

    /// Shuts out the clients of ended publications, and refuses the image while a client has it open.
    fn refuse_users(&self, info: &ImageInfo) -> Result<()> {
        shut_out_ended(self.pool, self.image)?;
        self.refuse_watchers(info)?;
        // The owner may still have watched the image when its publication ended.
        match shut_out_dead_owner(self.pool, self.image)? {
            Owner::Watches => self.refuse_watchers(info),
            Owner::NoDanger => Ok(()),
        }
    }

    /// A writer beside readers shares the lock with them, so it has to look for another writer: of two
    /// writers, at least the later one sees the other. For a single-node mode the cluster has let in no other
    /// holder.
    fn refuse_second_writer(&self, stage: Stage) -> Result<()> {
        match self.wanted.mode.is_multi_node() {
            true => self.admitting_locks().map(drop).or_else(|refusal| self.release_and(stage, refusal)),
            false => Ok(()),
        }
    }

    /// The request for the lock, within `call`.
    fn with_request<T>(&self, call: &Call, act: impl FnOnce(&Request<'_>) -> Result<T>) -> Result<T> {
        let pool = self.pool.with_call(call);
        act(&Request {
            locks: &*pool,
            target: LockTarget::Header(self.image),
            volume: self.id,
            wanted: &self.wanted,
        })
    }

    /// Takes the lock, unless the caller has given up.
    fn lock(&self, stage: Stage) -> Result<()> {
        self.with_request(&while_client_waits(self.pool.call), |request| request.lock(stage))
    }

    /// [`Request::admitting_locks`]
    fn admitting_locks(&self) -> Result<Vec<PublicationLock>> {
        self.with_request(self.pool.call, |request| request.admitting_locks())
    }

    /// The image, if it is still the one whose header was locked. The lock keeps it from being deleted. If it
    /// is not, the lock is released that this call took, in the stage `taken`.
    fn verified(&self, taken: Option<Stage>) -> Result<ImageInfo> {
        let Self { pool, id, image, .. } = self;
        match pool.info(ImageRef::Name(&id.object))? {
            Some(info) if info.id == *image => Ok(info),
            _ => {
                if exists_or_cleared(pool, image)?
                    && let Some(stage) = taken
                {
                    self.release(stage)?;
                }
                pool.memory().records.forget(&pool.key_of(&id.object));
                existing_volume(pool, id)?;
                Err(Error::unavailable(format!("volume {id} was replaced during this call: try again")))
            }
        }
    }

    /// The same, if it can be used as requested. A copy that follows another site takes no writes. Writing
    /// needs the exclusive lock: others can break that of a writer that is shut out, and of two admitted
    /// writers one writes at a time.
    fn verified_for_use(&self, stage: Stage) -> Result<ImageInfo> {
        let info = self.verified(Some(stage))?;
        self.refuse_writing_to_copy(&info).or_else(|refusal| self.release_and(stage, refusal))?;
        match why_read_only(self.id, &info.features).filter(|_| !self.wanted.read_only) {
            None => Ok(info),
            Some(why) => self.release_and(stage, Error::precondition(why)),
        }
    }

    fn refuse_writing_to_copy(&self, info: &ImageInfo) -> Result<()> {
        if self.wanted.read_only { Ok(()) } else { refuse_secondary(self.id, info, "published for writing") }
    }

    fn refuse_watchers(&self, info: &ImageInfo) -> Result<()> {
        let mut watchers = staying_watchers(self.pool, info)?;
        let are_here = !watchers.is_empty() && watchers.iter().all(|it| address::is_here(&it.address));
        if self.wanted.by == PublishedBy::Node && are_here {
            // They may be this node's own dead client: if an unmap is killed, the kernel leaves its watch
            // behind.
            watchers = await_dead(self.pool, &info.name, || users(self.pool, info))?;
        }
        if watchers.is_empty() { Ok(()) } else { Err(in_use(self.id, &watchers)) }
    }

    /// Releases the lock, and returns the refusal.
    fn release_and<T>(&self, stage: Stage, refusal: Error) -> Result<T> {
        self.release(stage)?;
        Err(refusal)
    }

    fn release(&self, stage: Stage) -> Result<()> {
        self.with_request(self.pool.call, |request| request.release(stage))
    }
}

fn in_use(id: &VolumeId, watchers: &[Watcher]) -> Error {
    Error::precondition(format!(
        "volume {id} is published to no node that writes, but open at {}, which could write to it: unmap the \
         image there, and if that client is dead, wait 30 s or shut it out (`ceph osd blocklist add ADDRESS \
         31536000`)",
        addresses(watchers)
    ))
}
