//! The ways in which a process can fail, kept apart, and what each means to the caller of the plugin.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Tool;
use crate::dispatch::NoPermit;
use crate::error::{Cause, Error, Kind};

/// A command that gave no result.
#[derive(Debug)]
pub struct CommandError {
    /// The command line, or the step for which a helper was started.
    pub command: String,
    /// Why it gave none.
    pub why: Why,
}

/// Why a command gave no result.
#[derive(Debug)]
pub enum Why {
    /// The tool is not on this machine.
    NotFound {
        /// The tool.
        tool: Tool,
        /// The directories that were searched.
        searched: Vec<PathBuf>,
    },
    /// The system could not start it: the error of fork, exec or a descriptor for it.
    NotStarted(io::Error),
    /// It was not started. It waited this long for others to end, until the client's deadline passed, for
    /// longer than a command may take, or until its call could begin nothing any more
    /// ([`Call::only_while`](crate::dispatch::Call::only_while)).
    Expired(Duration),
    /// It was not started, because this many processes hang in the kernel.
    TooBusy(usize),
    /// The daemon is stopping: the command was not started, or was killed.
    Stopping,
    /// It ended with a status other than 0.
    Failed {
        /// Its exit status.
        status: i32,
        /// Everything from stdout: some tools complain there.
        stdout: Vec<u8>,
        /// The last 4 KiB from stderr.
        stderr_tail: String,
    },
    /// A signal ended it that the daemon had not sent.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// The last 4 KiB from stderr.
        stderr_tail: String,
    },
    /// Its deadline passed and it was killed.
    TimedOut {
        /// How long it ran.
        after: Duration,
        /// Whether it is gone. If not, it hangs in the kernel, and its volume stays locked until it is gone.
        reaped: bool,
        /// The last 4 KiB from stderr.
        stderr_tail: String,
    },
    /// The client's deadline passed. The command must not be killed and goes on; it has run this long. Its
    /// volume stays locked until it ends.
    StillRunning(Duration),
    /// A resident process did not answer in this time, and goes on. The volume stays locked until it answers.
    NoAnswer(Duration),
    /// A resident process died before it answered. What was asked of it may have been done.
    Died,
    /// The resident process of a former daemon still runs. It is killed in this time at the latest; or it was
    /// killed, this number, and does not end.
    FormerRuns(Duration, Option<i32>),
    /// It ended, but its exit status was taken elsewhere: the error of wait.
    StatusLost(io::Error),
    /// It wrote more bytes than are kept.
    TooMuchOutput(usize),
}

impl Why {
    /// Why this command gave no result.
    pub fn of(self, command: impl Into<String>) -> CommandError {
        CommandError { command: command.into(), why: self }
    }
}

impl From<NoPermit> for Why {
    fn from(refused: NoPermit) -> Self {
        match refused {
            NoPermit::Expired(waited) => Self::Expired(waited),
            NoPermit::Closed => Self::Stopping,
        }
    }
}

