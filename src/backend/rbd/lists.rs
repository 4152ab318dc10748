//! Being written.

use super::Rbd;
use crate::backend::{Capacity, Part, Volume};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::terms::Map;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    /// The pools and namespaces where volumes may be.
    pub(super) fn spots_to_list(&self, _: &Call) -> Result<Vec<super::tool::Spot>> {
        let clusters = self.clusters.all();
        let spot = |cluster: &std::sync::Arc<crate::clusters::Cluster>| {
            let access = crate::backend::ceph::Access::new(std::sync::Arc::clone(cluster), &crate::secrets::Secrets::default())?;
            Ok(super::tool::Spot { access, pool: "rbd".into(), namespace: String::new() })
        };
        clusters.iter().map(spot).collect()
    }

    pub(super) fn list_volumes(&self, _: &Call, _: &str, _: usize) -> Result<Part<Volume>> {
        Err(unfinished())
    }

    pub(super) fn room_for(&self, _: &Call, _: &Map) -> Result<Capacity> {
        Err(unfinished())
    }
}
