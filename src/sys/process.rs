//! What a started process inherits from the daemon: nothing but its three standard descriptors.
//!
//! gRPC's core opens descriptors without close-on-exec, threads of libraries block signals, a supervisor may have left signals
//! ignored. A child that kept the lock of the state directory or a client's socket open would keep them alive after the daemon.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, getrlimit};

/// What a child meets when it writes and the daemon is no longer there to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenPipe {
    /// SIGPIPE ends it, as usual.
    Ends,
    /// The write fails with EPIPE and the child goes on: for work that must outlive the daemon.
    Ignored,
}

/// Makes `command` start a child that holds no descriptor above 2, blocks and ignores no signal, and has the usual umask.
///
/// The standard library itself empties the signal mask and resets SIGPIPE in the child (`do_exec` in std's unix `process`).
#[allow(unsafe_code)]
pub fn isolate(command: &mut Command, pipe: BrokenPipe) {
    let open_limit = getrlimit(Resource::Nofile).current;
    // SAFETY: the closure runs between fork and exec of a process with many threads; it calls only umask, signal, close_range and
    // fcntl, all async-signal-safe (signal-safety(7)), allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            reset_signals(pipe);
            // The daemon narrows its umask for a moment while it binds its socket.
            libc::umask(0o022);
            close_on_exec_above_stderr(open_limit);
            Ok(())
        });
    }
}

/// Gives every standard signal its default action: ignored ones would stay ignored across exec (signal(7)).
#[allow(unsafe_code)]
fn reset_signals(pipe: BrokenPipe) {
    for signal in 1..=31 {
        let ignore = signal == libc::SIGPIPE && pipe == BrokenPipe::Ignored;
        // SAFETY: signal(2) with a constant action touches no memory of ours; SIGKILL and SIGSTOP answer EINVAL, which is fine.
        unsafe { libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL }) };
    }
}

/// Marks every descriptor above 2 close-on-exec; the one by which std reports a failed exec must stay open until then.
#[allow(unsafe_code)]
fn close_on_exec_above_stderr(open_limit: Option<u64>) {
    // SAFETY: close_range(2) takes three integers and with CLOSE_RANGE_CLOEXEC closes nothing.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } == 0;
    if done {
        return;
    }
    mark_one_by_one(open_limit);
}

/// For Linux before 5.11, which does not know the flag: one by one, as far as descriptors can reach.
#[allow(unsafe_code)]
fn mark_one_by_one(open_limit: Option<u64>) {
    let end = open_limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(1 << 20).min(1 << 20);
    for fd in 3..end {
        // SAFETY: fcntl(2) with F_SETFD takes integers; a number that is not open answers EBADF.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Closes every descriptor above 2. For the first line of a process that was just started and has opened nothing yet.
#[allow(unsafe_code)]
pub fn close_inherited() {
    // SAFETY: the caller has opened nothing, so nobody in this process owns what is closed here.
    // A kernel without close_range(2) leaves them to close-on-exec, which the parent has set.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// From now on SIGTERM does not end this process.
#[allow(unsafe_code)]
pub fn ignore_terminate() {
    // SAFETY: signal(2) with a constant action.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Makes sure that ended children stay until they are waited for.
///
/// Who was started with SIGCHLD ignored loses its children's exit status (wait(2), "ECHILD").
///
/// # Errors
/// What signal(2) answers.
#[allow(unsafe_code)]
pub fn keep_ended_children() -> io::Result<()> {
    // SAFETY: signal(2) with a constant action; nobody in the daemon handles SIGCHLD.
    let former = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if former == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, unsafe_code)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::{FdFlags, fcntl_getfd};

    /// The lines of its own status that say which signals a child blocks and ignores.
    fn signals_of_child(pipe: BrokenPipe) -> String {
        let mut command = Command::new("grep");
        command.args(["-E", "^Sig(Blk|Ign):", "/proc/self/status"]);
        isolate(&mut command, pipe);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_child_blocks_and_ignores_no_signal() {
        // SAFETY: signal(2) with a constant action; nobody sends these to the test.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        let before = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(!before.contains("SigIgn:\t0000000000000000"), "the test itself must ignore one");
        assert_eq!(signals_of_child(BrokenPipe::Ends), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    }

    #[test]
    fn work_that_outlives_the_daemon_ignores_a_broken_pipe() {
        // SIGPIPE is 13, so bit 12.
        assert_eq!(signals_of_child(BrokenPipe::Ignored), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\n");
    }

    #[test]
    fn without_close_range_descriptors_are_marked_too() {
        let fd = open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!(fcntl_getfd(&fd).unwrap(), FdFlags::empty());
        mark_one_by_one(getrlimit(Resource::Nofile).current);
        assert_eq!(fcntl_getfd(&fd).unwrap(), FdFlags::CLOEXEC);
    }
}
