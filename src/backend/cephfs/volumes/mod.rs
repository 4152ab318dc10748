//! The controller's work on volumes.

pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod find;
pub(crate) mod list;
mod place;
pub(crate) mod share;
pub(crate) mod size;

use crate::backend::ceph::domains::Wishes;
use crate::backend::cephfs::clients;
use crate::backend::cephfs::context::{Context, Fs, is_drawn};
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::parameters::Settings;
use crate::backend::cephfs::subvolumes::Subvolume;
use crate::backend::cephfs::volumes::find::{Found, existing, find};

use crate::backend::{
    Capacity, Condition, Deleted, Deletion, Fault, Named, NewVolume, Page, Reason, RecordDeletion, Unlisted,
    Volume, Volumes,
};
use crate::csi::{Capability, Map, SizeRange};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// A quota is nearly used up when less than this part of it (1/20) is left.
const NEARLY: u64 = 20;

impl Volumes for Context {
    /// The name of a volume that cephlet made is never used again, so it needs no look.
    fn resolve(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<VolumeId>> {
        if id.incarnation.is_some() || is_drawn(id) {
            return Ok(Some(id.clone()));
        }
        Ok(Volumes::find(self, call, id, secrets)?.map(|volume| volume.id))
    }

    fn named(&self, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>> {
        find::named(self, call, name)
    }

    /// A snapshot is the source of a copy.
    fn locks_sources(&self) -> bool {
        false
    }

    fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume> {
        let created = self.within(call, (&new.place, &new.secrets), |fs| create::create(fs, new));
        created.map_err(|error| error.context(format_args!("create volume {:?}", new.name)))
    }

    fn delete(&self, call: &Call, deletion: &Deletion<'_>, _: RecordDeletion<'_>) -> Result<Deleted> {
        let id = deletion.id;
        let delete = |fs: &Fs<'_>| delete::delete(fs, id, deletion.snapshots_may_outlive);
        let what = Some(format_args!("volume {id}"));
        let deleted = self.unless_removed(call, (&id.place, &id.object, deletion.secrets), what, delete);
        deleted
            .map(|done| done.unwrap_or(Deleted::Absent))
            .map_err(|error| error.context(format_args!("delete volume {id}")))
    }

    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        let look = |fs: &Fs<'_>| Ok(find(fs, id)?.map(|found| found.volume(fs, id)));
        self.unless_removed(call, (&id.place, &id.object, secrets), None, look).map(Option::flatten)
    }

    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        let look = |fs: &Fs<'_>| {
            let (volume, condition) = match clients::silent_rank(fs)? {
                // The manager waits for the MDS.
                Some(rank) => (listed(fs, id)?, Some(silent(fs, rank))),
                None => {
                    let Some(found) = find(fs, id)? else { return Ok(None) };
                    (found.volume(fs, id), condition(fs, &found)?)
                }
            };
            let nodes = fs.publications(&id.object)?.into_iter().map(|it| it.node);
            Ok(Some(Volume { published: nodes.collect(), condition: Some(condition), ..volume }))
        };
        self.unless_removed(call, (&id.place, &id.object, secrets), None, look).map(Option::flatten)
    }

    fn list(&self, call: &Call, range: (&str, usize), unlisted: Unlisted<'_>) -> Result<Page<Volume>> {
        list::list(self, call, range, unlisted)
    }

    fn capacity(
        &self,
        call: &Call,
        parameters: &Map,
        _: &[Capability],
        topology: Option<&Map>,
    ) -> Result<Capacity> {
        let settings = Settings::parse(parameters, &Map::new())?;
        let wishes =
            topology.map(|segments| Wishes::within(&self.identity.plugin, segments)).unwrap_or_default();
        let place = settings.place(&self.clusters)?;
        self.within(call, (&place, &Secrets::default()), |fs| capacity(fs, &settings, &wishes))
    }

    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64> {
        let expanded = self.within(call, (&id.place, secrets), |fs| expand(fs, id, size));
        expanded.map_err(|error| error.context(format_args!("expand volume {id}")))
    }

    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()> {
        Settings::parse(&Map::new(), parameters)?;
        self.within(call, (&id.place, secrets), |fs| existing(fs, id).map(drop))
    }
}

/// Room in the pool for the data of files. Quotas reserve nothing.
fn capacity(fs: &Fs<'_>, settings: &Settings, wishes: &Wishes) -> Result<Capacity> {
    let available = match settings.leave_pool_to(wishes) {
        true => fs.context.domains.room(&place::asked(fs, settings, wishes)?)?.available,
        false => {
            let pool = place::data_pool(fs, settings.layout.pool.as_deref().map(|pool| ("pool", pool)))?;
            fs.monitors().free_space(pool)?.map_or(0, |space| space.available)
        }
    };
    Ok(Capacity { available, largest: size::LARGEST, smallest: 1 })
}

/// The volume as the index has it.
///
/// # Errors
/// Unavailable: the index says nothing of it.
fn listed(fs: &Fs<'_>, id: &VolumeId) -> Result<Volume> {
    let entry = fs.index().get(&fs.path(&id.object))?;
    let made = entry.filter(|entry| entry.state == State::Whole && entry.request.is_some());
    made.map(|entry| find::volume(fs, &id.object, &entry)).ok_or_else(|| {
        Error::unavailable(format!("the file system {:?} has no MDS that could tell of it", fs.place.pool))
    })
}

fn silent(fs: &Fs<'_>, rank: u32) -> Fault {
    let name = &fs.place.pool;
    let detail = format!(
        "rank {rank} of its file system {name:?} has no MDS that answers: see `ceph fs status {name}`; its users \
         wait until then"
    );
    Fault::new(Reason::FileSystemSilent, detail)
}

/// What is wrong with a volume: little or nothing more can be written to it.
fn condition(fs: &Fs<'_>, found: &Found) -> Result<Condition> {
    let Subvolume { size, used, data_pool, .. } = &found.subvolume;
    match size {
        Some(size) if used >= size => return Ok(Some(Reason::QuotaUsedUp.into())),
        Some(size) if size - used < size / NEARLY => return Ok(Some(Reason::QuotaNearlyUsedUp.into())),
        _ => {}
    }
    let is_full = fs.monitors().free_spaces()?.get(data_pool).is_some_and(|space| space.full);
    let detail = || format!("pool {data_pool:?} with its data is full: see `ceph df detail`");
    Ok(is_full.then(|| Fault::new(Reason::PoolFull, detail())))
}

/// Raises the quota. The index has the size for lists and repeated requests.
fn expand(fs: &Fs<'_>, id: &VolumeId, range: &SizeRange) -> Result<u64> {
    let found = existing(fs, id)?;
    let Some(present) = found.subvolume.size else {
        return Err(Error::precondition(
            "it has no quota, so it cannot be expanded: set one with `ceph fs subvolume resize`",
        ));
    };
    let size = size::of_expanded(range, present)?;
    if size > present {
        share::refuse(found.entry.as_ref(), "has the size of that snapshot for ever")?;
    }
    if size > present && !fs.subvolumes().resize(&id.object, size)? {
        return Err(Error::not_found("it was deleted during this call"));
    }
    if let Some(entry) = found.entry.filter(|entry| entry.size != size && entry.state == State::Whole) {
        let path = fs.path(&id.object);
        // A deletion by another controller has written another entry since, which stays.
        if fs.index().get(&path)?.is_some_and(|now| now.state == State::Whole) {
            fs.index().set(&path, &Entry { size, ..entry })?;
        }
    }
    Ok(size)
}
