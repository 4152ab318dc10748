//! What the controller writes down before it changes anything, so that a crash leaves a trace.
//!
//! The journal keeps an intent under the word of its operation and its subject: `DeleteVolume rbd:main:…`.
//! The words are part of that format and say nothing about names in the code: what an earlier version wrote
//! is read by them.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protobuf::Message;

use crate::clock;
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::journal::{Change, Table, records};
use crate::volume::Operations;

/// Writes the intent down, for this subject.
pub(crate) type WriteIntentFor<'a> = &'a dyn Fn(&str) -> Result<()>;

/// An operation that leaves an intent in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateVolume,
    DeleteVolume,
    /// The deletion of a volume that its snapshots may not outlive.
    DeleteVolumeStrict,
    CreateSnapshot,
    DeleteSnapshot,
    ExpandVolume,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::CreateVolume,
        Self::DeleteVolume,
        Self::DeleteVolumeStrict,
        Self::CreateSnapshot,
        Self::DeleteSnapshot,
        Self::ExpandVolume,
    ];

    /// Whether it makes room: it goes on where the journal's disk is full.
    fn is_removal(self) -> bool {
        matches!(self, Self::DeleteVolume | Self::DeleteVolumeStrict | Self::DeleteSnapshot)
    }

    /// Its word in the journal and in the log. None of them may ever change.
    fn word(self) -> &'static str {
        match self {
            Self::CreateVolume => "CreateVolume",
            Self::DeleteVolume => "DeleteVolume",
            Self::DeleteVolumeStrict => "ReleaseVolume",
            Self::CreateSnapshot => "CreateSnapshot",
            Self::DeleteSnapshot => "DeleteSnapshot",
            Self::ExpandVolume => "ExpandVolume",
        }
    }
}

/// An operation that was begun and is not known to have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) operation: Operation,
    /// The ID of the volume or snapshot, or the request's name where there is no ID yet.
    pub(crate) subject: String,
    /// When it was begun, if that is known.
    began: Option<SystemTime>,
}

impl Intent {
    /// Reads an entry of the journal; None for an operation that this version does not know.
    pub(crate) fn parse(key: &str, value: &[u8]) -> Option<Self> {
        let (word, subject) = key.split_once(' ')?;
        let operation = Operation::ALL.into_iter().find(|operation| operation.word() == word)?;
        let began = records::Intent::parse_from_bytes(value).ok().map(|record| record.began);
        let began = began.and_then(|began| u64::try_from(began).ok()).filter(|began| *began > 0);
        let began = began.map(|began| UNIX_EPOCH + Duration::from_secs(began));
        Some(Self { operation, subject: subject.to_string(), began })
    }

    fn now(operation: Operation, subject: &str) -> Self {
        Self { operation, subject: subject.to_string(), began: Some(SystemTime::now()) }
    }

    /// What it is kept under.
    pub(crate) fn key(&self) -> String {
        key(self.operation, &self.subject)
    }

    fn value(&self) -> Result<Vec<u8>> {
        let since = self.began.and_then(|began| began.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let began = since.as_secs().try_into().unwrap_or(i64::MAX);
        let record = records::Intent { began, ..Default::default() };
        record.write_to_bytes().map_err(|error| Error::internal(format!("intent of {self}: {error}")))
    }

    /// Where the object is that it is about; None for one that names a request only.
    pub(crate) fn place(&self) -> Option<Place> {
        let snapshot = || SnapshotId::parse(&self.subject).map(|id| id.place);
        VolumeId::parse(&self.subject).map(|id| id.place).or_else(snapshot)
    }

    /// When it was begun, for the log.
    pub(crate) fn when(&self) -> String {
        self.began.map_or("an unknown time".to_string(), clock::rfc3339)
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.operation.word(), self.subject)
    }
}

impl Operations {
    /// Runs `work`, with an intent in the journal from the moment it says on what it begins until it ends. An
    /// intent that a crash left behind is seen at the next start.
    pub(crate) fn with_intent<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(WriteIntentFor<'_>) -> Result<T>,
    ) -> Result<T> {
        let begun = Cell::new(None);
        let outcome = work(&|subject| {
            let intent = Intent::now(operation, subject);
            begun.set(Some(intent.key()));
            match self.journal.get(Table::Intents, &intent.key()) {
                // From before a crash, or written twice by the same work.
                Some(_) => Ok(()),
                None => {
                    let changes = [Change::put(Table::Intents, intent.key(), intent.value()?)];
                    match operation.is_removal() {
                        true => self.journal.write_for_removal(&changes),
                        false => self.journal.write(&changes),
                    }
                }
            }
        });
        if let Some(key) = begun.take() {
            self.journal.write_unsynced(&[Change::remove(Table::Intents, key)])?;
        }
        outcome
    }
}

fn key(operation: Operation, subject: &str) -> String {
    format!("{} {subject}", operation.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 0.1.0 wrote for an intent on the volume or name, begun at 2025-11-22T02:13:20Z: operation,
    /// subject and time, of which the first two stand in the key as well.
    fn old_value(operation: u8, subject: &str) -> Vec<u8> {
        let mut value = vec![0x08, operation, 0x12, subject.len() as u8];
        value.extend_from_slice(subject.as_bytes());
        value.extend_from_slice(&[0x18, 0xc0, 0xb8, 0x84, 0xc9, 0x06]);
        value
    }

    #[test]
    fn intents_of_the_first_version_are_read() {
        let entries = [
            ("CreateVolume web", 1, Operation::CreateVolume),
            ("DeleteVolume rbd:main:vms::csi-vol-1:10", 2, Operation::DeleteVolume),
            ("CreateSnapshot nightly", 3, Operation::CreateSnapshot),
            ("DeleteSnapshot rbd:main:vms::10:0123456789abcdef", 4, Operation::DeleteSnapshot),
            ("ExpandVolume local:node7:::csi-vol-1", 5, Operation::ExpandVolume),
            ("ReleaseVolume rbd:main:vms::csi-vol-1:10", 6, Operation::DeleteVolumeStrict),
        ];
        for (key, number, operation) in entries {
            let subject = key.split_once(' ').expect("two parts").1;
            let intent = Intent::parse(key, &old_value(number, subject)).expect(key);
            assert_eq!((intent.operation, intent.subject.as_str()), (operation, subject));
            assert_eq!(intent.when(), "2025-11-22T02:13:20Z");
            assert_eq!(intent.key(), key, "it is cleared under the key it was written under");
        }
    }

    #[test]
    fn intents_survive_the_round_trip() {
        for operation in Operation::ALL {
            let began = Some(UNIX_EPOCH + Duration::from_secs(1_763_777_600));
            let intent = Intent { operation, subject: "a name with blanks".into(), began };
            let value = intent.value().expect("encodes");
            assert_eq!(Intent::parse(&intent.key(), &value), Some(intent));
        }
    }

    #[test]
    fn an_intent_without_its_record_is_one_of_an_unknown_time() {
        let intent = Intent::parse("CreateVolume web", b"").expect("an intent");
        assert_eq!((intent.began, intent.when().as_str()), (None, "an unknown time"));
    }

    #[test]
    fn what_a_later_version_wrote_is_no_intent_of_this_one() {
        for key in ["MoveVolume rbd:main:vms::csi-vol-1:10", "DeleteVolume", "deletevolume x", ""] {
            assert_eq!(Intent::parse(key, b""), None, "{key:?}");
        }
    }
}
