//! Names of objects and the IDs given to the orchestrator: parse and print, nothing else.
//!
//! An ID is readable: backend, cluster, pool (or file system), namespace (or group), object and incarnation,
//! each percent-encoded and joined by `:`, at most 128 bytes. `rbd:main:vms::csi-vol-…:10309e725270` is a
//! volume; the ID of its snapshot adds `@KEY-R`. If the incarnation alone identifies a source, the IDs of its
//! snapshots have no object: `local:node7:::5f0c…@KEY-R`. A text that does not parse is an ID that this
//! plugin never gave: there is no such object.

mod objects;

use std::fmt;

pub use self::objects::{
    VOLUME, common_object, draw, drawn_object, is_named, is_object, key_of_drawn, node_key, registered,
    registration, slug_of, snapshot_key, undrawn, volume_key, volume_object,
};

use self::objects::{DRAWN_DIGITS, KEY_DIGITS, MAX_SLUG};
use crate::error::{Error, Result};

/// The longest ID the CSI specification lets a plugin give, in bytes.
pub const MAX_ID: usize = 128;

/// The length of the longest name of a volume's object: `csi-vol-SLUG-KEY`.
const LONGEST_VOLUME: usize = VOLUME.len() + MAX_SLUG + "-".len() + KEY_DIGITS;

/// The most bytes that cluster, pool and namespace may take, encoded, in the IDs of snapshots of images:
/// `rbd:CLUSTER:POOL:NAMESPACE:csi-vol-SLUG-KEY:IMAGE@KEY-R`. The ids of images have up to 20 characters.
pub const MAX_RBD_PLACE: usize =
    MAX_ID - "rbd:::::@-".len() - LONGEST_VOLUME - 20 - KEY_DIGITS - DRAWN_DIGITS;

/// The most bytes that cluster, file system and group may take, encoded, in the IDs of snapshots of
/// subvolumes: `cephfs:CLUSTER:FS:GROUP:csi-vol-SLUG-KEY-R@KEY-R`.
pub const MAX_CEPHFS_PLACE: usize =
    MAX_ID - "cephfs:::@-".len() - LONGEST_VOLUME - "-:".len() - DRAWN_DIGITS - KEY_DIGITS - DRAWN_DIGITS;

/// The longest encoded node ID with which the IDs of local volumes still fit:
/// `local:NODE:::csi-vol-SLUG-KEY:16`.
pub const MAX_NODE: usize = MAX_ID - "local:::::".len() - LONGEST_VOLUME - 16;

/// The holder of a volume that is being deleted, where records otherwise have the node that holds the volume.
/// No node can have this name.
pub const DELETER: &str = "delete";

/// Refuses a node ID that no node of this plugin can have, and says what is wrong with it.
pub fn refuse_node(id: &str) -> Result<(), String> {
    let length = encode(id).len();
    if id.is_empty() || id.chars().any(char::is_control) {
        return Err("allowed is a name without control characters".to_string());
    }
    if id == DELETER {
        return Err(format!(
            "{DELETER:?} is how cephlet marks volumes that are being deleted: choose another name"
        ));
    }
    match length > MAX_NODE {
        true => Err(format!(
            "takes {length} bytes in the IDs of local volumes, at most {MAX_NODE} are allowed: set a shorter \
             one"
        )),
        false => Ok(()),
    }
}

/// Where an object lives. Backends without pools or namespaces leave those empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which backend: `local`, `rbd`, …
    pub backend: String,
    /// The cluster's name; for local volumes the node.
    pub cluster: String,
    /// The pool or file system.
    pub pool: String,
    /// The namespace or subvolume group.
    pub namespace: String,
}

/// A volume: its place, its object's name and the incarnation of that object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeId {
    /// Where it lives.
    pub place: Place,
    /// The object's name there.
    pub object: String,
    /// The object's own id, so that a late delete never hits a newer object of the same name.
    /// None in an ID written by an operator for an existing object.
    pub incarnation: Option<String>,
}

/// A snapshot: its place, the volume it was taken of, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// Where it lives.
    pub place: Place,
    /// The name of the volume's object; None if the incarnation alone identifies the volume.
    pub object: Option<String>,
    /// The incarnation of the volume.
    pub source: String,
    /// `KEY-R`: the key of the request's name, and random digits, so that the name is never used again.
    pub snapshot: String,
}

impl Place {
    /// The key of an object's records. It names the object itself, whatever incarnation an ID has.
    pub fn key(&self, object: &str) -> String {
        let Self { backend, cluster, pool, namespace } = self;
        [backend, cluster, pool, namespace, object].map(encode).join(":")
    }

    /// The key of an object's lock. It is known before topology has chosen the object's pool, and before
    /// random digits were drawn for its name.
    pub fn lock_key(&self, object: &str) -> String {
        let object = undrawn(object).unwrap_or(object);
        match registration(object) {
            None => self.key(object),
            Some((_, pool)) => Self { pool, ..self.clone() }.key(object),
        }
    }

