//! Every name that cephlet gives in a file system and its pools, and the names that it accepts. None of them
//! may ever change: subvolumes of these names exist.
//!
//! | name | of what |
//! |---|---|
//! | `csi-vol-[SLUG-]KEY-R` | the subvolume of a volume; R is drawn, so the name is never used again |
//! | `csi-snap-KEY-R` | a snapshot that was asked for |
//! | `csi-copy-TAG-KEY-R` | a transient snapshot, from which a volume is copied |
//! | `cephlet` | the namespace of the metadata pool in which the objects below are |
//! | `cephlet.volumes` | the [index](super::index): its keys: `GROUP/SUBVOLUME[@SNAPSHOT]` |
//! | `cephlet.vol.GROUP/SUBVOLUME` | the locks of a volume |
//! | `cephlet.name.KEY` | the claim of a volume's name; its tag is `GROUP/SUBVOLUME` |
//! | `cephlet/NODE` | a mount, as the metadata servers know its host; `cephlet/KEY` for a long name |
//! | `cephlet.snap.KEY` | the claim of a snapshot's name; its tag is `GROUP/SUBVOLUME@SNAPSHOT` |

pub(crate) use crate::backend::ceph::names::{in_snapshot, snapshot, tag_of_transient, transient};
use crate::backend::parameters::refused;
use crate::error::Result;
use crate::ids;

/// The first field of IDs.
pub(crate) const NAME: &str = "cephfs";

/// The namespace of the metadata pool for cephlet's own objects.
pub(crate) const NAMESPACE: &str = "cephlet";

/// The object that lists the volumes.
pub(crate) const INDEX: &str = "cephlet.volumes";

/// The group of new volumes whose parameters name none.
pub(crate) const USUAL_GROUP: &str = "csi";

/// How the name begins under which the metadata servers know cephlet's mounts.
pub(crate) const CLIENT: &str = "cephlet/";

/// The longest name of a host in bytes: `__NEW_UTS_LEN` of the kernel.
const LONGEST_HOST: usize = 64;

/// The name under which the metadata servers know the mounts of a node. It takes the place of the host's own
/// name, so that a controller recognizes the mounts of each node, and leaves those of others alone.
pub(crate) fn client_name(node: &str) -> String {
    match CLIENT.len() + node.len() <= LONGEST_HOST {
        true => format!("{CLIENT}{node}"),
        false => format!("{CLIENT}{}", ids::node_key(node)),
    }
}

/// The longest name of a subvolume, group or file system that is accepted. The manager keeps a file
/// `_GROUP:NAME.meta`.
const LONGEST: usize = 100;

/// Whether the manager can be asked about a subvolume, group or file system of this name. It takes `..`,
/// which breaks the whole file system, and fails on others in the middle of its work.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins_well && name.len() <= LONGEST && name.chars().all(is_known)
}

/// Refuses a parameter that is no [plain](is_plain) name.
pub(crate) fn plain(key: &str, value: &str) -> Result<String> {
    match is_plain(value) {
        true => Ok(value.to_string()),
        false => {
            let allowed = format_args!(
                "allowed are up to {LONGEST} letters, digits, '-', '_' and '.', with a letter or digit in front"
            );
            Err(refused(key, value, allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_break_a_file_system_are_refused() {
        for good in ["csi", "csi-vol-web-abcdefghij234-zyxw7654", "a", "0.A_b"] {
            assert!(is_plain(good), "{good}");
        }
        let long = "a".repeat(LONGEST + 1);
        for bad in
            ["", ".", "..", "a/b", "_nogroup", "-a", ".a", "a b", "a%b", "a:b", "a@b", "ä", "a\n", &long]
        {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
