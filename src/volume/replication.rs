//! Replicating volumes to other clusters.

use super::Operations;
use super::request::ReplicationRequest;
use crate::backend::{Backend, Promotion, Replication, ReplicationInfo, ReplicationTerms};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;

impl Operations {
    /// Whether any backend that is set up replicates volumes.
    pub fn offers_replication(&self) -> bool {
        self.backends.iter().any(|backend| backend.replication().is_some())
    }

    /// Begins to replicate a volume.
    pub fn enable_replication(&self, call: &Call, request: &ReplicationRequest) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        let asked = &request.parameters;
        let terms =
            ReplicationTerms { mode: asked.mode, schedule: asked.schedule.clone(), flatten: asked.flatten };
        replication(id, backend)?.enable(call, id, &terms, &request.secrets)
    }

    /// Ends the replication of a volume.
    pub fn disable_replication(&self, call: &Call, request: &ReplicationRequest) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        let force = request.force || request.parameters.force;
        replication(id, backend)?.disable(call, id, force, &request.secrets)
    }

    /// Makes a copy the primary.
    pub fn promote(&self, call: &Call, request: &ReplicationRequest) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        let asked = Promotion {
            force: request.force,
            accept_loss: request.parameters.accept_loss,
            schedule: request.parameters.schedule.clone(),
        };
        replication(id, backend)?.promote(call, id, &asked, &request.secrets)
    }

    /// Makes a primary a copy.
    pub fn demote(&self, call: &Call, request: &ReplicationRequest) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        replication(id, backend)?.demote(call, id, request.force, &request.secrets)
    }

    /// Copies a copy anew if that is necessary; returns whether it is up to date.
    pub fn resync(&self, call: &Call, request: &ReplicationRequest) -> Result<bool> {
        let (id, backend) = request.volume.get()?;
        replication(id, backend)?.resync(call, id, request.force, &request.secrets)
    }

    /// How the copying of a volume is doing.
    pub fn replication_info(&self, call: &Call, request: &ReplicationRequest) -> Result<ReplicationInfo> {
        let (id, backend) = request.volume.get()?;
        replication(id, backend)?.info(call, id, &request.secrets)
    }

    /// The ID of a volume on the other side.
    pub fn replication_destination(&self, call: &Call, request: &ReplicationRequest) -> Result<String> {
        let (id, backend) = request.volume.get()?;
        let there = replication(id, backend)?.destination(call, id, &request.secrets)?;
        Ok(there.to_string())
    }
}

fn replication<'a>(id: &VolumeId, backend: &'a dyn Backend) -> Result<&'a dyn Replication> {
    let kind = backend.name();
    let absent = || Error::unimplemented(format!("volume {id}: {kind} volumes are not replicated"));
    backend.replication().ok_or_else(absent)
}
