//! Names of objects and the IDs given to the orchestrator: parse and print, nothing else.
//!
//! An ID is readable: backend, cluster, pool (or file system), namespace (or group), object and incarnation,
//! each percent-encoded and joined by `:`, at most 128 bytes. `local:node7:::csi-vol-…:5f0c…` is a volume; a
//! snapshot ends in `…:SOURCE-INCARNATION@SNAPSHOT:INCARNATION`. What does not parse is an ID that was never
//! given: no such object.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::sys::random;

/// The longest ID the CSI specification lets a plugin give, in bytes.
pub const MAX_ID: usize = 128;

/// How the names of the objects of volumes begin.
pub const VOLUME: &str = "csi-vol-";

/// How many digits a key has: 65 bits of the hash.
const KEY_DIGITS: usize = 13;

/// How many digits are drawn for a name that is never used again: 40 bits.
const DRAWN_DIGITS: usize = 8;

/// The length of the longest slug.
const MAX_SLUG: usize = 16;

/// The digits of base32 (RFC 4648, section 6) in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The longest encoded node ID with which the IDs of local volumes still fit:
/// `local:NODE:::csi-vol-SLUG-KEY:16`.
pub const MAX_NODE: usize =
    MAX_ID - "local::::".len() - VOLUME.len() - MAX_SLUG - "-".len() - KEY_DIGITS - ":".len() - 16;

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

/// The name of the object for a request's name, `csi-vol-[SLUG-]KEY`: two controllers that get the same
/// request meet at the same object.
pub fn volume_object(instance: &str, name: &str) -> String {
    let key = key("volume", instance, name);
    match slug(name) {
        slug if slug.is_empty() => format!("{VOLUME}{key}"),
        slug => format!("{VOLUME}{slug}-{key}"),
    }
}

/// The same where topology chooses the place: the name is registered in the pool `registry`, and the object
/// says so, so that its registration is found from the volume's ID alone, also when the object is gone.
pub fn registered_object(instance: &str, name: &str, registry: &str) -> String {
    format!("{}.{}", volume_object(instance, name), encode(registry))
}

/// The key of an object whose name is registered, and the pool that it is registered in.
pub fn registration(object: &str) -> Option<(&str, String)> {
    let (named, registry) = object.split_once('.')?;
    let registry = decode(registry).filter(|registry| !registry.is_empty())?;
    Some((unregistered_key(named)?, registry))
}

/// The key in the name of a volume's object, with or without a registry; None for a name that no volume of
/// ours has.
pub fn volume_key(object: &str) -> Option<&str> {
    match object.contains('.') {
        true => registration(object).map(|(key, _)| key),
        false => unregistered_key(object),
    }
}

/// The key in `csi-vol-[SLUG-]KEY`. The name is read from the right, as a slug may look like a key.
fn unregistered_key(object: &str) -> Option<&str> {
    let named = object.strip_prefix(VOLUME)?;
    let (slug, key) = named.rsplit_once('-').map_or((None, named), |(slug, key)| (Some(slug), key));
    (is_key(key) && slug.is_none_or(is_slug)).then_some(key)
}

/// The part of a request's name that operators recognise a volume by: in lower case, with one `-` for every
/// run of characters outside `[a-z0-9]`, cut to 16, without `-` at either end. It may be empty.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.chars().map(|character| character.to_ascii_lowercase()) {
        match character {
            'a'..='z' | '0'..='9' => slug.push(character),
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(MAX_SLUG);
    slug.trim_matches('-').to_string()
}

fn is_slug(text: &str) -> bool {
    !text.is_empty() && slug(text) == text
}

/// The digits that stand for a request's name: of SHA-256 over kind, instance and name, each but the last
/// ended by a NUL, the first 65 bits in base32.
fn key(kind: &str, instance: &str, name: &str) -> String {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(instance).chain_update([0]);
    base32(&hash.chain_update(name).finalize(), KEY_DIGITS)
}

