//! Which node a volume is given to. There is only one that can reach it, so this is a note beside the volume
//! that keeps it from being deleted and from being given out in two ways.

use super::Local;
use super::record::PublishRecord;
use crate::backend::creation_record::{from_bytes, to_bytes};
use crate::backend::{Publication, Publisher, Unpublished};
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// The file that is there while the volume is published.
pub(super) const PUBLISHED: &str = "published";
/// In the publish context: the device is attached read-only.
pub(super) const READ_ONLY: &str = "readOnly";

impl Publisher for Local {
    fn publish(
        &self,
        _call: &Call,
        id: &VolumeId,
        publication: &Publication,
        _secrets: &Secrets,
    ) -> Result<Map> {
        let found = self.existing(id)?;
        if !self.node.has(&publication.node) {
            return Err(Error::not_found(format!(
                "node {:?} is unknown: local volume {id} can only be published to its own node {:?}",
                publication.node,
                self.node.current()
            )));
        }
        let wanted = self.named_now(PublishRecord::new(publication));
        let damaged =
            |wrong| Error::internal(format!("volume {id} cannot be published: {wrong}; unpublish it first"));
        match found.published.map_err(damaged)? {
            // Renamed into place before a crash, but perhaps not synced.
            Some(record) if record == wanted => self.volumes.sync_object(&id.object)?,
            Some(record) => {
                let difference = record.difference(&wanted).unwrap_or_default();
                return Err(Error::already_exists(format!(
                    "volume {id} is published already, {difference}: unpublish it first"
                )));
            }
            None => self.volumes.replace(&id.object, PUBLISHED, &to_bytes(&wanted)?)?,
        }
        Ok(context_of(publication))
    }

    /// Not published, or published to another node than `node`: nothing to do.
    fn unpublish(
        &self,
        _call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        _secrets: &Secrets,
    ) -> Result<Unpublished> {
        if self.look_up(id)?.is_none() {
            return Ok(Unpublished::NoVolume);
        }
        if node.is_some_and(|node| !self.node.has(node)) {
            return Ok(Unpublished::NoNode);
        }
        let recorded = self.volumes.read(&id.object, PUBLISHED)?;
        let elsewhere = |bytes: &Vec<u8>| {
            let record: Result<PublishRecord, String> = from_bytes(bytes);
            node.is_some() && record.is_ok_and(|record| !self.node.has(&record.node))
        };
        match recorded {
            Some(bytes) if elsewhere(&bytes) => {}
            _ => self.volumes.remove_file(&id.object, PUBLISHED)?,
        }
        Ok(Unpublished::Done)
    }
}

fn context_of(publication: &Publication) -> Map {
    if publication.read_only { Map::from([(READ_ONLY.into(), "true".into())]) } else { Map::new() }
}
