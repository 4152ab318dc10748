//! What the gRPC server needs from the kernel: a socket's mode from its first moment, and whether a process
//! listens on an old one.

use std::io;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::umask;

/// A umask in force until this is dropped: umask(2). It applies to the whole process, also to files that
/// other threads create meanwhile: use it only during start-up.
#[derive(Debug)]
#[must_use = "the umask is in force only as long as this lives"]
pub struct Umask(Mode);

impl Umask {
    /// Takes these permissions from every new file: `0o177` leaves 0600.
    pub fn set(taken: u32) -> Self {
        Self(umask(Mode::from_bits_truncate(taken)))
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// What exists at a socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A process accepts connections, or its queue of connections is full.
    Alive,
    /// A socket that its owner left behind.
    Refused,
    /// Nothing.
    Absent,
    /// Something that is no socket of this kind.
    Other,
}

/// Tries to connect to a stream socket, without waiting: connect(2), unix(7).
///
/// # Errors
/// Those of connect(2): EACCES, a path longer than 107 bytes.
pub fn probe(path: &Path) -> io::Result<Listener> {
    // Follows symbolic links. connect(2) refuses a plain file with the same errno as a dead socket.
    match std::fs::metadata(path) {
        Ok(file) if !std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()) => {
            return Ok(Listener::Other);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listener::Absent),
        result => result?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(Listener::Alive),
        Err(Errno::CONNREFUSED) => Ok(Listener::Refused),
        Err(Errno::NOENT) => Ok(Listener::Absent),
        Err(Errno::PROTOTYPE) => Ok(Listener::Other),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_private_from_the_start() {
        // In a thread with a umask of its own, so that other tests keep theirs.
        crate::sys::scratch::in_private_mounts(|dir| {
            let before = umask(Mode::empty());
            umask(before);
            let guard = Umask::set(0o177);
            let path = dir.join("a.sock");
            let _listener = UnixListener::bind(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            drop(guard);
            assert_eq!(umask(before), before, "the old umask is back");
        });
    }

    #[test]
    fn the_living_and_the_dead_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        assert_eq!(probe(&path).unwrap(), Listener::Absent);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(probe(&path).unwrap(), Listener::Alive);
        drop(listener);
        assert_eq!(probe(&path).unwrap(), Listener::Refused);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(probe(&path).unwrap(), Listener::Other);
    }
}
