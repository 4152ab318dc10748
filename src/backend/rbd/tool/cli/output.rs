//! What the tools print, as JSON: only the fields that are needed; others are ignored.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use crate::backend::MirroringMode;
use crate::backend::rbd::tool::{
    ImageInfo, ListedImage, ListedSnapshot, MirrorSnapshot, MirrorSnapshotKind, MirrorState, Mirroring,
    OBJECT_MAP, Parent, SnapshotInfo, Watcher, largest_size,
};
use crate::clock::instant;

pub(super) use crate::backend::ceph::read;

/// `rbd info --format=json`
#[derive(Deserialize)]
pub(super) struct InfoOutput {
    name: String,
    id: String,
    size: u64,
    object_size: u64,
    stripe_count: Option<u64>,
    #[serde(default)]
    snapshot_count: u64,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    create_timestamp: String,
    parent: Option<Parent>,
    mirroring: Option<MirroringOutput>,
}

/// `mirroring` of `rbd info --format=json`
#[derive(Deserialize)]
struct MirroringOutput {
    #[serde(default)]
    mode: String,
    state: String,
    #[serde(default)]
    primary: bool,
}

impl MirroringOutput {
    /// None for an image that is not mirrored.
    fn mirroring(self) -> Option<Mirroring> {
        let state = match self.state.as_str() {
            "enabled" => MirrorState::Enabled,
            "disabling" => MirrorState::Disabling,
            "creating" => MirrorState::Creating,
            _ => return None,
        };
        let mode = if self.mode == "snapshot" { MirroringMode::Snapshot } else { MirroringMode::Journal };
        Some(Mirroring { mode, state, primary: self.primary })
    }
}

impl From<InfoOutput> for ImageInfo {
    fn from(output: InfoOutput) -> Self {
        let has_object_map = output.features.iter().any(|feature| feature == OBJECT_MAP);
        let stripe_count = output.stripe_count.unwrap_or(1);
        Self {
            name: output.name,
            id: output.id,
            size: output.size,
            largest: largest_size(has_object_map, output.object_size, stripe_count),
            snapshots: output.snapshot_count,
            features: output.features.into_iter().collect(),
            created: time(&output.create_timestamp),
            parent: output.parent,
            mirroring: output.mirroring.and_then(MirroringOutput::mirroring),
        }
    }
}

/// A row of `rbd ls -l --format=json`: an image, or one of its snapshots.
#[derive(Deserialize)]
pub(super) struct Row {
    image: String,
    id: String,
    size: u64,
    snapshot: Option<String>,
    parent: Option<Parent>,
}

/// The images, by name, each with its snapshots. They are in one large block of memory: only large blocks go
/// back to the system when they are freed.
pub(super) fn entries(rows: Vec<Row>) -> Vec<ListedImage> {
    let (mut images, mut taken) = (Vec::new(), Vec::new());
    for Row { image: name, id, size, snapshot, parent } in rows {
        match snapshot {
            None => images.push(ListedImage { name, id, size, parent, snapshots: Vec::new() }),
            Some(of) => taken.push((name, ListedSnapshot { name: of, size })),
        }
    }
    images.sort_by(|one, other| one.name.cmp(&other.name));
    images.dedup_by(|one, other| one.name == other.name);
    for (image, snapshot) in taken {
        if let Ok(at) = images.binary_search_by(|it| it.name.cmp(&image)) {
            images[at].snapshots.push(snapshot);
        }
    }
    images
}

/// `rbd status --format=json`
#[derive(Deserialize)]
pub(super) struct StatusOutput {
    #[serde(default)]
    watchers: Vec<WatcherOutput>,
}

#[derive(Deserialize)]
struct WatcherOutput {
    address: String,
    client: u64,
    cookie: u64,
}

/// From here on the kernel numbers its watches: CEPH_LINGER_ID_START of linux/ceph/osd_client.h. librbd's are
/// addresses in a process, which are all smaller.
const KERNEL_COOKIES: u64 = 0xffff_0000_0000_0000;

impl StatusOutput {
    pub(super) fn watchers(self) -> Vec<Watcher> {
        let watcher = |it: WatcherOutput| Watcher {
            address: it.address,
            client: format!("client.{}", it.client),
            is_kernel: it.cookie >= KERNEL_COOKIES,
        };
        self.watchers.into_iter().map(watcher).collect()
    }
}

