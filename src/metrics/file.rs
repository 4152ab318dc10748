//! The file. It is written under another name, which the node exporter ignores, and renamed.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use crate::sys::file;

/// The file.
pub(super) struct File {
    path: PathBuf,
    /// What was written last; None if that failed.
    written: Option<String>,
    is_failing: bool,
}

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), written: None, is_failing: false }
    }

    /// Replaces the content, if it is another. False if that failed, which is logged once.
    pub(super) fn write(&mut self, text: String) -> bool {
        if self.written.as_ref() == Some(&text) {
            return true;
        }
        let outcome = replace(&self.path, &text);
        if let (Err(error), false) = (&outcome, self.is_failing) {
            log::warn!("{} cannot be written, which is tried again: {error}", self.path.display());
        }
        self.is_failing = outcome.is_err();
        self.written = outcome.ok().map(|()| text);
        !self.is_failing
    }

    /// Removes the file, also one that was left by an earlier daemon.
    pub(super) fn remove(&self) {
        if let Err(error) = file::remove(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}

/// The directory may belong to another user. So no file that is there already is written to, and no symbolic
/// link is followed. A crash may lose the file, as the next daemon writes it at once.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("prom.new");
    file::remove(&unfinished)?;
    let mut new = file::create_new(&unfinished)?;
    let written = new
        .write_all(text.as_bytes())
        .and_then(|()| new.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| file::rename(&unfinished, path, RenameFlags::empty()));
    // A full disk gets its room back. What is left is removed by the next attempt.
    written.inspect_err(|_| drop(file::remove(&unfinished)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_reader_sees_whole_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cephlet.prom");
        let mut file = File::new(&path);
        let text = |number: usize| format!("{number}\n").repeat(10_000);
        assert!(file.write(text(0)));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                (1..500).for_each(|number| assert!(file.write(text(number))));
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                let found = fs::read_to_string(&path).unwrap();
                let first = found.lines().next().unwrap().to_string();
                assert!(found == format!("{first}\n").repeat(10_000), "{} bytes", found.len());
            }
        });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        file.remove();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_same_text_is_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cephlet.prom");
        let mut file = File::new(&path);
        assert!(file.write("a".into()));
        fs::remove_file(&path).unwrap();
        assert!(file.write("a".into()) && !path.exists());
        assert!(file.write("b".into()) && path.exists());
    }

    #[test]
    fn a_missing_directory_is_used_once_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("later");
        let mut file = File::new(&below.join("cephlet.prom"));
        assert!(!file.write("a".into()) && !file.write("a".into()));
        fs::create_dir(&below).unwrap();
        assert!(file.write("a".into()) && below.join("cephlet.prom").exists());
    }

    #[test]
    fn no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link, other] =
            ["cephlet.prom", "cephlet.prom.new", "other"].map(|name| directory.path().join(name));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(File::new(&path).write("a".into()));
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
    }
}
