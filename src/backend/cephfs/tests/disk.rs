//! A subvolume in memory, and what the manager does with it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fake::MOST_SNAPSHOTS;
use crate::backend::ceph::monitor::Command;

/// A subvolume.
#[derive(Default)]
pub(super) struct Disk {
    pub size: u64,
    pub uuid: String,
    pub snapshots: BTreeSet<String>,
    /// Only its snapshots are left.
    pub is_retained: bool,
    /// How many more times the manager says that a clone is not complete.
    pub looks_left: usize,
    /// It is a clone that the manager has in its list, and has not come to.
    pub is_queued: bool,
    /// The manager died when it began this clone.
    pub is_lost: bool,
    /// The manager died when it ended a clone of its snapshots, which it keeps.
    pub is_held: bool,
    /// The bytes of its files.
    pub used: u64,
    /// It is of an old form: it was made by hand, or its manager died before it wrote what it is.
    pub is_old: bool,
}

impl Disk {
    /// Refuses to retain the snapshots of what is of an old form.
    pub fn refuse_retention(&self, command: &Command) -> Result<(), (i32, String)> {
        match self.is_old && command.iter().any(|(key, _)| *key == "retain_snapshots") {
            true => {
                let text = "Error EINVAL: subvolume does not support snapshot retention on delete";
                Err((libc::EINVAL, text.into()))
            }
            false => Ok(()),
        }
    }

    fn info(&self, path: &str) -> Value {
        let features: &[&str] = if self.is_old { &[] } else { &["snapshot-retention"] };
        json!({
            "state": "complete", "path": path, "bytes_quota": self.size, "bytes_used": self.used,
            "data_pool": "data", "features": features,
        })
    }

    pub fn carry_out(
        &mut self,
        prefix: &str,
        (group, name): (&str, &str),
        snapshot: &str,
        number: &dyn Fn(&str) -> u64,
    ) -> Result<Value, (i32, String)> {
        let absent = |what: &str| Err((libc::ENOENT, format!("Error ENOENT: {what} does not exist")));
        match prefix {
            "fs subvolume info" if self.is_retained => Ok(json!({"state": "snapshot-retained"})),
            "fs subvolume info" => Ok(self.info(&format!("/volumes/{group}/{name}/{}", self.uuid))),
            "fs subvolume rm" if self.is_old && !self.snapshots.is_empty() => {
                Err((libc::ENOTEMPTY, "Error ENOTEMPTY: subvolume has snapshots".into()))
            }
            "fs subvolume rm" => {
                self.is_retained = true;
                Ok(Value::Null)
            }
            "fs subvolume resize" => {
                self.size = number("new_size");
                Ok(Value::Null)
            }
            "fs subvolume snapshot create" if self.snapshots.len() == MOST_SNAPSHOTS => {
                Err((libc::EMLINK, "Error EMLINK: error in mkdir".into()))
            }
            "fs subvolume snapshot create" => {
                self.snapshots.insert(snapshot.to_string());
                Ok(Value::Null)
            }
            "fs subvolume snapshot info" if self.snapshots.contains(snapshot) => {
                Ok(json!({"has_pending_clones": "no", "orphan_clones_count": u64::from(self.is_held)}))
            }
            "fs subvolume snapshot rm" if self.is_held && self.snapshots.contains(snapshot) => {
                Err((libc::EAGAIN, format!("Error EAGAIN: snapshot '{snapshot}' has pending clones")))
            }
            "fs subvolume snapshot rm" if self.snapshots.remove(snapshot) => Ok(Value::Null),
            "fs subvolume snapshot info" | "fs subvolume snapshot rm" => absent("snapshot"),
            "fs subvolume snapshot ls" => {
                Ok(self.snapshots.iter().map(|name| json!({ "name": name })).collect())
            }
            "fs clone status" if self.is_old => {
                Err((libc::EOPNOTSUPP, "Error ENOTSUP: operation 'clone-status' is not allowed".into()))
            }
            "fs clone status" if self.is_lost || self.is_queued => {
                Ok(json!({"status": {"state": "pending"}}))
            }
            "fs clone status" => {
                let state = if self.looks_left == 0 { "complete" } else { "in-progress" };
                self.looks_left = self.looks_left.saturating_sub(1);
                Ok(json!({"status": {"state": state}}))
            }
            other => panic!("no manager knows {other:?}"),
        }
    }
}
