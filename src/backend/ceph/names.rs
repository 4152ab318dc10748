//! The names of snapshots, of images and of subvolumes. None of them may ever change: snapshots of these
//! names exist.
//!
//! | name | of what |
//! |---|---|
//! | `csi-snap-KEY-R` | a snapshot that was asked for; R is drawn, so the name is never used again |
//! | `csi-copy-TAG-KEY-R` | a transient snapshot, from which the controller with this tag copies a volume |

use crate::ids::{self, is_hex};

const SNAPSHOT: &str = "csi-snap-";
pub(crate) const TRANSIENT: &str = "csi-copy-";

/// The controller's tag in `PREFIX TAG-KEY-R`.
pub(crate) fn tag_after<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (tag, rest) = name.strip_prefix(prefix)?.split_once('-')?;
    (is_hex(tag) && tag.len() == 8 && ids::key_of_drawn(rest).is_some()).then_some(tag)
}

/// The name of the snapshot whose ID has this `KEY-R`.
pub(crate) fn snapshot(key_and_drawn: &str) -> String {
    format!("{SNAPSHOT}{key_and_drawn}")
}

/// `KEY-R` of a snapshot that was asked for; None for others, even if their names are similar.
pub(crate) fn in_snapshot(name: &str) -> Option<&str> {
    name.strip_prefix(SNAPSHOT).filter(|rest| ids::key_of_drawn(rest).is_some())
}

/// The name of the snapshot from which a volume with this `KEY-R` is copied.
pub(crate) fn transient(tag: &str, key_and_drawn: &str) -> String {
    format!("{TRANSIENT}{tag}-{key_and_drawn}")
}

/// The tag of the controller that took the transient snapshot of this name.
pub(crate) fn tag_of_transient(name: &str) -> Option<&str> {
    tag_after(name, TRANSIENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "abcdefghij234";
    const DRAWN: &str = "zyxw7654";

    #[test]
    fn snapshots_that_are_only_called_alike_are_not_ours() {
        let name = snapshot(&format!("{KEY}-{DRAWN}"));
        assert_eq!(name, "csi-snap-abcdefghij234-zyxw7654");
        assert_eq!(in_snapshot(&name), Some("abcdefghij234-zyxw7654"));
        for other in
            ["csi-snap-abcdefghij234", "csi-snap-1", "csi-snap-ABCDEFGHIJ234-zyxw7654", &format!("{name}-")]
        {
            assert_eq!(in_snapshot(other), None, "{other}");
        }
    }

    #[test]
    fn a_transient_snapshot_tells_who_took_it() {
        let name = transient("00c0ffee", &format!("{KEY}-{DRAWN}"));
        assert_eq!(name, "csi-copy-00c0ffee-abcdefghij234-zyxw7654");
        assert_eq!((tag_of_transient(&name), tag_of_transient("csi-copy-by-hand")), (Some("00c0ffee"), None));
    }
}
