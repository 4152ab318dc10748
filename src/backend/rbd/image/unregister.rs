//! Giving back the registered name of a volume that is deleted.
//!
//! The claim is read before the image is removed, so the claim of a later volume of the same name is never
//! removed.

use crate::backend::ceph::PoolRef;
use crate::backend::ceph::claim::Claim;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::ImageRef;
use crate::error::{Kind, Result};
use crate::ids::{self, Place, VolumeId};
use crate::secrets::Secrets;

/// The claim of a name, as it was before the volume was removed.
pub(crate) struct Registered<'a> {
    registry: PoolRef,
    key: &'a str,
    claim: Claim,
}

impl<'a> Registered<'a> {
    /// The claim of a volume's name; None if the name was never registered, is no longer registered, or is
    /// registered for another pool, or if its registry is gone.
    pub fn find(pool: &Pool<'_>, id: &'a VolumeId, secrets: &Secrets) -> Result<Option<Self>> {
        let Some((key, registry)) = ids::registration(&id.object) else { return Ok(None) };
        let look = || -> Result<_> {
            let registry = pool.context.locate(&Place { pool: registry, ..id.place.clone() }, secrets)?;
            let shares = pool.context.volume_name(pool.call, &registry, key).look()?;
            Ok((registry, shares))
        };
        let (registry, shares) = match look() {
            Err(error) if matches!(error.kind(), Kind::Precondition | Kind::InvalidArgument) => {
                log::warn!("volume {id} goes without its name being given back: {error}");
                return Ok(None);
            }
            looked => looked?,
        };
        let found = pool.context.volume_name(pool.call, &registry, key).read(shares)?;
        Ok(found.filter(|it| it.of == id.place.pool).map(|claim| Self { registry, key, claim }))
    }

    /// Gives the name back. If the image lost its name before it was removed, another controller may have
    /// made another image of the name since, or be about to.
    pub fn give_back(&self, pool: &Pool<'_>, id: &VolumeId, had_its_name: bool) -> Result<()> {
        let name = pool.context.volume_name(pool.call, &self.registry, self.key);
        match had_its_name {
            // A controller that claims the name for the same pool shares the claim at once.
            true if name.find()?.is_none_or(|now| now.is_as(&self.claim)) => name.give_back(&self.claim),
            true => name.release(&self.claim),
            false => name.await_maker(&self.claim, || pool.info(ImageRef::Name(&id.object))).map(drop),
        }
    }
}
