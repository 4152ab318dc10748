//! Making a volume.

use crate::backend::{NewVolume, Origin, Placement, PlacementRequest, Volume};
use crate::csi::{Capability, FILE_SYSTEMS, FS_TYPE, Map, OLD_FILE_SYSTEMS};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids;
use crate::volume::request::{CreateVolume, Source, TopologyRequirement};
use crate::volume::{Operations, Target};

impl Operations {
    /// The volume that a request asks for: its place, or the place that registers its name, and its source.
    /// This is decided once, so that the volume that is made is the one that was locked, even after a reload.
    pub fn plan_creation(&self, request: CreateVolume) -> Result<NewVolume> {
        let backend = self.backends.for_parameters(&request.parameters)?;
        let placement = backend.place(&PlacementRequest {
            parameters: &request.parameters,
            mutable_parameters: &request.mutable_parameters,
            topology: &request.topology,
        })?;
        request.capabilities.iter().try_for_each(|capability| backend.supports(capability))?;
        if let (None, Some(old)) =
            (&request.source, old_file_system(&request.parameters, &request.capabilities))
        {
            return Err(Error::invalid(format!(
                "a new volume cannot have the file system {old:?}, which is mounted only where it is already: \
                 allowed are {}",
                FILE_SYSTEMS.join(", ")
            )));
        }
        let object = ids::volume_object(&self.instance, &request.name);
        let (place, object, topology) = match placement {
            Placement::At(place) => (place, object, None),
            Placement::Within(place) => (place, object, Some(self.near_this_node(request.topology))),
            Placement::Registered(place) => {
                let object = ids::registered(&object, &place.pool);
                (place, object, Some(self.near_this_node(request.topology)))
            }
        };
        Ok(NewVolume {
            object,
            place,
            topology,
            name: request.name,
            size: request.size,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
            capabilities: request.capabilities,
            source: request.source.map(|source| self.origin(source)).transpose()?,
            secrets: request.secrets,
        })
    }

    /// The requested topology. If none is requested, a daemon that also serves the node prefers the node's
    /// domain.
    fn near_this_node(&self, asked: TopologyRequirement) -> TopologyRequirement {
        match asked == TopologyRequirement::default() && self.serves_node {
            true => TopologyRequirement { preferred: vec![self.topology.segments()], ..asked },
            false => asked,
        }
    }

    /// Makes the volume, or answers with the one that the same request made before.
    pub fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume> {
        let backend = self.backend_of(&new.place)?;
        backend.volumes().create(call, new)
    }

    /// Resolves a content source. A source whose ID means nothing here does not exist.
    fn origin(&self, source: Source) -> Result<(Source, Origin)> {
        let origin = match &source {
            Source::Volume(id) => Origin::Volume(meant(&self.controller_volume(id.clone()))?),
            Source::Snapshot(id) => Origin::Snapshot(meant(&self.controller_snapshot(id.clone()))?),
        };
        Ok((source, origin))
    }
}

fn meant<I: Clone>(source: &Target<I>) -> Result<I> {
    let absent = || source.absent().context("the content source");
    source.find()?.map(|(id, _)| id.clone()).ok_or_else(absent)
}

/// The file system of a request, if no new file system of that type is made.
pub(super) fn old_file_system<'a>(parameters: &'a Map, capabilities: &'a [Capability]) -> Option<&'a str> {
    let named = parameters.get(FS_TYPE).map(String::as_str).into_iter();
    let mut all = named.chain(capabilities.iter().filter_map(Capability::fs_type));
    all.find(|fs_type| OLD_FILE_SYSTEMS.contains(fs_type))
}
