//! Making a volume ready on this node.
//!
//! A device has one real mount, below the runtime directory; staging paths and targets are bind mounts of it.
//! A second real mount would silently ignore its own options, so a path with other options is refused.

use std::path::Path;

use crate::backend::{AttachedImage, Attachment, FileTree, NodeContext, PublishedBy, RootSettings};
use crate::csi::CONTEXT_KEY;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::kernel::MountSpec;
use crate::kernel::ceph::TreeToMount;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::node::filesystem::{self, FsDevice, driver_of};
use crate::volume::node::mounts::{self, Bind, Mounted, OnNode, is_mount_point};
use crate::volume::node::owner::enter_group;
use crate::volume::node::record::{self, NodeRecord, Use, UseKind};
use crate::volume::request::{Access, Mode, NodeStage};

impl Operations {
    /// Attaches, formats if blank, mounts, and binds to the staging path.
    pub fn stage(&self, call: &Call, request: &NodeStage) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        backend.supports(&request.capability)?;
        let volume = &self.on_node(call, id, backend)?;
        self.release_predecessor(volume, &request.secrets)?;
        let (before, context) = (volume.record_in_use(), context_of(request));
        let (fs_type, root) = (self.fs_type_for(volume, &context)?, self.root_settings(volume, &context)?);
        let mut record = self.staged_record(volume, request, &fs_type, before.clone())?;
        let is_recorded = before.as_ref() == Some(&record);
        if self.remove_lost(volume, &context)? {
            record.forget_formatting();
        }
        let NodeStage { staging_path: path, secrets, .. } = request;
        let is_staged = before.is_some_and(|before| before.staging(path).is_some());
        if !is_recorded {
            self.write_record(volume, record)?;
        }
        let staged = self.stage_recorded(volume, request, &root);
        match is_staged {
            // The staging path may be in use, so a failed call does not remove it.
            true => staged,
            false => self.roll_back(volume, path, staged, || self.remove_staging(volume, path, secrets)),
        }
    }

    /// Attaches, mounts and binds the volume as recorded.
    fn stage_recorded(&self, volume: &OnNode<'_>, request: &NodeStage, root: &RootSettings) -> Result<()> {
        if request.capability.access == Access::Block {
            self.clear_format_mark(volume)?;
        }
        self.attach(volume, &context_of(request))?;
        self.mount_attached(volume)?;
        if !record::is_read_only(&request.capability) {
            self.refuse_faulty(volume)?;
            self.own_root(volume, root, volume.recorded()?.mount_group)?;
        }
        self.bind_staging(volume, &request.staging_path)
    }

    /// Takes an earlier volume of the same name from the node, which was deleted elsewhere while in use here.
    /// Only its record leads to its device, and this volume needs the place of that record. While the earlier
    /// volume is mounted at one of its paths, that is refused.
    pub(crate) fn release_predecessor(&self, volume: &OnNode<'_>, secrets: &Secrets) -> Result<()> {
        let OnNode { call, id, backend, predecessor: Some(record), .. } = volume else { return Ok(()) };
        let mounts = mounts::read()?;
        if let Some(path) = record.paths().find(|path| is_mount_point(&mounts, path)) {
            return Err(Error::precondition(format!(
                "an earlier volume of the name of {id}, {}, is still mounted at {path}: unpublish and \
                 unstage that one first",
                record.volume_id
            )));
        }
        let Some(earlier) = VolumeId::parse(&record.volume_id) else { return Ok(()) };
        let unused = NodeRecord { uses: Vec::new(), ..record.clone() };
        self.release(&self.on_node(call, &earlier, *backend)?, unused, secrets)
    }

    /// Attaches the volume, or finds its attachment. The backend decides whether that may be used.
    pub(crate) fn attach(&self, volume: &OnNode<'_>, context: &NodeContext<'_>) -> Result<()> {
        let found = volume.attachment()?;
        volume.forget_attachment();
        let write_down = |attached: &AttachedImage| {
            let Some(mut record) = volume.record() else { return Ok(()) };
            let former = &record.attached.image;
            if !former.is_empty() && *former != attached.image {
                // No record would lead to the old mapping afterwards.
                self.let_go(volume, ("its image was replaced by another one", context.secrets))?;
            }
            // Other nodes may have written to the image between two publications.
            record.begun.take_if(|begun| !begun.is_for(attached));
            match record.attached == *attached {
                true => Ok(()),
                false => self.write_record(volume, NodeRecord { attached: attached.clone(), ..record }),
            }
        };
        let attached =
            volume.backend.node().attach(volume.call, volume.id, found.as_ref(), context, &write_down);
        let attached = attached.inspect_err(|_| volume.look_again())?;
        volume.was_attached(attached, &context.capability.access);
        Ok(())
    }

    /// The file system to use: that of the request, else the one that the volume was made for. An
    /// orchestrator that skips the controller does not pass the latter on.
    pub(crate) fn fs_type_for(&self, volume: &OnNode<'_>, context: &NodeContext<'_>) -> Result<String> {
        let OnNode { call, id, backend, .. } = *volume;
        let NodeContext { capability, publish, volume: made_with, secrets, .. } = *context;
        let given = [publish, made_with].into_iter().find_map(|context| context.get(CONTEXT_KEY).cloned());
        let made_for = match (&capability.access, given) {
            (Access::Mount { fs_type, .. }, None) if fs_type.is_empty() && publish.is_empty() => {
                backend.volumes().find(call, id, secrets)?.and_then(|volume| volume.fs_type)
            }
            (_, given) => given,
        };
        Ok(filesystem::wanted(capability, made_for.as_deref()))
    }

    /// The record with this staging path added, if it is compatible with the present record.
    fn staged_record(
        &self,
        volume: &OnNode<'_>,
        request: &NodeStage,
        fs_type: &str,
        before: Option<NodeRecord>,
    ) -> Result<NodeRecord> {
        let (id, capability) = (volume.id, &request.capability);
        let (read_only, mode) = (record::is_read_only(capability), capability.mode);
        let staging = Use::new(UseKind::Staging, &request.staging_path, mode, read_only);
        let mut record = match before {
            None => self.first_record(volume, &context_of(request), fs_type),
            Some(record) => record,
        };
        admit(id, &record, &record::shared_access(capability, fs_type), read_only, &staging.path)?;
        match record.staging(&staging.path) {
            Some(present) if (present.mode, present.read_only) == (mode, read_only) => {}
            Some(present) => {
                return Err(Error::already_exists(format!(
                    "volume {id} is staged at {} for {:?}, not for {:?}",
                    present.path, present.mode, staging.mode
                )));
            }
            None => {
                refuse_below_a_target(id, &record, &staging.path)?;
                let made = self.what_is_made_for(&staging.path);
                record.uses.push(Use { made, ..staging });
            }
        }
        let group = request.mount_group.filter(|_| !read_only);
        enter_group(id, &mut record, group, (true, Kind::AlreadyExists))?;
        Ok(record)
    }

    /// The first record of a volume that is not in use on this node yet. It contains no path in use.
    pub(crate) fn first_record(
        &self,
        volume: &OnNode<'_>,
        context: &NodeContext<'_>,
        fs_type: &str,
    ) -> NodeRecord {
        // The present record of a volume that is not in use has only left-behind targets, and work that a
        // boot interrupted.
        let (uses, begun) = volume.record().map(|record| (record.uses, record.begun)).unwrap_or_default();
        NodeRecord {
            access: record::shared_access(context.capability, fs_type),
            // Several nodes may have the file system mounted, each for reading.
            read_only: context.capability.mode == Mode::MultiNodeReaderOnly || context.read_only,
            uses,
            published: match context.publish.is_empty() {
                true => PublishedBy::Node,
                false => PublishedBy::Controller,
            },
            begun,
            ..self.unrecorded(volume.id)
        }
    }

    /// Mounts the attached device once, below the runtime directory; returns whether it was not mounted yet.
    /// A block volume needs no mount.
    pub(crate) fn mount_attached(&self, volume: &OnNode<'_>) -> Result<bool> {
        let (id, record, attachment) = (volume.id, volume.recorded()?, volume.attachment()?);
        let (Access::Mount { fs_type, flags }, Some(attachment)) = (&record.access, &attachment) else {
            return Ok(false);
        };
        let mount_point = self.real_mount(id)?;
        let is_mounted = match self.mounted_at(volume, &mount_point)? {
            Mounted::Ours { .. } => true,
            Mounted::Nothing => false,
            Mounted::Foreign { what, .. } => {
                return Err(Error::precondition(format!(
                    "volume {id} cannot be mounted: {what} is mounted at {}, which is cephlet's own; unmount \
                     it first",
                    mount_point.display()
                )));
            }
        };
        let read_only = record.read_only || attachment.is_read_only();
        match attachment {
            Attachment::Files(_) if is_mounted => {}
            Attachment::Files(tree) => self.mount_tree(volume, tree, &mount_point, (flags, read_only))?,
            Attachment::Block(device) => {
                let on = FsDevice { volume, device, fs_type };
                if !is_mounted {
                    self.mount_device(on, &record, &mount_point, (flags, read_only))?;
                }
                if !read_only {
                    self.finish_growing(on, &mount_point)?;
                }
            }
        }
        Ok(!is_mounted)
    }

    fn mount_device(
        &self,
        on: FsDevice<'_>,
        record: &NodeRecord,
        mount_point: &Path,
        (flags, read_only): (&[String], bool),
    ) -> Result<()> {
        let FsDevice { volume, device, fs_type } = on;
        self.ensure_file_system(on, record)?;
        mounts::ensure_place(mount_point, true)?;
        let fs_type = driver_of(fs_type);
        let options = mount_options(fs_type, flags);
        let spec =
            MountSpec { source: &device.backing, target: mount_point, fs_type, options: &options, read_only };
        volume.forget_mounts();
        self.kernel.mount(volume.call, &spec).map_err(|error| explain_mount(error, on, flags))
    }

    fn mount_tree(
        &self,
        volume: &OnNode<'_>,
        tree: &FileTree,
        mount_point: &Path,
        (flags, read_only): (&[String], bool),
    ) -> Result<()> {
        let explain = |error: Error| error.context(format!("volume {}", volume.id));
        let Some(wanted) = &tree.to_mount else {
            return Err(explain(Error::unavailable("its real mount was just unmounted: try again")));
        };
        mounts::ensure_place(mount_point, true)?;
        let options = wanted.options.iter().chain(flags).cloned().collect();
        let wanted = TreeToMount { options, read_only, ..wanted.clone() };
        volume.look_again();
        volume.backend.node().mount(volume.call, &wanted, mount_point).map_err(explain)
    }

    pub(crate) fn bind_staging(&self, volume: &OnNode<'_>, path: &str) -> Result<()> {
        let record = volume.recorded()?;
        let Some(staging) = record.staging(path) else { return Ok(()) };
        let target = Path::new(path);
        let access = &record.access;
        match access {
            Access::Block => mounts::ensure_named_place(target, true)
                .map_err(|error| error.context(format!("volume {}", volume.id))),
            Access::Mount { .. } => {
                let source = &self.real_mount(volume.id)?;
                self.ensure_bound(volume, &Bind { source, target, access, read_only: staging.read_only })
            }
        }
    }
}

