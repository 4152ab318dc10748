//! Being written.

use super::Rbd;
use super::tool::Spot;
use crate::backend::{Capacity, Part, Volume};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::terms::Map;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn list_volumes(&self, _: &Call, _: &str, _: usize) -> Result<Part<Volume>> {
        Err(unfinished())
    }

    pub(super) fn room_for(&self, _: &Call, _: &Map) -> Result<Capacity> {
        Err(unfinished())
    }

    /// All pools and namespaces that have credentials of their own.
    pub(super) fn spots_to_list(&self, _: &Call) -> Result<Vec<Spot>> {
        let secrets = crate::secrets::Secrets::default();
        let mut spots = Vec::new();
        for cluster in self.clusters.all() {
            let access = crate::backend::ceph::Access::new(cluster, &secrets)?;
            spots.push(Spot { access, pool: "rbd".to_string(), namespace: String::new() });
        }
        Ok(spots)
    }
}
