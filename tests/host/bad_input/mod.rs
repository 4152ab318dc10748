//! A wrong request is refused with the name of its field, before anything is touched. Both protocols have the
//! same rules: the wrong values stand here once, and `v0` and `v1` put them into their own messages.

use crate::support::client::Answer;
use crate::support::machine::picture;
use crate::support::requests::mount;
use crate::support::{Code, Daemon, Failure, TestVolume, refused};

mod addons;
mod v0;
mod v1;

/// The field that the refusal must name, and the answer to a request with a wrong value in it.
type Case = (&'static str, Answer<()>);

/// Paths that are refused.
const PATHS: [&str; 10] = ["relative", "./x", "/", "//", "/a/../b", "/a/./b", "/a/..", "..", "/a\0b", "\0"];
/// Names that are refused: they have control characters.
const NO_NAMES: [&str; 4] = ["a\0b", "a\nb", "\u{7f}", "a\u{85}b"];
/// Any other text is a name, and different texts name different volumes.
const NAMES: [&str; 7] = ["../../etc/passwd", "a/b", "ü ÿ 漢", "%2e%2e", "-rf", "a:b@c", "."];
const MOUNT_FLAGS: [&str; 3] = ["", "a\0b", "a\nb"];
/// Wrong parameters, each behind the name or value that was meant.
const PARAMETERS: [(&str, (&str, &str)); 4] = [
    ("preallocate", ("preAllocate", "true")),
    ("preallocate", ("preallocate", "yes")),
    ("fstype", ("csi.storage.k8s.io/fstype", "vfat")),
    ("backend", ("backend", "rbd")),
];

/// Asserts that each request is refused by the name of the field, and that refusals change nothing. There is
/// one volume.
#[track_caller]
fn all_refused(ask: impl FnOnce(&Daemon, &str) -> Vec<Case>) {
    let daemon = Daemon::start();
    let id = TestVolume::create(&daemon, "one", 32, mount("ext4")).id;
    let before = picture(&daemon.local_dir());
    for (field, answer) in ask(&daemon, &id) {
        let marked =
            answer.map_err(|error| Failure { message: format!("{}, not {field}?", error.message), ..error });
        let said = refused(marked, Code::INVALID_ARGUMENT, &[]);
        assert!(said.trim_end_matches(&format!(", not {field}?")).contains(field), "{said}");
    }
    assert_eq!(picture(&daemon.local_dir()), before);
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

/// Asserts that these are the IDs of as many volumes as there are [`NAMES`].
#[track_caller]
fn assert_all_different(ids: &[String]) {
    let different: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(different.len(), NAMES.len(), "{ids:?}");
}
