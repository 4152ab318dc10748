//! How images and snapshots are called that are not volumes.

use crate::error::{Error, Result};

/// Copies that are being made: `csi-tmp-<digits of the volume>-<tag of the controller>`.
pub(crate) const TEMPORARY: &str = "csi-tmp-";
/// Deleted volumes whose snapshots live on: `csi-held-<image id>`.
pub(crate) const HELD: &str = "csi-held-";
/// Snapshots that were asked for: `csi-snap-<16 digits>`.
pub(crate) const SNAPSHOT: &str = "csi-snap-";
/// Snapshots that a volume is cloned from: `csi-copy-<digits of the new volume>-<tag of the controller>`.
pub(crate) const COPY: &str = "csi-copy-";

/// What a copy is called while `tag`'s controller makes it.
pub(crate) fn temporary(object: &str, tag: &str) -> String {
    format!("{TEMPORARY}{}-{tag}", digits(object))
}

/// What the snapshot is called from which `tag`'s controller copies a volume to `object`. With the tag none
/// takes away what another controller is cloning from: one that is there already is left over from an attempt
/// of our own.
pub(crate) fn passing(object: &str, tag: &str) -> String {
    format!("{COPY}{}-{tag}", digits(object))
}

/// The snapshot with these digits.
pub(crate) fn snapshot(digits: &str) -> String {
    format!("{SNAPSHOT}{digits}")
}

/// The digits of a snapshot that was asked for; None for others, even where they are called alike.
pub(crate) fn snapshot_digits(name: &str) -> Option<&str> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(SNAPSHOT).filter(|digits| digits.len() == 16 && digits.bytes().all(is_digit))
}

/// The digits of a volume's name.
fn digits(object: &str) -> &str {
    object.rsplit('-').next().unwrap_or(object)
}

/// Refuses as a volume what is none, though an ID may be written for it: a copy that is being made, a volume
/// that was deleted.
pub(crate) fn refuse_internal(name: &str) -> Result<()> {
    if name.starts_with(TEMPORARY) || name.starts_with(HELD) {
        return Err(Error::not_found(format!(
            "image {name:?} is no volume, it is for cephlet's own use: name a volume"
        )));
    }
    Ok(())
}
