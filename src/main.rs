//! The binary: the daemon, its command line, and its helper.

use std::process::ExitCode;

use cephlet::{HELPER_ARGUMENT, handle, run, serve};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Before anything is opened or read: a helper is started while the daemon works, and has to answer to
    // nobody else.
    if arguments.len() == 1 && arguments.iter().all(|argument| argument == HELPER_ARGUMENT) {
        return serve(handle);
    }
    run(arguments)
}
