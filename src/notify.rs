//! Tells systemd how the daemon is doing: sd_notify(3), by hand. One datagram for each message; no answer, and no failure that
//! would matter more than a line in the log.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The way to the service manager, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    address: Option<String>,
}

impl Notifier {
    /// `address` is what `$NOTIFY_SOCKET` says: a path, or `@` and a name in the abstract namespace. None: nobody listens.
    pub fn new(address: Option<String>) -> Self {
        Self { address }
    }

    /// The daemon answers calls from now on.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The daemon has begun to stop.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// What `systemctl status` shows.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    fn send(&self, message: &str) {
        let Some(address) = &self.address else { return };
        if let Err(cause) = try_send(address, message.as_bytes()) {
            log::warn!("cannot tell systemd about the daemon's state (NOTIFY_SOCKET={address}): {cause}");
        }
    }
}

fn try_send(address: &str, message: &[u8]) -> io::Result<()> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
        None => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold up the daemon.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message, &address).map(drop)
}

/// A line end would begin another assignment.
fn one_line(status: &str) -> String {
    status.replace(['\n', '\r'], " ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].into()).unwrap()
    }

    #[test]
    fn speaks_to_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(path.to_str().map(str::to_owned));
        notifier.ready("2 volumes\nREADY=0");
        assert_eq!(received(&manager), "READY=1\nSTATUS=2 volumes READY=0");
        notifier.stopping("draining");
        assert_eq!(received(&manager), "STOPPING=1\nSTATUS=draining");
    }

    #[test]
    fn speaks_to_an_abstract_name() {
        let name = format!("cephlet-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::new(Some(format!("@{name}"))).status("serving");
        assert_eq!(received(&manager), "STATUS=serving");
    }

    #[test]
    fn failures_are_errors_and_stop_nobody() {
        assert!(try_send("vsock:2:1234", b"READY=1").is_err());
        assert!(try_send("/nonexistent/notify", b"READY=1").is_err());
        Notifier::new(Some("/nonexistent/notify".into())).ready("");
        Notifier::default().ready("");
    }
}
