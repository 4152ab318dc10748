//! Processes: what a started one inherits, and which run.
//!
//! What a started process inherits from the daemon: only its three standard descriptors, and the descriptors
//! that are meant for it.
//!
//! gRPC's core opens descriptors without close-on-exec, threads of libraries block signals, a supervisor may
//! have left signals ignored. A child that kept the lock of the state directory or a client's socket open
//! would keep them alive after the daemon.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use super::ceph::take_host_name;

/// The last realtime signal of Linux (signal(7)).
const LAST_SIGNAL: i32 = 64;

/// What happens to a child when the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphaned {
    /// It goes on in a session of its own, which no terminal ends. SIGPIPE ends it when it writes to a pipe
    /// without a reader, as usual.
    MayWriteNoMore,
    /// Such a write fails with EPIPE and the child goes on: for work that must outlive the daemon.
    GoesOn,
    /// The kernel kills it as soon as the thread that started it ends. Use a thread that lives as long as the
    /// daemon.
    Dies,
}

/// Gives this process, and all that it starts, the usual umask: umask(2).
pub fn set_usual_umask() {
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o022));
}

/// Makes `command` start a child that blocks and ignores no signal, has the usual umask, and holds no
/// descriptor above 2 except those in `keep`, under the same numbers. `keep` stays open here as long as
/// `command` lives; no other child inherits it.
///
/// The standard library itself empties the signal mask and resets SIGPIPE in the child (`do_exec` in std's
/// unix `process`).
#[allow(unsafe_code)]
pub fn isolate(command: &mut Command, orphaned: Orphaned, keep: Vec<OwnedFd>) {
    let daemon = getpid();
    // SAFETY: the closure runs between fork and exec of a process with many threads; it calls only umask,
    // signal, close_range, fcntl, prctl, setsid and getppid, all async-signal-safe or plain system calls
    // (signal-safety(7)), allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            reset_signals(orphaned);
            match orphaned {
                Orphaned::Dies => die_with(daemon)?,
                Orphaned::MayWriteNoMore => drop(setsid()?),
                Orphaned::GoesOn => {}
            }
            // The daemon narrows its umask for a moment while it binds its socket.
            libc::umask(0o022);
            close_on_exec_above_stderr()?;
            keep.iter().try_for_each(|fd| Ok(fcntl_setfd(fd, FdFlags::empty())?))
        });
    }
}

/// Gives every signal its default action: ignored ones would stay ignored across exec (signal(7)).
#[allow(unsafe_code)]
fn reset_signals(orphaned: Orphaned) {
    for signal in 1..=LAST_SIGNAL {
        let ignore = signal == libc::SIGPIPE && orphaned == Orphaned::GoesOn;
        // SAFETY: signal(2) with a constant action touches no memory of ours; SIGKILL, SIGSTOP and
        // those that libc keeps for itself (32 to 34) answer EINVAL, which is fine.
        unsafe { libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL }) };
    }
}

/// Makes writes of `command` to a pipe without a reader fail with EPIPE, as for [`Orphaned::GoesOn`]. The
/// standard library resets SIGPIPE before every exec.
#[allow(unsafe_code)]
pub fn ignore_broken_pipes(command: &mut Command) {
    // SAFETY: between fork or not and exec; signal(2) is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        });
    }
}

/// Makes `command` start a child with this host name; with the host's own where a sandbox forbids that.
#[allow(unsafe_code)]
pub fn give_host_name(command: &mut Command, name: &str) {
    let name = name.to_string();
    // SAFETY: between fork and exec; unshare(2) and sethostname(2) are plain system calls, and nothing
    // allocates.
    unsafe {
        command.pre_exec(move || {
            let _ = take_host_name(&name);
            Ok(())
        });
    }
}

/// Makes the kernel kill this process when its parent dies. The parent is `parent`, unless that is dead
/// already: prctl(2), "PR_SET_PDEATHSIG".
fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // This error allocates nothing.
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

