//! Volumes as mounts of this node, by the kernel's client or by ceph-fuse.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::ceph::ClusterAccess;
use crate::backend::ceph::placement::{end_own_publication, known};
use crate::backend::ceph::publication::{NodePublication, PublicationLock};
use crate::backend::cephfs::context::{Context, Fs, may_exist};
use crate::backend::cephfs::fuse;
use crate::backend::cephfs::names::client_name;
use crate::backend::cephfs::publish::{PublishContext, end_publications, mounted_tree, publish};
use crate::backend::{
    AttachedImage, Attachment, Condition, Fault, FileTree, NodeContext, NodeDriver, Publication, PublishedBy,
    Reason, WriteDown,
};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Runner, Tool};
use crate::ids::VolumeId;
use crate::kernel::Kernel;
use crate::kernel::ceph::{Mounter, Tree, TreeToMount};
use crate::secrets::Secrets;
use crate::sys::file;
use crate::sys::modules::{Modules, knows_file_system};
use crate::sys::mountinfo::{Mount, Mounts};

/// The file system and its module.
const MODULE: &str = "ceph";
/// The same for ceph-fuse.
const FUSE_MODULE: &str = "fuse";

/// How a node without Ceph's tools gets a volume.
const BY_CONTROLLER: &str = "or have a controller publish the volume to this node (ControllerPublishVolume)";

