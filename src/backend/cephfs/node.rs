//! Volumes as mounts of this node, by the kernel's client.

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::ceph::ClusterAccess;
use crate::backend::ceph::placement::known;
use crate::backend::ceph::publication::{NodePublication, PublicationLock};
use crate::backend::cephfs::context::{Context, may_exist};
use crate::backend::cephfs::names::client_name;
use crate::backend::cephfs::publish::{PublishContext, end_publications, mounted_tree, publish};
use crate::backend::{
    AttachedImage, Attachment, Condition, FileTree, NodeContext, NodeDriver, Publication, PublishedBy,
    Served, WriteDown,
};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Runner, Tool};
use crate::ids::VolumeId;
use crate::kernel::ceph::TreeToMount;
use crate::secrets::Secrets;
use crate::sys::file;
use crate::sys::modules::{Modules, knows_file_system};
use crate::sys::mountinfo::{Mount, Mounts};

/// The file system and its module.
const MODULE: &str = "ceph";

/// This node.
pub struct ThisNode {
    pub name: String,
    /// The daemon's own mount point of the volume with this key.
    pub mount_point: Box<dyn Fn(&str) -> PathBuf + Send + Sync>,
}

/// The node's half of the backend.
pub(crate) struct Node {
    context: Arc<Context>,
    runner: Arc<dyn Runner>,
    modules: Modules,
    here: ThisNode,
}

impl Node {
    pub fn new(context: Arc<Context>, runner: Arc<dyn Runner>, here: ThisNode) -> Self {
        Self { context, runner, modules: Modules::default(), here }
    }

    /// Checks that volumes can be mounted here; the error says why not.
    pub fn usable(&self) -> Result<()> {
        if knows_file_system(MODULE) || self.modules.has(MODULE) {
            return Ok(());
        }
        Err(no_client("there is no module of it (in a container: mount the host's /lib/modules)"))
    }

    /// Loads the module, if it is not there: the kernel takes no key of Ceph before.
    fn ensure_client(&self, call: &Call) -> Result<()> {
        if knows_file_system(MODULE) {
            return Ok(());
        }
        let loaded = self.runner.run(call, &Cmd::new(Tool::Modprobe, Class::Change).arg(MODULE));
        loaded.map(drop).map_err(|error| no_client(&Error::from(error).to_string()))
    }

    fn to_mount(
        &self,
        id: &VolumeId,
        published: PublishContext,
        wanted: &NodeContext<'_>,
    ) -> Result<TreeToMount> {
        let cluster = known(&self.context.clusters, &id.place.cluster)?;
        let access = ClusterAccess::new(cluster, wanted.secrets)?;
        let (user, key) = (access.credentials.user.clone(), access.credentials.key.clone());
        let key = key.ok_or_else(|| {
            Error::unauthenticated(format!(
                "the key of client.{user} of cluster {:?} is not known here, and the kernel needs it to mount: set \
                 CEPHLET_CEPH_KEYRING or the cluster's key file, or give `userID` and `userKey` as secrets",
                access.cluster.name
            ))
        })?;
        let (monitors, only_v2) = access.cluster.kernel_monitors()?;
        let PublishContext { path, snapshot, file_system, mount_options: mut options, read_only, .. } =
            published;
        let snapshot = Some(snapshot).filter(|snapshot| !snapshot.is_empty());
        let read_only = read_only || snapshot.is_some();
        if only_v2 && !options.iter().any(|option| option.starts_with("ms_mode=")) {
            options.push("ms_mode=prefer-crc".into());
        }
        let fsid = access.cluster.fsid.clone();
        let client = client_name(&self.here.name);
        Ok(TreeToMount { monitors, user, key, file_system, path, snapshot, options, fsid, read_only, client })
    }

    /// Publishes the volume to this node, if the controller was not asked to.
    fn publish_here(&self, call: &Call, id: &VolumeId, wanted: &NodeContext<'_>) -> Result<PublishContext> {
        let capability = wanted.capability.clone();
        let publication =
            Publication { node: self.here.name.clone(), capability, read_only: wanted.read_only };
        let publication = NodePublication::new(&publication, PublishedBy::Node);
        self.context.within(call, (&id.place, wanted.secrets), |fs| publish(fs, id, publication))
    }
}

