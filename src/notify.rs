//! Reports the daemon's state to the service manager as sd_notify(3) does. A failure is logged, never fatal.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// Sends states to the socket in `NOTIFY_SOCKET`; without one it sends nothing.
#[derive(Clone, Debug)]
pub struct Notifier {
    socket: Option<PathBuf>,
}

impl Notifier {
    /// A notifier to this socket: a path, or an abstract name written with a leading `@`.
    pub fn new(socket: Option<&Path>) -> Self {
        Self { socket: socket.map(Path::to_path_buf) }
    }

    /// Reports that calls are accepted.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the daemon is going down.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, state) {
            log::warn!("the service manager at {} could not be told {state}: {error}", socket.display());
        }
    }
}

fn send(socket: &Path, state: &str) -> io::Result<()> {
    let address = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn states_arrive_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("cephlet-test-{}", directory.path().display());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        Notifier::new(Some(&path)).ready();
        Notifier::new(Some(Path::new(&format!("@{name}")))).stopping();
        assert_eq!(receive(&at_path), "READY=1");
        assert_eq!(receive(&at_name), "STOPPING=1");
    }

    #[test]
    fn nobody_listening_is_no_failure() {
        Notifier::new(None).ready();
        Notifier::new(Some(Path::new("/nonexistent/notify"))).ready();
    }
}
