//! A command to run, and its output.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::sync::Arc;

use super::{CommandError, Tool};
use crate::dispatch::{Bulkhead, Call};
use crate::secrets::Secret;

/// How long a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A read-only question: 30 s. It is ended earlier when its client's deadline has passed, because no
    /// client waits for the answer.
    Question,
    /// Lists everything, and takes longer the more there is: ten minutes, or less, as for a question.
    Listing,
    /// Changes something and can be repeated: CEPHLET_TOOL_TIMEOUT, regardless of its client's deadline. If
    /// it were broken off, it would leave a half-made change, and locks that others wait for. So it gets the
    /// time to end properly, and the client asks again.
    Change,
    /// Can take any time (flatten, purge): no deadline, not even its client's. Only the end of the daemon
    /// breaks it off.
    Lasting,
    /// Must not be broken off (mkfs, fsck, resize): no deadline, never killed. It outlives its client, and
    /// the daemon.
    Unbounded,
}

impl Class {
    /// Whether it may run for hours.
    pub(super) fn is_lasting(self) -> bool {
        matches!(self, Self::Lasting | Self::Unbounded)
    }
}

/// A command line. Its arguments never hold secrets: they are logged and every user of the machine can see
/// them.
#[derive(Clone)]
pub struct Cmd {
    pub(super) tool: Tool,
    pub(super) class: Class,
    pub(super) args: Vec<OsString>,
    /// How many of the arguments, from the first on, say how to reach the cluster.
    pub(super) access_args: usize,
    pub(super) stdin: Input,
    pub(super) files: Vec<MemoryFile>,
    pub(super) bulkhead: Option<Bulkhead>,
    pub(super) outlives: bool,
    pub(super) guard: Option<Vec<u8>>,
    /// A file that the command keeps open without using it.
    pub(super) kept_open: Option<Arc<File>>,
    /// The host name that the command finds instead of the host's own.
    pub(super) host_name: Option<String>,
}

/// What a command reads from stdin, an anonymous file in memory.
#[derive(Clone, Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// The length of the file, if it is more than that of `bytes`.
    pub(super) length: u64,
}

impl From<&[u8]> for Input {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), length: 0 }
    }
}

/// A file in memory that a command reads by the path in one of its arguments.
#[derive(Clone)]
pub(super) struct MemoryFile {
    /// The index of the argument that is its path.
    pub(super) argument: usize,
    pub(super) contents: Secret,
}

impl Cmd {
    /// `tool` without arguments and without input.
    pub fn new(tool: Tool, class: Class) -> Self {
        let (args, stdin, files, bulkhead, guard, kept_open, host_name) = Default::default();
        let (access_args, outlives) = (0, false);
        Self { tool, class, args, access_args, stdin, files, bulkhead, outlives, guard, kept_open, host_name }
    }

