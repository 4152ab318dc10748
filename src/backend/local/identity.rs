//! Tells the directory of local volumes from another one in its place.
//!
//! At a boot at which its disk is not mounted, the mount point is a directory like any other: the volumes
//! would count as deleted, and what was made there would be hidden once the disk is back. So the directory
//! has an ID of its own, in its file `id`, and the state directory remembers the ID of what was served under
//! a path. Both are 32 hexadecimal digits. Copied with all its files, the directory stays the same.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::files::failed_io;
use crate::error::{Error, Result};
use crate::ids::is_hex;
use crate::sys::{file, random};

/// The directory's own ID.
const ID: &str = "id";

/// Refuses a directory that is another than the one whose ID is remembered in the file `remembered`. One
/// that is new is given an ID. The caller holds the directory's lock.
///
/// # Errors
/// FAILED_PRECONDITION for another directory; those of reading and writing.
pub(super) fn ensure_same(root: &Path, remembered: &Path) -> Result<()> {
    let own = root.join(ID);
    match (read(remembered)?, read(&own)?) {
        (Some(known), Some(found)) if known == found => Ok(()),
        (Some(_), found) => Err(another(root, remembered, found.is_some())),
        (None, Some(found)) => write(remembered, &found),
        (None, None) => {
            let id = random::hex(16).map_err(|error| Error::io("get random bytes", &error))?;
            // In this order: an ID that is remembered must be there.
            write(&own, &id)?;
            write(remembered, &id)
        }
    }
}

fn another(root: &Path, remembered: &Path, is_known: bool) -> Error {
    let what = if is_known { "belongs to other local volumes" } else { "is new" };
    Error::precondition(format!(
        "{} {what}, but local volumes were served from there before, and would count as deleted: mount the disk \
         that has them; if they are to be forgotten, remove {} and start again",
        root.display(),
        remembered.display()
    ))
}

/// The ID in a file; None where there is none.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) if is_hex(text.trim_end()) => Ok(Some(text.trim_end().to_string())),
        Ok(text) => Err(Error::internal(format!(
            "{} has {text:?} where an ID of 32 hexadecimal digits belongs: restore it",
            path.display()
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed_io(path, &error)),
    }
}

fn write(path: &Path, id: &str) -> Result<()> {
    file::write_whole(path, &format!("{id}\n")).map_err(|error| failed_io(path, &error))
}
