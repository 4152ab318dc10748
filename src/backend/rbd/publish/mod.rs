//! Publishing volumes to nodes, and taking them back.

pub(crate) mod context;
pub(crate) mod fence;
pub(crate) mod to_node;
pub(crate) mod unpublish;

use crate::backend::rbd::context::Context;
use crate::backend::{Publication, Publisher, Unpublished};
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Publisher for Context {
    fn publish(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map> {
        to_node::publish(self, call, id, publication, secrets)
    }

    fn unpublish(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished> {
        unpublish::unpublish(self, call, id, node, secrets)
    }
}
