//! What runs, written down for the next daemon.
//!
//! A command goes on when its daemon is killed, and may do its work when the next daemon has already looked:
//! an `rbd rm` would remove what was made under the same name since. So each command that changes something
//! of locked objects has a file, a [`CommandRecord`], below the runtime directory:
//!
//! 1. The file is written: which command, which objects, until when it may run. Then it is locked (flock),
//!    and only then is the command started.
//! 2. Every process of the command inherits the file, and with it the lock. It is the only descriptor of the
//!    daemon that a child gets without having been given it by name.
//! 3. The command has ended: the file is removed.
//! 4. The daemon was killed before that: the next one finds the file. Where nobody holds its lock, the
//!    command has ended or never began, and the file is removed. Where somebody does, it is a
//!    [`Survivor`], and its objects stay locked until it has ended; if it is one of those that have a
//!    deadline, it is ended then.
//!
//! Nothing is synced: the runtime directory does not outlive a boot, and neither does a command.
//!
//! There is no record of a question, which changes nothing; of a call that has no object locked; and of a
//! command that leaves a process behind on purpose ([`Cmd::outliving`](super::Cmd::outliving)), which would
//! keep the lock for as long as its volume is in use: who maps images has locks of its own for that.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::sys::file;
use crate::sys::{flock, openers};

/// The version that is written.
const VERSION: u32 = 1;

/// What stands in the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    version: u32,
    command: String,
    objects: Vec<String>,
    /// Seconds since the boot; none for what must not be ended.
    until: Option<u64>,
}

/// The directory of the records of one daemon and those after it.
#[derive(Debug)]
pub(super) struct CommandRecords {
    directory: PathBuf,
    next: AtomicU64,
}

/// The record of a command that runs. Dropping it says that the command has ended.
#[derive(Debug)]
pub(super) struct CommandRecord {
    path: PathBuf,
    file: File,
}

impl CommandRecords {
    /// Makes the directory.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        file::ensure_dir(&directory)?;
        Ok(Self { directory, next: AtomicU64::new(0) })
    }

    /// Writes down that `command` is about to work on `objects`, for so long at most.
    pub(super) fn write(
        &self,
        command: &str,
        objects: Vec<String>,
        at_most: Option<Duration>,
    ) -> io::Result<CommandRecord> {
        let until = at_most.map(|time| (clock::since_boot() + time).as_secs());
        let contents = Contents { version: VERSION, command: command.into(), objects, until };
        let record = self.create()?;
        (&record.file).write_all(&serde_json::to_vec(&contents)?)?;
        // Whole before it is locked: nobody looks into a file that is not.
        flock::lock(&record.file)?;
        Ok(record)
    }

    fn create(&self) -> io::Result<CommandRecord> {
        loop {
            // Numbers that an earlier daemon gave may still be taken.
            let path = self.directory.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
            match file::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // Somebody has cleaned up below the runtime directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.directory.exists() => {
                    file::ensure_dir(&self.directory)?;
                }
                created => return created.map(|file| CommandRecord { path, file }),
            }
        }
    }
}

impl CommandRecord {
    /// The descriptor that the command is to inherit.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }
}

impl Drop for CommandRecord {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    if let Err(error) = file::remove(path) {
        log::warn!("{} stays: {error}", path.display());
    }
}

/// A command of an earlier daemon that still runs.
#[derive(Debug)]
pub struct Survivor {
    path: PathBuf,
    file: File,
    contents: Contents,
}

