//! Publishing volumes to nodes, and taking them back. The locks of the volume record it, so every controller
//! sees it, and the cluster decides which request was first.

use crate::backend::ceph::locks::LockTarget;
use crate::backend::ceph::publication::request::{Request, nonce, while_client_waits};
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::cephfs::FS_TYPE;
use crate::backend::cephfs::context::{Context, Fs, may_exist};
use crate::backend::cephfs::parameters::{Settings, mounter, mounter_name};
use crate::backend::cephfs::volumes::find::{Found, existing, find};
use crate::backend::{Publication, PublishedBy, Publisher, Unpublished};
use crate::csi::{CONTEXT_KEY, Map};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId};
use crate::kernel::ceph::Mounter;
use crate::secrets::Secrets;

impl Publisher for Context {
    fn publish(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map> {
        if let Err(wrong) = ids::refuse_node(&publication.node) {
            return Err(Error::not_found(format!("there is no node {:?}: {wrong}", publication.node)));
        }
        let wanted = NodePublication::new(publication, PublishedBy::Controller);
        self.within(call, (&id.place, secrets), |fs| publish(fs, id, wanted)).map(|context| context.to_map())
    }

    fn unpublish(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished> {
        if !may_exist(id) {
            return Ok(Unpublished::NoVolume);
        }
        let outcome = self.within(call, (&id.place, secrets), |fs| unpublish(fs, id, node))?;
        // The existing nodes are unknown here; only some names are impossible.
        let impossible = node.is_some_and(|node| ids::refuse_node(node).is_err());
        Ok(if impossible && outcome == Unpublished::Done { Unpublished::NoNode } else { outcome })
    }
}

/// Publishes the volume, or finds it published. Files have one server, so the lock alone tells the writers
/// apart.
pub(crate) fn publish(fs: &Fs<'_>, id: &VolumeId, mut wanted: NodePublication) -> Result<PublishContext> {
    let (path, call) = (fs.path(&id.object), while_client_waits(fs.call));
    let found = existing(fs, id)?;
    let locks = fs.context.objects.locks(&call, &fs.registry);
    let target = LockTarget::Subvolume(&path);
    let request = |wanted: &NodePublication| -> Result<Vec<PublicationLock>> {
        Request { locks: &*locks, target, volume: id, wanted }.admitting_locks()
    };
    let others = request(&wanted)?;
    let of_node: Vec<&PublicationLock> =
        others.iter().filter(|lock| lock.publication.node == wanted.node).collect();
    wanted.nonce = nonce(of_node.iter().copied())?;
    let by = wanted.by;
    let is_enough = |lock: &&PublicationLock| by == PublishedBy::Node || lock.publication.by == by;
    if of_node.into_iter().find(is_enough).is_none() {
        let request = Request { locks: &*locks, target, volume: id, wanted: &wanted };
        request.lock(Stage::Given)?;
        // From now on the volume cannot be deleted. It may have been a moment before.
        if find(fs, id)?.is_none() {
            locks.remove_lockable(target)?;
            return existing(fs, id)
                .and(Err(Error::unavailable(format!("volume {id} was replaced: try again"))));
        }
        // A writer beside readers shares the lock with them: of two writers, the later one sees the other.
        if wanted.mode.is_multi_node() {
            request.admitting_locks().map(drop).or_else(|refusal| {
                request.release(Stage::Given)?;
                Err(refusal)
            })?;
        }
    }
    PublishContext::new(fs, found, &wanted)
}

fn unpublish(fs: &Fs<'_>, id: &VolumeId, node: Option<&str>) -> Result<Unpublished> {
    let is_meant = |lock: &PublicationLock| node.is_none_or(|node| node == lock.publication.node);
    match end_publications(fs, id, is_meant)? {
        true => Ok(Unpublished::Done),
        false if find(fs, id)?.is_some() => Ok(Unpublished::Done),
        false => Ok(Unpublished::NoVolume),
    }
}

/// Ends the publications that are meant; returns whether there were any.
pub(crate) fn end_publications(
    fs: &Fs<'_>,
    id: &VolumeId,
    is_meant: impl Fn(&PublicationLock) -> bool,
) -> Result<bool> {
    let path = fs.path(&id.object);
    let (locks, target) = (fs.context.objects.locks(fs.call, &fs.registry), LockTarget::Subvolume(&path));
    let mut were_any = false;
    for holder in locks.holders(target)? {
        if PublicationLock::read(&holder)?.is_some_and(|lock| is_meant(&lock)) {
            locks.unlock(target, &holder)?;
            were_any = true;
        }
    }
    Ok(were_any)
}

/// The nodes that the volume is published to.
pub(crate) fn published(fs: &Fs<'_>, id: &VolumeId) -> Result<Vec<String>> {
    let path = fs.path(&id.object);
    let locks = fs.context.objects.locks(fs.call, &fs.registry);
    let held = PublicationLock::read_all(&locks.holders(LockTarget::Subvolume(&path))?)?;
    let given = held.into_iter().filter(|lock| lock.stage == Stage::Given);
    Ok(given.map(|lock| lock.publication.node).collect())
}

const PATH: &str = "subvolumePath";
const FILE_SYSTEM: &str = "fsName";
const MOUNTER: &str = "mounter";
const READ_ONLY: &str = "readOnly";
const PUBLICATION: &str = "publication";

/// What a node needs to know of a volume that is published to it, so that it need not ask the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishContext {
    /// The path of the volume's root in the file system, which no other volume ever has.
    pub path: String,
    pub file_system: String,
    /// The client that mounts it, and options for that client.
    pub mounter: Mounter,
    pub mount_options: Vec<String>,
    /// Whether the node must not write.
    pub read_only: bool,
    /// Which publication it is: [`NodePublication::nonce`].
    pub publication: String,
}

impl PublishContext {
    fn new(fs: &Fs<'_>, found: Found, publication: &NodePublication) -> Result<Self> {
        let request = found.entry.and_then(|entry| entry.request);
        let settings =
            request.map(|request| Settings::parse(&request.parameters, &Map::new())).transpose()?;
        let settings = settings.unwrap_or_default();
        Ok(Self {
            path: found.subvolume.path,
            file_system: fs.place.pool.clone(),
            mounter: settings.mounter,
            mount_options: match settings.mounter {
                Mounter::Kernel => settings.kernel_options,
                Mounter::Fuse => settings.fuse_options,
            },
            read_only: publication.read_only,
            publication: publication.nonce.clone(),
        })
    }

