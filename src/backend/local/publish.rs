//! The node that a volume is published to. Only one node can reach it, so the publication is a record beside
//! the volume. It prevents deletion, and publishing in two different ways.

use super::Local;
use super::record::PublishRecord;
use super::store::PUBLISHED;
use crate::backend::creation_record::to_bytes;
use crate::backend::parameters::READ_ONLY;
use crate::backend::{Publication, PublishedBy, Publisher, Unpublished};
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Publisher for Local {
    fn publish(
        &self,
        _call: &Call,
        id: &VolumeId,
        publication: &Publication,
        _secrets: &Secrets,
    ) -> Result<Map> {
        self.note_publication(id, publication, PublishedBy::Controller)?;
        Ok(context_of(publication))
    }

    /// A volume that is not published, or is published to another node than `node`, is left as it is.
    fn unpublish(
        &self,
        _call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        _secrets: &Secrets,
    ) -> Result<Unpublished> {
        let Some(found) = self.look_up(id)? else { return Ok(Unpublished::NoVolume) };
        if node.is_some_and(|node| !self.node.has(node)) {
            return Ok(Unpublished::NoNode);
        }
        match found.published {
            Ok(Some(record)) if node.is_some() && !self.node.has(&record.node) => {}
            _ => self.volumes.remove_file(&id.object, PUBLISHED)?,
        }
        Ok(Unpublished::Done)
    }
}

impl Local {
    /// Records that the volume is published. If a controller has published it, the node does not unpublish
    /// it.
    pub(super) fn note_publication(
        &self,
        id: &VolumeId,
        publication: &Publication,
        by: PublishedBy,
    ) -> Result<()> {
        let found = self.existing(id)?;
        if !self.node.has(&publication.node) {
            return Err(Error::not_found(format!(
                "node {:?} is unknown: local volume {id} can only be published to its own node {:?}",
                publication.node,
                self.node.current()
            )));
        }
        let wanted = self.named_now(PublishRecord::new(publication, by));
        let damaged =
            |wrong| Error::internal(format!("volume {id} cannot be published: {wrong}; unpublish it first"));
        let present = found.published.map_err(damaged)?;
        if let Some(difference) = present.as_ref().and_then(|present| present.difference(&wanted)) {
            return Err(Error::already_exists(format!(
                "volume {id} is published already, {difference}: unpublish it first"
            )));
        }
        match present {
            // The record was renamed into place before a crash, but perhaps not synced.
            Some(present) if wanted.by_node || !present.by_node => self.volumes.sync_object(&id.object),
            _ => self.volumes.replace(&id.object, PUBLISHED, &to_bytes(&wanted)?),
        }
    }

    /// Removes the record that the node wrote for itself. An unreadable record stays for the operator.
    pub(super) fn forget_own_publication(&self, id: &VolumeId) -> Result<()> {
        match self.look_up(id).map(|found| found.map(|found| found.published)) {
            Ok(Some(Ok(Some(record)))) if record.by_node => self.volumes.remove_file(&id.object, PUBLISHED),
            _ => Ok(()),
        }
    }
}

fn context_of(publication: &Publication) -> Map {
    if publication.read_only { Map::from([(READ_ONLY.into(), "true".into())]) } else { Map::new() }
}
