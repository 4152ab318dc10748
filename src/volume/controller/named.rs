//! Volumes and snapshots by the names of the requests that made them.

use crate::backend::{Backend, Named, SnapshotFilter};
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, SnapshotId, VolumeId};
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::request::FindNamed;

impl Operations {
    /// The name of a volume, if its ID tells it.
    pub(crate) fn readable_name(&self, id: &VolumeId) -> Option<String> {
        let slug = ids::slug_of(&id.object)?;
        ids::is_named(&self.instance, slug, &id.object).then(|| slug.to_string())
    }

    /// The ID of the volume or the snapshot, and its name, unless an ID was given that does not tell it.
    ///
    /// # Errors
    /// `NotFound`: there is none at the places that were looked at. `Precondition`: several have the name.
    pub fn find_named(&self, call: &Call, request: &FindNamed) -> Result<(String, Option<String>)> {
        let id = self.id_of_named(call, request)?;
        let name = match VolumeId::parse(&id) {
            Some(volume) if request.text == id => self.readable_name(&volume),
            _ => (request.text != id).then(|| request.text.clone()),
        };
        Ok((id, name))
    }

    fn id_of_named(&self, call: &Call, request: &FindNamed) -> Result<String> {
        let FindNamed { text, is_snapshot, parameters } = request;
        if !is_snapshot {
            return Ok(self.volume_named(call, text, parameters)?.to_string());
        }
        if SnapshotId::parse(text).is_some() {
            return Ok(text.clone());
        }
        let (volume, name) = text.rsplit_once('@').ok_or_else(|| {
            Error::invalid(format!("{text:?} is no snapshot: write VOLUME@NAME, or the snapshot's ID"))
        })?;
        self.snapshot_named(call, &self.volume_named(call, volume, parameters)?, name)
    }

    fn volume_named(&self, call: &Call, name: &str, parameters: &Map) -> Result<VolumeId> {
        if let Some(id) = VolumeId::parse(name) {
            return Ok(id);
        }
        let named = Named { object: &ids::common_object(&self.instance, name), parameters };
        let backends: Vec<&dyn Backend> = match parameters.contains_key("backend") {
            true => vec![self.backends.for_parameters(parameters)?.as_ref()],
            false => self.backends.iter().map(|backend| backend.as_ref()).collect(),
        };
        let (mut found, mut refusal) = (Vec::new(), None);
        for backend in backends {
            match backend.volumes().named(call, &named) {
                Ok(ids) => found.extend(ids),
                // The parameters may be those of another backend.
                Err(error) if error.kind() == Kind::InvalidArgument => refusal = Some(error),
                Err(error) => return Err(unknown_there(error, backend, name)),
            }
        }
        // The object of this name may be gone, and the volume of the request be made anew.
        found.retain(|id| !ids::is_object(name) || id.object == name);
        match (found.as_slice(), refusal) {
            ([_], _) => Ok(found.swap_remove(0)),
            ([], Some(refusal)) => Err(refusal),
            ([], None) => Err(Error::not_found(format!(
                "there is no volume {name:?} in the pools where volumes are made: name another with --parameter \
                 pool=, or give the volume's ID"
            ))),
            _ => Err(Error::precondition(format!(
                "several volumes have the name {name:?}; give the ID of the one that you mean: {}",
                found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    fn snapshot_named(&self, call: &Call, volume: &VolumeId, name: &str) -> Result<String> {
        let (key, filter) = (ids::snapshot_key(&self.instance, name), SnapshotFilter::Of(volume.clone()));
        let snapshots = self.backend_of(&volume.place)?.snapshots();
        let taken = snapshots.list(call, &filter, &Secrets::default(), "", 0)?.entries;
        let found = taken.iter().find(|snapshot| snapshot.id.name_key() == key);
        found
            .map(|snapshot| snapshot.id.to_string())
            .ok_or_else(|| Error::not_found(format!("volume {volume} has no snapshot {name:?}")))
    }
}

/// The error of a backend that could not look. It may have a volume of the name, so a volume of another
/// backend is not the answer.
fn unknown_there(error: Error, backend: &dyn Backend, name: &str) -> Error {
    error
        .context(format_args!("look for {name:?} among the volumes of {}", backend.name()))
        .hint("--parameter backend= looks for it elsewhere only, and an ID needs no look")
}
