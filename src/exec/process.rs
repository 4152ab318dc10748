//! One running process: how it is started, watched, signalled and waited for.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::Why;
use super::command::{Input, MemoryFile, Output};
use super::starter::Starter;
use super::stream::{Keep, Stream};
use crate::dispatch::Progress;
use crate::sys::process::{Orphaned, give_host_name, isolate};

/// How a process is started.
pub(super) struct Start<'a> {
    pub(super) program: &'a Path,
    /// The name of the process in `ps`.
    pub(super) name: &'a str,
    pub(super) args: &'a [OsString],
    pub(super) search_path: &'a OsStr,
    pub(super) stdin: &'a Input,
    pub(super) files: &'a [MemoryFile],
    pub(super) kept_open: Option<&'a Arc<File>>,
    /// The host name that it finds instead of the host's own.
    pub(super) host_name: Option<&'a str>,
    /// How much it may write to stdout, in bytes.
    pub(super) stdout_limit: usize,
    /// What happens to it when the daemon dies.
    pub(super) orphaned: Orphaned,
}

impl Start<'_> {
    #[expect(clippy::disallowed_methods, reason = "processes are started here")]
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(self.program);
        let files = self.files.iter().map(|file| memory("file", file.contents.reveal().as_bytes(), 0));
        let files = files.collect::<io::Result<Vec<OwnedFd>>>()?;
        command.arg0(self.name).args(self.arguments(&files)).current_dir("/");
        if self.orphaned != Orphaned::MayWriteNoMore {
            command.process_group(0);
        }
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").env("PATH", self.search_path);
        let stdin = if self.stdin.bytes.is_empty() {
            Stdio::null()
        } else {
            memory("stdin", &self.stdin.bytes, self.stdin.length)?.into()
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let kept_open = self.kept_open.map(|file| file.try_clone()).transpose()?.map(OwnedFd::from);
        isolate(&mut command, self.orphaned, files.into_iter().chain(kept_open).collect());
        if let Some(name) = self.host_name {
            give_host_name(&mut command, name);
        }
        Ok(command)
    }

    /// The arguments, with the paths by which the process finds its files.
    fn arguments(&self, files: &[OwnedFd]) -> Vec<Cow<'_, OsStr>> {
        let mut arguments: Vec<_> = self.args.iter().map(|arg| Cow::Borrowed(arg.as_os_str())).collect();
        for (file, fd) in self.files.iter().zip(files) {
            arguments[file.argument] = Cow::Owned(format!("/proc/self/fd/{}", fd.as_raw_fd()).into());
        }
        arguments
    }
}

/// An anonymous file in memory that holds `bytes`, and zeros up to `length`. Unlike a pipe it need not be
/// filled while the child writes, and it leaves no trace on a disk. It is close-on-exec, so no child that
/// another thread starts at this moment inherits it.
pub(super) fn memory(name: &str, bytes: &[u8], length: u64) -> io::Result<OwnedFd> {
    let fd = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the seal, later ones can be set up to require it (memfd_create(2)).
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC)?,
        other => other?,
    };
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.set_len(length.max(bytes.len() as u64))?;
    file.rewind()?;
    Ok(file.into())
}

/// Why a wait for a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The process has ended, and its status can be taken.
    Ended,
    /// The time is over.
    Time,
    /// The other descriptor is readable.
    Told,
}

/// A started process. It leads its own group; until it is reaped its number cannot be given to another.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
    stdout: Stream,
    stderr: Stream,
    started: Instant,
}

impl Process {
    pub(super) fn start(start: &Start<'_>, starter: &Starter) -> io::Result<Self> {
        let mut child = starter.spawn(start.command()?)?;
        let group = Pid::from_child(&child);
        Self::watch(&mut child, start.stdout_limit).map(|(pidfd, stdout, stderr)| Self {
            group,
            pidfd,
            stdout,
            stderr,
            child,
            started: Instant::now(),
        })
    }

    fn watch(child: &mut Child, stdout_limit: usize) -> io::Result<(OwnedFd, Stream, Stream)> {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let open = || {
            let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
            let stdout = Stream::new(stdout.ok_or_else(closed)?.into(), Keep::All(stdout_limit))?;
            let stderr = Stream::new(stderr.ok_or_else(closed)?.into(), Keep::Tail)?;
            Ok((pidfd_open(Pid::from_child(child), PidfdFlags::empty())?, stdout, stderr))
        };
        open().inspect_err(|_: &io::Error| {
            // Out of descriptors: the process has hardly begun, and it could not be watched.
            let _ = child.kill();
            let _ = child.wait();
        })
    }

    /// Reads what the process writes until it ends, until the time `until`, or until `told` is readable. What
    /// it writes of how far it is goes to `progress`.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        told: Option<BorrowedFd<'_>>,
        progress: &Progress,
    ) -> WaitEnd {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let ready = self.poll(told, left);
            self.stdout.drain();
            self.stderr.drain();
            self.stderr.percent().into_iter().for_each(|percent| progress.come_to(percent));
            match ready {
                Some(event) => return event,
                None if left.is_some_and(|left| left.is_zero()) => return WaitEnd::Time,
                None => {}
            }
        }
    }

    /// Waits for an event, or for `timeout`.
    fn poll(&self, told: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> Option<WaitEnd> {
        let mut fds = Vec::with_capacity(4);
        fds.push(PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN));
        fds.extend(told.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(self.pipes().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // poll(2) of a few open descriptors fails with EINTR only, and then nothing is marked ready.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        poll(&mut fds, timeout.as_ref()).ok()?;
        if !fds[0].revents().is_empty() {
            Some(WaitEnd::Ended)
        } else if told.is_some() && !fds[1].revents().is_empty() {
            Some(WaitEnd::Told)
        } else {
            None
        }
    }

    fn pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.stdout.fd(), self.stderr.fd()].into_iter().flatten()
    }

    /// Takes the status of a process that has ended, which frees its number.
    pub(super) fn reap(&mut self) {
        // An error means that the process is gone, and its status is lost.
        let _ = self.child.wait();
    }

    /// Signals the process, and the processes that it started and that stayed in its group.
    pub(super) fn signal_group(&self, signal: Signal) {
        // ESRCH: they are gone. The leader is not reaped yet, so the number cannot belong to another group.
        let _ = kill_process_group(self.group, signal);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stderr_tail(&mut self) -> String {
        self.stderr.take_text()
    }

    /// Takes the status of a process that has ended, and what it wrote.
    pub(super) fn finish(mut self, stdout_limit: usize) -> Result<Output, Why> {
        let status = self.child.wait().map_err(Why::StatusLost)?;
        let (stdout, stderr_tail) = (self.stdout.take(), self.stderr.take_text());
        match (status.code(), status.signal()) {
            (Some(0), _) if self.stdout.overflowed() => Err(Why::TooMuchOutput(stdout_limit)),
            (Some(0), _) => Ok(Output { stdout, stderr_tail }),
            (Some(status), _) => Err(Why::Failed { status, stdout, stderr_tail }),
            (None, signal) => Err(Why::Signaled { signal: signal.unwrap_or(0), stderr_tail }),
        }
    }
}
