//! The session of a former daemon: it may still end what was under way. Until it is gone nothing is changed
//! in any cluster, as the session could undo the change or repeat one.
//!
//! A session has a file locked from its start to its end: flock(2), by the open file that the daemon hands
//! on. So the lock outlives the daemon, and a daemon that has the lock knows that no session is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::warn;
use parking_lot::Mutex;
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, pidfd_open, pidfd_send_signal,
};

use crate::dispatch::Call;
use crate::exec::Why;
use crate::sys::file;

/// A session has this long to end what is under way. librados waits for an OSD for 40 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the end of a killed process takes.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The lock that this daemon's sessions hold, once it is had.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: Arc<File>,
    is_had: Mutex<bool>,
    begun: Instant,
}

impl Lock {
    pub fn open(path: &Path) -> io::Result<Self> {
        path.parent().map_or(Ok(()), file::ensure_dir)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = Arc::new(file);
        Ok(Self { path: path.to_path_buf(), file, is_had: Mutex::new(false), begun: Instant::now() })
    }

    /// The locked file, for the session to keep open; None while a former session has the lock.
    pub fn file(&self) -> Option<&Arc<File>> {
        self.is_free().then_some(&self.file)
    }

    /// Waits until no session of a former daemon is left. One that takes too long is killed.
    ///
    /// # Errors
    /// There still is one; or the call had to end before.
    pub fn await_former(&self, call: &Call) -> Result<(), Why> {
        if self.is_free() {
            return Ok(());
        }
        let look = || Ok(self.is_free().then_some(()));
        let step = "waiting for the session of a former daemon to end";
        let patience = PATIENCE.saturating_sub(self.begun.elapsed());
        // An error means that the call ends, which its next step notices.
        if let Ok(Some(())) = call.wait_for(step, patience, PAUSE, look) {
            return Ok(());
        }
        if self.begun.elapsed() >= PATIENCE {
            self.kill();
        }
        match call.wait_for(step, AFTER_KILL, PAUSE, look) {
            Ok(Some(())) => Ok(()),
            _ => Err(Why::FormerRuns(self.path.clone())),
        }
    }

    fn is_free(&self) -> bool {
        let mut is_had = self.is_had.lock();
        *is_had = *is_had || self.file.try_lock().is_ok();
        *is_had
    }

    /// Kills the process that has the file locked for itself (fcntl(2)), which a session does first of all.
    fn kill(&self) {
        let holder = || -> io::Result<Option<Pid>> {
            let found = fcntl_getlk(&self.file, &Flock::from(FlockType::WriteLock))?;
            Ok(found.and_then(|lock| lock.pid))
        };
        let Ok(Some(pid)) = holder() else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The number means this process only if it holds the lock still.
        if holder().ok().flatten() == Some(pid) {
            warn!(
                "the session of a former daemon, process {}, does not end and is killed",
                pid.as_raw_nonzero()
            );
            // It fails where the process has ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}
