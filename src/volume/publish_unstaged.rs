//! Publishing for orchestrators that know no staging: one call makes the volume ready on this node and gives it to a consumer.
//!
//! The device is attached and mounted once, below the runtime directory, however many targets there are, as for a stage; only
//! nobody is given a staging path. So there is nothing else to take back: whoever gives up the last path of a volume, in whichever
//! way he was given it, has the device taken from the node.

use std::path::Path;

use crate::backend::{Backend, NodeContext};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Volumes;
use crate::volume::node_record::{self, NodeRecord, Target};
use crate::volume::requests::{Access, PublishUnstaged};
use crate::volume::stage::admit;

impl Volumes {
    /// Attaches, formats if blank, mounts, and binds the volume or its device to the target path.
    pub fn publish_unstaged(&self, call: &Call, request: &PublishUnstaged) -> Result<()> {
        let (id, backend) = self.volume(&request.volume_id)?;
        backend.supports(&request.capability)?;
        self.refuse_predecessor(&id)?;
        let before = self.node_record(&id)?;
        let context = context_of(request);
        let fs_type = self.fs_type_for(call, backend.as_ref(), &id, &context)?;
        let (record, is_new) = self.record_with_target(&id, request, &fs_type, before)?;
        if is_new {
            self.remember(&id, &record)?;
        }
        if record.access == Access::Block {
            self.forbid_formatting(&id)?;
        }
        let published = self
            .device_for(call, backend.as_ref(), &id, &context)
            .and_then(|device| self.mount_device(call, &id, &device, &record))
            .and_then(|()| self.bind_target(call, backend.as_ref(), &id, &record, &request.target_path));
        // What was published before this call may be in use, however this call failed.
        published.inspect_err(|error| {
            if is_new {
                self.forget_failed_target(call, &id, &request.target_path, error)
            }
        })
    }

    /// The record as it will be with this target, if that is compatible with what is there; and whether the target is new. In use
    /// otherwise at this very path is another refusal than in use elsewhere.
    fn record_with_target(
        &self,
        id: &VolumeId,
        request: &PublishUnstaged,
        fs_type: &str,
        before: Option<NodeRecord>,
    ) -> Result<(NodeRecord, bool)> {
        let (capability, path) = (&request.capability, request.target_path.clone());
        let mut record = before.unwrap_or_else(|| self.first_record(id, &context_of(request), fs_type));
        let read_only = request.read_only || node_record::is_read_only(capability);
        let target = Target { path, mode: capability.mode, read_only, made: false, strict: true };
        let is_new = self.add_target(id, &mut record, target)?;
        let conflict = if is_new { Kind::Precondition } else { Kind::AlreadyExists };
        let access = node_record::shared_access(capability, fs_type);
        let admitted = admit(id, &record, &access, read_only, &request.target_path);
        admitted.map(|()| (record, is_new)).map_err(|error: Error| error.with_kind(conflict))
    }

    fn bind_target(&self, call: &Call, backend: &dyn Backend, id: &VolumeId, record: &NodeRecord, path: &str) -> Result<()> {
        let Some(target) = record.targets.iter().find(|target| target.path == path) else { return Ok(()) };
        let read_only = target.read_only || record.read_only;
        let source = self.bind_source(id, record, backend, read_only)?;
        self.ensure_bound(call, id, &source, Path::new(path), &record.access, read_only)
    }

    /// Refuses a volume that is not in use on this node and that its backend knows to be absent. A cluster that does not answer
    /// is no reason to keep what is gone from being given up.
    pub fn refuse_absent(&self, call: &Call, volume_id: &str, secrets: &Secrets) -> Result<()> {
        let (id, backend) = self.volume(volume_id)?;
        if self.node_record(&id)?.is_some() {
            return Ok(());
        }
        match backend.find(call, &id, secrets) {
            Ok(None) => Err(Error::not_found(format!("there is no volume {volume_id:?}"))),
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind() == Kind::NotFound => Err(error),
            Err(error) => {
                log::debug!("volume {id} is not in use here; whether it exists is unknown: {error}");
                Ok(())
            }
        }
    }
}

/// What publishing passes to the backend. A device is read-only for all or for nobody.
fn context_of(request: &PublishUnstaged) -> NodeContext<'_> {
    let PublishUnstaged { volume_context: volume, publish_context: publish, secrets, capability, .. } = request;
    let reads_only = request.read_only || node_record::is_read_only(capability);
    let read_only = capability.access == Access::Block && reads_only;
    NodeContext { volume, publish, secrets, capability, read_only }
}
