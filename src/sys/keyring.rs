//! The kernel's keyrings: add_key(2), keyrings(7).
//!
//! Every request of this process to the kernel can use a key in its process keyring. The key disappears with
//! the process. The kernel's Ceph client copies it when an image is mapped, so the process that maps may end.
//! Two helpers may hold keys of the same name: each process has its own keyring, which no child inherits.

use std::ffi::CString;
use std::io;

/// `KEY_SPEC_PROCESS_KEYRING` of linux/keyctl.h.
const PROCESS_KEYRING: i32 = -2;

/// Adds a key of type `ceph` to the keyring of this process, or replaces the one of that name.
///
/// `payload` is the key as Ceph encodes it, without the base64.
///
/// # Errors
/// Those of add_key(2): ENODEV when the kernel has no libceph, EINVAL when the payload is no Ceph key,
/// EDQUOT.
#[allow(unsafe_code)]
pub fn add_ceph_key(name: &str, payload: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    let (key_type, payload_at) = (c"ceph".as_ptr(), payload.as_ptr());
    // SAFETY: two strings that end in NUL and a buffer of the length given, all alive during the call; the
    // kernel only reads them.
    let serial = unsafe {
        libc::syscall(libc::SYS_add_key, key_type, name.as_ptr(), payload_at, payload.len(), PROCESS_KEYRING)
    };
    if serial < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_nul_is_refused() {
        assert_eq!(add_ceph_key("client.\0", b"").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