/// The context for the backend. The kernel allows writing to a device through a read-only bind of its node
/// (only files, directories and links are protected, fs/namei.c, sb_permission), so a device that is only
/// read has to refuse writes itself.
fn context_of(request: &NodeStage) -> NodeContext<'_> {
    let NodeStage { volume_context: volume, publish_context: publish, secrets, capability, .. } = request;
    let read_only = capability.access == Access::Block && record::is_read_only(capability);
    NodeContext { volume, publish, secrets, capability, read_only }
}

/// Checks that the volume, as it is in use on this node, can also be used like this at `path`.
pub(crate) fn admit(
    id: &VolumeId,
    record: &NodeRecord,
    access: &Access,
    read_only: bool,
    path: &str,
) -> Result<()> {
    if record.access != *access {
        return Err(Error::already_exists(format!(
            "volume {id} is in use on this node as {}; {} was asked for at {path}: unpublish it first, or \
             ask for the same",
            describe(&record.access),
            describe(access),
        )));
    }
    if record.read_only && !read_only {
        return Err(Error::precondition(format!(
            "volume {id} is mounted read-only on this node: unpublish it before writing to it"
        )));
    }
    Ok(())
}

/// The options of the real mount. An xfs clone has its source's UUID, which xfs refuses to mount twice.
fn mount_options(fs_type: &str, flags: &[String]) -> Vec<String> {
    let own = (fs_type == "xfs" && !flags.iter().any(|flag| flag == "nouuid")).then(|| "nouuid".to_string());
    flags.iter().cloned().chain(own).collect()
}

