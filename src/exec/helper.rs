//! System calls that can wait for storage, made in a process of their own.
//!
//! The helper is this same binary, started with the single argument [`HELPER_ARGUMENT`]: the request comes on
//! stdin, the reply goes to stdout, exit status 0. A thread of the daemon that hung in such a call could not
//! be given up and would keep everything the daemon has open, the lock of the state directory first, even
//! after `kill -9`.
//!
//! The program is `/proc/self/exe`: between fork and exec the child still runs the daemon's own file, so the
//! helper is always of the daemon's version, even when an upgrade has replaced or removed that file; no
//! descriptor and no path need be kept for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use super::{Class, CommandError};
use crate::dispatch::Call;
use crate::sys::process::ignore_terminate;

/// The one argument by which the binary knows that it is a helper.
pub const HELPER_ARGUMENT: &str = "@helper";

/// Asks a helper. The seam at which tests put recorded answers.
pub trait Helper: Send + Sync {
    /// Has `request` served in another process and waits for the reply; `step` says in words what is done.
    ///
    /// # Errors
    /// Every way in which the helper did not answer. What it answers is the business of who asked.
    fn ask(&self, call: &Call, step: &str, class: Class, request: &[u8]) -> Result<Vec<u8>, CommandError>;

    /// The same by a process that keeps `held` open, and so holds the lock that belongs to it, until it is
    /// gone. A stand-in that starts no process holds nothing.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    fn ask_holding(
        &self,
        call: &Call,
        (step, class): (&str, Class),
        request: &[u8],
        _held: &Arc<File>,
    ) -> Result<Vec<u8>, CommandError> {
        self.ask(call, step, class, request)
    }
}

/// The helper's side: reads the request, has it handled, writes the reply. Call it before anything is opened.
///
/// SIGTERM is ignored: a file system half way between freeze and thaw must not be left so because its
/// deadline has passed or because systemd stops the whole unit. What does not end in its grace gets KILL.
pub fn serve(handle: impl FnOnce(&[u8]) -> Vec<u8>) -> ExitCode {
    ignore_terminate();
    match answer(&mut io::stdin().lock(), &mut io::stdout().lock(), handle) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln!, which panics when nobody reads.
            let _ = writeln!(io::stderr(), "helper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(
    input: &mut impl Read,
    output: &mut impl Write,
    handle: impl FnOnce(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let mut request = Vec::new();
    input.read_to_end(&mut request)?;
    output.write_all(&handle(&request))?;
    output.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_reply_answers_the_whole_request() {
        let (request, mut reply) = (vec![7; 100_000], Vec::new());
        answer(&mut request.as_slice(), &mut reply, |request| request.len().to_string().into_bytes())
            .unwrap();
        assert_eq!(reply, b"100000");
    }

    /// The child's side of the test that starts this test binary as a helper.
    #[test]
    #[ignore = "the helper process of `a_helper_is_this_binary_again`"]
    fn serve_as_helper() {
        assert!(std::env::args().any(|arg| arg == "--exact"), "it would have the other tests ignore SIGTERM");
        let _ = serve(|request| [b"<reply to ", request, b">"].concat());
    }
}
