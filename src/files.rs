//! The files that settings were read from, and whether one of them has changed since.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest file that is read: none of them should have more than a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// The files that were looked at, each with its state at that time.
#[derive(Debug, Default)]
pub struct Files(Vec<(PathBuf, Option<Stamp>)>);

/// The state of a file. It also changes when an editor puts another file in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Files {
    /// Reads a text file. Its state is noted first, so that a later check notices a change during the read.
    pub fn read(&mut self, path: &Path) -> Result<String, String> {
        let stamp = self.note(path);
        if stamp.is_some_and(|stamp| stamp.size > LARGEST) {
            return Err(format!("{} has more than {LARGEST} bytes", path.display()));
        }
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Whether the file exists.
    pub fn exists(&mut self, path: &Path) -> bool {
        self.note(path).is_some()
    }

    /// Whether any of the files has changed since. A file that was missing counts, too.
    pub fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }

    fn note(&mut self, path: &Path) -> Option<Stamp> {
        let stamp = Stamp::of(path);
        self.0.push((path.to_path_buf(), stamp));
        stamp
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Self { device: found.dev(), inode: found.ino(), size: found.size(), changed })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen_also_by_rename_and_of_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let read = || {
            let mut files = Files::default();
            let text = files.read(&path);
            (files, text)
        };
        let (files, text) = read();
        assert!(text.unwrap_err().contains("No such file") && !files.have_changed());
        fs::write(&path, "one").unwrap();
        assert!(files.have_changed());
        let (files, text) = read();
        assert!(text.as_deref() == Ok("one") && !files.have_changed());
        fs::write(dir.path().join("new"), "two").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(files.have_changed());
    }
}