impl CommandError {
    /// The exit status, if the command ended by itself with one.
    pub fn status(&self) -> Option<i32> {
        match self.why {
            Why::Failed { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether it was started and has ended, so that a half-done change stays half done.
    pub fn has_ended(&self) -> bool {
        use Why::{Failed, Signaled, StatusLost, TimedOut, TooMuchOutput};
        matches!(
            self.why,
            Failed { .. }
                | Signaled { .. }
                | StatusLost(_)
                | TooMuchOutput(_)
                | TimedOut { reaped: true, .. }
        )
    }

    fn kind(&self) -> Kind {
        match &self.why {
            Why::NotFound { .. } => Kind::Precondition,
            Why::NotStarted(cause) => match cause.raw_os_error() {
                Some(
                    libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EDQUOT,
                ) => Kind::Unavailable,
                _ => Kind::Internal,
            },
            Why::TooBusy(_) | Why::Stopping | Why::Died | Why::FormerRuns(..) => Kind::Unavailable,
            Why::Expired(_) | Why::TimedOut { .. } | Why::StillRunning(_) | Why::NoAnswer(_) => Kind::Timeout,
            Why::Failed { .. } | Why::Signaled { .. } | Why::StatusLost(_) | Why::TooMuchOutput(_) => {
                Kind::Internal
            }
        }
    }

    fn cause(&self) -> Option<Cause> {
        match &self.why {
            Why::Failed { status, .. } => Some(Cause::Exit(*status)),
            Why::NotStarted(cause) | Why::StatusLost(cause) => cause.raw_os_error().map(Cause::Errno),
            _ => None,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, why } = self;
        match why {
            Why::NotFound { tool, searched } => write_not_found(f, *tool, searched),
            Why::NotStarted(cause) => write!(f, "`{command}` could not be started: {cause}"),
            Why::Expired(waited) => write!(
                f,
                "`{command}` was not started: its time was over after {} of waiting for others",
                Seconds(*waited)
            ),
            Why::TooBusy(stuck) => write!(
                f,
                "`{command}` was not started: {stuck} processes already hang in the kernel, so storage does \
                 not answer"
            ),
            Why::Stopping => write!(f, "`{command}` was not run to its end: cephlet is stopping"),
            Why::Failed { status, stdout, stderr_tail } => {
                let stdout = String::from_utf8_lossy(stdout);
                let line = last_line(stderr_tail).or_else(|| last_line(&stdout)).unwrap_or("no message");
                write!(f, "{line} (exit status {status} of `{command}`)")
            }
            Why::Signaled { signal, stderr_tail } => {
                let line = last_line(stderr_tail).unwrap_or("no message");
                write!(f, "{line} (signal {signal} ended `{command}`)")
            }
            Why::TimedOut { after, reaped, stderr_tail } => {
                write!(f, "`{command}` did not end within {} and was killed", Seconds(*after))?;
                write_last_words(f, *reaped, stderr_tail)
            }
            Why::StillRunning(after) => write!(
                f,
                "`{command}` goes on after {} and must not be broken off; the volume stays locked until it ends",
                Seconds(*after)
            ),
            Why::NoAnswer(after) => {
                write!(f, "`{command}` was not answered within {} and goes on", Seconds(*after))
            }
            Why::Died => {
                write!(f, "the session with Ceph clusters died before it answered `{command}`: try again")
            }
            Why::FormerRuns(left, killed) => write_former(f, command, *left, *killed),
            Why::StatusLost(cause) => write!(f, "`{command}` ended, but how is unknown: {cause}"),
            Why::TooMuchOutput(limit) => write!(f, "`{command}` wrote more than {limit} bytes"),
        }
    }
}

fn write_not_found(f: &mut fmt::Formatter<'_>, tool: Tool, searched: &[PathBuf]) -> fmt::Result {
    let places: Vec<_> = searched.iter().map(|place| place.display().to_string()).collect();
    write!(f, "{} was not found in {}: install {}", tool.file_name(), places.join(", "), tool.package())?;
    f.write_str(", or set CEPHLET_TOOL_PATH, and restart cephlet")
}

fn write_former(
    f: &mut fmt::Formatter<'_>,
    command: &str,
    left: Duration,
    killed: Option<i32>,
) -> fmt::Result {
    write!(f, "`{command}` was not run: the session with Ceph clusters of a former cephlet ")?;
    match (killed, Seconds(left)) {
        (None, left) => {
            write!(f, "is finishing its requests, and is killed in {left} at the latest: try again")
        }
        (Some(process), _) => write!(f, "hangs in the kernel: process {process} was killed and does not end"),
    }
}

fn write_last_words(f: &mut fmt::Formatter<'_>, reaped: bool, stderr_tail: &str) -> fmt::Result {
    if !reaped {
        f.write_str(
            "; it hangs in the kernel, and the volume stays locked until it is gone: look after the storage",
        )?;
    }
    last_line(stderr_tail).map_or(Ok(()), |line| write!(f, " (its last words: {line})"))
}

impl std::error::Error for CommandError {}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        let converted = Error::new(error.kind(), error.to_string());
        match error.cause() {
            Some(cause) => converted.caused_by(cause),
            None => converted,
        }
    }
}

/// A duration for people: `0.3 s`, `120.0 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

/// The last line that is not empty.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(stdout: &str, stderr: &str) -> CommandError {
        Why::Failed { status: 4, stdout: stdout.into(), stderr_tail: stderr.into() }
            .of("e2fsck -p /dev/loop3")
    }

    #[test]
    fn a_failure_keeps_the_last_line_the_status_and_the_command() {
        let error = Error::from(failed("ignored", "warning: x\nbad magic number \n\n"));
        assert_eq!(error.message(), "bad magic number (exit status 4 of `e2fsck -p /dev/loop3`)");
        assert_eq!((error.kind(), error.exit_status()), (Kind::Internal, Some(4)));
    }

    #[test]
    fn a_tool_that_complains_on_stdout_is_heard() {
        assert!(failed("run fsck manually\n", " \n").to_string().starts_with("run fsck manually ("));
        assert!(failed("", "").to_string().starts_with("no message ("));
    }

    #[test]
    fn an_unkillable_command_says_that_the_volume_stays_locked() {
        let after = Duration::from_millis(120_000);
        let why = Why::TimedOut { after, reaped: false, stderr_tail: String::new() };
        let message = Error::from(why.of("mkfs.xfs /dev/rbd0")).message().to_owned();
        assert!(message.contains("within 120.0 s") && message.contains("stays locked"), "{message}");
    }

    #[test]
    fn a_lack_of_resources_is_worth_a_retry() {
        let start = |errno| Error::from(Why::NotStarted(io::Error::from_raw_os_error(errno)).of("btrfs"));
        assert_eq!(
            (start(libc::EAGAIN).kind(), start(libc::EAGAIN).errno()),
            (Kind::Unavailable, Some(libc::EAGAIN))
        );
        assert_eq!(start(libc::ENOEXEC).kind(), Kind::Internal);
    }
}
