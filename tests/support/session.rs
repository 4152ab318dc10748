//! The processes of a session: what a daemon started and left behind when it was killed.

use std::fs;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::notify::timeout;

/// Programs that are never killed: a half resized or half repaired file system may be beyond repair.
const NEVER_KILLED: [&str; 2] = ["e2fsck", "resize2fs"];

/// Waits for the end of every process of the session.
pub fn await_end(session: u32) {
    while let Some(pid) = members(session).into_iter().next() {
        // ESRCH: it has ended since.
        let Ok(ended) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let count =
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout())).expect("poll the process");
        assert_eq!(count, 1, "process {pid:?} of session {session} did not end");
    }
}

/// Kills what may be killed of the session, and waits for the end of everything.
pub fn kill(session: u32) {
    let spared = |pid: &Pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        NEVER_KILLED.contains(&name.trim_end())
    };
    for pid in members(session).into_iter().filter(|pid| !spared(pid)) {
        // ESRCH: it has ended since.
        let _ = kill_process(pid, Signal::KILL);
    }
    await_end(session);
}

/// The processes of the session that still run.
fn members(session: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("/proc is readable").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| runs_in(*pid, session)).filter_map(Pid::from_raw).collect()
}

/// proc_pid_stat(5): the state, the parent, the group and the session follow the name in parentheses.
fn runs_in(pid: i32, session: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = fields.split(' ').collect();
    !matches!(fields[0], "Z" | "X") && fields[3] == session.to_string()
}
