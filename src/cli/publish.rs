//! `volume publish` and `volume unpublish`: all that an orchestrator does between a volume and a path, in one
//! step.
//!
//! Every step may be repeated, so what was begun is undone whole, without asking how far it came; a
//! command that was interrupted is finished, or undone, by the next one.

use std::collections::HashMap;

use protobuf::MessageField;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::publications::{Held, PublicationRecord};
use crate::cli::report::Report;
use crate::cli::session::Session;
use crate::cli::syntax::Given;
use crate::cli::{values, volume};
use crate::error::{Error, Kind, Result};
use crate::grpc::proto::csi_v1 as wire;

type Map = HashMap<String, String>;

/// Whether a node still has a volume that was unpublished from a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    /// It does not: that was the last path.
    LastTarget,
    /// It does, at other paths.
    OthersRemain,
}

/// One volume, one path, and the daemon that brings them together.
struct Pair<'a> {
    session: &'a Session<'a>,
    held: Held,
    volume_id: String,
    target: String,
    staging: String,
    secrets: Map,
}

/// Gives a volume to this node, stages it and publishes it at a path. What was done is undone if the rest
/// fails.
pub fn publish(session: &Session<'_>, given: &Given) -> CliResult<Report> {
    let (pair, capability) = (Pair::new(session, given)?, volume::capability(given)?);
    let before = pair.held.read()?;
    let (node_id, found) = (node_id(session)?, if_told(find(session, &pair.volume_id))?);
    let read_only = given.has("read-only");
    let record = pair.with_target(before.clone(), &node_id, read_only);
    pair.held.write(&record)?;
    // If it was published to this node before, whoever did that unpublishes it.
    let from_node = found
        .as_ref()
        .is_some_and(|found| !found.status.get_or_default().published_node_ids.contains(&node_id));
    let context = found.unwrap_or_default().volume.unwrap_or_default().volume_context;
    if let Err(error) = pair.attach(&record, read_only, &capability, context) {
        return Err(pair.roll_back(before, &record, from_node, error).into());
    }
    let json = json!({"id": pair.volume_id, "node_id": node_id, "staging_path": pair.staging, "target_path": pair.target});
    Ok(Report::new("", &json))
}

/// Unpublishes a volume from a path and, if that was the last, from this node.
pub fn unpublish(session: &Session<'_>, given: &Given) -> CliResult<Report> {
    let pair = Pair::new(session, given)?;
    let (volume_id, target) = (pair.volume_id.clone(), pair.target.clone());
    let (detached, note) = match pair.held.read()? {
        Some(record) => (pair.release(record, true)? == Released::LastTarget, None),
        None => pair.release_unrecorded(given.has("detach"))?,
    };
    let report = Report::new("", &json!({"id": volume_id, "target_path": target, "detached": detached}));
    Ok(note.into_iter().fold(report, Report::with_note))
}

fn find(session: &Session<'_>, volume_id: &str) -> Result<wire::ControllerGetVolumeResponse> {
    session.plugin.controller_get_volume(&wire::ControllerGetVolumeRequest {
        volume_id: volume_id.to_string(),
        ..Default::default()
    })
}

/// The answer, or nothing where the daemon serves the node alone: then the node does the controller's part.
fn if_offered<T: Default>(reply: Result<T>) -> Result<T> {
    match reply {
        Err(error) if error.kind() == Kind::Unimplemented => Ok(T::default()),
        reply => reply,
    }
}

/// A daemon may serve the node alone, and may need the secrets that this question cannot bring: the calls
/// that follow tell what there is to know.
fn if_told<T>(reply: Result<T>) -> Result<Option<T>> {
    match reply {
        Err(error) if matches!(error.kind(), Kind::Unimplemented | Kind::Unauthenticated) => Ok(None),
        reply => reply.map(Some),
    }
}

fn node_id(session: &Session<'_>) -> Result<String> {
    Ok(session.plugin.node_get_info(&wire::NodeGetInfoRequest::default())?.node_id)
}

impl<'a> Pair<'a> {
    /// The volume and the path on the command line; other commands on the volume wait until this is dropped.
    fn new(session: &'a Session<'a>, given: &Given) -> CliResult<Self> {
        let (volume_id, target) =
            (given.word(0).to_string(), values::path_text(&values::path(given.word(1))?)?);
        let secrets = values::secrets(given)?;
        let held = session.publications.hold(&volume_id)?;
        let staging = values::path_text(&held.staging_path())?;
        Ok(Self { session, held, volume_id, target, staging, secrets })
    }

    /// The record as it will be with this target.
    fn with_target(
        &self,
        before: Option<PublicationRecord>,
        node_id: &str,
        read_only: bool,
    ) -> PublicationRecord {
        let new = || PublicationRecord {
            volume_id: self.volume_id.clone(),
            node_id: node_id.to_string(),
            read_only,
            targets: Vec::new(),
        };
        let mut record = before.unwrap_or_else(new);
        if !record.targets.contains(&self.target) {
            record.targets.push(self.target.clone());
        }
        record
    }

