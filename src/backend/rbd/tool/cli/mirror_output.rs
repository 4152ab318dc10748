//! What `rbd mirror` prints as JSON: only the fields that are needed; others are ignored. Tried with Ceph
//! 16.2.

use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::backend::rbd::tool::{MirrorScope, MirrorStatus, Progress, Replay, SiteStatus};
use crate::backend::replication::Schedule;
use crate::clock::timestamp;

/// `rbd mirror pool info --format=json`
#[derive(Deserialize)]
pub(super) struct PoolOutput {
    mode: String,
    #[serde(default)]
    peers: Vec<IgnoredAny>,
}

impl From<PoolOutput> for MirrorScope {
    fn from(output: PoolOutput) -> Self {
        match output.mode.as_str() {
            "image" if output.peers.is_empty() => Self::Alone,
            "image" => Self::Images,
            "pool" => Self::Pool,
            _ => Self::Nothing,
        }
    }
}

/// `rbd mirror image status --format=json`
#[derive(Deserialize)]
pub(super) struct StatusOutput {
    name: String,
    #[serde(flatten)]
    own: SiteOutput,
    #[serde(default)]
    peer_sites: Vec<SiteOutput>,
}

/// `rbd mirror pool status --verbose --format=json`
#[derive(Deserialize)]
pub(super) struct PoolStatusOutput {
    #[serde(default)]
    images: Vec<StatusOutput>,
}

/// What one site says.
#[derive(Deserialize)]
struct SiteOutput {
    #[serde(default)]
    site_name: String,
    state: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    last_update: String,
}

impl From<StatusOutput> for MirrorStatus {
    fn from(output: StatusOutput) -> Self {
        Self { own: output.own.into(), peers: output.peer_sites.into_iter().map(SiteStatus::from).collect() }
    }
}

impl PoolStatusOutput {
    /// The images by name, and whether they are primary. The role stays open if the daemon reports nothing
    /// yet, unless a peer reports that its own image is primary.
    pub(super) fn roles(self) -> Vec<(String, Option<bool>)> {
        let role = |output: StatusOutput| {
            let name = output.name.clone();
            let status = MirrorStatus::from(output);
            let own = status.own.description.contains("local image is primary");
            // Image demoted on both sides: "remote image is not primary", "remote image demoted".
            let is_secondary = status.own.replay != Replay::Unknown
                || status.peers.iter().any(SiteStatus::is_primary)
                || status.own.description.contains("remote image");
            (name, own.then_some(true).or(is_secondary.then_some(false)))
        };
        self.images.into_iter().map(role).collect()
    }
}

impl From<SiteOutput> for SiteStatus {
    fn from(output: SiteOutput) -> Self {
        let (up, replay) = output.state.split_once('+').unwrap_or(("down", &output.state));
        let replay = match replay {
            "error" => Replay::Error,
            "syncing" | "starting_replay" => Replay::Starting,
            "replaying" => Replay::Replaying,
            "stopping_replay" | "stopped" => Replay::Stopped,
            _ => Replay::Unknown,
        };
        let (description, progress) = split(&output.description);
        let updated = timestamp(&output.last_update);
        Self { site: output.site_name, is_up: up == "up", replay, description, progress, updated }
    }
}

/// The words and the figures of a description like `replaying, {"bytes_per_second":0.0,…}`.
fn split(description: &str) -> (String, Progress) {
    let figures = description.split_once(", {").and_then(|(words, rest)| {
        let figures: ProgressOutput = serde_json::from_str(&format!("{{{rest}")).ok()?;
        Some((words.to_string(), figures.into()))
    });
    figures.unwrap_or_else(|| (description.to_string(), Progress::default()))
}

#[derive(Deserialize)]
struct ProgressOutput {
    local_snapshot_timestamp: Option<u64>,
    last_snapshot_bytes: Option<u64>,
    last_snapshot_sync_seconds: Option<u64>,
    entries_behind_primary: Option<u64>,
}

impl From<ProgressOutput> for Progress {
    fn from(output: ProgressOutput) -> Self {
        Self {
            copied: output
                .local_snapshot_timestamp
                .and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at))),
            bytes: output.last_snapshot_bytes,
            seconds: output.last_snapshot_sync_seconds,
            behind: output.entries_behind_primary,
        }
    }
}

/// `rbd journal status --format=json`
#[derive(Deserialize)]
pub(super) struct JournalOutput {
    registered_clients: Vec<JournalClientOutput>,
}

#[derive(Deserialize)]
struct JournalClientOutput {
    /// Empty for the image itself; for a peer, the uuid of its mirror.
    id: String,
    commit_position: JournalPositionOutput,
}

#[derive(Deserialize)]
struct JournalPositionOutput {
    object_positions: Vec<ObjectPositionOutput>,
}

#[derive(Deserialize)]
struct ObjectPositionOutput {
    tag_tid: u64,
}

impl JournalOutput {
    /// The newest tag under which the image itself has committed an entry.
    pub(super) fn committed(&self) -> Option<u64> {
        let own = self.registered_clients.iter().find(|client| client.id.is_empty())?;
        own.commit_position.object_positions.iter().map(|position| position.tag_tid).max()
    }
}

/// A row of `rbd mirror snapshot schedule ls --format=json`
#[derive(Deserialize)]
pub(super) struct ScheduleOutput {
    interval: String,
    #[serde(default)]
    start_time: String,
}

impl ScheduleOutput {
    /// The schedule; None for one that cephlet would not set, such as every 0 days.
    pub(super) fn schedule(self) -> Option<Schedule> {
        let start = Some(self.start_time).filter(|start| !start.is_empty());
        Some(Schedule { start, ..Schedule::parse_interval(&self.interval)? })
    }
}

/// What Ceph 16.2 has printed, in `tests/fixtures/mirror`.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod recorded {
    use super::StatusOutput;
    use crate::backend::rbd::tool::cli::output::{SnapOutput, read};
    use crate::backend::rbd::tool::{MirrorSnapshot, MirrorStatus};

    /// The text of a record.
    pub fn text(name: &str) -> String {
        let path = format!("{}/tests/fixtures/mirror/{name}.json", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    }

    /// `rbd mirror image status`
    pub fn status(name: &str) -> MirrorStatus {
        read::<StatusOutput>(name, text(name).as_bytes()).unwrap().into()
    }

    /// The mirror snapshots in `rbd snap ls --all`
    pub fn snapshots(name: &str) -> Vec<MirrorSnapshot> {
        let rows = read::<Vec<SnapOutput>>(name, text(name).as_bytes()).unwrap();
        rows.into_iter().filter_map(SnapOutput::mirror_snap).collect()
    }
}
