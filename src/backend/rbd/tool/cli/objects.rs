//! Objects of a pool that `rbd` does not show, by `rados`.

use super::answer::says;
use super::{Cli, osd_command, path};
use crate::backend::rbd::tool::{Lockable, Spot};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Tool};

/// How `rados` says ENOENT.
pub(super) const ABSENT: &str = "(2) No such file or directory";

/// Removes what carries a lock. The header of an image is looked at first: one that has anything in it is an
/// image, and removing it would lose all data. Ids are never given twice, so an empty one stays empty.
pub(super) fn remove_lockable(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>) -> Result<()> {
    let doing = || format!("remove {}", path(spot, object(on)));
    if let Lockable::Header(_) = on {
        match cli.run(call, &spot.access, rados(spot, Class::Question, &["listomapkeys", &object(on)])) {
            Ok(output) if output.stdout.is_empty() => {}
            Ok(_) => return Err(Error::precondition(format!("{}: it is the header of an image", doing()))),
            Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(()),
            Err(failure) => return Err(cli.error(call, failure, spot, &doing())),
        }
    }
    remove(cli, call, spot, &object(on))
}

/// Removes the object by which an image is found under a name; `rbd rm` would remove the image.
pub(super) fn remove_name(cli: &Cli, call: &Call, spot: &Spot, name: &str) -> Result<()> {
    remove(cli, call, spot, &format!("rbd_id.{name}"))
}

/// `rados rm`
fn remove(cli: &Cli, call: &Call, spot: &Spot, object: &str) -> Result<()> {
    match cli.run(call, &spot.access, rados(spot, Class::Change, &["rm", object])) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "error removing ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, spot, &format!("remove {}", path(spot, object)))),
    }
}

/// `rados` with its words, in a pool and namespace.
pub(super) fn rados(spot: &Spot, class: Class, words: &[&str]) -> Cmd {
    let cmd = osd_command(spot, Tool::Rados, class).arg(format!("--pool={}", spot.pool));
    let cmd =
        if spot.namespace.is_empty() { cmd } else { cmd.arg(format!("--namespace={}", spot.namespace)) };
    cmd.args(words)
}

/// The object that carries a lock.
pub(super) fn object(on: Lockable<'_>) -> String {
    match on {
        Lockable::Header(id) => format!("rbd_header.{id}"),
        Lockable::SnapshotName(digits) => format!("cephlet.snap.{digits}"),
    }
}
