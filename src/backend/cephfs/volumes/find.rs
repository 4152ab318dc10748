//! Finding the subvolume that an ID means. `info` of the manager decides whether it exists, the index whether
//! it is a volume.

use crate::backend::ceph::{ClusterAccess, placement};
use crate::backend::cephfs::FS_TYPE;
use crate::backend::cephfs::context::{Context, Fs, is_drawn, may_exist};
use crate::backend::cephfs::index::{Entry, SnapshotPath, State};
use crate::backend::cephfs::parameters::Settings;
use crate::backend::cephfs::subvolumes::Subvolume;
use crate::backend::cephfs::volumes::share;
use crate::backend::parameters::about_root;
use crate::backend::{Named, Volume};
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId};
use crate::secrets::Secrets;

/// A volume: a subvolume, or the tree of a snapshot that it shares.
pub(crate) struct Found {
    /// For the tree of a snapshot, the one that the snapshot was taken of, with the volume's size.
    pub subvolume: Subvolume,
    /// None for a subvolume that an operator made, or if the index was lost.
    pub entry: Option<Entry>,
}

/// The volume that an ID means; None if there is none, or the subvolume of this name is another one.
///
/// # Errors
/// Unavailable: it is being made.
pub(crate) fn find(fs: &Fs<'_>, id: &VolumeId) -> Result<Option<Found>> {
    if !may_exist(&id.place, &id.object) {
        return Ok(None);
    }
    let entry = fs.index().get(&fs.path(&id.object))?;
    match entry.as_ref().map(|entry| entry.state) {
        Some(State::Deleted) => return Ok(None),
        Some(State::Making) => {
            return Err(Error::unavailable(format!(
                "volume {id} is being made: ask again for it by its name"
            )));
        }
        Some(State::Whole) | None => {}
    }
    if let Some((entry, of)) = entry.as_ref().and_then(|entry| Some((entry, entry.shares.as_ref()?))) {
        return sharing(fs, entry.clone(), of);
    }
    let found = fs.subvolumes().info(&id.object)?.filter(|subvolume| means(id, subvolume));
    Ok(found.map(|subvolume| Found { subvolume, entry }))
}

/// The volume of this entry, if its snapshot is there.
fn sharing(fs: &Fs<'_>, entry: Entry, of: &SnapshotPath) -> Result<Option<Found>> {
    if !share::is_there(fs, of)? {
        return Ok(None);
    }
    let there = fs.in_group(&of.group);
    let taken = there.index().get(&there.snapshot_path(&of.subvolume, &of.snapshot))?;
    let path = match taken.and_then(|taken| taken.path) {
        Some(path) => path,
        None => there.subvolumes().info(&of.subvolume)?.map(|source| source.path).unwrap_or_default(),
    };
    let (size, uuid, used, data_pool) = (Some(entry.size), None, 0, String::new());
    let subvolume = Subvolume { path, uuid, size, used, data_pool, retains_snapshots: false };
    Ok(Some(Found { subvolume, entry: Some(entry) }))
}

/// The volumes of this name in the file systems that the parameters name, or else in all. A name is claimed
/// once in each file system, so the group need not be known.
pub(crate) fn named(context: &Context, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>> {
    let settings = Settings::parse(name.parameters, &Map::new())?;
    let mut found = Vec::new();
    for cluster in placement::clusters(&context.clusters, settings.cluster.as_deref())? {
        let access = ClusterAccess::new(cluster, &Secrets::default())?;
        for root in context.roots(call, &access)? {
            if settings.fs.as_ref().is_none_or(|wanted| *wanted == root.file_system.name) {
                found.extend(claimed(&root, name.object)?);
            }
        }
    }
    Ok(found)
}

/// The volume that the name of this object is claimed for in a file system.
fn claimed(root: &Fs<'_>, object: &str) -> Result<Option<VolumeId>> {
    let Some(claim) = ids::volume_key(object).map_or(Ok(None), |key| root.name(key).find())? else {
        return Ok(None);
    };
    let Some((group, subvolume)) = claim.of.split_once('/') else { return Ok(None) };
    let there = root.in_group(group);
    let id = there.id_of(subvolume);
    Ok(find(&there, &id)?.map(|_| id))
}

/// The volume that an ID means, or NOT_FOUND.
pub(crate) fn existing(fs: &Fs<'_>, id: &VolumeId) -> Result<Found> {
    find(fs, id)?.ok_or_else(|| {
        Error::not_found(format!("volume {id} does not exist: check the ID, or create it again"))
    })
}

/// Whether the subvolume of this name is another one than the ID means.
pub(crate) fn is_replaced(fs: &Fs<'_>, id: &VolumeId) -> Result<bool> {
    if id.incarnation.is_none() {
        return Ok(false);
    }
    Ok(fs.subvolumes().info(&id.object)?.is_some_and(|present| !means(id, &present)))
}

/// Whether the ID means this subvolume. One of the old form has no id of its own, so only its name tells.
fn means(id: &VolumeId, subvolume: &Subvolume) -> bool {
    subvolume.uuid.as_ref().map_or(id.incarnation.is_none(), |uuid| id.means(uuid))
}

/// The volume that cephlet made as this subvolume.
pub(crate) fn volume(fs: &Fs<'_>, object: &str, entry: &Entry) -> Volume {
    Volume {
        id: fs.id_of(object),
        name: entry.request.as_ref().map(|request| request.name.clone()),
        size: entry.size,
        context: Default::default(),
        fs_type: Some(FS_TYPE.to_string()),
        root: entry.request.as_ref().map(|request| about_root(&request.parameters)).unwrap_or_default(),
        source: entry.request.as_ref().and_then(|request| request.source.clone()),
        topology: entry.placed.domains.accessible(&fs.context.identity.plugin),
        published: Vec::new(),
        read_only: entry.shares.as_ref().map(share::why_read_only),
        condition: None,
        replication: None,
    }
}

impl Found {
    /// The entry of the volume. That of an operator's subvolume has the path of its root, which tells it from
    /// a later subvolume of the name.
    pub fn into_entry(self, fs: &Fs<'_>, id: &VolumeId) -> Entry {
        let Subvolume { size, path, .. } = self.subvolume;
        let new = || Entry::new(State::Whole, &fs.context.identity.tag, size.unwrap_or_default(), None);
        let entry = self.entry.unwrap_or_else(new);
        if is_drawn(id) { entry } else { Entry { path: Some(path), ..entry } }
    }

    /// The path that clients of this volume mount. None for the tree of a snapshot: its clients mount the
    /// whole file system, and the path is that of the snapshot's source.
    pub fn own_path(&self) -> Option<&str> {
        let shares = self.entry.as_ref().is_some_and(|entry| entry.shares.is_some());
        (!shares).then_some(&self.subvolume.path)
    }

    /// The volume as the orchestrator sees it. An ID with an incarnation keeps its caller's form; the ID of
    /// an operator's subvolume gets one, as its name may be used again, unless it would be too long.
    pub fn volume(&self, fs: &Fs<'_>, id: &VolumeId) -> Volume {
        let with = |uuid: &String| VolumeId { incarnation: Some(uuid.clone()), ..id.clone() };
        let uuid = self.subvolume.uuid.as_ref().filter(|_| id.incarnation.is_none() && !is_drawn(id));
        let id = uuid.map(with).filter(VolumeId::fits).unwrap_or_else(|| id.clone());
        let size = self.subvolume.size.unwrap_or_default();
        let entry = self.entry.clone().unwrap_or_else(|| Entry::new(State::Whole, "", size, None));
        let volume = volume(fs, &id.object, &entry);
        Volume { id, size, ..volume }
    }
}