/// Whether text is a key.
pub fn is_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && is_base32(text)
}

/// Digits for a name that is never used again.
///
/// # Errors
/// Those of getrandom(2).
pub fn draw() -> Result<String> {
    let mut bytes = [0; DRAWN_DIGITS * 5 / 8];
    random::fill(&mut bytes).map_err(|error| Error::io("draw a random number", &error))?;
    Ok(base32(&bytes, DRAWN_DIGITS))
}

/// Whether text is digits as [`draw`] gives them.
pub fn is_drawn(text: &str) -> bool {
    text.len() == DRAWN_DIGITS && is_base32(text)
}

fn is_base32(text: &str) -> bool {
    text.bytes().all(|byte| BASE32.contains(&byte))
}

/// The first `digits` digits of `bytes`, five bits each.
fn base32(bytes: &[u8], digits: usize) -> String {
    let bit = |at: usize| usize::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let digit = |number: usize| (0..5).fold(0, |value, at| value << 1 | bit(number * 5 + at));
    (0..digits).map(|number| char::from(BASE32[digit(number)])).collect()
}

/// The 16 digits that stand for a snapshot's name.
pub fn snapshot_digits(instance: &str, name: &str) -> String {
    digest(instance, name)[..16].to_string()
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
        assert!(is_digits(&snapshot_digits("default", "a")));
    }

    /// The format of the names that volumes have: it never changes.
    #[test]
    fn a_volume_is_named_after_its_request() {
        let names = [
            ("default", "a", "csi-vol-a-gciv3thahqwq4"),
            ("other", "a", "csi-vol-a-difvbqgsuik6z"),
            ("default", "pvc-1", "csi-vol-pvc-1-wmyridowt6hsf"),
            ("default", "Web Data (Prod)", "csi-vol-web-data-prod-bj5z7mezlpkim"),
            ("default", "a-very-long-volume-name", "csi-vol-a-very-long-volu-gdn5xpblxresh"),
            ("default", "データ", "csi-vol-jzjxr2pfdufas"),
            ("default", "--", "csi-vol-ekds42p5aaxah"),
        ];
        for (instance, name, object) in names {
            assert_eq!(volume_object(instance, name), object);
            let key = object.rsplit_once('-').unwrap().1;
            assert_eq!(volume_key(object), Some(key));
        }
        for other in [
            "gciv3thahqwq4",
            "csi-vol-gciv3thahqwq",
            "csi-vol-gciv3thahqwq1",
            "csi-vol--gciv3thahqwq4",
            "csi-vol-A-gciv3thahqwq4",
            "csi-vol-a--b-gciv3thahqwq4",
            "csi-vol-seventeen-letters-gciv3thahqwq4",
            "csi-vol-a-gciv3thahqwq4.",
        ] {
            assert_eq!(volume_key(other), None, "{other}");
        }
    }

    #[test]
    fn drawn_digits_differ() {
        let [one, other] = [draw().unwrap(), draw().unwrap()];
        assert!(is_drawn(&one) && is_drawn(&other) && one != other, "{one} {other}");
    }

    #[test]
    fn a_registered_object_says_where_wherever_it_lies() {
        let object = registered_object("default", "a", "names: all");
        let unregistered = volume_object("default", "a");
        let key = volume_key(&unregistered).unwrap();
        assert_eq!(registration(&object), Some((key, "names: all".to_string())));
        assert_eq!(volume_key(&object), Some(key));
        let elsewhere = Place { pool: "fast".into(), ..place() };
        assert_eq!(elsewhere.lock_key(&object), place().lock_key(&object));
        assert_ne!(elsewhere.key(&object), place().key(&object));
        for other in [&volume_object("default", "a"), "web.rbd", "csi-vol-1.rbd", &format!("{object}%zz")] {
            assert_eq!(registration(other), None, "{other}");
            assert_eq!(place().lock_key(other), place().key(other));
        }
    }
}
