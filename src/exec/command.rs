//! A command to run, and what came out of it.

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::{CommandError, Tool};
use crate::call::Call;

/// How long a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Asks and changes nothing: 30 s.
    Question,
    /// Changes something and can be repeated: CEPHLET_TOOL_TIMEOUT.
    Change,
    /// Must not be broken off (mkfs, fsck, resize, flatten): no deadline, never killed.
    Unbounded,
}

/// A command line. Its arguments never hold secrets: they are logged and every user of the machine can see them.
#[derive(Clone, PartialEq, Eq)]
pub struct Cmd {
    pub(super) tool: Tool,
    pub(super) class: Class,
    pub(super) args: Vec<OsString>,
    pub(super) stdin: Vec<u8>,
}

impl Cmd {
    /// `tool` without arguments and with nothing to read.
    pub fn new(tool: Tool, class: Class) -> Self {
        Self { tool, class, args: Vec::new(), stdin: Vec::new() }
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

    /// The same, reading `bytes` from an anonymous file in memory: the place for secrets, also as `/proc/self/fd/0`.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }
}

/// As it would be typed: for logs, messages and the step of a call.
impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tool.file_name())?;
        self.args.iter().try_for_each(|arg| write_arg(f, arg))
    }
}

/// Without what is read from stdin, which may be a key.
impl fmt::Debug for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} `{self}` with {} bytes on stdin", self.class, self.stdin.len())
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

/// Runs commands. The seam at which tests put recorded answers.
pub trait Runner: Send + Sync {
    /// Runs `cmd` for `call` and waits for its end. The call's step becomes the command.
    ///
    /// # Errors
    /// Every way in which the command did not end with status 0.
    fn run(&self, call: &Call, cmd: &Cmd) -> Result<Output, CommandError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        let cmd = Cmd::new(Tool::MkfsExt4, Class::Unbounded).args(["-L", "two words"]).arg("").arg("/dev/loop3");
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
