//! Unique numbers: the number of this boot, and random ones.

use std::fmt::Write;
use std::fs;
use std::io;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use super::file::if_there;

/// The number of this boot of the machine, new at every boot: random(4). Records of things that do not
/// outlive a boot contain it.
///
/// # Errors
/// Those of reading /proc.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// A machine, and one boot of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its machine-id(5); empty if it has none.
    pub id: String,
    /// [`boot_id`]
    pub boot: String,
}

impl Machine {
    /// This machine, in its present boot.
    ///
    /// # Errors
    /// Those of reading /proc and /etc.
    pub fn this() -> io::Result<Self> {
        let id = if_there(fs::read_to_string("/etc/machine-id"))?.unwrap_or_default();
        Ok(Self { id: id.trim_end().to_owned(), boot: boot_id()? })
    }
}

/// `bytes` random bytes as hex digits: getrandom(2).
///
/// # Errors
/// Those of getrandom(2).
pub fn hex(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0; bytes];
    fill(&mut buffer)?;
    Ok(buffer.iter().fold(String::with_capacity(2 * bytes), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Fills the buffer with random bytes: getrandom(2).
///
/// # Errors
/// Those of getrandom(2).
pub fn fill(buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        filled += retry_on_intr(|| getrandom(&mut buffer[filled..], GetRandomFlags::empty()))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_is_a_uuid_and_stays() {
        let id = boot_id().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(id, boot_id().unwrap());
    }

    #[test]
    fn random_hex_is_as_long_as_asked_and_never_the_same() {
        let (one, two) = (hex(16).unwrap(), hex(16).unwrap());
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, two);
        assert_eq!(hex(0).unwrap(), "");
    }
}
