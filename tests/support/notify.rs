//! The service manager's end of sd_notify(3): a datagram socket.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::PATIENCE;

/// Receives what a daemon tells its service manager.
pub struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    pub fn bind(path: PathBuf) -> Self {
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("bind the notification socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
        Self { socket, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next message, within `PATIENCE`.
    pub fn next(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let length = loop {
            match self.socket.recv(&mut buffer) {
                // This process was stopped and goes on (signal(7), on sockets with a timeout).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other.ok()?,
            }
        };
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// Waits for a message or for the end of the daemon; false if it ended without another message.
    pub fn await_message_or_end(&self, daemon: &Child) -> bool {
        let ended = pidfd(daemon);
        let mut both = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        poll(&mut both, Some(&timeout())).expect("poll");
        both[0].revents().contains(PollFlags::IN) || both[1].revents().is_empty()
    }

    /// Drops the messages so far, before a new daemon is started.
    pub fn drain(&self) {
        self.socket.set_nonblocking(true).expect("a mode of the socket");
        while self.next().is_some() {}
        self.socket.set_nonblocking(false).expect("a mode of the socket");
    }

    /// Waits for a message that contains `part`.
    pub fn await_message(&self, part: &str) {
        while let Some(message) = self.next() {
            if message.contains(part) {
                return;
            }
        }
        panic!("the service manager was never told {part}");
    }
}

/// A descriptor that becomes readable when the process ends (pidfd_open(2)).
pub fn pidfd(child: &Child) -> OwnedFd {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a descriptor of the process")
}

/// `PATIENCE` as the kernel takes it.
pub fn timeout() -> Timespec {
    Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 }
}
