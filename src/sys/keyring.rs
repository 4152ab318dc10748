//! The kernel's keyrings: add_key(2), keyrings(7), and keys as Ceph writes them.
//!
//! A key in the process keyring is found by whatever this process asks of the kernel and goes with the
//! process. The kernel's Ceph client copies it when an image is mapped, so the process that maps may end. Two
//! helpers may hold keys of the same name: each process has a keyring of its own, which no child inherits.

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

/// The bytes that a key in base64 stands for; None if it is no base64. White space around it is passed over.
pub fn parse_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().as_bytes();
    let padding = text.iter().rev().take_while(|digit| **digit == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let (mut bytes, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0u32);
    for (place, digit) in text[..text.len() - padding].iter().enumerate() {
        bits = bits << 6 | base64_value(*digit)?;
        match place % 4 {
            1 => bytes.push((bits >> 4) as u8),
            2 => bytes.push((bits >> 2) as u8),
            3 => bytes.push(bits as u8),
            _ => {}
        }
    }
    Some(bytes)
}

fn base64_value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_ceph_writes_it() {
        assert_eq!(parse_base64("").unwrap(), b"");
        assert_eq!(parse_base64("Zg==").unwrap(), b"f");
        assert_eq!(parse_base64("Zm8=\n").unwrap(), b"fo");
        assert_eq!(parse_base64("Zm9v").unwrap(), b"foo");
        assert_eq!(parse_base64("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        // type 1 (AES), when it was made, length 16, the key itself
        let key = parse_base64("AQBSdFhcAAAAABAAyE7z2Tq1kKYXvIRd1Hh6Xw==").unwrap();
        assert_eq!((key.len(), &key[..2], &key[10..12]), (28, &[1, 0][..], &[16, 0][..]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Zm9", "Zm9v=", "====", "Z===", "Zm 9", "Zm9*", "Zg==Zg=="] {
            assert_eq!(parse_base64(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_with_a_nul_is_refused() {
        assert_eq!(add_ceph_key("client.\0", b"").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
