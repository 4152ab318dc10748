//! Giving back the registered name of a volume that is deleted.
//!
//! The claim is looked at before the image is removed, so that none goes for what is made later under the
//! same name.

use crate::backend::RecordDeletion;
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::registry::{Name, Registration};
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

    /// Before the volume is removed: where several share the claim, one may still be making it, and would go
    /// on under a claim that is given back.
    pub fn await_creators(&self, pool: &Pool<'_>) -> Result<()> {
        if self.found.is_of_several() {
            let name = self.name(pool);
            let is_alone = || Ok(name.find()?.is_none_or(|found| !found.is_of_several()).then_some(()));
            name.await_others(&self.found, is_alone)?;
        }
        Ok(())
    }

    fn name<'n>(&'n self, pool: &Pool<'n>) -> Name<'n> {
        pool.context.name(pool.call, &self.registry, self.digits)
    }

    /// Gives the name back. Where the image did not have its name until it was removed, others may have made
    /// another since, or be about to.
    pub fn give_back(
        &self,
        pool: &Pool<'_>,
        id: &VolumeId,
        had_its_name: bool,
        record_deletion: RecordDeletion<'_>,
    ) -> Result<()> {
        if self.found.claim.as_ref().is_some_and(|claim| claim.pool != id.place.pool) {
            return Ok(());
        }
        let name = self.name(pool);
        if !had_its_name {
            let look = || pool.info(ImageRef::Name(&id.object));
            if look()?.is_some() || name.await_others(&self.found, look)?.is_some() {
                return Ok(());
            }
        }
        record_deletion()?;
        name.give_back(&self.found)
    }
}