impl Survivor {
    /// Finds them by what earlier daemons wrote into `directory`; for a daemon that has started nothing yet.
    ///
    /// # Errors
    /// Those of reading the directory. A record that cannot be read is logged and passed over.
    pub fn find(directory: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            match Self::at(path.clone()) {
                Ok(survivor) => found.extend(survivor),
                Err(error) => log::error!(
                    "a command of an earlier cephlet still runs (`fuser -v {0}` shows it), but {0} does not \
                     tell what it works on: {error}. Operations on the same volume are not held up by it",
                    path.display()
                ),
            }
        }
        Ok(found)
    }

    fn at(path: PathBuf) -> io::Result<Option<Self>> {
        let file = File::open(&path)?;
        if flock::try_lock(&file)? {
            remove(&path);
            return Ok(None);
        }
        let contents: Contents = serde_json::from_reader(&file)?;
        if contents.version != VERSION {
            return Err(io::Error::other(format!("it is of version {}", contents.version)));
        }
        Ok(Some(Self { path, file, contents }))
    }

    /// The objects that it works on, by the keys of their locks.
    pub fn objects(&self) -> &[String] {
        &self.contents.objects
    }

    /// How much longer it may run; None if it must not be ended.
    pub fn time_left(&self) -> Option<Duration> {
        let until = Duration::from_secs(self.contents.until?);
        Some(until.saturating_sub(clock::since_boot()))
    }

    /// The command, and its processes.
    pub fn description(&self) -> String {
        let processes = self.processes().unwrap_or_default();
        let processes: Vec<String> = processes.iter().map(ToString::to_string).collect();
        format!("`{}` of an earlier daemon (process {})", self.contents.command, processes.join(", "))
    }

    /// Waits for the end of all its processes.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn await_end(&self) -> io::Result<()> {
        flock::lock(&self.file)?;
        remove(&self.path);
        Ok(())
    }

    /// Sends a signal to all its processes.
    ///
    /// # Errors
    /// Those of reading /proc; a process that has ended meanwhile is passed over.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        for process in self.processes()? {
            let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { continue };
            let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
                Err(Errno::SRCH) => continue,
                pidfd => pidfd?,
            };
            // The number may have been given to another process before there was a descriptor for it.
            if openers::is_writing(process, &self.file)? {
                // ESRCH: it has ended since.
                let _ = pidfd_send_signal(&pidfd, signal);
            }
        }
        Ok(())
    }

    /// The command has the record open for writing, as it was made; who only looks at it, as this process and
    /// what it is just about to start, has it for reading.
    fn processes(&self) -> io::Result<Vec<u32>> {
        openers::writing(&self.file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::sys::process::{Orphaned, isolate};

    fn objects() -> Vec<String> {
        vec!["rbd:main:vms::a".into(), "rbd:main:vms::b".into()]
    }

    /// A command whose daemon was killed: nobody else holds its record.
    fn orphan(directory: &Path, at_most: Option<Duration>) -> Child {
        let record =
            CommandRecords::open(directory.into()).unwrap().write("sleep 1000", objects(), at_most).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]).stdin(Stdio::null()).process_group(0);
        isolate(&mut command, Orphaned::GoesOn, vec![record.descriptor().unwrap()]);
        let child = command.spawn().unwrap();
        let kept = directory.join("kept");
        fs::hard_link(&record.path, &kept).unwrap();
        drop(record);
        fs::rename(kept, directory.join("0")).unwrap();
        child
    }

    /// Waits for the shell and what it starts, so that both are signalled.
    fn await_both(survivor: &Survivor) {
        while survivor.processes().unwrap().len() < 2 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_record_lives_as_long_as_its_command() {
        let dir = tempfile::tempdir().unwrap();
        let records = CommandRecords::open(dir.path().join("records")).unwrap();
        let files = || fs::read_dir(dir.path().join("records")).unwrap().count();
        let record = records.write("mkfs.ext4 /dev/rbd0", objects(), None).unwrap();
        let other = records.write("rbd rm a", objects(), Some(Duration::ZERO)).unwrap();
        assert_eq!(files(), 2);
        drop((record, other));
        assert_eq!(files(), 0);
    }

    #[test]
    fn records_of_what_has_ended_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Survivor::find(&dir.path().join("none")).unwrap().is_empty());
        fs::write(dir.path().join("0"), r#"{"version":1,"command":"rbd rm a","objects":[],"until":7}"#)
            .unwrap();
        fs::write(dir.path().join("1"), "{\"versi").unwrap();
        assert!(Survivor::find(dir.path()).unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_still_runs_is_found_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = orphan(dir.path(), Some(Duration::from_secs(100)));
        let survivors = Survivor::find(dir.path()).unwrap();
        let [survivor] = survivors.as_slice() else { panic!("{survivors:?}") };
        assert_eq!(survivor.objects(), objects());
        assert!(survivor.time_left().unwrap() > Duration::from_secs(90));
        assert!(
            survivor
                .description()
                .contains(&format!("`sleep 1000` of an earlier daemon (process {}", child.id()))
        );
        await_both(survivor);
        survivor.signal(Signal::TERM).unwrap();
        survivor.await_end().unwrap();
        assert!(child.wait().unwrap().code().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_must_not_be_ended_has_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = orphan(dir.path(), None);
        let survivors = Survivor::find(dir.path()).unwrap();
        assert_eq!(survivors[0].time_left(), None);
        await_both(&survivors[0]);
        survivors[0].signal(Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_record_of_a_later_version_holds_up_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0");
        fs::write(&path, r#"{"version":2,"command":"rbd rm a","objects":[],"until":null}"#).unwrap();
        let held = File::open(&path).unwrap();
        flock::lock(&held).unwrap();
        assert!(Survivor::find(dir.path()).unwrap().is_empty());
        assert!(path.exists());
    }

    #[test]
    fn numbers_that_are_taken_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0"), "").unwrap();
        let records = CommandRecords::open(dir.path().into()).unwrap();
        assert_eq!(records.write("rbd rm a", objects(), None).unwrap().path, dir.path().join("1"));
    }
}
