//! Publishing a volume to a node and unpublishing it, on the controller's side.

use crate::backend::{Publication, Unpublished};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids;
use crate::volume::Operations;
use crate::volume::request::{ControllerPublish, ControllerUnpublish, Map};

impl Operations {
    /// Lets a node use a volume; returns what the node needs to know.
    pub fn controller_publish(&self, call: &Call, request: &ControllerPublish) -> Result<Map> {
        let (id, backend) = request.volume.get()?;
        backend.supports(&request.capability)?;
        if let Err(wrong) = ids::refuse_node(&request.node_id) {
            return Err(Error::not_found(format!("there is no node {:?}: {wrong}", request.node_id)));
        }
        let publication = Publication {
            node: request.node_id.clone(),
            capability: request.capability.clone(),
            read_only: request.read_only,
        };
        backend.publisher().publish(call, id, &publication, &request.secrets)
    }

    /// Takes a volume back from a node, or from all nodes.
    pub fn controller_unpublish(&self, call: &Call, request: &ControllerUnpublish) -> Result<Unpublished> {
        let Some((id, backend)) = request.volume.find()? else { return Ok(Unpublished::NoVolume) };
        let node = (!request.node_id.is_empty()).then_some(request.node_id.as_str());
        match backend.publisher().unpublish(call, id, node, &request.secrets) {
            Err(error) if error.kind() == Kind::NotFound => Ok(Unpublished::NoVolume),
            // Remote storage does not know all nodes. Only some names are impossible.
            Ok(Unpublished::Done) if node.is_some_and(|node| ids::refuse_node(node).is_err()) => {
                Ok(Unpublished::NoNode)
            }
            outcome => outcome,
        }
    }
}
