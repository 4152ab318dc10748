//! Which volumes this command line has published on this node, and where.
//!
//! The command line is an orchestrator of its own, and like one it remembers what it asked for. A volume has
//! a directory below the runtime directory, which is gone after a boot as the mounts are: `mount` is its
//! staging path, `publication.json` the record. The record is written before the first thing is asked for and
//! removed after the last is unpublished. Commands on the same volume wait for each other by a lock on that
//! directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ids::{Place, VolumeId};
use crate::layout::Layout;
use crate::node_name::LOCAL;

/// What was asked for a volume on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicationRecord {
    /// The volume, as the operator wrote it first.
    pub volume_id: String,
    /// The node it was given to.
    pub node_id: String,
    /// The controller gave it to the node for reading only.
    pub read_only: bool,
    /// Where it is published.
    pub targets: Vec<String>,
}

/// The records of all volumes.
#[derive(Clone, Debug)]
pub struct Publications {
    layout: Layout,
}

/// The record of one volume, held by this process alone.
#[derive(Debug)]
pub struct Held {
    directory: PathBuf,
    // The lock lasts as long as the file is open.
    _lock: File,
}

impl Publications {
    /// The records in this layout.
    pub fn new(layout: Layout) -> Self {
        Self { layout }
    }

    /// The directory of a volume. An ID with and one without the incarnation mean the same volume; and so do
    /// the IDs of a local volume under every name of its node. An earlier release made a directory for each.
    fn directory_of(&self, volume_id: &str) -> PathBuf {
        let Some(id) = VolumeId::parse(volume_id) else { return self.layout.cli_staging(volume_id) };
        let directory = self.layout.cli_staging(&id.key());
        if id.place.backend != LOCAL || directory.exists() {
            return directory;
        }
        let anywhere = Place { cluster: String::new(), ..id.place };
        self.layout.cli_staging(&anywhere.key(&id.object))
    }

    /// Where a volume was published by this command line; empty if nowhere.
    pub fn targets(&self, volume_id: &str) -> Result<Vec<String>> {
        let record = read(&self.directory_of(volume_id))?;
        Ok(record.map(|record| record.targets).unwrap_or_default())
    }

    /// Waits until no other command works on this volume, and holds it.
    pub fn hold(&self, volume_id: &str) -> Result<Held> {
        let directory = self.directory_of(volume_id);
        loop {
            let failed =
                |error: &io::Error| Error::io(format!("create and lock {}", directory.display()), error);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(|error| failed(&error))?;
            let lock = File::open(&directory).map_err(|error| failed(&error))?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(&errno.into()))?;
            // Who held it before may have removed the directory: then the lock is on nothing.
            if is_same(&lock, &directory) {
                return Ok(Held { directory, _lock: lock });
            }
        }
    }
}

fn is_same(open: &File, path: &Path) -> bool {
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((open.metadata(), fs::metadata(path)), (Ok(open), Ok(there)) if identity(&open) == identity(&there))
}

impl Held {
    /// Where the volume is staged.
    pub fn staging_path(&self) -> PathBuf {
        self.directory.join("mount")
    }

    /// What was asked for; None if nothing was.
    pub fn read(&self) -> Result<Option<PublicationRecord>> {
        read(&self.directory)
    }

    /// Writes down what is asked for. Renamed into place: a crash leaves the old record or the new one.
    pub fn write(&self, publication: &PublicationRecord) -> Result<()> {
        let (path, new) = (record_path(&self.directory), self.directory.join("publication.new"));
        let text = serde_json::to_vec(publication).map_err(io::Error::from);
        let written =
            text.and_then(|text| File::create(&new)?.write_all(&text)).and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| Error::io(format!("write {}", path.display()), &error))
    }

    /// Removes the record and what was made for it, when everything has been unpublished. Never recursively:
    /// a staging path that is not empty is a volume that is still mounted.
    pub fn forget(self) -> Result<()> {
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let removed = |path: &Path, outcome: io::Result<()>| match outcome {
            Err(error) if !absent(&error) => Err(Error::io(format!("remove {}", path.display()), &error)),
            _ => Ok(()),
        };
        let (staging, record) = (self.staging_path(), record_path(&self.directory));
        removed(&staging, fs::remove_dir(&staging))?;
        removed(&record, fs::remove_file(&record))
    }
}

