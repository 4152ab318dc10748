//! The session of a former daemon may still be finishing requests. Until it is gone, this daemon changes
//! nothing in any cluster, as the session could undo the change or repeat one.
//!
//! A session has a file locked from its start to its end: flock(2), on an open file that it inherits from its
//! daemon. So the lock outlives the daemon, and a daemon that gets the lock knows that no session is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
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

/// How long a session may take to finish its requests. librados waits for an OSD for 40 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a killed process may take.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The lock that this daemon's sessions hold, once the daemon has acquired it.
#[derive(Debug)]
pub(super) struct Lock {
    file: Arc<File>,
    is_had: Mutex<bool>,
    begun: Instant,
}

impl Lock {
    pub fn open(path: &Path) -> io::Result<Self> {
        path.parent().map_or(Ok(()), file::ensure_dir)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = Arc::new(file);
        Ok(Self { file, is_had: Mutex::new(false), begun: Instant::now() })
    }

    /// The locked file, for the session to keep open; None while a former session holds the lock.
    pub fn file(&self) -> Option<&Arc<File>> {
        self.is_free().then_some(&self.file)
    }

    /// Waits until no session of a former daemon is left. A session that takes too long is killed.
    ///
    /// # Errors
    /// A session is still left, or the call had to end before.
    pub fn await_former(&self, call: &Call) -> Result<(), Why> {
        if self.is_free() {
            return Ok(());
        }
        let look = || Ok(self.is_free().then_some(()));
        let step = "waiting for the session of a former daemon to end";
        let left = || PATIENCE.saturating_sub(self.begun.elapsed());
        // An error means that the call ends, which its next step notices.
        if let Ok(Some(())) = call.wait_for(step, left(), PAUSE, look) {
            return Ok(());
        }
        let killed = if left().is_zero() { self.kill() } else { None };
        match call.wait_for(step, AFTER_KILL, PAUSE, look) {
            Ok(Some(())) => Ok(()),
            _ => Err(Why::FormerRuns(left(), killed.map(Pid::as_raw_pid))),
        }
    }

    fn is_free(&self) -> bool {
        let mut is_had = self.is_had.lock();
        *is_had = *is_had || self.file.try_lock().is_ok();
        *is_had
    }

    /// Kills the process that holds a record lock on the file (fcntl(2)), which a session takes first.
    fn kill(&self) -> Option<Pid> {
        let holder = || -> io::Result<Option<Pid>> {
            let found = fcntl_getlk(&self.file, &Flock::from(FlockType::WriteLock))?;
            Ok(found.and_then(|lock| lock.pid))
        };
        let pid = holder().ok()??;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The number still means this process only if it still holds the lock.
        holder().ok()?.filter(|holder| *holder == pid)?;
        warn!("the session of a former daemon, process {}, does not end and is killed", pid.as_raw_nonzero());
        // An error means that the process has ended.
        let _ = pidfd_send_signal(&process, Signal::KILL);
        Some(pid)
    }
}
