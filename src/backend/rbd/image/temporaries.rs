//! Images that are not yet, or no longer, volumes: their names, and which of them somebody in this daemon
//! works on right now.

use std::collections::HashSet;

use parking_lot::{Condvar, Mutex};

use crate::backend::rbd::names::{HELD, TEMPORARY};

/// How the name of a volume begins.
const VOLUME: &str = "csi-vol-";

/// Names that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    names: Mutex<HashSet<String>>,
    freed: Condvar,
}

/// A name that is being worked on, until this is dropped.
#[derive(Debug)]
pub(crate) struct Working<'a> {
    all: &'a InProgress,
    name: String,
}

impl InProgress {
    /// Begins to work on a temporary image, after whoever works on it now: the sweep leaves it alone until
    /// the guard is dropped.
    pub fn begin(&self, name: &str) -> Working<'_> {
        let mut names = self.names.lock();
        while !names.insert(name.to_string()) {
            self.freed.wait(&mut names);
        }
        Working { all: self, name: name.to_string() }
    }

    /// The same, if nobody works on it now.
    pub fn try_begin(&self, name: &str) -> Option<Working<'_>> {
        let free = self.names.lock().insert(name.to_string());
        free.then(|| Working { all: self, name: name.to_string() })
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.all.names.lock().remove(&self.name);
        self.all.freed.notify_all();
    }
}

/// The tag of the controller that makes the copy of this name: `csi-tmp-<32 hex>-<8 hex>`.
pub(crate) fn maker(name: &str) -> Option<&str> {
    let (digits, tag) = name.strip_prefix(TEMPORARY)?.split_once('-')?;
    (is_hex(digits, 32) && is_hex(tag, 8)).then_some(tag)
}

/// The name of the deleted volume with the image id `image`, as long as its snapshots live.
pub(crate) fn held_name(image: &str) -> String {
    format!("{HELD}{image}")
}

/// The image id in the name of a deleted volume whose snapshots live on.
pub(crate) fn held_id(name: &str) -> Option<&str> {
    name.strip_prefix(HELD).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether an image of this name was made by cephlet: only such images are removed without having been asked
/// for by name.
pub(crate) fn is_ours(name: &str) -> bool {
    name.strip_prefix(VOLUME).is_some_and(|digits| is_hex(digits, 32))
        || maker(name).is_some()
        || held_id(name).is_some()
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn only_names_that_cephlet_gives_are_ours() {
        assert!(
            is_ours(&format!("csi-vol-{DIGITS}"))
                && is_ours(&format!("csi-tmp-{DIGITS}-00c0ffee"))
                && is_ours("csi-held-10ab")
        );
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
        assert_eq!(maker(&format!("csi-tmp-{DIGITS}-00c0ffee")), Some("00c0ffee"));
        assert_eq!(held_id(&held_name("10ab")), Some("10ab"));
    }

    #[test]
    fn one_works_on_a_name_at_a_time() {
        let all = InProgress::default();
        let first = all.begin("a");
        assert!(all.try_begin("a").is_none() && all.try_begin("b").is_some());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(all.begin("a")));
            drop(first);
            second.join().expect("it gets its turn");
        });
        assert!(all.try_begin("a").is_some());
    }
}
