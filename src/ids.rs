//! Names of objects and the IDs given to the orchestrator: parse and print, nothing else.
//!
//! An ID is readable: backend, cluster, pool (or file system), namespace (or group), object and incarnation,
//! each percent-encoded and joined by `:`, at most 128 bytes. `local:node7:::csi-vol-…:5f0c…` is a volume; a
//! snapshot ends in `…:SOURCE-INCARNATION@SNAPSHOT:INCARNATION`. What does not parse is an ID that was never
//! given: no such object.

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The longest ID the CSI specification lets a plugin give, in bytes.
pub const MAX_ID: usize = 128;

/// The longest encoded node ID with which the IDs of local volumes still fit: `local:NODE:::csi-vol-32:16`.
pub const MAX_NODE: usize = MAX_ID - "local:".len() - ":::".len() - "csi-vol-".len() - 32 - ":".len() - 16;

/// How the names of the objects of volumes begin.
pub const VOLUME: &str = "csi-vol-";

/// Who holds a volume that is being deleted, where nodes hold those that are given to them: no node can have
/// that name.
pub const DELETER: &str = "delete";

/// What is wrong with a node ID, if no node of this plugin can have it.
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

/// A snapshot: its place, the incarnation of its source, 16 hexadecimal digits that stand for its name, and
/// its incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// Where it lives.
    pub place: Place,
    /// The incarnation of the volume it was taken of.
    pub source: String,
    /// 16 hexadecimal digits, derived from the snapshot's name.
    pub snapshot: String,
    /// The snapshot's own id, so that an ID never means a later snapshot of the same name. None in an ID that
    /// was given before IDs had it.
    pub incarnation: Option<String>,
}

/// The name of the object for a request's name: two controllers that get the same request meet at the same
/// object.
pub fn volume_object(instance: &str, name: &str) -> String {
    format!("{VOLUME}{}", &digest(instance, name)[..32])
}

/// The same where topology chooses the place: the name is registered in the pool `registry`, and the object
/// says so, so that its registration is found from the volume's ID alone, also when the object is gone.
pub fn registered_object(instance: &str, name: &str, registry: &str) -> String {
    format!("{}.{}", volume_object(instance, name), encode(registry))
}

/// The digits of an object whose name is registered, and the pool that it is registered in.
pub fn registration(object: &str) -> Option<(&str, String)> {
    let (digits, rest) = object.strip_prefix(VOLUME)?.split_at_checked(32)?;
    let registry = decode(rest.strip_prefix('.')?).filter(|registry| !registry.is_empty())?;
    is_hex(digits).then_some((digits, registry))
}

/// The 16 digits that stand for a snapshot's name.
pub fn snapshot_digits(instance: &str, name: &str) -> String {
    digest(instance, name)[..16].to_string()
}

/// Eight digits that tell a controller's temporary objects from those of others. They come from what it has
/// again after a restart, whatever it has lost: the first name of its node and where it keeps its state.
pub fn controller_tag(node: &str, state_dir: &Path) -> String {
    digest(node, &state_dir.to_string_lossy())[..8].to_string()
}

/// SHA-256 over instance and name, in hexadecimal. The NUL keeps ("ab", "c") and ("a", "bc") apart.
fn digest(instance: &str, name: &str) -> String {
    let hash = Sha256::new().chain_update(instance).chain_update([0]).chain_update(name).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Place {
    /// What records are keyed by: the object itself, whatever the text of an ID says about its
    /// incarnation.
    pub fn key(&self, object: &str) -> String {
        let Self { backend, cluster, pool, namespace } = self;
        [backend, cluster, pool, namespace, object].map(encode).join(":")
    }

    /// What the lock of an object is keyed by, which is known before topology has chosen the object's pool.
    pub fn lock_key(&self, object: &str) -> String {
        match registration(object) {
            None => self.key(object),
            Some((_, pool)) => Self { pool, ..self.clone() }.key(object),
        }
    }

    fn parse<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut field = || decode(fields.next()?);
        let place = Self { backend: field()?, cluster: field()?, pool: field()?, namespace: field()? };
        (!place.backend.is_empty()).then_some(place)
    }
}

impl VolumeId {
    /// Reads an ID; None if this plugin could not have given it and no operator would write it.
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

    /// Whether this ID means the object whose own id is `actual`.
    pub fn means(&self, actual: &str) -> bool {
        means(&self.incarnation, actual)
    }

    /// Refuses an ID that would not fit, before anything is made under it.
    pub fn fits(&self) -> Result<()> {
        fits("volume", &self.to_string())
    }
}

impl SnapshotId {
    /// Reads an ID; None if this plugin could not have given it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = within_limit(text)?.split(':');
        let place = Place::parse(&mut fields)?;
        let (source, snapshot) = fields.next()?.split_once('@')?;
        let (source, snapshot) = (decode(source)?, decode(snapshot)?);
        let incarnation = parse_incarnation(&mut fields)?;
        let is_one = !source.is_empty() && is_digits(&snapshot);
        is_one.then_some(Self { place, source, snapshot, incarnation })
    }

    /// Refuses an ID that would not fit, before anything is taken under it.
    pub fn fits(&self) -> Result<()> {
        fits("snapshot", &self.to_string())
    }

    /// Whether two IDs may mean the same snapshot: one that does not say which may mean any of its name.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let name = |id: &Self| Self { incarnation: None, ..id.clone() };
        name(self) == name(other)
            && self.incarnation.as_deref().is_none_or(|incarnation| other.means(incarnation))
    }

    /// Whether this ID means the snapshot of its name whose own id is `actual`.
    pub fn means(&self, actual: &str) -> bool {
        means(&self.incarnation, actual)
    }
}

