//! The names of objects: derived from the names of requests, and read from the right. Their digits stand for
//! a request's name, or are random.

use sha2::{Digest, Sha256};

use super::{decode, encode};
use crate::error::{Error, Result};
use crate::sys::random;

/// How many digits a key has: 65 bits of the hash.
pub(super) const KEY_DIGITS: usize = 13;

/// How many random digits a name gets that is never used again: 40 bits.
pub(super) const DRAWN_DIGITS: usize = 8;

/// The digits of base32 (RFC 4648, section 6) in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The prefix of the names of the objects of volumes.
pub const VOLUME: &str = "csi-vol-";

/// The length of the longest slug.
pub const MAX_SLUG: usize = 16;

/// The name of the object for a request's name, `csi-vol-[SLUG-]KEY`. Two controllers that get the same
/// request arrive at the same name.
pub fn volume_object(instance: &str, name: &str) -> String {
    let key = key("volume", instance, name);
    match slug(name) {
        slug if slug.is_empty() => format!("{VOLUME}{key}"),
        slug => format!("{VOLUME}{slug}-{key}"),
    }
}

/// The name of the object of [`volume_object`] where topology chooses the place, and the name is registered
/// in the pool `registry`. The object's name contains that pool, so that the volume's ID alone leads to the
/// registration, even without the object.
pub fn registered(object: &str, registry: &str) -> String {
    format!("{object}.{}", encode(registry))
}

/// What the names of the object of one volume have in common, wherever it is: `csi-vol-[SLUG-]KEY`. The
/// volume is known by the name of its request, or by the name of its object.
pub fn common_object(instance: &str, name: &str) -> String {
    match of_object(name) {
        Some((common, _)) => common.to_string(),
        None => volume_object(instance, name),
    }
}

/// Whether this is the name of a volume's object.
pub fn is_object(name: &str) -> bool {
    of_object(name).is_some()
}

/// The name of the object for a request's name where names are never used again, `csi-vol-[SLUG-]KEY-R`.
///
/// # Errors
/// Those of getrandom(2).
pub fn drawn_object(object: &str) -> Result<String> {
    Ok(format!("{object}-{}", draw()?))
}

/// The name without its random digits; None for a name that has none.
pub fn undrawn(object: &str) -> Option<&str> {
    let (undrawn, drawn) = object.rsplit_once('-')?;
    (is_digits(drawn, DRAWN_DIGITS) && unregistered_key(undrawn).is_some()).then_some(undrawn)
}

/// The key of an object whose name is registered, and the pool that it is registered in.
pub fn registration(object: &str) -> Option<(&str, String)> {
    let (named, registry) = object.split_once('.')?;
    let registry = decode(registry).filter(|registry| !registry.is_empty())?;
    Some((unregistered_key(named)?, registry))
}

/// The key in the name of a volume's object, with or without a registry; None for a name that cephlet gives
/// no volume.
pub fn volume_key(object: &str) -> Option<&str> {
    match object.contains('.') {
        true => registration(object).map(|(key, _)| key),
        false => unregistered_key(object),
    }
}

fn unregistered_key(object: &str) -> Option<&str> {
    slug_and_key(object).map(|(_, key)| key)
}

/// The slug, which may be empty, and the key in `csi-vol-[SLUG-]KEY`. The name is read from the right, as a
/// slug may look like a key.
fn slug_and_key(object: &str) -> Option<(&str, &str)> {
    let named = object.strip_prefix(VOLUME)?;
    let (slug, key) = named.rsplit_once('-').unwrap_or(("", named));
    let has_slug = named.len() > key.len();
    (is_digits(key, KEY_DIGITS) && (is_slug(slug) || !has_slug)).then_some((slug, key))
}

/// What the name of a volume's object has in common with the other names that it may have, and its slug.
fn of_object(object: &str) -> Option<(&str, &str)> {
    let common = match object.split_once('.') {
        Some((common, _)) => registration(object).map(|_| common)?,
        None => undrawn(object).unwrap_or(object),
    };
    slug_and_key(common).map(|(slug, _)| (common, slug))
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

/// The part of an object's name that operators recognise; often the name of its volume.
pub fn slug_of(object: &str) -> Option<&str> {
    of_object(object).map(|(_, slug)| slug)
}

/// Whether an object of this name belongs to the volume of a request with this name.
pub fn is_named(instance: &str, name: &str, object: &str) -> bool {
    of_object(object).is_some_and(|(common, _)| common == volume_object(instance, name))
}

fn is_slug(text: &str) -> bool {
    !text.is_empty() && slug(text) == text
}

/// The key of a snapshot's name in its request.
pub fn snapshot_key(instance: &str, name: &str) -> String {
    key("snapshot", instance, name)
}

/// The key of a node's name, where the name itself is too long.
pub fn node_key(node: &str) -> String {
    key("node", "", node)
}

/// The key in `KEY-R`; None for other text.
pub fn key_of_drawn(text: &str) -> Option<&str> {
    let (key, drawn) = text.split_once('-')?;
    (is_digits(key, KEY_DIGITS) && is_digits(drawn, DRAWN_DIGITS)).then_some(key)
}

/// The digits that stand for a request's name: the first 65 bits, in base32, of SHA-256 over kind, instance
/// and name. A NUL follows kind and instance.
pub(super) fn key(kind: &str, instance: &str, name: &str) -> String {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(instance).chain_update([0]);
    base32(&hash.chain_update(name).finalize(), KEY_DIGITS)
}

/// Random digits for a name that is never used again.
///
/// # Errors
/// Those of getrandom(2).
pub fn draw() -> Result<String> {
    let mut bytes = [0; DRAWN_DIGITS * 5 / 8];
    random::fill(&mut bytes).map_err(|error| Error::io("draw a random number", &error))?;
    Ok(base32(&bytes, DRAWN_DIGITS))
}

/// Whether the text is `count` digits, as a key is, and what [`draw`] returns.
pub(super) fn is_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| BASE32.contains(&byte))
}

/// The first `digits` digits of `bytes`, five bits each.
fn base32(bytes: &[u8], digits: usize) -> String {
    let bit = |at: usize| usize::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let digit = |number: usize| (0..5).fold(0, |value, at| value << 1 | bit(number * 5 + at));
    (0..digits).map(|number| char::from(BASE32[digit(number)])).collect()
}
