//! Deletions under way, in the journal. A half-deleted object of a crash is in no list of its cluster, so the
//! next start finishes the deletion from the journal. That is so for RBD. A deletion on storage of this node
//! is one rename, and a deletion on CephFS is marked in the index of volumes, from which the sweep goes on.
//!
//! The journal keeps a deletion under `volume ID` or `snapshot ID`.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::backend::{Backend, RecordDeletion};
use crate::clock;
use crate::error::{Kind, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::journal::{Change, Table};
use crate::volume::Operations;

/// The object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deleting {
    /// A volume, by its ID with the incarnation.
    Volume(VolumeId),
    /// A snapshot.
    Snapshot(SnapshotId),
}

/// A deletion that was begun and is not known to have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BegunDeletion {
    pub(crate) of: Deleting,
    began: SystemTime,
}

impl BegunDeletion {
    /// Reads an entry of the journal; None for an entry in another format.
    pub(crate) fn parse(key: &str, value: &Value) -> Option<Self> {
        let began = value.get("began")?.as_u64()?;
        let of = match key.split_once(' ')? {
            ("volume", id) => Deleting::Volume(VolumeId::parse(id)?),
            ("snapshot", id) => Deleting::Snapshot(SnapshotId::parse(id)?),
            _ => return None,
        };
        Some(Self { of, began: UNIX_EPOCH + Duration::from_secs(began) })
    }

    /// A deletion that begins now.
    pub(crate) fn now(of: Deleting) -> Self {
        Self { of, began: SystemTime::now() }
    }

    /// The key of its entry.
    pub(crate) fn key(&self) -> String {
        self.of.to_string()
    }

    /// The entry of the journal: when it was begun, in seconds since 1970.
    pub(crate) fn to_change(&self) -> Change {
        let began = self.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Change::put(Table::Deletions, self.key(), json!({ "began": began }))
    }

    /// When it was begun, for the log.
    pub(crate) fn when(&self) -> String {
        clock::rfc3339(self.began)
    }
}

impl Deleting {
    /// The place of the object.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Volume(id) => &id.place,
            Self::Snapshot(id) => &id.place,
        }
    }
}

impl fmt::Display for Deleting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(id) => write!(f, "volume {id}"),
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
        }
    }
}

impl Operations {
    /// Runs `work`. The deletion is in the journal from the moment that `work` records it until it has ended:
    /// after some failures it may still go on, or be half done.
    pub(crate) fn with_deletion<T>(
        &self,
        backend: &dyn Backend,
        of: Deleting,
        work: impl FnOnce(RecordDeletion<'_>) -> Result<T>,
    ) -> Result<T> {
        if !backend.traits().records_deletions {
            return work(&|| Ok(()));
        }
        let deletion = BegunDeletion::now(of);
        let is_recorded = || self.journal.get(Table::Deletions, &deletion.key()).is_some();
        let was_recorded = is_recorded();
        let outcome = work(&|| match is_recorded() {
            // The entry is from before a crash.
            true => Ok(()),
            false => self.journal.write_for_removal(&[deletion.to_change()]),
        });
        let open = [Kind::Timeout, Kind::Unavailable, Kind::Internal];
        // A refusal says nothing of what an earlier call has left.
        let is_open = outcome.as_ref().is_err_and(|error| was_recorded || open.contains(&error.kind()));
        if !is_open && is_recorded() {
            self.journal.note(&[Change::remove(Table::Deletions, deletion.key())]);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(key: &str, json: &str) -> Option<BegunDeletion> {
        BegunDeletion::parse(key, &serde_json::from_str(json).expect("JSON"))
    }

    #[test]
    fn entries_have_this_form() {
        let began = UNIX_EPOCH + Duration::from_secs(1_763_777_600);
        let volume = VolumeId::parse("rbd:main:vms::csi-vol-1:10").expect("an ID");
        let snapshot = SnapshotId::parse("rbd:main:vms::csi-vol-1:10@abcdefghij234-zyxw7654").expect("an ID");
        let json = r#"{"began":1763777600}"#;
        for (of, key) in [
            (Deleting::Volume(volume), "volume rbd:main:vms::csi-vol-1:10"),
            (Deleting::Snapshot(snapshot), "snapshot rbd:main:vms::csi-vol-1:10@abcdefghij234-zyxw7654"),
        ] {
            let deletion = BegunDeletion { of, began };
            let Change { key: recorded, value, .. } = deletion.to_change();
            assert_eq!((recorded.as_str(), value.expect("a value").to_string().as_str()), (key, json));
            assert_eq!(parse(key, json), Some(deletion));
        }
    }

    #[test]
    fn other_entries_are_no_deletions() {
        let json = r#"{"began":1763777600}"#;
        for key in ["image rbd:main:vms::csi-vol-1:10", "volume", "volume x", "snapshot x", ""] {
            assert_eq!(parse(key, json), None, "{key:?}");
        }
        assert_eq!(parse("volume rbd:main:vms::csi-vol-1:10", "{}"), None);
    }
}
