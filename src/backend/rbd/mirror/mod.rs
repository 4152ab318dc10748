//! Replication by rbd-mirror: an image is primary in one cluster, and in another a copy that follows it.
//!
//! A request names the state that an image is to have. That state is read first: a command runs only if the
//! image is in another state, and after a failed command the state is read again. The exit statuses of these
//! commands prove nothing: a repeated command fails, and a killed one may have done its work.
//!
//! From the top: the operations (`enable`, `disable`, `promote`, `demote`, `resync`, `info`, `destination`);
//! what they use (`health`, `newest`, `role`, `terms`, `users`, `way`).

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
        self.within(call, (&id.place, secrets), |pool| enable::enable(pool, id, terms))
    }

    fn disable(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()> {
        self.within(call, (&id.place, secrets), |pool| disable::disable(pool, id, force))
    }

    fn promote(&self, call: &Call, id: &VolumeId, asked: &Promotion, secrets: &Secrets) -> Result<()> {
        self.within(call, (&id.place, secrets), |pool| promote::promote(pool, id, asked))
    }

    fn demote(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()> {
        self.within(call, (&id.place, secrets), |pool| demote::demote(pool, id, force))
    }

    fn resync(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<bool> {
        self.within(call, (&id.place, secrets), |pool| resync::resync(pool, id, force))
    }

    fn info(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<ReplicationInfo> {
        self.within(call, (&id.place, secrets), |pool| info::info(pool, id))
    }

    fn destination(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<VolumeId> {
        self.within(call, (&id.place, secrets), |pool| destination::destination(pool, id))
    }
}

/// Called before an image is changed: refuses an image that is being promoted by force, by this daemon or for
/// one before it.
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
