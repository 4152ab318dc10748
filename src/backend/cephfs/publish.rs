//! Publishing volumes to nodes, and taking them back. The locks of the volume record it, so every controller
//! sees it, and the cluster decides which request was first.

use crate::backend::ceph::locks::LockTarget;
use crate::backend::ceph::publication::request::{Request, nonce, while_client_waits};
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::cephfs::FS_TYPE;
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::fence::shut_out_ended;
use crate::backend::cephfs::names::is_plain;
use crate::backend::cephfs::parameters::{Settings, mounter, mounter_name};
use crate::backend::cephfs::volumes::find::{Found, existing, find, is_replaced};
use crate::backend::cephfs::volumes::share::why_read_only;
use crate::backend::parameters::{READ_ONLY, about_root, is_read_only};
use crate::backend::{Publication, PublishedBy, Publisher, Unpublished};
use crate::csi::{CONTEXT_KEY, Map};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
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
        let (what, unpublish) = (Some(format_args!("volume {id}")), |fs: &Fs<'_>| unpublish(fs, id, node));
        let done = self.unless_removed(call, (&id.place, &id.object, secrets), what, unpublish)?;
        Ok(done.unwrap_or(Unpublished::NoVolume))
    }
}

/// Refuses to publish the tree of a snapshot for writing.
fn refuse_writer(found: &Found, wanted: &NodePublication) -> Result<()> {
    match found.entry.as_ref().and_then(|entry| entry.shares.as_ref()).filter(|_| !wanted.read_only) {
        Some(of) => Err(Error::invalid(format!("{}: publish it read-only", why_read_only(of)))),
        None => Ok(()),
    }
}

/// Publishes the volume, or finds it published. Files have one server, so the lock alone tells the writers
/// apart.
pub(crate) fn publish(fs: &Fs<'_>, id: &VolumeId, mut wanted: NodePublication) -> Result<PublishContext> {
    let path = fs.path(&id.object);
    let found = existing(fs, id)?;
    refuse_writer(&found, &wanted)?;
    let locks = fs.context.objects.locks(fs.call, &fs.registry);
    let target = LockTarget::Subvolume(&path);
    let others = Request { locks: &*locks, target, volume: id, wanted: &wanted }.admitting_locks()?;
    let of_node: Vec<&PublicationLock> =
        others.iter().filter(|lock| lock.publication.node == wanted.node).collect();
    wanted.nonce = nonce(of_node.iter().copied())?;
    let by = wanted.by;
    let is_enough = |lock: &&PublicationLock| by == PublishedBy::Node || lock.publication.by == by;
    if !of_node.iter().any(is_enough) {
        shut_out_ended(fs, &id.object, &found)?;
        let call = while_client_waits(fs.call);
        let taking = fs.context.objects.locks(&call, &fs.registry);
        Request { locks: &*taking, target, volume: id, wanted: &wanted }.lock(Stage::Given)?;
        // From now on the volume cannot be deleted. It may have been a moment before.
        if find(fs, id)?.is_none() {
            locks.remove_lockable(target)?;
            return existing(fs, id)
                .and(Err(Error::unavailable(format!("volume {id} was replaced: try again"))));
        }
        // A writer beside readers shares the lock with them: of two writers, the later one sees the other.
        if wanted.mode.is_multi_node() {
            let request = Request { locks: &*locks, target, volume: id, wanted: &wanted };
            request.admitting_locks().map(drop).or_else(|refusal| {
                request.release(Stage::Given)?;
                Err(refusal)
            })?;
        }
    }
    PublishContext::new(fs, found, &wanted)
}

