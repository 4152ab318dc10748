//! System calls that can wait for storage, made in a process of their own.
//!
//! The helper is this same binary, started with the single argument [`HELPER_ARGUMENT`]: the request comes on
//! stdin, the reply goes to stdout, exit status 0. A thread of the daemon that hung in such a call could not
//! be abandoned. Even after `kill -9` it would keep everything open that the daemon has open, first of all
//! the lock of the state directory.
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

/// The single argument that makes the binary a helper.
pub const HELPER_ARGUMENT: &str = "@helper";

/// Asks a helper. Tests put recorded answers in its place.
pub trait Helper: Send + Sync {
    /// Sends `request` to another process and waits for the reply. `step` describes the work in words. The
    /// process keeps `held` open until its end, and so holds the lock of that file. A stand-in that starts no
    /// process holds nothing.
    ///
    /// # Errors
    /// Every way in which the helper did not answer. Its reply is a matter for the caller.
    fn ask(
        &self,
        call: &Call,
        step: &str,
        class: Class,
        request: &[u8],
        held: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError>;
}

/// The helper's side: reads the request, has it handled, writes the reply. Call it before anything is opened.
///
/// SIGTERM is ignored: no file system may stay frozen because the helper's deadline has passed or because
/// systemd stops the whole unit. A helper that does not end in its grace gets KILL.
pub fn serve(handle: impl FnOnce(&[u8]) -> Vec<u8>) -> ExitCode {
    ignore_terminate();
    match answer(&mut io::stdin().lock(), &mut io::stdout().lock(), handle) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln!, which panics if stderr has no reader.
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