/// Marks every descriptor above 2 close-on-exec; the pipe by which std reports a failed exec must stay open
/// until the exec.
#[allow(unsafe_code)]
fn close_on_exec_above_stderr() -> io::Result<()> {
    // SAFETY: close_range(2) takes three integers and with CLOSE_RANGE_CLOEXEC (Linux 5.11) closes nothing.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on SIGTERM does not end this process.
#[allow(unsafe_code)]
pub fn ignore_terminate() {
    // SAFETY: signal(2) with a constant action.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Makes sure that ended children stay until they are waited for.
///
/// A process that was started with SIGCHLD ignored loses its children's exit status (wait(2), "ECHILD").
///
/// # Errors
/// Those of signal(2).
#[allow(unsafe_code)]
pub fn keep_ended_children() -> io::Result<()> {
    // SAFETY: signal(2) with a constant action; nobody in the daemon handles SIGCHLD.
    let former = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if former == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A process of the program with this name, at most 15 bytes long, and with this last argument; also while
/// systemd-run(1) is about to become it.
pub fn of_tool(name: &str, last_argument: &OsStr) -> Option<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.find(|process| {
        // Unlike the name, the arguments are read from the memory of the process, and that can hang.
        let has_name = fs::read_to_string(format!("/proc/{process}/comm"))
            .is_ok_and(|comm| [name, "systemd-run"].contains(&comm.trim_end()));
        has_name
            && fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| is_last(&line, last_argument))
    })
}

/// Each argument ends with a zero byte: proc_pid_cmdline(5).
fn is_last(line: &[u8], argument: &OsStr) -> bool {
    let before = line.strip_suffix(b"\0").and_then(|line| line.strip_suffix(argument.as_encoded_bytes()));
    before.is_some_and(|before| before.ends_with(b"\0"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, unsafe_code)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    /// The set of signals in a line of a child's status, without the signals that libc keeps for itself.
    fn signals_of_child(orphaned: Orphaned, line: &str) -> u64 {
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        isolate(&mut command, orphaned, Vec::new());
        signals(&String::from_utf8(command.output().unwrap().stdout).unwrap(), line) & !(0b111 << 31)
    }

    /// Signal number n is bit n-1.
    fn signals(status: &str, line: &str) -> u64 {
        let set = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        u64::from_str_radix(set.trim(), 16).unwrap()
    }

    #[test]
    fn a_child_blocks_and_ignores_no_signal() {
        let ignored = libc::SIGRTMAX();
        // SAFETY: signal(2) with a constant action; nobody sends this one to the test.
        unsafe { libc::signal(ignored, libc::SIG_IGN) };
        let ours = signals(&std::fs::read_to_string("/proc/self/status").unwrap(), "SigIgn:");
        assert_ne!(ours & (1 << (ignored - 1)), 0, "the test itself must ignore one");
        assert_eq!(signals_of_child(Orphaned::MayWriteNoMore, "SigIgn:"), 0);
        assert_eq!(signals_of_child(Orphaned::MayWriteNoMore, "SigBlk:"), 0);
    }

    #[test]
    fn a_process_is_found_by_its_name_and_last_argument() {
        let argument = format!("found-by-{}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "sh", &argument]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(of_tool("sh", OsStr::new(&argument)), Some(child.id()));
        assert_eq!(of_tool("cat", OsStr::new(&argument)), None);
        assert_eq!(of_tool("sh", OsStr::new(&argument[1..])), None);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(of_tool("sh", OsStr::new(&argument)), None);
    }

    #[test]
    fn only_the_child_has_the_host_name_that_it_is_given() {
        let name = |command: &mut Command| String::from_utf8(command.arg("-n").output().unwrap().stdout);
        let hosts_own = name(&mut Command::new("uname")).unwrap();
        let mut command = Command::new("uname");
        give_host_name(&mut command, "cephlet/n1");
        assert_eq!(name(&mut command).unwrap(), "cephlet/n1\n");
        assert_eq!(name(&mut Command::new("uname")).unwrap(), hosts_own);
    }

    #[test]
    fn work_that_outlives_the_daemon_ignores_a_broken_pipe() {
        assert_eq!(signals_of_child(Orphaned::GoesOn, "SigIgn:"), 1 << (libc::SIGPIPE - 1));
    }

    #[test]
    fn what_is_to_die_dies_with_the_thread_that_started_it() {
        let start = |orphaned| {
            let starting = std::thread::spawn(move || {
                let mut command = Command::new("sleep");
                command.arg("1000");
                isolate(&mut command, orphaned, Vec::new());
                command.spawn().unwrap()
            });
            starting.join().unwrap()
        };
        let mut other = start(Orphaned::GoesOn);
        assert_eq!(start(Orphaned::Dies).wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
