//! The binary: the daemon, its command line, its helper, and the guard that becomes a tool.

use std::process::ExitCode;

use cephlet::{GUARD_ARGUMENT, HELPER_ARGUMENT, admit, become_tool, handle, run, serve};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Before anything is opened or read: a daemon at work starts a helper, which answers only to that daemon.
    if arguments.len() == 1 && arguments.iter().all(|argument| argument == HELPER_ARGUMENT) {
        return serve(handle);
    }
    if arguments.first().is_some_and(|argument| argument == GUARD_ARGUMENT) {
        return become_tool(&arguments, admit);
    }
    run(arguments)
}