impl Drop for Held {
    /// A volume of which nothing is recorded leaves no directory. It is removed while it is still locked, and
    /// only here: whoever waits for it then finds out that its lock is on nothing.
    fn drop(&mut self) {
        // With a record or a staging path in it, it stays.
        let _ = fs::remove_dir(&self.directory);
    }
}

fn record_path(directory: &Path) -> PathBuf {
    directory.join("publication.json")
}

fn read(directory: &Path) -> Result<Option<PublicationRecord>> {
    let path = record_path(directory);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| Error::io(format!("read {}", path.display()), &error))?,
    };
    let damaged = |error| {
        Error::internal(format!(
            "{} is damaged: {error}; remove it, then unpublish the volume again",
            path.display()
        ))
    };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;

    const ID: &str = "local:n:::csi-vol-1:5f0c";

    fn scratch() -> (tempfile::TempDir, Publications) {
        let directory = tempfile::tempdir().unwrap();
        let publications = crate::cli::fake::publications(directory.path());
        (directory, publications)
    }

    fn published(targets: &[&str]) -> PublicationRecord {
        let targets = targets.iter().map(ToString::to_string).collect();
        PublicationRecord { volume_id: ID.into(), node_id: "n".into(), read_only: false, targets }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_forgotten_without_a_trace() {
        let (directory, publications) = scratch();
        let held = publications.hold(ID).unwrap();
        assert_eq!(held.read().unwrap(), None);
        held.write(&published(&["/a", "/b"])).unwrap();
        fs::create_dir(held.staging_path()).unwrap();
        assert_eq!(held.read().unwrap(), Some(published(&["/a", "/b"])));
        assert_eq!(publications.targets(ID).unwrap(), ["/a", "/b"]);
        held.forget().unwrap();
        assert_eq!(fs::read_dir(directory.path().join("staging")).unwrap().count(), 0);
        assert!(publications.targets(ID).unwrap().is_empty());
    }

    #[test]
    fn an_id_means_the_same_volume_with_and_without_its_incarnation() {
        let (_directory, publications) = scratch();
        publications.hold("rbd:main:p::disk:10309e725270").unwrap().write(&published(&["/a"])).unwrap();
        assert_eq!(publications.targets("rbd:main:p::disk").unwrap(), ["/a"]);
        assert!(publications.targets("rbd:main:p::disk2").unwrap().is_empty());
        assert!(publications.targets("no ID at all").unwrap().is_empty());
    }

    #[test]
    fn a_staging_path_in_use_is_never_emptied() {
        let (_directory, publications) = scratch();
        let held = publications.hold(ID).unwrap();
        held.write(&published(&["/a"])).unwrap();
        fs::create_dir(held.staging_path()).unwrap();
        let data = held.staging_path().join("data");
        fs::write(&data, "precious").unwrap();
        assert!(held.forget().unwrap_err().message().starts_with("remove "));
        assert!(data.exists());
        assert_eq!(publications.targets(ID).unwrap(), ["/a"], "the record stays for the next try");
    }

    #[test]
    fn who_waits_for_a_volume_gets_it_even_if_its_directory_was_removed_meanwhile() {
        let (_directory, publications) = scratch();
        let held = publications.hold(ID).unwrap();
        let (other, (sender, receiver)) = (publications.clone(), mpsc::channel());
        let waiter = std::thread::spawn(move || {
            sender.send(()).unwrap();
            other.hold(ID).unwrap().write(&published(&["/later"])).unwrap();
        });
        receiver.recv().unwrap();
        assert!(!waiter.is_finished(), "the volume is held");
        held.forget().unwrap();
        waiter.join().unwrap();
        assert_eq!(publications.targets(ID).unwrap(), ["/later"]);
    }

    #[test]
    fn a_damaged_record_is_named() {
        let (_directory, publications) = scratch();
        let held = publications.hold(ID).unwrap();
        fs::write(record_path(&held.directory), "{").unwrap();
        assert!(held.read().unwrap_err().message().contains("publication.json is damaged"));
    }
}
