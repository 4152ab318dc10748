//! The thread that starts every process. It lives as long as the daemon: the kernel kills a process that is
//! to die with the daemon when its starting thread ends (prctl(2), "PR_SET_PDEATHSIG").

use std::io;
use std::process::{Child, Command};
use std::thread;

use crossbeam_channel::{Sender, bounded};

/// A command to start, and the channel for the result.
type Order = (Command, Sender<io::Result<Child>>);

/// The channel to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Starter(Sender<Order>);

impl Starter {
    /// Starts the thread now: later, when it is needed, no thread might be available.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, orders) = bounded::<Order>(0);
        let serve = move || {
            for (mut command, started) in orders {
                let child = command.spawn();
                // Closes its descriptors, which may hold locks, before the caller goes on.
                drop(command);
                let _ = started.send(child);
            }
        };
        thread::Builder::new().name(String::from("starter")).spawn(serve)?;
        Ok(Self(sender))
    }

    /// Starts a process.
    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts processes is gone");
        let (sender, started) = bounded(1);
        self.0.send((command, sender)).map_err(|_| gone())?;
        started.recv().map_err(|_| gone())?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::Stdio;

    use rustix::thread::gettid;

    use super::*;
    use crate::sys::process::{Orphaned, isolate};

    #[test]
    fn what_is_to_die_dies_with_the_daemon_and_not_with_who_waits_for_it() {
        let starter = Starter::start().unwrap();
        let start = || {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            isolate(&mut command, Orphaned::Dies, Vec::new());
            (gettid(), starter.spawn(command).unwrap())
        };
        let (thread, mut child) = thread::scope(|scope| scope.spawn(start).join().unwrap());
        // The kernel signals the thread's children before the thread disappears.
        while Path::new("/proc/self/task").join(thread.as_raw_nonzero().to_string()).exists() {
            thread::yield_now();
        }
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut echoed = [0; 5];
        stdin.write_all(b"alive").unwrap();
        stdout.read_exact(&mut echoed).expect("UNSAFE: it has died with the thread that waits for it");
        drop(starter);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