    /// As text. Empty values are left out.
    pub fn to_map(&self) -> Map {
        let pairs = [
            (PATH, self.path.clone()),
            (FILE_SYSTEM, self.file_system.clone()),
            (MOUNTER, mounter_name(self.mounter).to_string()),
            (options_of(self.mounter), self.mount_options.join(",")),
            (CONTEXT_KEY, FS_TYPE.to_string()),
            (READ_ONLY, if self.read_only { "true".into() } else { String::new() }),
            (PUBLICATION, self.publication.clone()),
        ];
        let said = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(key, value)| (key.to_string(), value)).collect()
    }

    /// Reads the controller's publish context; None if the orchestrator did not ask the controller.
    pub fn from_map(map: &Map) -> Result<Option<Self>> {
        let Some(path) = map.get(PATH) else { return Ok(None) };
        let said = |key: &str| map.get(key).map_or("", String::as_str);
        if !path.starts_with('/') || path.contains([',', '\n', '\0']) {
            return Err(Error::invalid(format!("the publish context has {PATH} {path:?}, which is no path")));
        }
        let mounter = map.get(MOUNTER).map_or(Ok(Mounter::Kernel), |name| mounter(name))?;
        Ok(Some(Self {
            path: path.clone(),
            file_system: said(FILE_SYSTEM).to_string(),
            mounter,
            mount_options: said(options_of(mounter))
                .split(',')
                .filter(|it| !it.is_empty())
                .map(str::to_string)
                .collect(),
            read_only: said(READ_ONLY) == "true",
            publication: said(PUBLICATION).to_string(),
        }))
    }
}

/// The key of the options for this client.
fn options_of(mounter: Mounter) -> &'static str {
    match mounter {
        Mounter::Kernel => "kernelMountOptions",
        Mounter::Fuse => "fuseMountOptions",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_context_survives_the_round_trip() {
        let context = PublishContext {
            path: "/volumes/csi/csi-vol-a/0-1".into(),
            file_system: "cephfs".into(),
            mounter: Mounter::Fuse,
            mount_options: vec!["noatime".into(), "rasize=4096".into()],
            read_only: true,
            publication: "0123456789abcdef".into(),
        };
        assert_eq!(PublishContext::from_map(&context.to_map()).unwrap(), Some(context));
        assert_eq!(PublishContext::from_map(&Map::new()).unwrap(), None);
        for path in ["", "volumes/a", "/a,secret=b"] {
            let map = [(PATH.to_string(), path.to_string())].into();
            assert!(PublishContext::from_map(&map).is_err(), "{path:?}");
        }
    }
}
