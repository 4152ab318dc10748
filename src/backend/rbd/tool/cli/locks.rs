//! Locks on objects, by `rados lock`.

use std::borrow::Cow;

use serde::Deserialize;

use super::PoolCommands;
use super::answer::{ABSENT, says};
use super::output::read;
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockState, LockTarget, LockTool, Locked};
use crate::error::{Error, Result};
use crate::exec::Class;
use crate::sys::byte_lock::number_of;

/// The name of a lock: other programs may have their own locks on the same object.
fn name(target: LockTarget<'_>) -> Cow<'static, str> {
    match target {
        LockTarget::Header(_) | LockTarget::SnapshotName(_) | LockTarget::VolumeName(_) => "cephlet".into(),
        LockTarget::Clients(_) => "cephlet.clients".into(),
        // The name of an attribute has at most 100 bytes (osd_max_attr_name_len).
        LockTarget::BareName(name) => format!("cephlet.bare.{:016x}", number_of(name)).into(),
        // RBD_LOCK_NAME of librbd.
        LockTarget::Owner(_) => "rbd_lock".into(),
    }
}

/// How `rados` says EBUSY.
const BUSY: &str = "(16) Device or resource busy";

/// `rados lock info --format=json`
#[derive(Deserialize)]
struct LockOutput {
    #[serde(rename = "type")]
    kind: String,
    tag: String,
    lockers: Vec<Locker>,
}

#[derive(Deserialize)]
struct Locker {
    name: String,
    cookie: String,
    description: String,
    addr: String,
}

fn holder(locker: Locker, shared: Option<String>) -> LockHolder {
    let Locker { name: client, cookie, description, addr: address } = locker;
    LockHolder { cookie, description, shared, client, address }
}

impl LockTool for PoolCommands<'_> {
    /// `rados lock get`: a true compare-and-swap. It makes the object if there is none.
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked> {
        let cmd = self.rados(Class::Change, &["lock", "get", &target.object(), &name(target)]);
        let cmd = cmd
            .arg(format!("--lock-cookie={}", request.cookie))
            .arg(format!("--lock-description={}", request.description));
        let shared = request
            .shared
            .iter()
            .flat_map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
        let seconds = request.seconds.map(|seconds| format!("--lock-duration={seconds}"));
        match self.run(cmd.args(shared).args(seconds)) {
            Ok(_) => Ok(Locked::Now),
            Err(failure) if says(&failure, "failed locking: ", BUSY) => Ok(Locked::Held),
            Err(failure) => Err(self.error(failure, &format!("lock {}", self.path(target.object())))),
        }
    }

    /// `rados lock info`, which omits locks whose time is over. A lock that was released keeps its type.
    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState> {
        match self.run(
            self.rados(Class::Question, &["lock", "info", &target.object(), &name(target), "--format=json"]),
        ) {
            Ok(output) => {
                let LockOutput { kind, tag, lockers } = read("rados lock info", &output.stdout)?;
                let shared = (kind == "shared").then_some(tag);
                let holders = lockers.into_iter().map(|locker| holder(locker, shared.clone())).collect();
                Ok(LockState { is_known: kind != "none", holders })
            }
            Err(failure) if says(&failure, "rados_lock_get_lock_info(): ", ABSENT) => {
                Ok(LockState::default())
            }
            Err(failure) => {
                Err(self.error(failure, &format!("look who has locked {}", self.path(target.object()))))
            }
        }
    }

    /// `rados lock break`, which releases a lock that another process took. A session takes several locks as
    /// one client: it tells them apart by the description on stdin, which the program ignores.
    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        let cmd =
            self.rados(Class::Change, &["lock", "break", &target.object(), &name(target), &holder.client]);
        let cmd = cmd.arg(format!("--lock-cookie={}", holder.cookie)).stdin(holder.description.as_bytes());
        match self.run(cmd) {
            Ok(_) => Ok(()),
            Err(failure) if says(&failure, "failed breaking lock: ", ABSENT) => Ok(()),
            Err(failure) => Err(self.error(failure, &format!("unlock {}", self.path(target.object())))),
        }
    }

    /// Removes an object that carries a lock. An image's header is read first: to remove one with content
    /// would lose all data of the image. Ids are never given twice, so an empty header stays empty.
    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()> {
        let doing = || format!("remove {}", self.path(target.object()));
        if !matches!(target, LockTarget::SnapshotName(_) | LockTarget::VolumeName(_)) {
            match self.run(self.rados(Class::Question, &["listomapkeys", &target.object()])) {
                Ok(output) if output.stdout.is_empty() => {}
                Ok(_) => {
                    return Err(Error::precondition(format!("{}: it is the header of an image", doing())));
                }
                Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(()),
                Err(failure) => return Err(self.error(failure, &doing())),
            }
        }
        self.remove_object(&target.object())
    }
}
