//! A tool that may start only if a condition still holds. This same binary checks it, in the process that
//! then becomes the tool, and the file that it opened for the check stays open until the tool ends. An
//! earlier check would leave a gap.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::sys::process::ignore_broken_pipes;

/// The first argument, which makes the binary become a tool. The condition, the tool and the tool's arguments
/// follow.
pub const GUARD_ARGUMENT: &str = "@guard";

/// The exit status if the tool did not start. No tool has it: those of e2fsck are bits, and 1 is a success.
pub const NOT_BEGUN: u8 = 125;

/// The arguments by which this binary becomes `program` if `guard` allows it.
pub(super) fn arguments(guard: &[u8], program: &Path, args: &[OsString]) -> Vec<OsString> {
    let own = [GUARD_ARGUMENT.into(), OsString::from_vec(guard.to_vec()), program.into()];
    own.into_iter().chain(args.iter().cloned()).collect()
}

/// Becomes the tool, if `admit` opens the file that is to stay open meanwhile. Returns only on failure.
pub fn become_tool(arguments: &[OsString], admit: impl FnOnce(&[u8]) -> Result<OwnedFd, String>) -> ExitCode {
    let [_, guard, program, args @ ..] = arguments else { return ExitCode::from(NOT_BEGUN) };
    let refusal = match admit(guard.as_encoded_bytes()) {
        Ok(held) => replace_process(program, args, &held).to_string(),
        Err(refusal) => refusal,
    };
    // Not eprintln!, which panics if stderr has no reader.
    let _ = writeln!(io::stderr(), "{refusal}");
    ExitCode::from(NOT_BEGUN)
}

#[expect(clippy::disallowed_methods, reason = "this process becomes the tool")]
fn replace_process(program: &OsStr, args: &[OsString], held: &OwnedFd) -> io::Error {
    if let Err(errno) = fcntl_setfd(held, FdFlags::empty()) {
        return errno.into();
    }
    let mut command = Command::new(program);
    ignore_broken_pipes(command.args(args));
    command.exec()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;

    use super::*;

    /// The child's side of the test below.
    #[test]
    #[ignore = "the process of `a_tool_begins_only_if_it_is_admitted`"]
    fn become_printf() {
        let mut arguments = arguments(b"held", Path::new("/bin/sh"), &["-c".into(), SCRIPT.into()]);
        let admit = |guard: &[u8]| match guard {
            b"held" => Ok(File::open("/etc/hostname").unwrap().into()),
            _ => Err("not today".to_string()),
        };
        if std::env::args().any(|arg| arg == "refuse_it") {
            arguments[1] = "other".into();
        }
        let _ = become_tool(&arguments, admit);
    }

    /// Prints how often it has the held file open, and which signals it ignores.
    const SCRIPT: &str = "readlink /proc/self/fd/* | grep -c /etc/hostname; grep SigIgn /proc/self/status";

    #[test]
    fn a_tool_begins_only_if_it_is_admitted() {
        let run = |more: &[&str]| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([
                "--exact",
                "exec::guard::tests::become_printf",
                "--include-ignored",
                "--nocapture",
            ]);
            command.args(more).output().unwrap()
        };
        let output = run(&[]);
        let said = String::from_utf8(output.stdout).unwrap();
        let ignored = said.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let broken_pipe = 1 << (libc::SIGPIPE - 1);
        assert!(said.contains("\n1\n"), "UNSAFE: what it works on is not held: {said}");
        assert_ne!(
            u64::from_str_radix(ignored.trim(), 16).unwrap() & broken_pipe,
            0,
            "UNSAFE: it can break off"
        );
        let refused = run(&["refuse_it"]);
        assert!(!String::from_utf8(refused.stdout).unwrap().contains("SigIgn"), "UNSAFE: it has begun");
        assert!(String::from_utf8(refused.stderr).unwrap().contains("not today"));
    }
}
