//! The tag of this controller: eight hexadecimal digits in the names of the copies that it is making. After a
//! restart it removes the copies with its own tag at once, as no other controller is making them.
//!
//! The tag is drawn once and kept in the state directory, under that directory's lock. It cannot be derived:
//! two containers of one host may have the same node name and the same path of the state directory.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys::{file, random};

/// How many digits a tag has.
const DIGITS: usize = 8;

/// The tag in the file `path`; drawn and written where there is none.
///
/// # Errors
/// Those of reading and writing, and a file that holds something else.
pub(super) fn controller_tag(path: &Path) -> Result<String> {
    let known = file::if_there(fs::read_to_string(path));
    match known.map_err(|error| Error::io(format_args!("read {}", path.display()), &error))? {
        Some(text) if is_tag(text.trim_end()) => Ok(text.trim_end().to_string()),
        Some(text) => Err(Error::internal(format!(
            "{} has {text:?} where the {DIGITS} hexadecimal digits of this controller belong: remove the file, \
             and start again",
            path.display()
        ))),
        None => draw(path),
    }
}

fn draw(path: &Path) -> Result<String> {
    let tag = random::hex(DIGITS / 2).map_err(|error| Error::io("draw a random number", &error))?;
    file::write_whole(path, format!("{tag}\n"))
        .map_err(|error| Error::io(format_args!("write {}", path.display()), &error))?;
    Ok(tag)
}

fn is_tag(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_drawn_once_and_kept() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = dirs.each_ref().map(|dir| dir.path().join("tag"));
        let tag = controller_tag(&one).unwrap();
        assert!(is_tag(&tag), "{tag:?}");
        assert_eq!(controller_tag(&one).unwrap(), tag);
        assert_ne!(controller_tag(&other).unwrap(), tag, "each state directory has its own");
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tag");
        for text in ["", "0123456", "012345678", "0123456G"] {
            fs::write(&path, text).unwrap();
            let error = controller_tag(&path).unwrap_err();
            assert!(error.message().contains(&path.display().to_string()), "{error}");
        }
    }
}
