//! Objects of a pool that `rbd` does not show, by `rados`.

use super::answer::{ABSENT, says};
use super::{PoolCommands, osd_command};
use crate::error::Result;
use crate::exec::{Class, Cmd, Tool};

impl PoolCommands<'_> {
    /// `rados rm`
    pub(super) fn remove_object(&self, object: &str) -> Result<()> {
        match self.run(self.rados(Class::Change, &["rm", object])) {
            Ok(_) => Ok(()),
            Err(failure) if says(&failure, "error removing ", ABSENT) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("remove {}", self.path(object)))),
        }
    }

    /// `rados` with its words, in the pool and namespace.
    pub(super) fn rados(&self, class: Class, words: &[&str]) -> Cmd {
        let cmd = osd_command(self.at, Tool::Rados, class).arg(format!("--pool={}", self.at.pool));
        let namespace = Some(&self.at.namespace).filter(|namespace| !namespace.is_empty());
        cmd.args(namespace.map(|namespace| format!("--namespace={namespace}"))).args(words)
    }
}
