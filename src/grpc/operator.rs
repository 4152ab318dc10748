//! cephlet.operator.v1.Operator: rpcs for the command line that CSI does not have.

use std::sync::Arc;

use protobuf::MessageField;

use crate::backend::Volume;
use crate::backend::finding::SETTING_UNHEEDED;
use crate::dispatch::{Call, Progress};
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::fields::path;
use crate::grpc::proto::cephlet_operator_v1 as wire;
use crate::grpc::v1::decode;
use crate::grpc::v1::encode::volume_entry;
use crate::volume::lock_keys::LockSet;
use crate::volume::request::{FindNamed, Map, NodePublishUnstaged, NodeUnpublish, PageRequest};
use crate::volume::{Finding, Listed};

/// The settings that the daemon runs with.
#[derive(Clone)]
pub struct Settings {
    /// All of them, as they are in force now.
    pub shown: Arc<dyn Fn(&Call) -> wire::ConfigResponse + Send + Sync>,
    /// What is wrong with them now.
    pub troubles: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// Publishes volumes on this node in one step, and tells the daemon's settings.
impl wire::Operator for Services {
    fn publish_here(&self, (caller, request): Asked<wire::PublishHereRequest>) -> Answer {
        self.ensure_node()?;
        let request = NodePublishUnstaged {
            volume: self.operations.controller_volume(request.volume_id),
            publish_context: Map::new(),
            target_path: path(request.target_path),
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::secrets(request.secrets),
            volume_context: Map::new(),
            by_operator: true,
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.publish_unstaged(call, request)?;
            let node_id = self.operations.node_id.clone();
            Ok(wire::PublishHereResponse { node_id, ..Default::default() })
        })
    }

    fn unpublish_here(&self, (caller, request): Asked<wire::UnpublishHereRequest>) -> Answer {
        self.ensure_node()?;
        let request = NodeUnpublish {
            volume: self.operations.volume_here(request.volume_id),
            target_path: path(request.target_path),
            secrets: decode::secrets(request.secrets),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.unpublish(call, request)?;
            let has_left = !self.operations.is_in_use_here(&request.volume)?;
            Ok(wire::UnpublishHereResponse { has_left, ..Default::default() })
        })
    }

    fn find_by_name(&self, (caller, request): Asked<wire::FindByNameRequest>) -> Answer {
        let request = FindNamed {
            text: request.text,
            is_snapshot: request.is_snapshot,
            parameters: decode::map(request.parameters),
        }
        .checked()?;
        caller.run(LockSet::everything(), request, |call, request| {
            let (id, name) = self.operations.find_named(call, request)?;
            let name = name.unwrap_or_default();
            Ok(wire::FindByNameResponse { id, name, ..Default::default() })
        })
    }

    fn list_reachable(&self, (caller, request): Asked<wire::ListReachableRequest>) -> Answer {
        self.ensure_controller()?;
        let page = PageRequest { max_entries: 0, token: request.starting_token }.checked()?;
        caller.run(LockSet::everything(), page, |call, page| {
            let (Listed { entries, next_token }, missing) = self.operations.list_reachable(call, page)?;
            let named = |mut volume: Volume| wire::NamedVolume {
                name: volume.name.take().unwrap_or_default(),
                entry: MessageField::some(volume_entry(volume)),
                ..Default::default()
            };
            Ok(wire::ListReachableResponse {
                volumes: entries.into_iter().map(named).collect(),
                missing: missing.iter().map(ToString::to_string).collect(),
                next_token,
                ..Default::default()
            })
        })
    }

    fn list_here(&self, (caller, request): Asked<wire::ListHereRequest>) -> Answer {
        let target_paths = self.operations.targets_here(&request.volume_id)?;
        caller.reply(wire::ListHereResponse { target_paths, ..Default::default() })
    }

    fn examine(&self, (caller, request): Asked<wire::ExamineRequest>) -> Answer {
        caller.run(LockSet::everything(), request.mend, |call, mend| {
            if !mend.is_empty() {
                self.operations.mend(call, self.controller, mend)?;
            }
            let finding = |Finding { name, meaning, cost, mend, .. }: Finding| wire::Finding {
                name,
                meaning,
                cost,
                mend,
                ..Default::default()
            };
            let mut found = self.operations.examine(self.controller)?;
            let troubles = (self.settings.troubles)().into_iter();
            found.extend(troubles.map(|trouble| Finding::new(&SETTING_UNHEEDED, "", trouble)));
            let (findings, volume_ids) =
                (found.into_iter().map(finding).collect(), self.operations.ids_here());
            Ok(wire::ExamineResponse { findings, volume_ids, ..Default::default() })
        })
    }

    fn jobs(&self, (caller, _): Asked<wire::JobsRequest>) -> Answer {
        let job = |progress: &Progress| {
            let step = progress.step();
            wire::Job {
                operation: progress.method().rsplit('/').next().unwrap_or_default().to_string(),
                subject: progress.subject(),
                step: step.name,
                percent: step.percent.map_or(-1, i32::from),
                seconds: progress.age().as_secs(),
                ..Default::default()
            }
        };
        let jobs = caller.under_way().iter().map(job).collect();
        caller.reply(wire::JobsResponse { jobs, ..Default::default() })
    }

    fn config(&self, (caller, _): Asked<wire::ConfigRequest>) -> Answer {
        caller.run(LockSet::everything(), (), |call, ()| Ok((self.settings.shown)(call)))
    }
}