    /// Refuses a place whose names take more than `most` bytes, before anything is made there: the IDs would
    /// be too long. The name of a registered object also contains the name of its registry.
    pub fn fits(&self, registry: Option<&str>, most: usize) -> Result<()> {
        let names = [&self.cluster, &self.pool, &self.namespace].map(|name| encode(name).len());
        let suffix = registry.map_or(0, |registry| ".".len() + encode(registry).len());
        let length = names.iter().sum::<usize>() + suffix;
        if length <= most {
            return Ok(());
        }
        let Self { cluster, pool, namespace, .. } = self;
        let registry = registry.map(|pool| format!(" with the registry {pool:?}")).unwrap_or_default();
        Err(Error::invalid(format!(
            "cluster {cluster:?}, pool or file system {pool:?}, and namespace or group {namespace:?}{registry} take \
             {length} bytes in the IDs of snapshots, at most {most} are allowed: use shorter names"
        )))
    }

    fn parse<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut field = || decode(fields.next()?);
        let place = Self { backend: field()?, cluster: field()?, pool: field()?, namespace: field()? };
        (!place.backend.is_empty()).then_some(place)
    }
}

impl VolumeId {
    /// Parses an ID; None for a text that neither this plugin nor an operator would write.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = within_limit(text)?.split(':');
        let place = Place::parse(&mut fields)?;
        let object = decode(fields.next()?).filter(|object| !object.is_empty())?;
        let incarnation = parse_incarnation(&mut fields)?;
        Some(Self { place, object, incarnation })
    }

    /// The key of the volume's records.
    pub fn key(&self) -> String {
        self.place.key(&self.object)
    }

    /// The key of the volume's lock.
    pub fn lock_key(&self) -> String {
        self.place.lock_key(&self.object)
    }

    /// Whether the ID is short enough to be given.
    pub fn fits(&self) -> bool {
        self.to_string().len() <= MAX_ID
    }

    /// Whether this ID means the object whose own id is `actual`.
    pub fn means(&self, actual: &str) -> bool {
        self.incarnation.as_deref().is_none_or(|wanted| wanted == actual)
    }
}

impl SnapshotId {
    /// Refuses an ID that is too long, before a snapshot is taken under it.
    pub fn fits(&self) -> Result<()> {
        let id = self.to_string();
        match id.len() <= MAX_ID {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "the snapshot's ID would be {} bytes ({id}), {MAX_ID} are allowed: use shorter names for image, \
                 pool or namespace",
                id.len()
            ))),
        }
    }

    /// Parses an ID; None if this plugin could not have given it.
    pub fn parse(text: &str) -> Option<Self> {
        let (source, snapshot) = within_limit(text)?.rsplit_once('@')?;
        let mut fields = source.split(':');
        let place = Place::parse(&mut fields)?;
        let mut field = || fields.next().map(|field| decode(field).filter(|field| !field.is_empty()));
        let (object, source) = match (field()?, field()) {
            (source, None) => (None, source?),
            (object, Some(source)) => (Some(object?), source?),
        };
        let is_whole = fields.next().is_none() && key_of_drawn(snapshot).is_some();
        is_whole.then(|| Self { place, object, source, snapshot: snapshot.to_string() })
    }

    /// The key of the request's name.
    pub fn name_key(&self) -> &str {
        key_of_drawn(&self.snapshot).unwrap_or(&self.snapshot)
    }

    /// The key of the snapshot's lock. The request's name alone determines it, before the source is known.
    /// The group is left out: a file system claims a name once for all its groups.
    pub fn lock_key(place: &Place, key: &str) -> String {
        Place { namespace: String::new(), ..place.clone() }.key(&format!("@{key}"))
    }
}

/// The last field of an ID, which may be missing; None if it is malformed or another field follows.
fn parse_incarnation<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Option<String>> {
    let incarnation = match fields.next() {
        Some(field) => Some(decode(field).filter(|it| !it.is_empty())?),
        None => None,
    };
    fields.next().is_none().then_some(incarnation)
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())?;
        self.incarnation.as_ref().map_or(Ok(()), |incarnation| write!(f, ":{}", encode(incarnation)))
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { backend, cluster, pool, namespace } = &self.place;
        let place = [backend, cluster, pool, namespace];
        let fields = place.into_iter().chain(&self.object).chain([&self.source]).map(encode);
        write!(f, "{}@{}", fields.collect::<Vec<_>>().join(":"), self.snapshot)
    }
}

fn within_limit(text: &str) -> Option<&str> {
    (text.len() <= MAX_ID).then_some(text)
}

/// Whether the text is one or more hexadecimal digits in lower case.
pub(crate) fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Percent-encodes everything but letters, digits, `.`, `_` and `-`.
pub fn encode(text: impl AsRef<str>) -> String {
    let mut encoded = String::new();
    for byte in text.as_ref().bytes() {
        match is_plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Decodes; None for text that [`encode`] could not have made, so that every object has one
/// ID only.
pub fn decode(field: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (encode(&text) == field).then_some(text)
}

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
