//! Tells the directory of local volumes from another directory in its place.
//!
//! If the disk is not mounted after a boot, its mount point is an ordinary directory: the volumes would count
//! as deleted, and new volumes there would be hidden once the disk is back. So the directory has its own ID
//! in the file `id`, and the state directory remembers the ID that was served under a path. Both are 32
//! hexadecimal digits. A copy of the directory with all its files counts as the same directory.
//!
//! The directory also records the name of its node, which is part of the IDs of its volumes.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::failed;
use super::{lock_file, try_lock};
use crate::error::{Error, Result};
use crate::ids::is_hex;
use crate::node_name::{self, NodeName};
use crate::sys::{file, random};

/// The directory's own ID.
const ID: &str = "id";

/// Refuses a directory of another node, or with another ID than the one in the file `remembered`. A new
/// directory is given an ID and the node's name. The caller holds the directory's lock.
///
/// # Errors
/// FAILED_PRECONDITION for another directory or node; those of reading and writing.
pub(super) fn ensure_same(root: &Path, remembered: &Path, node: &NodeName) -> Result<()> {
    let own = root.join(ID);
    let (known, found) = (read(remembered)?, read(&own)?);
    if known.is_some() && known != found {
        return Err(another(root, remembered, found.is_some()));
    }
    let is_named = NodeName::recall(&name_file(root), node.current())?.is_some();
    match (known, found) {
        (Some(_), _) => {}
        (None, Some(found)) => write(remembered, &found)?,
        (None, None) => {
            let id = random::hex(16).map_err(|error| Error::io("get random bytes", &error))?;
            // In this order: a remembered ID must exist in the directory.
            write(&own, &id)?;
            write(remembered, &id)?;
        }
    }
    if is_named { Ok(()) } else { node.write_if_room(&name_file(root)) }
}

/// The file in which the directory records its node's name.
pub(super) fn name_file(root: &Path) -> PathBuf {
    root.join(node_name::FILE)
}

/// Whether a controller has ever served the directory `root`: then it is no mount point without its disk.
pub fn is_known(root: &Path) -> bool {
    root.join(ID).exists()
}

/// The name of the node in the directory `root`; None if no name is recorded.
///
/// # Errors
/// Those of reading.
pub fn name_of_node(root: &Path) -> Result<Option<NodeName>> {
    NodeName::read(&name_file(root))
}

/// Records this name of the node in the directory `root`.
///
/// # Errors
/// FAILED_PRECONDITION while a daemon serves the controller there; those of reading and writing.
pub fn write_name_of_node(root: &Path, name: &NodeName) -> Result<()> {
    if name_of_node(root)?.as_ref() == Some(name) {
        return Ok(());
    }
    let Some(_lock) = try_lock(root)? else {
        return Err(Error::precondition(format!(
            "a daemon serves the local volumes in {} (it holds {}): stop it, and rename the node then",
            root.display(),
            lock_file(root).display()
        )));
    };
    name.write(&name_file(root))
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

/// The ID in a file; None if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    match file::if_there(fs::read_to_string(path)).map_err(failed("read", path))? {
        Some(text) if is_hex(text.trim_end()) => Ok(Some(text.trim_end().to_string())),
        Some(text) => Err(Error::internal(format!(
            "{} has {text:?} where an ID of 32 hexadecimal digits belongs: restore it",
            path.display()
        ))),
        None => Ok(None),
    }
}

fn write(path: &Path, id: &str) -> Result<()> {
    let made = path.parent().map_or(Ok(()), file::ensure_dir);
    made.and_then(|()| file::write_whole(path, format!("{id}\n"))).map_err(failed("write", path))
}