/// This node.
pub struct ThisNode {
    pub name: String,
    pub kernel: Kernel,
    /// Whether this is a container, with which processes of ceph-fuse would end.
    pub in_container: bool,
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
        if knows_file_system(MODULE) || self.modules.has(MODULE) || self.fuse_usable().is_ok() {
            return Ok(());
        }
        Err(self.no_client("there is no module of it"))
    }

    /// Makes sure that the client can be used. The kernel takes no key of Ceph before its client is loaded.
    fn ensure_client(&self, call: &Call, mounter: Mounter) -> Result<()> {
        let module = match mounter {
            Mounter::Kernel => MODULE,
            Mounter::Fuse => self.fuse_usable().map(|()| FUSE_MODULE)?,
        };
        if knows_file_system(module) {
            return Ok(());
        }
        let loaded = self.runner.run(call, &Cmd::new(Tool::Modprobe, Class::Change).arg(module));
        loaded.map(drop).map_err(|error| match mounter {
            Mounter::Kernel => self.no_client(&Error::from(error).to_string()),
            Mounter::Fuse => {
                Error::from(error).with_kind(Kind::Precondition).hint("run `modprobe fuse` on the host")
            }
        })
    }

    fn fuse_usable(&self) -> Result<()> {
        fuse::usable(&*self.runner, self.here.in_container)
    }

    fn no_client(&self, why: &str) -> Error {
        let or_fuse = if self.here.in_container { "" } else { ", or use the parameter mounter=fuse" };
        Error::precondition(format!(
            "this node's kernel has no CephFS client: {why}; run `modprobe {MODULE}` on the host{or_fuse}"
        ))
    }

    /// The daemon's own mount point of a volume, as the table of mounts names it.
    fn mount_point(&self, id: &VolumeId) -> PathBuf {
        let mount_point = (self.here.mount_point)(&id.key());
        file::resolve_parent(&mount_point).unwrap_or(mount_point)
    }

    /// How the volume's mount answers; None if it is not mounted.
    fn look(&self, call: &Call, id: &VolumeId) -> Result<Option<Tree>> {
        match self.attached(id)? {
            Some(_) => self.here.kernel.look_at_tree(call, &self.mount_point(id)).map(Some),
            None => Ok(None),
        }
    }

    fn to_mount(
        &self,
        id: &VolumeId,
        published: PublishContext,
        wanted: &NodeContext<'_>,
    ) -> Result<TreeToMount> {
        let cluster = known(&self.context.clusters, &id.place.cluster)?;
        let access = ClusterAccess::new(cluster, wanted.secrets)?;
        let key = access.key()?;
        let PublishContext { path, snapshot, file_system, mounter, mount_options, read_only, .. } = published;
        let (snapshot, mut options) = (Some(snapshot).filter(|snapshot| !snapshot.is_empty()), mount_options);
        let monitors = match mounter {
            Mounter::Fuse => access.cluster.monitors_text(),
            Mounter::Kernel => {
                let (monitors, only_v2) = access.cluster.kernel_monitors()?;
                if only_v2 && !options.iter().any(|option| option.starts_with("ms_mode=")) {
                    options.push("ms_mode=prefer-crc".into());
                }
                monitors
            }
        };
        Ok(TreeToMount {
            mounter,
            monitors,
            user: access.credentials.user.clone(),
            key,
            file_system,
            path,
            read_only: read_only || snapshot.is_some(),
            snapshot,
            options,
            fsid: access.cluster.fsid.clone(),
            client: client_name(&self.here.name),
        })
    }

    /// Publishes the volume to this node, if the controller was not asked to.
    fn publish_here(&self, call: &Call, id: &VolumeId, wanted: &NodeContext<'_>) -> Result<PublishContext> {
        let capability = wanted.capability.clone();
        self.context.objects.has_rados().map_err(|error| error.hint(BY_CONTROLLER))?;
        let publication =
            Publication { node: self.here.name.clone(), capability, read_only: wanted.read_only };
        let publication = NodePublication::new(&publication, PublishedBy::Node);
        self.context.within(call, (&id.place, wanted.secrets), |fs| publish(fs, id, publication))
    }
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
        if !may_exist(&id.place, &id.object) {
            return Err(Error::not_found(format!("there is no volume {id}")));
        }
        let published = PublishContext::from_map(wanted.publish)?;
        if let Some(found) = found
            && published.as_ref().is_none_or(|published| published.image() == found.image())
        {
            return Ok(found.clone());
        }
        let attached = || {
            let published = match published {
                Some(published) => published,
                None => self.publish_here(call, id, wanted)?,
            };
            refuse_writer(&published, wanted)?;
            self.ensure_client(call, published.mounter)?;
            let (path, image) = (published.path.clone(), published.image());
            write_down(&AttachedImage { image: image.clone(), publication: published.publication.clone() })?;
            let to_mount = self.to_mount(id, published, wanted)?;
            let read_only = to_mount.read_only;
            Ok(Attachment::Files(FileTree { path, image, read_only, device: None, to_mount: Some(to_mount) }))
        };
        attached().map_err(|error: Error| error.context(format_args!("attach volume {id}")))
    }

    fn mount(&self, call: &Call, tree: &TreeToMount, at: &Path) -> Result<()> {
        match tree.mounter {
            Mounter::Kernel => self.here.kernel.mount_tree(call, tree, at),
            Mounter::Fuse => fuse::mount(call, (&*self.runner, &self.here.kernel), tree, at),
        }
    }

    /// The tree at the volume's own mount point: others may have mounted it elsewhere, as a client of theirs.
    /// Reads only the kernel, so it works without the cluster, and after the cluster left the configuration.
    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>> {
        let mount_point = self.mount_point(id);
        let mounts = Mounts::read().map_err(|error| Error::io("read the table of mounts", &error))?;
        let tree = |mount: &Mount| {
            let path = mount.ceph_path()?.to_string();
            let image = Some(mounted_tree(&path, mount.root.to_str()?)).filter(|image| id.means(image))?;
            let (read_only, device) = (mount.is_file_system_read_only(), Some(mount.device));
            Some(Attachment::Files(FileTree { path, image, read_only, device, to_mount: None }))
        };
        Ok(mounts.find_at(&mount_point).and_then(tree))
    }

    fn is_mount_of(&self, id: &VolumeId, mount: &Mount) -> bool {
        let tree = || Some(mounted_tree(mount.ceph_path()?, mount.root.to_str()?));
        id.incarnation.is_some() && tree().is_some_and(|image| id.means(&image))
    }

    /// The last unmount has detached the tree; a process of ceph-fuse may still write out what it holds.
    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()> {
        fuse::await_end(call, &*self.runner, &self.mount_point(id))?;
        if published == PublishedBy::Controller {
            return Ok(());
        }
        let is_own = |lock: &PublicationLock| {
            lock.publication.by == PublishedBy::Node && lock.publication.node == self.here.name
        };
        end_own_publication(&self.context.clusters, (id, secrets), || {
            let end = |fs: &Fs<'_>| end_publications(fs, id, is_own).map(drop);
            if self.context.within_any(call, (&id.place, secrets), end)?.is_none() {
                // A repeat would not help, and would keep what the orchestrator knows of the volume for ever.
                log::warn!("volume {id} is detached; its cluster has no such file system any more");
            }
            Ok(())
        })
    }

    /// The kernel learns of a new quota by itself.
    fn grow(&self, _call: &Call, _id: &VolumeId, _attachment: &Attachment, _least: u64) -> Result<()> {
        Ok(())
    }

    /// A mount that fails every access does so until it is made anew.
    fn lost(
        &self,
        call: &Call,
        id: &VolumeId,
        _attached: (&Attachment, &str),
        _wanted: &NodeContext<'_>,
    ) -> Result<Option<String>> {
        match self.look(call, id)? {
            Some(Tree::Failed(errno)) => Ok(Some(why_failed(errno).1)),
            _ => Ok(None),
        }
    }

    /// Callers ask only about volumes in use, so a volume that is not mounted has lost its mount.
    fn condition(&self, call: &Call, id: &VolumeId) -> Result<Condition> {
        let (reason, why) = match self.look(call, id)? {
            None => (Reason::MountGone, "it is no longer mounted on this node".to_string()),
            Some(Tree::Failed(errno)) => why_failed(errno),
            // It goes on by itself once an MDS answers.
            Some(Tree::Silent) => return Ok(Some(Reason::FileSystemSilent.into())),
            Some(Tree::Answers) => return Ok(None),
        };
        let detail = format!("{why}: unpublish and unstage it here, and stage it again");
        Ok(Some(Fault::new(reason, detail)))
    }
}

/// Why every access to a mount fails, by the errno.
fn why_failed(errno: i32) -> (Reason, String) {
    match errno {
        libc::ENOTCONN | libc::ECONNABORTED => {
            (Reason::ProcessEnded, "its ceph-fuse process has ended".to_string())
        }
        libc::EACCES | libc::EPERM | libc::ESHUTDOWN => (
            Reason::NodeShutOut,
            "the cluster has shut out the client of its mount (`ceph osd blocklist ls`), or its files are gone".to_string(),
        ),
        _ => {
            let error = io::Error::from_raw_os_error(errno);
            (Reason::MountDead, format!("every access to its mount fails ({error})"))
        }
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
