//! Publishing volumes to nodes, and taking them back.

pub(crate) mod context;
pub(crate) mod fence;
pub(crate) mod to_node;
pub(crate) mod unpublish;

use crate::backend::ceph::publication::NodePublication;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::{Publication, PublishedBy, Publisher, Unpublished};
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
        let wanted = NodePublication::new(publication, PublishedBy::Controller);
        let publish = |pool: &Pool<'_>| to_node::publish(pool, id, wanted, secrets);
        self.within(call, (&id.place, secrets), publish).map(|context| context.to_map())
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