/// The file system is sound, so the kernel refuses the flags, or cannot replay the journal.
fn explain_mount(error: Error, on: FsDevice<'_>, flags: &[String]) -> Error {
    let id = on.volume.id;
    let explained = match error.errno() {
        Some(libc::EROFS) if on.device.read_only => return filesystem::must_be_replayed(id, on.fs_type),
        Some(libc::EINVAL) if !flags.is_empty() => error.with_kind(Kind::InvalidArgument),
        _ => error,
    };
    explained.context(format!("volume {id}"))
}

/// Refuses a path at or below a target: unstaging it would take the target from its consumer.
fn refuse_below_a_target(id: &VolumeId, record: &NodeRecord, path: &str) -> Result<()> {
    match record.targets().find(|target| Path::new(path).starts_with(&target.path)) {
        None => Ok(()),
        Some(target) => Err(Error::precondition(format!(
            "volume {id} is published at {}, so it cannot be staged at {path}: name another path",
            target.path
        ))),
    }
}

fn describe(access: &Access) -> String {
    match access {
        Access::Block => "a block device".to_string(),
        Access::Mount { fs_type, flags } if flags.is_empty() => format!("a file system ({fs_type})"),
        // Flags are not named: the specification counts them as sensitive.
        Access::Mount { fs_type, flags } => {
            format!("a file system ({fs_type}, with {} mount flags)", flags.len())
        }
    }
}
