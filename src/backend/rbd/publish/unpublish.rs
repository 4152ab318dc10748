//! Taking volumes back from nodes. Whether a node still has the image mapped is not asked: the orchestrator
//! gives up nodes that are lost, and who is given the volume next is refused as long as a watcher is there.

use crate::backend::Unpublished;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::publish::lock::{By, Grant};
use crate::backend::rbd::tool::{Image, Lockable, Spot};
use crate::call::Call;
use crate::error::Result;
use crate::ids::{self, VolumeId};
use crate::secrets::Secrets;

impl Rbd {
    pub(crate) fn unpublish_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished> {
        let spot = self.spot(&id.place, secrets)?;
        let outcome =
            self.take_from_nodes(call, &spot, id, |grant| node.is_none_or(|node| node == grant.node))?;
        // Which nodes there are nobody tells, only which names no node can have.
        let impossible = node.is_some_and(|node| ids::refuse_node(node).is_err());
        Ok(if impossible && outcome == Unpublished::Done { Unpublished::NoNode } else { outcome })
    }

    /// Takes back what [`Rbd::publish_here`] gave to this node.
    pub(crate) fn unpublish_here(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<()> {
        let spot = self.spot(&id.place, secrets)?;
        self.take_from_nodes(call, &spot, id, |grant| grant.by == By::Node && grant.node == self.node)
            .map(drop)
    }

    fn take_from_nodes(
        &self,
        call: &Call,
        spot: &Spot,
        id: &VolumeId,
        is_meant: impl Fn(&Grant) -> bool,
    ) -> Result<Unpublished> {
        let (image, outcome) = match (self.look_up(call, spot, id)?, &id.incarnation) {
            (Some(info), _) => (info.id, Unpublished::Done),
            (None, None) => return Ok(Unpublished::NoVolume),
            (None, Some(gone)) if self.remove_stray(call, spot, gone)? => return Ok(Unpublished::NoVolume),
            // Under another name, as an image whose snapshots outlive it.
            (None, Some(renamed)) => (renamed.clone(), Unpublished::NoVolume),
        };
        let header = Lockable::Header(&image);
        for holder in self.tool.holders(call, spot, header)? {
            if Grant::of(&holder).is_some_and(|grant| is_meant(&grant)) {
                self.tool.unlock(call, spot, header, &holder)?;
            }
        }
        Ok(outcome)
    }

    /// Removes what a lock on the header of an image left behind that was deleted meanwhile. Ids are never
    /// given again, so what is absent stays so. False: the image is there.
    pub(crate) fn remove_stray(&self, call: &Call, spot: &Spot, image: &str) -> Result<bool> {
        if self.tool.info(call, spot, Image::Id(image))?.is_some() {
            return Ok(false);
        }
        self.tool.remove_lockable(call, spot, Lockable::Header(image))?;
        Ok(true)
    }
}
