//! The index of a file system: which volumes there are, and from which requests. It is an object in the
//! metadata pool that maps `GROUP/SUBVOLUME`, and for a snapshot `GROUP/SUBVOLUME@SNAPSHOT`, to one JSON
//! value.
//!
//! A subvolume without an entry is one that an operator made, or the index was lost: nothing is ever removed
//! for want of an entry. A subvolume is removed only after its entry says *deleted*, or *making* for too
//! long.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::backend::ceph::objects::ObjectTool;
use crate::backend::cephfs::names::INDEX;
use crate::backend::creation_record::{CreationRequest, Placed, Unknown, VERSION, from_bytes, to_bytes};
use crate::error::{Error, Kind, Result};

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// It is being made; it is no volume yet.
    #[serde(rename = "making")]
    Making,
    /// It is a volume.
    #[serde(rename = "whole")]
    Whole,
    /// It is being removed; it is no volume any more.
    #[serde(rename = "deleted")]
    Deleted,
}

/// A snapshot that a volume is copied from, or that it shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotPath {
    #[serde(rename = "group")]
    pub group: String,
    #[serde(rename = "subvolume")]
    pub subvolume: String,
    #[serde(rename = "snapshot")]
    pub snapshot: String,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "version")]
    pub version: u32,
    #[serde(rename = "state")]
    pub state: State,
    /// The tag of the controller that wrote the state.
    #[serde(rename = "controller")]
    pub controller: String,
    /// When it wrote it, in seconds since 1970.
    #[serde(rename = "since")]
    pub since: u64,
    /// The size of the volume in bytes.
    #[serde(rename = "size")]
    pub size: u64,
    /// The request that made the volume; None for a volume that an operator made.
    #[serde(rename = "request", default, skip_serializing_if = "Option::is_none")]
    pub request: Option<CreationRequest>,
    /// The snapshot that the volume is copied from, while it is being made.
    #[serde(rename = "copy_of", default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<SnapshotPath>,
    /// The snapshot whose tree the volume is; it has no subvolume then.
    #[serde(rename = "shares", default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SnapshotPath>,
    /// Of a snapshot: the path of its subvolume's root when it was taken. Of a deleted volume whose name an
    /// operator chose, and may use again: the path of its root.
    #[serde(rename = "path", default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What topology chose for the volume; of a snapshot: for the volume that it was taken of.
    #[serde(flatten)]
    pub placed: Placed,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Entry {
    /// An entry by the controller with this tag, from now on.
    pub fn new(state: State, tag: &str, size: u64, request: Option<CreationRequest>) -> Self {
        Self {
            version: VERSION,
            state,
            controller: tag.to_string(),
            since: now(),
            size,
            request,
            copy_of: None,
            shares: None,
            path: None,
            placed: Placed::default(),
            unknown: Unknown::new(),
        }
    }

    /// The same volume in another state, from now on.
    pub fn become_state(&self, state: State, tag: &str) -> Self {
        Self { state, controller: tag.to_string(), since: now(), ..self.clone() }
    }

    /// Whether it has been in the making for so long that no request makes it any more.
    pub fn is_abandoned(&self, after: Duration) -> bool {
        self.state == State::Making && self.age() >= after
    }

    /// How long the volume has been in this state.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.since))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The index of a file system, within a call.
pub(crate) struct Index<'a>(pub Box<dyn ObjectTool + 'a>);

impl Index<'_> {
    /// The entry of a subvolume.
    ///
    /// # Errors
    /// Precondition: a later cephlet has written it.
    pub fn get(&self, path: &str) -> Result<Option<Entry>> {
        self.0.entry(INDEX, path)?.map(|value| parse(path, &value)).transpose()
    }

    /// Sets the entry of a subvolume.
    pub fn set(&self, path: &str, entry: &Entry) -> Result<()> {
        self.0.set_entry(INDEX, path, &to_bytes(entry)?)
    }

    /// Removes the entry of a subvolume that is gone.
    pub fn remove(&self, path: &str) -> Result<()> {
        self.0.remove_entry(INDEX, path)
    }

    /// All entries: group, `SUBVOLUME[@SNAPSHOT]`, entry. One that a later cephlet has written, or that is
    /// damaged, is left out.
    pub fn all(&self) -> Result<Vec<(String, String, Entry)>> {
        let mut found = Vec::new();
        for (path, value) in self.0.entries(INDEX)? {
            let Some((group, object)) = path.split_once('/') else { continue };
            match parse(&path, &value) {
                Ok(entry) => found.push((group.to_string(), object.to_string(), entry)),
                Err(error) if matches!(error.kind(), Kind::Precondition | Kind::Internal) => {
                    log::warn!("{error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The entries that cannot be read: their paths, and why.
    pub fn unreadable(&self) -> Result<Vec<(String, Error)>> {
        let refused = |(path, value): (String, Vec<u8>)| Some((parse(&path, &value).err()?, path));
        Ok(self.0.entries(INDEX)?.into_iter().filter_map(refused).map(|(why, path)| (path, why)).collect())
    }

    /// Whether there is an entry like this. One that cannot be read may be like this.
    pub fn has(&self, is_meant: impl Fn(&Entry) -> bool) -> Result<bool> {
        let may_be_meant = |(path, value): (&String, &Vec<u8>)| match parse(path, value) {
            Ok(entry) => is_meant(&entry),
            Err(error) => {
                log::warn!("{error}: no snapshot is removed until it is gone");
                true
            }
        };
        Ok(self.0.entries(INDEX)?.iter().any(may_be_meant))
    }
}

fn parse(path: &str, value: &[u8]) -> Result<Entry> {
    from_bytes(value)
        .map_err(|error| error.context(format_args!("the entry {path} of the index of volumes ({INDEX})")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The format of entries: later versions read them.
    #[test]
    fn entries_have_this_form() {
        let json = r#"{"version":1,"state":"whole","controller":"00c0ffee","since":1763777600,"size":4194304,"later":[1]}"#;
        let entry = parse("csi/a", json.as_bytes()).unwrap();
        assert_eq!((entry.state, entry.controller.as_str(), entry.size), (State::Whole, "00c0ffee", 4 << 20));
        assert_eq!(String::from_utf8(to_bytes(&entry).unwrap()).unwrap(), json);
        let json = r#"{"version":1,"state":"whole","controller":"00c0ffee","since":1763777600,"size":4194304,"shares":{"group":"csi","subvolume":"a","snapshot":"csi-snap-b"},"path":"/volumes/csi/a/0-1"}"#;
        let sharing = parse("csi/c", json.as_bytes()).unwrap();
        assert_eq!(sharing.shares.as_ref().unwrap().snapshot, "csi-snap-b");
        assert_eq!(String::from_utf8(to_bytes(&sharing).unwrap()).unwrap(), json);
        let deleted = Entry { since: 7, ..entry.become_state(State::Deleted, "0000aaaa") };
        let json =
            r#"{"version":1,"state":"deleted","controller":"0000aaaa","since":7,"size":4194304,"later":[1]}"#;
        assert_eq!(String::from_utf8(to_bytes(&deleted).unwrap()).unwrap(), json);
    }

    #[test]
    fn an_entry_of_a_later_version_is_in_use_and_a_damaged_one_is_said() {
        let later = parse("csi/a", br#"{"version":2}"#).unwrap_err();
        assert!(later.kind() == Kind::Precondition && later.message().contains("csi/a"), "{later}");
        for damaged in [&b""[..], b"{}", b"\xff", br#"{"version":1,"state":"gone"}"#] {
            assert_eq!(parse("csi/a", damaged).unwrap_err().kind(), Kind::Internal);
        }
    }
}
