//! Looking at a volume, and changing its size and its settings.

use crate::backend::{Backend, Condition, RootSettings, Volume};
use crate::csi::ROLE_KEY;
use crate::dispatch::Call;
use crate::error::Result;
use crate::volume::Operations;
use crate::volume::request::{Capability, Expand, GetVolume, Modify, Validate, validate};

/// Whether a volume can be used as described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can.
    Confirmed,
    /// It cannot, for this reason.
    Refused(String),
    /// This key of the volume's context differs from the volume's own: another volume is meant.
    OtherContext(String),
}

impl Operations {
    /// One volume with its state.
    pub fn get(&self, call: &Call, request: &GetVolume) -> Result<Volume> {
        let (id, backend) = request.volume.get()?;
        let found = backend.volumes().inspect(call, id, &request.secrets)?;
        Ok(self.with_node_view(call, backend, found.ok_or_else(|| request.volume.absent())?))
    }

    /// The volume with its condition on this node, if its storage reports none.
    pub(super) fn with_node_view(&self, call: &Call, backend: &dyn Backend, volume: Volume) -> Volume {
        let here = self.on_node(call, &volume.id, backend).and_then(|here| self.condition_here(&here));
        with_condition_here(volume, here)
    }

    /// Whether a volume exists and can be used as described.
    pub fn validate(&self, call: &Call, request: &Validate) -> Result<Verdict> {
        let (id, backend) = request.volume.get()?;
        let found = backend.volumes().find(call, id, &request.secrets)?;
        let volume = found.ok_or_else(|| request.volume.absent())?;
        let fits = |capability: &Capability| {
            backend.supports(capability).map_err(|error| error.message().to_string())?;
            allows_writing(&volume, capability)?;
            has_file_system(&volume, capability)
        };
        // An operator says in the context what the parameters of a registered volume would.
        let unlike = |(key, value): (&String, &String)| {
            let own = volume.context.get(key).or_else(|| volume.root.get(key));
            key != ROLE_KEY && own.map_or(!RootSettings::is_about(key), |own| own != value)
        };
        if let Some((key, _)) = request.volume_context.iter().find(|pair| unlike(*pair)) {
            return Ok(Verdict::OtherContext(key.clone()));
        }
        // As in a creation: a confirmed volume is one that could have been made with these capabilities.
        let agree = validate::one_file_system(&request.capabilities, &request.parameters);
        let agree = agree.map_err(|error| error.message().to_string());
        Ok(match agree.and_then(|()| request.capabilities.iter().try_for_each(fits)) {
            Ok(()) => Verdict::Confirmed,
            Err(reason) => Verdict::Refused(reason),
        })
    }

    /// Makes the volume at least as large as asked; returns its size in bytes, and whether the nodes that use
    /// it have to follow.
    pub fn expand(&self, call: &Call, request: &Expand) -> Result<(u64, bool)> {
        let (id, backend) = request.volume.get()?;
        let size = backend.volumes().expand(call, id, &request.size, &request.secrets)?;
        Ok((size, backend.traits().grows_on_nodes))
    }

    /// Changes settings of a volume; without parameters, only checks that the volume exists.
    pub fn modify(&self, call: &Call, request: &Modify) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        backend.volumes().modify(call, id, &request.mutable_parameters, &request.secrets)
    }
}

/// The volume with its condition on this node, if the storage reports none. If the node cannot tell, the
/// volume is returned without it.
pub(super) fn with_condition_here(volume: Volume, here: Result<Condition>) -> Volume {
    let here = here.unwrap_or_else(|error| {
        log::warn!("volume {}: its condition on this node is not known: {error}", volume.id);
        None
    });
    match (&volume.condition, here) {
        (None | Some(None), Some(found)) => Volume { condition: Some(Some(found)), ..volume },
        _ => volume,
    }
}

/// Whether the volume can be written to, if that is asked for; if not, why.
fn allows_writing(volume: &Volume, capability: &Capability) -> Result<(), String> {
    match volume.read_only.as_ref().filter(|_| !capability.mode.is_read_only()) {
        Some(why) => Err(why.clone()),
        None => Ok(()),
    }
}

/// Whether the requested file system is the one the volume was made for, if both are known; if not, why.
fn has_file_system(volume: &Volume, capability: &Capability) -> Result<(), String> {
    let made_for = volume.fs_type.as_deref();
    match made_for.zip(capability.other_file_system(made_for)) {
        Some((made_for, other)) => Err(format!("volume {} was made for {made_for}, not {other}", volume.id)),
        None => Ok(()),
    }
}