/// A row of `rbd snap ls --all --format=json`
#[derive(Deserialize)]
pub(super) struct SnapOutput {
    id: u64,
    name: String,
    size: u64,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    namespace: SnapNamespace,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SnapNamespace {
    #[serde(rename = "type")]
    kind: String,
    original_name: Option<String>,
    state: String,
    primary_mirror_uuid: String,
    complete: bool,
    last_copied_object_number: u64,
    mirror_peer_uuids: Vec<String>,
}

impl SnapOutput {
    /// The snapshot; None for a mirror snapshot.
    pub(super) fn snap(self) -> Option<SnapshotInfo> {
        let trashed = match self.namespace.kind.as_str() {
            "trash" => true,
            "mirror" => return None,
            // An operator's snapshot, or one of a group.
            _ => false,
        };
        let name = self.namespace.original_name.unwrap_or(self.name);
        Some(SnapshotInfo { id: self.id, name, size: self.size, created: time(&self.timestamp), trashed })
    }

    /// The snapshot if it is a mirror snapshot; None for others.
    pub(super) fn mirror_snap(self) -> Option<MirrorSnapshot> {
        let SnapNamespace { complete, last_copied_object_number: objects, .. } = self.namespace;
        let kind = self.namespace.mirror()?;
        let linked = !self.namespace.mirror_peer_uuids.is_empty();
        Some(MirrorSnapshot { id: self.id, kind, complete, objects, linked, created: time(&self.timestamp) })
    }
}

impl SnapNamespace {
    /// What a mirror snapshot is the state of; None for one of another kind.
    fn mirror(&self) -> Option<MirrorSnapshotKind> {
        let is_of_peer = !self.primary_mirror_uuid.is_empty();
        Some(match (self.kind.as_str(), self.state.as_str(), is_of_peer) {
            ("mirror", "primary", _) => MirrorSnapshotKind::Primary,
            ("mirror", "demoted", false) => MirrorSnapshotKind::Demoted,
            ("mirror", "demoted", true) => MirrorSnapshotKind::CopyOfDemoted,
            ("mirror", _, true) => MirrorSnapshotKind::Copy,
            ("mirror", _, false) => MirrorSnapshotKind::Orphan,
            _ => return None,
        })
    }
}

/// A time as rbd prints it with TZ=UTC (`Sat Nov 21 08:27:50 2026`); 1970 if it is not known, as for old
/// images.
fn time(text: &str) -> SystemTime {
    parse_time(text).unwrap_or(UNIX_EPOCH)
}

fn parse_time(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, clock, year] = fields.as_slice() else { return None };
    let month = 1 + MONTHS.iter().position(|name| name == month)? as u64;
    let clock: Vec<u64> = clock.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    instant([year.parse().ok()?, month, day.parse().ok()?], clock.try_into().ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock::rfc3339;
    use crate::error::Kind;

    #[test]
    fn times_are_read_as_utc() {
        let read = |text| rfc3339(time(text));
        assert_eq!(read("Sat Nov 21 08:27:50 2026"), "2026-11-21T08:27:50Z");
        assert_eq!(read("Sat Nov  1 08:27:05 2025"), "2025-11-01T08:27:05Z", "days are padded with a blank");
        assert_eq!(read("Thu Feb 29 23:59:59 2024"), "2024-02-29T23:59:59Z");
        assert_eq!(read("Fri Mar  1 00:00:00 2024"), "2024-03-01T00:00:00Z");
        assert_eq!(read("Thu Jan  1 00:00:00 1970"), "1970-01-01T00:00:00Z");
        assert_eq!(read("Tue Dec 31 00:00:00 2030"), "2030-12-31T00:00:00Z");
    }

    #[test]
    fn an_unknown_time_is_1970() {
        for text in [
            "",
            "yesterday",
            "Sat Nov 21 2026",
            "Sat Foo 21 08:27:50 2026",
            "Sat Nov 21 08:27 2026",
            "Mon Nov x 1:2:3 2026",
            "Sat Nov 21 18446744073709551615:27:50 2026",
            "Sat Nov 21 08:27:61 2026",
        ] {
            assert_eq!(time(text), UNIX_EPOCH, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_names_the_command() {
        let error = read::<Vec<Row>>("rbd ls", b"[{\"image\":3}]").err().unwrap();
        assert_eq!(error.kind(), Kind::Internal);
        assert!(
            error.message().starts_with("`rbd ls` printed what cephlet cannot read: invalid type"),
            "{}",
            error.message()
        );
    }
}
