//! Every name that cephlet gives in a cluster, and how it is recognised. None of them may ever change: images
//! of these names exist.
//!
//! | name | of what |
//! |---|---|
//! | `csi-vol-<32 digits>` | the image of a volume (made in [`ids`]) |
//! | `csi-vol-<32 digits>.<pool>` | the same where topology chose its pool; its name is registered here |
//! | `csi-tmp-<32 digits>-<tag>` | a copy that the controller with this tag is making |
//! | `csi-held-<image id>` | a deleted volume, retained for its snapshots or clones |
//! | `csi-snap-<16 digits>` | a snapshot that was asked for |
//! | `csi-copy-<32 digits>-<tag>` | a transient snapshot, from which a volume is cloned |

use crate::error::{Error, Result};
use crate::ids::{self, VOLUME, VolumeId, is_hex};

/// The first field of IDs.
pub(crate) const NAME: &str = "rbd";

const TEMPORARY: &str = "csi-tmp-";
const RETAINED: &str = "csi-held-";
const SNAPSHOT: &str = "csi-snap-";
const TRANSIENT: &str = "csi-copy-";
/// How the snapshot begins from which rbd-mirror makes the first copy of an image with a journal. It goes
/// with what is replayed next; of a primary, when that copy is whole.
pub(crate) const FIRST_COPY: &str = ".rbd-mirror.";

/// The key in an image's metadata of its creation record. Keys without a leading dot are mirrored by
/// rbd-mirror.
pub(crate) const RECORD_KEY: &str = "cephlet.request";
/// The key of what was asked of a volume's replication.
pub(crate) const REPLICATION_KEY: &str = "cephlet.replication";
/// The key of which image of a volume that is mirrored by a journal was demoted last, by its id. The copy has
/// another id, and the same metadata once it has come so far.
pub(crate) const DEMOTED_KEY: &str = "cephlet.demoted";
/// What a copy has under it that was made of a volume that was demoted some day: no image has this id.
pub(crate) const NEVER_DEMOTED: &str = "none";
/// The key of the name that the image of a deleted volume had as one.
pub(crate) const OBJECT_KEY: &str = "cephlet.object";
/// How metadata keys begin that limit an image.
pub(crate) const LIMIT_KEY: &str = "conf_rbd_qos_";

/// What follows `prefix`, if that is so many hexadecimal digits.
fn digits_after<'a>(name: &'a str, prefix: &str, count: usize) -> Option<&'a str> {
    name.strip_prefix(prefix).filter(|digits| is_hex(digits) && digits.len() == count)
}

/// The controller's tag in `<prefix><32 digits>-<8 digits>`.
fn tag_after<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (volume, tag) = name.rsplit_once('-')?;
    digits_after(volume, prefix, 32)?;
    digits_after(tag, "", 8)
}

/// Whether an image of this name is a volume that cephlet made.
pub(crate) fn is_volume(name: &str) -> bool {
    digits_after(name, VOLUME, 32).is_some() || ids::registration(name).is_some()
}

/// What a copy is called while `tag`'s controller makes it.
pub(crate) fn temporary(object: &str, tag: &str) -> String {
    format!("{TEMPORARY}{}-{tag}", digits_of(object))
}

/// The tag of the controller that makes the copy of this name.
pub(crate) fn tag_of_temporary(name: &str) -> Option<&str> {
    tag_after(name, TEMPORARY)
}

/// The name of the deleted volume with the image id `image`, as long as it has snapshots.
pub(crate) fn retained(image: &str) -> String {
    format!("{RETAINED}{image}")
}

/// The image id in the name of a deleted volume that is retained.
pub(crate) fn id_of_retained(name: &str) -> Option<&str> {
    name.strip_prefix(RETAINED).filter(|id| is_hex(id))
}

/// Whether an image of this name was made by cephlet: only such images are removed without having been asked
/// for by name.
pub(crate) fn is_ours(name: &str) -> bool {
    is_volume(name) || tag_of_temporary(name).is_some() || id_of_retained(name).is_some()
}

