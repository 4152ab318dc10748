//! Unix sockets: whose name is it, does anybody answer, and who may connect.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;
use sha2::{Digest, Sha256};

/// A socket's name, ours until this is dropped or the process ends.
#[derive(Debug)]
pub struct Reservation {
    _held: UnixListener,
}

/// Reserves the name of a socket among all daemons of this network namespace, without writing anything beside the socket: an
/// abstract name (unix(7)) made from the path. EADDRINUSE: somebody else has it.
pub fn reserve(socket: &Path) -> io::Result<Reservation> {
    let digest = Sha256::digest(socket.as_os_str().as_bytes());
    let name = [b"cephlet:".as_slice(), digest.as_slice()].concat();
    let held = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok(Reservation { _held: held })
}

/// Whether a server answers at this socket.
pub fn is_answered(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Runs `bind` so that what it makes is for its owner only (mode 0600) from the first moment. The umask is the whole process's
/// (umask(2)): only for start-up, before other threads make files.
pub fn with_private_umask<T>(bind: impl FnOnce() -> T) -> T {
    let before = umask(Mode::from_raw_mode(0o177));
    let outcome = bind();
    umask(before);
    outcome
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_reserved_once() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let first = reserve(&socket).unwrap();
        assert_eq!(reserve(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(reserve(&directory.path().join("other.sock")).is_ok());
        drop(first);
        assert!(reserve(&socket).is_ok());
    }

    #[test]
    fn a_socket_left_by_the_dead_is_not_answered() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(is_answered(&socket));
        drop(listener);
        assert!(socket.exists() && !is_answered(&socket));
    }
}
