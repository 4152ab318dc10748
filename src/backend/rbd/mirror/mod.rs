//! Replication by rbd-mirror: an image is primary in one cluster, and in another a copy that follows it.
//!
//! What is asked for is an image's state, and that is read first: a command is given only where the state is
//! another, and where a command fails the state is read again. Statuses of these commands prove nothing: the
//! same command again fails, and one that was killed may have done its work.
//!
//! From the top: what is asked (`enable`, `disable`, `promote`, `demote`, `resync`, `info`, `destination`);
//! what it rests on (`health`, `newest`, `role`, `schedule`, `terms`, `users`, `way`).

mod demote;
mod destination;
mod disable;
mod enable;
mod health;
mod info;
mod newest;
mod promote;
mod resync;
pub(crate) mod role;
mod schedule;
pub(crate) mod terms;
mod users;
mod way;

pub(crate) use info::{replicated, roles};

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::tool::ImageInfo;
use crate::backend::{Promotion, Replication, ReplicationInfo, ReplicationTerms};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Replication for Context {
    fn enable(&self, call: &Call, id: &VolumeId, terms: &ReplicationTerms, secrets: &Secrets) -> Result<()> {
        enable::enable(self, call, id, terms, secrets)
    }

    fn disable(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()> {
        disable::disable(self, call, id, force, secrets)
    }

    fn promote(&self, call: &Call, id: &VolumeId, asked: &Promotion, secrets: &Secrets) -> Result<()> {
        promote::promote(self, call, id, asked, secrets)
    }

    fn demote(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()> {
        demote::demote(self, call, id, force, secrets)
    }

    fn resync(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<bool> {
        resync::resync(self, call, id, force, secrets)
    }

    fn info(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<ReplicationInfo> {
        info::info(self, call, id, secrets)
    }

    fn destination(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<VolumeId> {
        destination::destination(self, call, id, secrets)
    }
}

/// Before anything is changed of an image: nothing is done to one that is being promoted by force, by this
/// daemon or for one before it.
fn begin(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    if !pool.is_promoted_by_force(&info.name)? {
        return Ok(());
    }
    let what = format!(
        "image {:?} is being promoted by force on this host, which takes as long as it takes and must not be broken \
         off: wait for its end",
        info.name
    );
    Err(Error::new(Kind::Busy, what))
}
