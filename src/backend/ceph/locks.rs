//! Locks on objects, kept by the cluster: true compare-and-swaps, which outlive their holders.
//!
//! Most descriptions are one JSON value with a version, for instance
//! `{"deletion":{"controller":"0000aaaa"},"version":1}`. Only the description is JSON: the cluster compares
//! tags and cookies by their bytes, so these are fixed words.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backend::ceph::PoolRef;
use crate::backend::creation_record::{VERSION, from_bytes};
use crate::dispatch::Call;
use crate::error::{Kind, Result};

/// A lock of ours on an object: the cluster keeps it, so no process has to live for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The holder: a node, or a controller's purpose.
    pub cookie: String,
    /// What it is for. Text without line ends.
    pub description: String,
    /// Others with this same tag may hold the lock too; None for an exclusive lock.
    pub shared: Option<String>,
    /// The lock expires after this many seconds; None for never.
    pub seconds: Option<u64>,
}

/// The description of a lock of this kind.
pub(crate) fn describe(kind: &str, said: &impl Serialize) -> String {
    json!({ "version": VERSION, kind: said }).to_string()
}

/// A lock holder, as the cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LockHolder {
    /// As it was taken.
    pub cookie: String,
    /// As it was taken.
    pub description: String,
    /// The tag under which it is shared; None if it is exclusive.
    #[serde(skip)]
    pub shared: Option<String>,
    /// The client that took it, which is needed to break it.
    #[serde(rename = "name")]
    pub client: String,
    /// The address of that client.
    #[serde(rename = "addr")]
    pub address: String,
}

impl LockHolder {
    /// What the description says of this kind; None if it says nothing, or is not cephlet's.
    ///
    /// # Errors
    /// Precondition: a later version has written it. Its object counts as in use: it is neither changed nor
    /// removed.
    pub(crate) fn says<T: DeserializeOwned>(&self, kind: &str) -> Result<Option<T>> {
        match from_bytes::<Value>(self.description.as_bytes()) {
            Ok(text) => Ok(text.get(kind).and_then(|said| T::deserialize(said).ok())),
            Err(error) if error.kind() == Kind::Internal => Ok(None),
            Err(error) => Err(error.context(format_args!("the lock that {:?} holds on it", self.cookie))),
        }
    }
}

/// The present state of a lock, and whether it has ever been held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// The lock is held, or was held before.
    pub is_known: bool,
    /// The present holders.
    pub holders: Vec<LockHolder>,
}

/// The object that carries a lock, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTarget<'a> {
    /// The header of the image of this id: the publications of a volume, its deletion or demotion. Dies with
    /// the image.
    Header(&'a str),
    /// The same header: the clients of nodes that write to the image. Dies with the image.
    Clients(&'a str),
    /// The same header: the one client that may write to the image, by librbd's and the kernel's own lock.
    Owner(&'a str),
    /// The pool's directory of images, which always exists: the holder may remove what a killed creation has
    /// left of an image of this name.
    BareName(&'a str),
    /// A subvolume, `GROUP/NAME`: the publications of a volume, and its deletion.
    Subvolume(&'a str),
    /// The [claim](super::claim) of a snapshot's name, by its key.
    SnapshotName(&'a str),
    /// The [claim](super::claim) of the name of a volume whose place or object the name does not tell, by its
    /// key.
    VolumeName(&'a str),
}

impl LockTarget<'_> {
    /// The object that carries it.
    pub fn object(&self) -> String {
        match self {
            Self::Header(id) | Self::Clients(id) | Self::Owner(id) => {
                format!("rbd_header.{id}")
            }
            Self::BareName(_) => "rbd_directory".into(),
            Self::Subvolume(path) => format!("cephlet.vol.{path}"),
            Self::SnapshotName(key) => format!("cephlet.snap.{key}"),
            Self::VolumeName(key) => format!("cephlet.name.{key}"),
        }
    }
}

impl fmt::Display for LockTarget<'_> {
    /// What the lock is for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(id) | Self::Clients(id) | Self::Owner(id) => write!(f, "image {id}"),
            Self::BareName(name) => write!(f, "the name {name}"),
            Self::Subvolume(path) => write!(f, "subvolume {path}"),
            Self::SnapshotName(key) | Self::VolumeName(key) => write!(f, "the claim {key}"),
        }
    }
}

/// Whether a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held now.
    Now,
    /// It was held already, perhaps by the same holder.
    Held,
}

/// Gives access to the locks of a pool and namespace, within a call.
pub trait BindLocks {
    /// The locks at this place.
    fn locks<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn LockTool + 'a>;
}

/// Locks in a pool and namespace.
pub trait LockTool {
    /// Takes a lock of ours.
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked>;

    /// The state of a lock; if the object is absent, the lock was never held.
    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState>;

    /// The holders of a lock.
    fn holders(&self, target: LockTarget<'_>) -> Result<Vec<LockHolder>> {
        Ok(self.lock_state(target)?.holders)
    }

    /// Takes a lock from its holder. If the holder no longer has it, that is no error.
    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()>;

    /// Removes the object that carries a lock: the name of a deleted snapshot or volume, or what a lock on a
    /// header leaves behind if the image is deleted meanwhile. Refuses the header of an image that exists. A
    /// missing object is no error.
    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()>;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn holder(description: &str) -> LockHolder {
        let (cookie, description) = ("n1".into(), description.into());
        LockHolder {
            cookie,
            description,
            shared: None,
            client: "client.7".into(),
            address: "10.0.0.7:0/7".into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_by_its_kind() {
        let text = describe("deletion", &json!({ "controller": "0000aaaa" }));
        assert_eq!(text, r#"{"deletion":{"controller":"0000aaaa"},"version":1}"#);
        let said: Option<Value> = holder(&text).says("deletion").unwrap();
        assert_eq!(said.unwrap(), json!({ "controller": "0000aaaa" }));
        assert_eq!(holder(&text).says::<Value>("client").unwrap(), None);
    }

    #[test]
    fn a_later_version_is_refused_and_what_is_no_cephlet_says_nothing() {
        let later = holder(r#"{"version":2,"lease":{}}"#);
        let error = later.says::<Value>("deletion").unwrap_err();
        assert!(error.kind() == Kind::Precondition && error.message().contains("later cephlet"), "{error}");
        for other in ["", "by hand", "{}", r#"{"deletion":{}}"#] {
            assert_eq!(holder(other).says::<Value>("deletion").unwrap(), None, "{other}");
        }
    }
}