/// Whether an image of this name is for cephlet's own use, and no volume to anybody, though an ID can be
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

/// The snapshot with these digits.
pub(crate) fn snapshot(digits: &str) -> String {
    format!("{SNAPSHOT}{digits}")
}

/// The digits of a snapshot that was asked for; None for others, even where they are called alike.
pub(crate) fn snapshot_digits(name: &str) -> Option<&str> {
    digits_after(name, SNAPSHOT, 16)
}

/// What the snapshot is called from which `tag`'s controller copies a volume to `object`. With the tag none
/// takes away what another controller is cloning from: one that is there already is left over from an attempt
/// of our own.
pub(crate) fn transient(object: &str, tag: &str) -> String {
    format!("{TRANSIENT}{}-{tag}", digits_of(object))
}

/// Whether a snapshot of this name was taken for a copy only, by a controller or by rbd-mirror.
pub(crate) fn is_transient(snapshot: &str) -> bool {
    tag_of_transient(snapshot).is_some() || snapshot.starts_with(FIRST_COPY)
}

/// The tag of the controller that took the transient snapshot of this name.
pub(crate) fn tag_of_transient(name: &str) -> Option<&str> {
    tag_after(name, TRANSIENT)
}

/// The name of the copy that is made from this transient snapshot.
pub(crate) fn temporary_from(transient: &str) -> String {
    transient.replacen(TRANSIENT, TEMPORARY, 1)
}

/// The transient snapshot that the copy of this temporary name is made from, if it is one of a volume.
pub(crate) fn transient_of(temporary: &str) -> String {
    temporary.replacen(TEMPORARY, TRANSIENT, 1)
}

/// The digits of a volume's name.
fn digits_of(object: &str) -> &str {
    let digits = object.strip_prefix(VOLUME).unwrap_or(object);
    digits.split_once('.').map_or(digits, |(digits, _)| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "0123456789abcdef0123456789abcdef";
    const TAG: &str = "00c0ffee";

    #[test]
    fn only_names_that_cephlet_gives_are_ours() {
        let volume = format!("csi-vol-{DIGITS}");
        assert!(is_ours(&volume) && is_ours(&temporary(&volume, TAG)) && is_ours("csi-held-10ab"));
        for other in [
            "web",
            "csi-vol-1",
            "csi-held-",
            "csi-held-web",
            "csi-tmp-x-00c0ffee",
            &format!("csi-tmp-{DIGITS}"),
        ] {
            assert!(!is_ours(other), "{other}");
        }
        assert_eq!(id_of_retained(&retained("10ab")), Some("10ab"));
    }

    #[test]
    fn a_copy_and_its_snapshot_tell_who_makes_it() {
        let volume = format!("csi-vol-{DIGITS}");
        let (copy, source) = (temporary(&volume, TAG), transient(&volume, TAG));
        assert_eq!(
            (copy.as_str(), source.as_str()),
            (
                "csi-tmp-0123456789abcdef0123456789abcdef-00c0ffee",
                "csi-copy-0123456789abcdef0123456789abcdef-00c0ffee"
            )
        );
        assert_eq!(tag_of_temporary(&copy), Some(TAG));
        let registered = format!("{volume}.eu-1");
        assert!(is_volume(&registered) && temporary(&registered, TAG) == copy);
        assert_eq!((temporary_from(&source), transient_of(&copy)), (copy.clone(), source.clone()));
        assert_eq!(tag_of_transient(&source), Some(TAG));
        assert_eq!(tag_of_transient("csi-copy-by-hand"), None);
        assert!(
            is_transient(&source) && is_transient(".rbd-mirror.7d1b") && !is_transient("csi-copy-by-hand")
        );
    }

    #[test]
    fn snapshots_that_are_only_called_alike_are_not_ours() {
        assert_eq!(snapshot_digits(&snapshot("0123456789abcdef")), Some("0123456789abcdef"));
        assert_eq!(snapshot_digits("csi-snap-0123456789ABCDEF"), None);
        assert_eq!(snapshot_digits("csi-snap-1"), None);
    }
}
