//! Images: the volumes, and the images that cephlet makes of them for its own use.
//!
//! From the top: the operations on a volume (`create`, `place`, `delete`, `change`, `inspect`, `list`,
//! `capacity`); how they are done (`clone`, `layout`, `retain`, `unregister`); what all of them use
//! (`rename`, `remove`, `find`, `watchers`, `record`).

pub(crate) mod capacity;
pub(crate) mod change;
mod clone;
pub(crate) mod clone_source;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod find;
pub(crate) mod inspect;
pub(crate) mod layout;
pub(crate) mod list;
mod named;
mod place;
pub(crate) mod record;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod retain;
pub(crate) mod retained_checks;
mod spec;
mod unregister;
pub(crate) mod watchers;

use self::spec::CreateSpec;
use crate::backend::rbd::context::Context;
use crate::backend::{
    Capacity, Deleted, Deletion, Interrupted, Named, NewVolume, Page, RecordDeletion, Unlisted, Volume,
    Volumes,
};
use crate::csi::{Capability, Map, SizeRange};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Volumes for Context {
    fn resolve(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<VolumeId>> {
        match id.incarnation {
            Some(_) => Ok(Some(id.clone())),
            None => self.within(call, (&id.place, secrets), |pool| delete::resolve(pool, id)),
        }
    }

    fn named(&self, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>> {
        named::find(self, call, name)
    }

    /// A copy may take hours, while its source stays in use. Other controllers may change the source
    /// meanwhile in any case, and what this one does is no worse.
    fn locks_sources(&self) -> bool {
        false
    }

    fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume> {
        let created = CreateSpec::new(new).and_then(|spec| match &new.topology {
            None => self.within(call, (&new.place, &new.secrets), |pool| create::create(pool, &spec)),
            Some(requirement) => place::create(self, call, (&spec, requirement)),
        });
        created.map_err(|error| error.context(format_args!("create volume {:?}", new.name)))
    }

    fn delete(
        &self,
        call: &Call,
        deletion: &Deletion<'_>,
        record_deletion: RecordDeletion<'_>,
    ) -> Result<Deleted> {
        delete::delete(self, call, deletion, record_deletion)
    }

    fn finish_deletion(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Interrupted> {
        self.within(call, (&id.place, secrets), |pool| delete::finish_deletion(pool, id, secrets))
    }

    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.within(call, (&id.place, secrets), |pool| inspect::find(pool, id))
    }

    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.within(call, (&id.place, secrets), |pool| inspect::inspect(pool, id))
    }

    fn list(&self, call: &Call, range: (&str, usize), unlisted: Unlisted<'_>) -> Result<Page<Volume>> {
        list::list(self, call, range, unlisted)
    }

    fn name(&self, call: &Call, id: &VolumeId) -> Result<Option<String>> {
        match self.tool.is_resident() {
            true => self.within(call, (&id.place, &Secrets::default()), |pool| find::name(pool, id)),
            false => Ok(None),
        }
    }

    fn capacity(
        &self,
        call: &Call,
        parameters: &Map,
        uses: &[Capability],
        topology: Option<&Map>,
    ) -> Result<Capacity> {
        capacity::capacity(self, call, parameters, uses, topology)
    }

    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64> {
        self.within(call, (&id.place, secrets), |pool| change::expand(pool, id, size))
    }

    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()> {
        self.within(call, (&id.place, secrets), |pool| change::modify(pool, id, parameters))
    }
}