    /// Controller publish, node stage, node publish.
    fn attach(
        &self,
        record: &PublicationRecord,
        read_only: bool,
        capability: &wire::VolumeCapability,
        context: Map,
    ) -> Result<()> {
        let plugin = self.session.plugin;
        let given = if_offered(plugin.controller_publish_volume(&wire::ControllerPublishVolumeRequest {
            volume_id: self.volume_id.clone(),
            node_id: record.node_id.clone(),
            volume_capability: MessageField::some(capability.clone()),
            // A volume that the node has for writing can be published for reading at one more path.
            readonly: record.read_only && read_only,
            secrets: self.secrets.clone(),
            volume_context: context.clone(),
            ..Default::default()
        }))?;
        plugin.node_stage_volume(&wire::NodeStageVolumeRequest {
            volume_id: self.volume_id.clone(),
            publish_context: given.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            volume_capability: MessageField::some(capability.clone()),
            secrets: self.secrets.clone(),
            volume_context: context.clone(),
            ..Default::default()
        })?;
        plugin.node_publish_volume(&wire::NodePublishVolumeRequest {
            volume_id: self.volume_id.clone(),
            publish_context: given.publish_context,
            staging_target_path: self.staging.clone(),
            target_path: self.target.clone(),
            volume_capability: MessageField::some(capability.clone()),
            readonly: read_only,
            secrets: self.secrets.clone(),
            volume_context: context,
            ..Default::default()
        })?;
        Ok(())
    }

    /// Undoes a publish that failed with `error`; gives that error, with what became of it. A path that was
    /// published before is left as it is.
    fn roll_back(
        self,
        before: Option<PublicationRecord>,
        record: &PublicationRecord,
        from_node: bool,
        error: Error,
    ) -> Error {
        if before.as_ref() == Some(record) {
            return error;
        }
        let (id, target) = (self.volume_id.clone(), self.target.clone());
        match self.release(record.clone(), from_node) {
            Ok(_) => error,
            Err(stuck) => {
                let message = format!(
                    "{error}; and it could not be undone: {stuck}; repeat that with cephlet volume \
                     unpublish {id} {target}"
                );
                Error::new(error.kind(), message)
            }
        }
    }

    /// Node unpublish; for the last target also node unstage and, if `from_node`, controller unpublish. The
    /// record goes last, so that what stops half way can be repeated.
    fn release(self, mut record: PublicationRecord, from_node: bool) -> Result<Released> {
        let is_last = record.targets.iter().all(|target| *target == self.target);
        if let Err(error) = self.unpublish_target() {
            // Data at the target is no reason to keep the volume on this node.
            if is_last && error.kind() == Kind::Precondition && self.unstage().is_ok() && from_node {
                self.unpublish_from_node(&record.node_id)?;
            }
            return Err(error);
        }
        record.targets.retain(|target| *target != self.target);
        self.held.write(&record)?;
        if !record.targets.is_empty() {
            return Ok(Released::OthersRemain);
        }
        self.unstage()?;
        if from_node {
            self.unpublish_from_node(&record.node_id)?;
        }
        self.held.forget()?;
        Ok(Released::LastTarget)
    }

    /// The same without a record. Whether the node has the volume by this program or by another is not known
    /// then: it is only unpublished from the node if the operator says so. Gives whether it was, and what
    /// else there is to say.
    fn release_unrecorded(self, detach: bool) -> Result<(bool, Option<String>)> {
        self.unpublish_target()?;
        self.unstage()?;
        let node_id = node_id(self.session)?;
        if detach {
            self.unpublish_from_node(&node_id)?;
        }
        let stays = match find(self.session, &self.volume_id) {
            Err(error)
                if matches!(error.kind(), Kind::NotFound | Kind::Unimplemented | Kind::Unauthenticated) =>
            {
                false
            }
            found => found?.status.unwrap_or_default().published_node_ids.contains(&node_id),
        };
        let note = format!(
            "the volume is still given to node {node_id}, not by a publish of this program since the boot: \
             see --detach"
        );
        self.held.forget()?;
        Ok((detach, stays.then_some(note)))
    }

    fn unpublish_target(&self) -> Result<()> {
        let (volume_id, target_path) = (self.volume_id.clone(), self.target.clone());
        let request = wire::NodeUnpublishVolumeRequest { volume_id, target_path, ..Default::default() };
        self.session.plugin.node_unpublish_volume(&request).map(|_| ())
    }

    fn unstage(&self) -> Result<()> {
        let (volume_id, staging_target_path) = (self.volume_id.clone(), self.staging.clone());
        let request = wire::NodeUnstageVolumeRequest { volume_id, staging_target_path, ..Default::default() };
        self.session.plugin.node_unstage_volume(&request).map(|_| ())
    }

    fn unpublish_from_node(&self, node_id: &str) -> Result<()> {
        let (volume_id, node_id, secrets) =
            (self.volume_id.clone(), node_id.to_string(), self.secrets.clone());
        let request =
            wire::ControllerUnpublishVolumeRequest { volume_id, node_id, secrets, ..Default::default() };
        if_offered(self.session.plugin.controller_unpublish_volume(&request)).map(|_| ())
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
