//! Giving back the registered name of a volume that is deleted.
//!
//! The claim is looked at before the image is removed, so that none goes for what is made later under the
//! same name.

use crate::backend::WriteIntent;
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::registry::Registration;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::ImageRef;
use crate::error::{Kind, Result};
use crate::ids::{self, Place, VolumeId};
use crate::secrets::Secrets;

/// The claim of a name, as it was before the volume was removed.
pub(crate) struct Registered<'a> {
    registry: PoolRef,
    digits: &'a str,
    found: Registration,
}

impl<'a> Registered<'a> {
    /// What the registry has of a volume's name; None where it was never registered, or is no longer, or
    /// where its registry is gone.
    pub fn find(pool: &Pool<'_>, id: &'a VolumeId, secrets: &Secrets) -> Result<Option<Self>> {
        let Some((digits, registry)) = ids::registration(&id.object) else { return Ok(None) };
        let look = || -> Result<_> {
            let registry = pool.context.locate(&Place { pool: registry, ..id.place.clone() }, secrets)?;
            let found = pool.context.name(pool.call, &registry, digits).find()?;
            Ok(found.map(|found| Self { registry, digits, found }))
        };
        match look() {
            Err(error) if matches!(error.kind(), Kind::Precondition | Kind::InvalidArgument) => {
                log::warn!("volume {id} goes without its name being given back: {error}");
                Ok(None)
            }
            found => found,
        }
    }

    /// Gives the name back. Where it was not this call that `removed` the image, others may have made another
    /// since, or be about to.
    pub fn give_back(
        &self,
        pool: &Pool<'_>,
        id: &VolumeId,
        removed: bool,
        write_intent: WriteIntent<'_>,
    ) -> Result<()> {
        if self.found.claim.as_ref().is_some_and(|claim| claim.pool != id.place.pool) {
            return Ok(());
        }
        let name = pool.context.name(pool.call, &self.registry, self.digits);
        if !removed {
            if pool.info(ImageRef::Name(&id.object))?.is_some() {
                return Ok(());
            }
            name.await_others(&self.found)?;
        }
        write_intent()?;
        name.give_back(&self.found)
    }
}
