//! Every name that cephlet gives to images and their snapshots, and how it is recognised. None of them may
//! ever change: images of these names exist.
//!
//! | name | of what |
//! |---|---|
//! | `csi-vol-[SLUG-]KEY` | the image of a volume (made in [`ids`]) |
//! | `csi-vol-[SLUG-]KEY.REGISTRY` | the same where topology chose its pool; REGISTRY has its name |
//! | `csi-tmp-TAG-KEY-R` | a copy that the controller with this tag is making, with R drawn for the attempt |
//! | `csi-held-<image id>` | a deleted volume that is large or still needed; removed in the background |
//! | `csi-snap-KEY-R` | a snapshot that was asked for; R is drawn, so the name is never used again |
//! | `csi-copy-TAG-KEY-R` | a transient snapshot, from which a volume is cloned |

use crate::backend::ceph::names::{TRANSIENT, tag_after, tag_of_transient};
pub(crate) use crate::backend::ceph::names::{in_snapshot, snapshot};
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId, is_hex};

/// The first field of IDs.
pub(crate) const NAME: &str = "rbd";

const TEMPORARY: &str = "csi-tmp-";
const RETAINED: &str = "csi-held-";
/// The prefix of the snapshot from which rbd-mirror makes the first copy of an image with a journal. On the
/// copy, the next replay removes it; on the primary, it is removed when that copy is whole.
pub(crate) const FIRST_COPY: &str = ".rbd-mirror.";

/// The metadata key of an image's creation record. rbd-mirror mirrors keys without a leading dot.
pub(crate) const RECORD_KEY: &str = "cephlet.request";
/// The key of the terms of a volume's replication.
pub(crate) const REPLICATION_KEY: &str = "cephlet.replication";
/// The key of the id of the image that was demoted last, of a volume that is mirrored by a journal. The copy
/// has another id, and the same metadata once the journal was replayed that far.
pub(crate) const DEMOTED_KEY: &str = "cephlet.demoted";
/// The value of [`DEMOTED_KEY`] in a clone of a volume that was ever demoted. No image has this id.
pub(crate) const NEVER_DEMOTED: &str = "none";
/// The key of the name that the image of a deleted volume had as a volume.
pub(crate) const OBJECT_KEY: &str = "cephlet.object";
/// The prefix of the metadata keys that limit an image.
pub(crate) const LIMIT_KEY: &str = "conf_rbd_qos_";

/// Whether an image of this name is a volume that cephlet made.
pub(crate) fn is_volume(name: &str) -> bool {
    ids::volume_key(name).is_some()
}

/// The name of a copy while the controller with this tag makes it, in the attempt for which `drawn` was
/// drawn.
pub(crate) fn temporary(object: &str, tag: &str, drawn: &str) -> String {
    format!("{TEMPORARY}{tag}-{}-{drawn}", ids::volume_key(object).unwrap_or(object))
}

/// The tag of the controller that makes the copy of this name.
pub(crate) fn tag_of_temporary(name: &str) -> Option<&str> {
    tag_after(name, TEMPORARY)
}

/// The name of the deleted volume with the image id `image`, until it is removed.
pub(crate) fn retained(image: &str) -> String {
    format!("{RETAINED}{image}")
}

/// The image id in the name of a deleted volume that is retained.
pub(crate) fn id_of_retained(name: &str) -> Option<&str> {
    name.strip_prefix(RETAINED).filter(|id| is_hex(id))
}

/// Whether an image of this name is for cephlet's own use. Such an image is no volume, though an ID can be
/// written for it.
pub(crate) fn is_internal(name: &str) -> bool {
    name.starts_with(TEMPORARY) || name.starts_with(RETAINED)
}

/// Refuses cephlet's internal images as volumes.
pub(crate) fn refuse_internal(id: &VolumeId) -> Result<()> {
    if is_internal(&id.object) {
        return Err(Error::not_found(format!(
            "image {:?} is no volume, it is for cephlet's own use: name a volume",
            id.object
        )));
    }
    Ok(())
}

/// The name of the snapshot from which the copy of this temporary name is made.
pub(crate) fn transient(temporary: &str) -> String {
    temporary.replacen(TEMPORARY, TRANSIENT, 1)
}

/// Whether a snapshot of this name was taken for a copy only, by a controller or by rbd-mirror.
pub(crate) fn is_transient(snapshot: &str) -> bool {
    tag_of_transient(snapshot).is_some() || snapshot.starts_with(FIRST_COPY)
}

/// The name of the copy that is made from this transient snapshot.
pub(crate) fn temporary_from(transient: &str) -> String {
    transient.replacen(TRANSIENT, TEMPORARY, 1)
}

/// The refusal of a name that is taken, though it was drawn for this attempt.
pub(crate) fn drawn_is_taken(name: &str) -> Error {
    Error::unavailable(format!("{name} is there already, though its name was just drawn: try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "abcdefghij234";
    const TAG: &str = "00c0ffee";
    const DRAWN: &str = "zyxw7654";

    #[test]
    fn only_names_that_cephlet_gives_are_ours() {
        let is_ours = |name: &str| {
            is_volume(name) || tag_of_temporary(name).is_some() || id_of_retained(name).is_some()
        };
        let volume = format!("csi-vol-web-{KEY}");
        assert!(is_ours(&volume) && is_ours(&temporary(&volume, TAG, DRAWN)) && is_ours("csi-held-10ab"));
        for other in [
            "web",
            "csi-vol-1",
            "csi-held-",
            "csi-held-web",
            "csi-tmp-00c0ffee-x-zyxw7654",
            &format!("csi-tmp-{TAG}-{KEY}"),
            &format!("csi-tmp-{TAG}-{KEY}-{DRAWN}x"),
            &format!("csi-tmp-{KEY}-{TAG}-{DRAWN}"),
        ] {
            assert!(!is_ours(other), "{other}");
        }
        assert_eq!(id_of_retained(&retained("10ab")), Some("10ab"));
    }

    #[test]
    fn a_copy_and_its_snapshot_tell_who_makes_it() {
        let volume = format!("csi-vol-{KEY}");
        let copy = temporary(&volume, TAG, DRAWN);
        let source = transient(&copy);
        assert_eq!(
            (copy.as_str(), source.as_str()),
            ("csi-tmp-00c0ffee-abcdefghij234-zyxw7654", "csi-copy-00c0ffee-abcdefghij234-zyxw7654")
        );
        assert_eq!(tag_of_temporary(&copy), Some(TAG));
        for same in [format!("{volume}.eu-1"), format!("csi-vol-web-{KEY}"), format!("csi-vol-a-b-{KEY}.eu")]
        {
            assert!(is_volume(&same) && temporary(&same, TAG, DRAWN) == copy, "{same}");
        }
        assert_eq!(temporary_from(&source), copy);
        assert_eq!(tag_of_transient(&source), Some(TAG));
        assert_eq!(tag_of_transient("csi-copy-by-hand"), None);
        assert!(
            is_transient(&source) && is_transient(".rbd-mirror.7d1b") && !is_transient("csi-copy-by-hand")
        );
    }
}