fn no_client(why: &str) -> Error {
    Error::precondition(format!(
        "this node's kernel has no CephFS client: {why}; run `modprobe {MODULE}` on the host"
    ))
}

impl NodeDriver for Node {
    /// A tree is attached while it is mounted, so this only finds out how to mount it.
    fn attach(
        &self,
        call: &Call,
        id: &VolumeId,
        found: Option<&Attachment>,
        wanted: &NodeContext<'_>,
        write_down: WriteDown<'_>,
    ) -> Result<Attachment> {
        if !may_exist(id) {
            return Err(Error::not_found(format!("there is no volume {id}")));
        }
        let published = PublishContext::from_map(wanted.publish)?;
        if let Some(found) = found
            && published.as_ref().is_none_or(|published| published.image() == found.image())
        {
            return Ok(found.clone());
        }
        let attached = || {
            self.ensure_client(call)?;
            let published = match published {
                Some(published) => published,
                None => self.publish_here(call, id, wanted)?,
            };
            refuse_writer(&published, wanted)?;
            let (path, image) = (published.path.clone(), published.image());
            write_down(&AttachedImage { image: image.clone(), publication: published.publication.clone() })?;
            let to_mount = self.to_mount(id, published, wanted)?;
            let read_only = to_mount.read_only;
            Ok(Attachment::Files(FileTree { path, image, read_only, device: None, to_mount: Some(to_mount) }))
        };
        attached().map_err(|error: Error| error.context(format_args!("attach volume {id}")))
    }

    /// The tree at the volume's own mount point: others may have mounted it elsewhere, as a client of theirs.
    /// Reads only the kernel, so it works without the cluster, and after the cluster left the configuration.
    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>> {
        let mount_point = (self.here.mount_point)(&id.key());
        let mount_point = file::resolve_parent(&mount_point).unwrap_or(mount_point);
        let mounts = Mounts::read().map_err(|error| Error::io("read the table of mounts", &error))?;
        let tree = |mount: &Mount| {
            let path = mount.ceph_path()?.to_string();
            let image = Some(mounted_tree(&path, mount.root.to_str()?)).filter(|image| id.means(image))?;
            let (read_only, device) = (mount.is_file_system_read_only(), Some(mount.device));
            Some(Attachment::Files(FileTree { path, image, read_only, device, to_mount: None }))
        };
        Ok(mounts.find_at(&mount_point).and_then(tree))
    }

    /// The last unmount has detached the tree.
    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()> {
        match (published, self.context.serves(&id.place)) {
            (PublishedBy::Controller, _) => Ok(()),
            (PublishedBy::Node, Served::Here) => {
                let is_own = |lock: &PublicationLock| {
                    lock.publication.by == PublishedBy::Node && lock.publication.node == self.here.name
                };
                self.context
                    .within(call, (&id.place, secrets), |fs| end_publications(fs, id, is_own))
                    .map(drop)
            }
            (PublishedBy::Node, _) => {
                log::warn!(
                    "volume {id} is unmounted; in its cluster, which is not set up here any more, it stays published: \
                     ControllerUnpublishVolume ends that where the cluster is set up"
                );
                Ok(())
            }
        }
    }

    /// The kernel learns of a new quota by itself.
    fn grow(&self, _call: &Call, _id: &VolumeId, _attachment: &Attachment, _least: u64) -> Result<()> {
        Ok(())
    }

    /// Callers ask only about volumes in use, so a volume that is not mounted has lost its mount.
    fn condition(&self, _call: &Call, id: &VolumeId) -> Result<Condition> {
        const LOST: &str =
            "it is no longer mounted on this node: unpublish and unstage it here, and stage it again";
        Ok(self.attached(id)?.is_none().then(|| LOST.to_string()))
    }
}

/// Refuses to write to the tree of a snapshot.
fn refuse_writer(published: &PublishContext, wanted: &NodeContext<'_>) -> Result<()> {
    let is_read =
        published.snapshot.is_empty() || published.read_only || wanted.capability.mode.is_read_only();
    match is_read {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "it shares the snapshot {}, which can only be read: use it with a reader-only access mode",
            published.snapshot
        ))),
    }
}