fn unpublish(fs: &Fs<'_>, id: &VolumeId, node: Option<&str>) -> Result<Unpublished> {
    if is_replaced(fs, id)? {
        // The publications are those of the present subvolume.
        return Ok(Unpublished::NoVolume);
    }
    let is_meant = |lock: &PublicationLock| node.is_none_or(|node| node == lock.publication.node);
    let were_any = end_publications(fs, id, is_meant)?;
    match find(fs, id)? {
        Some(found) => shut_out_ended(fs, &id.object, &found).map(|()| Unpublished::Done),
        None if were_any => Ok(Unpublished::Done),
        None => Ok(Unpublished::NoVolume),
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

const PATH: &str = "subvolumePath";
const SNAPSHOT: &str = "snapshot";
const FILE_SYSTEM: &str = "fsName";
const MOUNTER: &str = "mounter";
const PUBLICATION: &str = "publication";

/// What a node needs to know of a volume that is published to it, so that it need not ask the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishContext {
    /// The path of the volume's root in the file system, which no other volume ever has.
    pub path: String,
    /// The snapshot of that root whose tree the volume is; empty for the root itself.
    pub snapshot: String,
    pub file_system: String,
    /// The client that mounts it, and options for that client.
    pub mounter: Mounter,
    pub mount_options: Vec<String>,
    /// The parameters about its root.
    pub root: Map,
    /// Whether the node must not write.
    pub read_only: bool,
    /// Which publication it is: [`NodePublication::nonce`].
    pub publication: String,
}

impl PublishContext {
    fn new(fs: &Fs<'_>, found: Found, publication: &NodePublication) -> Result<Self> {
        if found.subvolume.path.is_empty() {
            return Err(Error::precondition(
                "where its snapshot is in the file system is not known any more, as the index was lost and its source \
                 deleted: make a copy of the snapshot, with the parameter \"backingSnapshot\" = \"false\"",
            ));
        }
        let (shares, request) = found.entry.map(|entry| (entry.shares, entry.request)).unwrap_or_default();
        let parameters = request.map(|request| request.parameters).unwrap_or_default();
        let settings = Settings::parse(&parameters, &Map::new())?;
        Ok(Self {
            path: found.subvolume.path,
            snapshot: shares.map(|of| of.snapshot).unwrap_or_default(),
            file_system: fs.place.pool.clone(),
            mounter: settings.mounter,
            mount_options: match settings.mounter {
                Mounter::Kernel => settings.kernel_options,
                Mounter::Fuse => settings.fuse_options,
            },
            root: about_root(&parameters),
            read_only: publication.read_only,
            publication: publication.nonce.clone(),
        })
    }

    /// Identifies the tree among all that ever existed.
    pub fn image(&self) -> String {
        tree_of(&self.path, &self.snapshot)
    }

    /// As text. Empty values are left out.
    pub fn to_map(&self) -> Map {
        let pairs = [
            (PATH, self.path.clone()),
            (SNAPSHOT, self.snapshot.clone()),
            (FILE_SYSTEM, self.file_system.clone()),
            (MOUNTER, mounter_name(self.mounter).to_string()),
            (options_of(self.mounter), self.mount_options.join(",")),
            (CONTEXT_KEY, FS_TYPE.to_string()),
            (READ_ONLY, if self.read_only { "true".into() } else { String::new() }),
            (PUBLICATION, self.publication.clone()),
        ];
        let said = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(key, value)| (key.to_string(), value)).chain(self.root.clone()).collect()
    }

    /// Reads the controller's publish context; None if the orchestrator did not ask the controller.
    pub fn from_map(map: &Map) -> Result<Option<Self>> {
        let Some(path) = map.get(PATH) else { return Ok(None) };
        let said = |key: &str| map.get(key).map_or("", String::as_str);
        if !path.starts_with('/') || path.contains([',', '\n', '\0']) {
            return Err(Error::invalid(format!("the publish context has {PATH} {path:?}, which is no path")));
        }
        let mounter = map.get(MOUNTER).map_or(Ok(Mounter::Kernel), |name| mounter(name))?;
        let snapshot = said(SNAPSHOT).to_string();
        let is_mounted = is_plain(&snapshot) && mounter == Mounter::Kernel;
        if !snapshot.is_empty() && !is_mounted {
            return Err(Error::invalid(format!(
                "the publish context has {SNAPSHOT} {snapshot:?}, which is no name, or a {MOUNTER} that mounts no \
                 snapshots"
            )));
        }
        Ok(Some(Self {
            path: path.clone(),
            snapshot,
            file_system: said(FILE_SYSTEM).to_string(),
            mounter,
            mount_options: said(options_of(mounter))
                .split(',')
                .filter(|it| !it.is_empty())
                .map(str::to_string)
                .collect(),
            root: about_root(map),
            read_only: is_read_only(map)?,
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

/// What identifies the tree of this path, or of this snapshot of it: the last part of the path.
fn tree_of(path: &str, snapshot: &str) -> String {
    let last = path.rsplit_once('/').map_or(path, |(_, last)| last);
    if snapshot.is_empty() { last.to_string() } else { format!("{last}@{snapshot}") }
}

/// What identifies a tree that is mounted: the path below which a client has mounted a part of a file
/// system, and that part, `/` for all of it. Of a snapshot it is `PARENT/.snap/SNAPSHOT/LAST`, or
/// `PARENT/.snap/SNAPSHOT`.
pub(crate) fn mounted_tree(path: &str, part: &str) -> String {
    match part.split_once("/.snap/") {
        None => tree_of(path, ""),
        Some((parent, taken)) => match taken.split_once('/') {
            Some((snapshot, last)) => tree_of(last, snapshot),
            None => tree_of(parent, taken),
        },
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
            snapshot: "csi-snap-b".into(),
            file_system: "cephfs".into(),
            mounter: Mounter::Kernel,
            mount_options: vec!["noatime".into(), "rasize=4096".into()],
            root: [("mountGroupPolicy".to_string(), "always".to_string())].into(),
            read_only: true,
            publication: "0123456789abcdef".into(),
        };
        let by_fuse = PublishContext { mounter: Mounter::Fuse, ..context.clone() };
        assert!(
            PublishContext::from_map(&by_fuse.to_map()).is_err(),
            "UNSAFE: ceph-fuse mounts what is not read"
        );
        let by_fuse = PublishContext { snapshot: String::new(), ..by_fuse };
        assert_eq!(PublishContext::from_map(&by_fuse.to_map()).unwrap(), Some(by_fuse));
        assert_eq!(PublishContext::from_map(&context.to_map()).unwrap(), Some(context));
        assert_eq!(PublishContext::from_map(&Map::new()).unwrap(), None);
        for path in ["", "volumes/a", "/a,secret=b"] {
            let map = [(PATH.to_string(), path.to_string())].into();
            assert!(PublishContext::from_map(&map).is_err(), "{path:?}");
        }
        let unclear =
            [(PATH, "/volumes/a"), (READ_ONLY, "yes")].map(|(key, value)| (key.into(), value.into()));
        assert!(PublishContext::from_map(&unclear.into()).is_err(), "UNSAFE: it is taken for writable");
    }

    #[test]
    fn a_tree_is_recognized_by_what_is_mounted() {
        let context = |snapshot: &str| {
            let pairs = [(PATH, "/volumes/csi/csi-vol-a/0-1"), (SNAPSHOT, snapshot)];
            let map = pairs.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            PublishContext::from_map(&map).unwrap().unwrap()
        };
        let own = context("");
        // The kernel and ceph-fuse mount the tree itself.
        assert_eq!(mounted_tree(&own.path, "/"), own.image());
        let taken = context("s");
        for part in ["/volumes/csi/csi-vol-a/.snap/s/0-1", "/volumes/csi/csi-vol-a/0-1/.snap/s"] {
            assert_eq!(mounted_tree("/", part), taken.image());
        }
        assert_ne!(own.image(), taken.image());
    }
}
