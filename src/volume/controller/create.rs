//! Making a volume.

use crate::backend::{NewVolume, Origin, Volume};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::ids;
use crate::volume::Volumes;
use crate::volume::intent::Operation;
use crate::volume::request::{CreateVolume, Source};

impl Volumes {
    /// Makes the volume, or answers with the one that the same request made before.
    pub fn create(&self, call: &Call, request: &CreateVolume) -> Result<Volume> {
        let backend = self.backends.for_parameters(&request.parameters)?;
        request.capabilities.iter().try_for_each(|capability| backend.supports(capability))?;
        let place = backend.placement(&request.parameters, &request.mutable_parameters, &request.topology)?;
        let source = request.source.as_ref().map(|source| self.origin(source)).transpose()?;
        let new = NewVolume {
            object: ids::volume_object(&self.instance, &request.name),
            place,
            name: request.name.clone(),
            size: request.size,
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
            capabilities: request.capabilities.clone(),
            source,
            secrets: request.secrets.clone(),
        };
        let volume = self
            .with_intent(Operation::CreateVolume, |begin| backend.create(call, &new, &|| begin(&new.name)))?;
        for deletion in [Operation::DeleteVolume, Operation::DeleteVolumeStrict] {
            self.clear_intent(deletion, &volume.id.to_string())?;
        }
        Ok(volume)
    }

    /// What a content source means. One that means nothing here does not exist.
    fn origin(&self, source: &Source) -> Result<(Source, Origin)> {
        let origin = match source {
            Source::Volume(id) => self.volume(id).map(|(id, _)| Origin::Volume(id)),
            Source::Snapshot(id) => self.snapshot(id).map(|(id, _)| Origin::Snapshot(id)),
        };
        let explain = |error: Error| error.with_kind(Kind::NotFound).context("the content source");
        Ok((source.clone(), origin.map_err(explain)?))
    }
}