    /// The same with one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// The same with more arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The same, with `bytes` as stdin, an anonymous file in memory. Secrets belong here; the command can
    /// also read them as `/proc/self/fd/0`.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin.bytes = bytes.into();
        self
    }

    /// The same, with a stdin of `length` bytes (stat(2)): its bytes, and then zeros that take no memory.
    #[must_use]
    pub fn stdin_length(mut self, length: u64) -> Self {
        self.stdin.length = length;
        self
    }

    /// The same with `option` and the path of an anonymous file in memory that holds `contents`. Keys belong
    /// here: they appear on no command line, in no log and on no disk.
    ///
    /// Logs and messages show the path as `/proc/self/fd/3`, then `4`. The process gets the number that the
    /// file has in the daemon: another number, set between fork and exec, could be that of the pipe by which
    /// a failed exec is reported.
    #[must_use]
    pub fn memory_file(mut self, option: &str, contents: Secret) -> Self {
        self.args.push(option.into());
        self.files.push(MemoryFile { argument: self.args.len(), contents });
        self.args.push(format!("/proc/self/fd/{}", 2 + self.files.len()).into());
        self
    }

    /// The same, counted among the commands of this cluster (CEPHLET_TOOLS), for a call that concerns several
    /// clusters, such as a list. Other commands count in the bulkhead of their call.
    #[must_use]
    pub fn within(mut self, bulkhead: Bulkhead) -> Self {
        self.bulkhead = Some(bulkhead);
        self
    }

    /// The same, but the command and the processes that it leaves behind outlive the daemon, even if all
    /// processes of the daemon's cgroup are ended with it.
    #[must_use]
    pub fn outliving(mut self) -> Self {
        self.outlives = true;
        self
    }

    /// The same, but the command starts only if [`become_tool`](super::become_tool) admits it by these bytes,
    /// which are no secret. Not for a command with files in memory.
    #[must_use]
    pub fn guarded(mut self, guard: Vec<u8>) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The same, but the command and the processes that it leaves behind keep this file open. So they hold
    /// its lock even after the daemon has died.
    #[must_use]
    pub fn keeping_open(mut self, file: &Arc<File>) -> Self {
        self.kept_open = Some(Arc::clone(file));
        self
    }

    /// The same, but the command and the processes that it leaves behind find this host name (uname(2)) of at
    /// most 64 bytes, where the daemon may give them one.
    #[must_use]
    pub fn host_name(mut self, name: &str) -> Self {
        self.host_name = Some(name.to_string());
        self
    }

    /// The same; the arguments so far say how to reach the cluster, and not what to do there.
    #[must_use]
    pub fn after_access(mut self) -> Self {
        self.access_args = self.args.len();
        self
    }

    /// The tool and the arguments that say what to do; None if one of them is not UTF-8.
    pub fn words(&self) -> Option<Vec<&str>> {
        let args = self.args[self.access_args..].iter().map(|arg| arg.to_str());
        [Some(self.tool.file_name())].into_iter().chain(args).collect()
    }

    /// How long it may take.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What the command reads from stdin.
    pub fn stdin_bytes(&self) -> &[u8] {
        &self.stdin.bytes
    }

    /// The contents of its files in memory, in the order of the arguments: for tests.
    #[cfg(test)]
    pub fn memory_files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.contents.reveal())
    }
}

/// The command as it would be typed: for logs, messages and the step of a call.
impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tool.file_name())?;
        self.args.iter().try_for_each(|arg| write_arg(f, arg))
    }
}

/// Without the content of stdin, which may be a key.
impl fmt::Debug for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} `{self}` with {} bytes on stdin", self.class, self.stdin.bytes.len())?;
        match self.files.len() {
            0 => Ok(()),
            count => write!(f, " and {count} in memory"),
        }
    }
}

fn write_arg(f: &mut fmt::Formatter<'_>, arg: &OsStr) -> fmt::Result {
    let text = arg.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+~^".contains(c);
    if !text.is_empty() && text.chars().all(plain) { write!(f, " {text}") } else { write!(f, " {text:?}") }
}

/// What a command that ended with status 0 has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Everything from stdout.
    pub stdout: Vec<u8>,
    /// The last 4 KiB from stderr.
    pub stderr_tail: String,
}

/// Runs commands. Tests put recorded answers in its place.
pub trait Runner: Send + Sync {
    /// Runs `cmd` for `call` and waits for its end. The call's step becomes the command.
    ///
    /// # Errors
    /// Every way in which the command did not end with status 0.
    fn run(&self, call: &Call, cmd: &Cmd) -> Result<Output, CommandError>;

    /// Whether `tool` is on this machine; starts nothing.
    ///
    /// # Errors
    /// [`Why::NotFound`](super::Why::NotFound) if it is not.
    fn has(&self, tool: Tool) -> Result<(), CommandError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        let cmd =
            Cmd::new(Tool::MkfsExt4, Class::Unbounded).args(["-L", "two words"]).arg("").arg("/dev/loop3");
        assert_eq!(cmd.to_string(), r#"mkfs.ext4 -L "two words" "" /dev/loop3"#);
    }

    #[test]
    fn control_characters_cannot_forge_a_log_line() {
        let cmd = Cmd::new(Tool::Btrfs, Class::Question).arg("a\nb");
        assert_eq!(cmd.to_string(), r#"btrfs "a\nb""#);
    }

    #[test]
    fn stdin_is_never_shown() {
        let cmd = Cmd::new(Tool::Btrfs, Class::Change).stdin("AQDkey==");
        assert_eq!(format!("{cmd:?}"), "Change `btrfs` with 8 bytes on stdin");
    }
}
