//! The digits in names: those that stand for a request's name, and random ones.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::sys::random;

/// How many digits a key has: 65 bits of the hash.
pub(super) const KEY_DIGITS: usize = 13;

/// How many random digits a name gets that is never used again: 40 bits.
pub(super) const DRAWN_DIGITS: usize = 8;

/// The digits of base32 (RFC 4648, section 6) in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The digits that stand for a request's name: the first 65 bits, in base32, of SHA-256 over kind, instance
/// and name. A NUL follows kind and instance.
pub(super) fn key(kind: &str, instance: &str, name: &str) -> String {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(instance).chain_update([0]);
    base32(&hash.chain_update(name).finalize(), KEY_DIGITS)
}

/// Whether the text is a key.
pub(super) fn is_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && is_base32(text)
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

/// Whether the text has the form of digits from [`draw`].
pub(super) fn is_drawn(text: &str) -> bool {
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