/// The last field of an ID, which may be left out; None if it is wrong, or not the last.
fn parse_incarnation<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Option<String>> {
    let incarnation = match fields.next() {
        Some(field) => Some(decode(field).filter(|it| !it.is_empty())?),
        None => None,
    };
    fields.next().is_none().then_some(incarnation)
}

fn fits(what: &str, id: &str) -> Result<()> {
    let length = id.len();
    if length <= MAX_ID {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the {what}'s ID would be {length} bytes ({id}), {MAX_ID} are allowed: use shorter names for node, pool \
         or namespace"
    )))
}

fn means(wanted: &Option<String>, actual: &str) -> bool {
    wanted.as_deref().is_none_or(|wanted| wanted == actual)
}

fn write_incarnation(f: &mut fmt::Formatter<'_>, incarnation: &Option<String>) -> fmt::Result {
    match incarnation {
        Some(incarnation) => write!(f, ":{}", encode(incarnation)),
        None => Ok(()),
    }
}

/// The key of a snapshot's lock, known from its name alone, before its source is.
pub fn snapshot_key(place: &Place, digits: &str) -> String {
    place.key(&format!("@{digits}"))
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())?;
        write_incarnation(f, &self.incarnation)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { backend, cluster, pool, namespace } = &self.place;
        let place = [backend, cluster, pool, namespace].map(encode).join(":");
        write!(f, "{place}:{}@{}", encode(&self.source), encode(&self.snapshot))?;
        write_incarnation(f, &self.incarnation)
    }
}

fn within_limit(text: &str) -> Option<&str> {
    (text.len() <= MAX_ID).then_some(text)
}

fn is_digits(text: &str) -> bool {
    text.len() == 16 && is_hex(text)
}

/// Whether text is hexadecimal digits, as we write them, at least one.
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn place() -> Place {
        Place { backend: "rbd".into(), cluster: "main".into(), pool: "vm s".into(), namespace: String::new() }
    }

    #[test]
    fn volume_ids_survive_the_round_trip() {
        for incarnation in [None, Some("10309e725270".to_string())] {
            let id = VolumeId { place: place(), object: "web:disk/1%".into(), incarnation };
            assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn snapshot_ids_survive_the_round_trip() {
        for incarnation in [None, Some("17".to_string())] {
            let (source, snapshot) = ("a@b".into(), "0123456789abcdef".into());
            let id = SnapshotId { place: place(), source, snapshot, incarnation };
            assert_eq!(SnapshotId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn text_we_never_gave_is_no_id() {
        let long = format!("rbd:main:p::{}", "x".repeat(128));
        for text in [
            "",
            "bogus",
            "rbd:main:p:",
            "rbd:main:p::",
            "rbd:main:p::o:",
            "rbd:main:p::o:1:2",
            ":a:b:c:d",
            "rbd:a:b::%zz",
            &long,
        ] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        for text in [
            "rbd:main:p::o",
            "rbd:main:p::a@b",
            "rbd:main:p::@0123456789abcdef",
            "rbd:main:p::a@0123456789ABCDEF",
            "rbd:main:p::a@0123456789abcdef:",
            "rbd:main:p::a@0123456789abcdef:17:1",
        ] {
            assert_eq!(SnapshotId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_object_has_one_encoding_only() {
        assert_eq!(VolumeId::parse("rbd:m:p::%61"), None, "an encoded letter");
        assert_eq!(VolumeId::parse("rbd:m:p::a%2fb"), None, "lower-case digits");
        assert!(VolumeId::parse("rbd:m:p::a%2Fb").is_some());
    }

    #[test]
    fn an_incarnation_left_out_means_any() {
        let any = VolumeId { place: place(), object: "o".into(), incarnation: None };
        assert!(any.means("1") && any.means("2"));
        let first = VolumeId { incarnation: Some("1".into()), ..any };
        assert!(first.means("1") && !first.means("2"));
    }

    #[test]
    fn names_are_derived_from_instance_and_request() {
        assert_eq!(volume_object("default", "a"), volume_object("default", "a"));
        assert_ne!(volume_object("default", "a"), volume_object("other", "a"));
        assert_ne!(volume_object("ab", "c"), volume_object("a", "bc"));
        assert_eq!(volume_object("default", "a").len(), "csi-vol-".len() + 32);
        assert!(is_digits(&snapshot_digits("default", "a")));
    }

    #[test]
    fn a_registered_object_says_where_wherever_it_lies() {
        let object = registered_object("default", "a", "names: all");
        let digits = volume_object("default", "a").replace(VOLUME, "");
        assert_eq!(registration(&object), Some((digits.as_str(), "names: all".to_string())));
        let elsewhere = Place { pool: "fast".into(), ..place() };
        assert_eq!(elsewhere.lock_key(&object), place().lock_key(&object));
        assert_ne!(elsewhere.key(&object), place().key(&object));
        for other in [&volume_object("default", "a"), "web.rbd", "csi-vol-1.rbd", &format!("{object}%zz")] {
            assert_eq!(registration(other), None, "{other}");
            assert_eq!(place().lock_key(other), place().key(other));
        }
    }
}
