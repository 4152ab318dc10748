//! A process that stays as long as there is work for it. The daemon talks to it over a socket.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::process::memory;
use super::starter::Starter;
use super::stream::{Keep, Stream};
use crate::sys::process::{Orphaned, isolate};

/// The pause between two checks whether the process has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// A program for an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// The interpreter.
    pub interpreter: &'a Path,
    /// The interpreter's options.
    pub options: &'a [&'a str],
    /// The text of the program, which is on no disk.
    pub text: &'a str,
    /// The environment, beside what every process gets.
    pub environment: &'a [(&'a str, &'a str)],
}

/// A running process. It keeps running when the daemon dies; it learns of that by the end of its input.
#[derive(Debug)]
pub struct Resident {
    child: Child,
    stderr: Stream,
}

impl Resident {
    /// Starts `script`, whose stdin is a socket, and returns the other end of it. The process keeps `held`
    /// open, and so holds the lock that belongs to it, until it is gone; its argument is the descriptor.
    pub(super) fn start(
        script: Script<'_>,
        search_path: &OsStr,
        held: &Arc<File>,
        starter: &Starter,
    ) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let program = memory("program", script.text.as_bytes(), 0)?;
        #[expect(clippy::disallowed_methods, reason = "processes are started in this module")]
        let mut command = Command::new(script.interpreter);
        let held = OwnedFd::from(held.try_clone()?);
        let path = OsString::from(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.args(script.options).arg(path).arg(held.as_raw_fd().to_string());
        command.current_dir("/").process_group(0);
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").env("PATH", search_path);
        command.envs(script.environment.iter().copied());
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        isolate(&mut command, Orphaned::GoesOn, vec![program, held]);
        let mut child = starter.spawn(command)?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = Stream::new(stderr.into(), Keep::Tail)?;
        Ok((Self { child, stderr }, ours))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something can be read from `socket`, for `timeout` at most. Returns whether it can. What
    /// the process writes to stderr meanwhile is read, so that it never waits for a reader.
    pub fn wait(&mut self, socket: &UnixStream, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
            fds.extend(self.stderr.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // poll(2) of open descriptors fails with EINTR only, and then nothing is marked ready.
            let polled = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
            let is_ready = polled.is_ok() && !fds[0].revents().is_empty();
            self.stderr.drain();
            if is_ready || left.is_zero() {
                return is_ready;
            }
        }
    }

    /// Waits until the process has ended, and kills it at `deadline`. Returns how it ended, if that is known,
    /// and the end of what it wrote to stderr.
    pub fn end(mut self, deadline: Instant) -> (Option<ExitStatus>, String) {
        while let Ok(None) = self.child.try_wait() {
            self.stderr.drain();
            if Instant::now() >= deadline {
                // An error means that it has ended.
                let _ = self.child.kill();
                break;
            }
            thread::sleep(PAUSE);
        }
        let status = self.child.wait().ok();
        self.stderr.drain();
        (status, self.stderr.take_text())
    }
}
