//! Objects of a pool that `rbd` does not show, by `rados`.

use super::answer::says;
use super::{CommandTool, osd_command, path};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::LockTarget;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Tool};

/// How `rados` says ENOENT.
pub(super) const ABSENT: &str = "(2) No such file or directory";

/// Removes what carries a lock. The header of an image is looked at first: one that has anything in it is an
/// image, and removing it would lose all data. Ids are never given twice, so an empty one stays empty.
pub(super) fn remove_lockable(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    on: LockTarget<'_>,
) -> Result<()> {
    let doing = || format!("remove {}", path(at, object(on)));
    if let LockTarget::Header(_) = on {
        match cli.run(call, &at.access, rados(at, Class::Question, &["listomapkeys", &object(on)])) {
            Ok(output) if output.stdout.is_empty() => {}
            Ok(_) => return Err(Error::precondition(format!("{}: it is the header of an image", doing()))),
            Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(()),
            Err(failure) => return Err(cli.error(call, failure, at, &doing())),
        }
    }
    remove(cli, call, at, &object(on))
}

/// Removes the object by which an image is found under a name; `rbd rm` would remove the image.
pub(super) fn remove_name(cli: &CommandTool, call: &Call, at: &PoolRef, name: &str) -> Result<()> {
    remove(cli, call, at, &format!("rbd_id.{name}"))
}

/// `rados rm`
fn remove(cli: &CommandTool, call: &Call, at: &PoolRef, object: &str) -> Result<()> {
    match cli.run(call, &at.access, rados(at, Class::Change, &["rm", object])) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "error removing ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, at, &format!("remove {}", path(at, object)))),
    }
}

/// `rados` with its words, in a pool and namespace.
pub(super) fn rados(at: &PoolRef, class: Class, words: &[&str]) -> Cmd {
    let cmd = osd_command(at, Tool::Rados, class).arg(format!("--pool={}", at.pool));
    let cmd = if at.namespace.is_empty() { cmd } else { cmd.arg(format!("--namespace={}", at.namespace)) };
    cmd.args(words)
}

/// The object that carries a lock.
pub(super) fn object(on: LockTarget<'_>) -> String {
    match on {
        LockTarget::Header(id) => format!("rbd_header.{id}"),
        LockTarget::SnapshotName(digits) => format!("cephlet.snap.{digits}"),
    }
}
