//! What the controller writes down before it changes anything, so that a crash leaves a trace.

use std::cell::RefCell;

use protobuf::{EnumOrUnknown, Message};

use crate::error::{Error, Result};
use crate::journal::records::intent::Operation as RecordedOperation;
use crate::journal::{Change, Table, records};
use crate::volume::Volumes;

/// Writes an intent down for what is about to be changed.
pub(crate) type Intend<'a> = &'a dyn Fn(&str) -> Result<()>;

/// An operation that leaves an intent in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    CreateVolume,
    DeleteVolume,
    /// The deletion of a volume that its snapshots may not outlive.
    ReleaseVolume,
    CreateSnapshot,
    DeleteSnapshot,
    ExpandVolume,
}

impl Volumes {
    /// Runs `work`, with an intent in the journal from the moment it says on what it begins until it ends. An
    /// intent that a crash left behind is seen at the next start.
    pub(crate) fn intending<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(Intend<'_>) -> Result<T>,
    ) -> Result<T> {
        let begun = RefCell::new(None);
        let outcome = work(&|subject| {
            let key = intent_key(operation, subject);
            self.journal.write(&[Change::put(Table::Intents, key.clone(), encode(operation, subject)?)])?;
            begun.replace(Some(key));
            Ok(())
        });
        if let Some(key) = begun.take() {
            self.journal.note(&[Change::remove(Table::Intents, key)])?;
        }
        outcome
    }

    /// Takes an intent back that a crash left: its object was asked for again since, and what is answered now
    /// must hold.
    pub(crate) fn withdraw(&self, operation: Operation, subject: &str) -> Result<()> {
        let key = intent_key(operation, subject);
        match self.journal.get(Table::Intents, &key) {
            None => Ok(()),
            Some(_) => self.journal.write(&[Change::remove(Table::Intents, key)]),
        }
    }
}

/// What an intent is filed under.
fn intent_key(operation: Operation, subject: &str) -> String {
    format!("{operation:?} {subject}")
}

/// An intent as it is written down.
fn encode(operation: Operation, subject: &str) -> Result<Vec<u8>> {
    let operation = match operation {
        Operation::CreateVolume => RecordedOperation::CREATE_VOLUME,
        Operation::DeleteVolume => RecordedOperation::DELETE_VOLUME,
        Operation::ReleaseVolume => RecordedOperation::RELEASE_VOLUME,
        Operation::CreateSnapshot => RecordedOperation::CREATE_SNAPSHOT,
        Operation::DeleteSnapshot => RecordedOperation::DELETE_SNAPSHOT,
        Operation::ExpandVolume => RecordedOperation::EXPAND_VOLUME,
    };
    let began =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let record = records::Intent {
        operation: EnumOrUnknown::new(operation),
        subject: subject.to_string(),
        began: began.try_into().unwrap_or(i64::MAX),
        ..Default::default()
    };
    record.write_to_bytes().map_err(|error| Error::internal(format!("intent for {subject}: {error}")))
}
