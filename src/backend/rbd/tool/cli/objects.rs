//! Objects of a pool that `rbd` does not show, by `rados`.

use super::answer::{ABSENT, says};
use super::{CommandTool, osd_command, path};
use crate::backend::ceph::PoolRef;
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::{Class, Cmd, Tool};

/// `rados rm`
pub(super) fn remove_object(cli: &CommandTool, call: &Call, at: &PoolRef, object: &str) -> Result<()> {
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
