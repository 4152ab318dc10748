//! Locks on objects, by `rados lock`.

use serde::Deserialize;

use super::answer::says;
use super::objects::{ABSENT, object, rados};
use super::output::read;
use super::{CommandTool, path};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked};
use crate::call::Call;
use crate::error::Result;
use crate::exec::Class;

/// The name of our locks: others may have locks of theirs on the same object.
const LOCK: &str = "cephlet";

/// How `rados` says EBUSY.
const BUSY: &str = "(16) Device or resource busy";

/// `rados lock get`: a true compare-and-swap. The object is made where it is not there.
pub(super) fn take(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    on: LockTarget<'_>,
    hold: &LockRequest,
) -> Result<Locked> {
    let cmd = rados(at, Class::Change, &["lock", "get", &object(on), LOCK]);
    let cmd = cmd
        .arg(format!("--lock-cookie={}", hold.cookie))
        .arg(format!("--lock-description={}", hold.description));
    let shared =
        hold.shared.iter().flat_map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
    let seconds = hold.seconds.map(|seconds| format!("--lock-duration={seconds}"));
    match cli.run(call, &at.access, cmd.args(shared).args(seconds)) {
        Ok(_) => Ok(Locked::Now),
        Err(failure) if says(&failure, "failed locking: ", BUSY) => Ok(Locked::Held),
        Err(failure) => Err(cli.error(call, failure, at, &format!("lock {}", path(at, object(on))))),
    }
}

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

/// `rados lock info`, which leaves out locks whose time is over.
pub(super) fn holders(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    on: LockTarget<'_>,
) -> Result<Vec<LockHolder>> {
    match cli.run(
        call,
        &at.access,
        rados(at, Class::Question, &["lock", "info", &object(on), LOCK, "--format=json"]),
    ) {
        Ok(output) => {
            let LockOutput { kind, tag, lockers } = read("rados lock info", &output.stdout)?;
            let shared = (kind == "shared").then_some(tag);
            Ok(lockers.into_iter().map(|locker| holder(locker, shared.clone())).collect())
        }
        Err(failure) if says(&failure, "rados_lock_get_lock_info(): ", ABSENT) => Ok(Vec::new()),
        Err(failure) => {
            Err(cli.error(call, failure, at, &format!("look who has locked {}", path(at, object(on)))))
        }
    }
}

fn holder(locker: Locker, shared: Option<String>) -> LockHolder {
    let Locker { name: client, cookie, description, addr: address } = locker;
    LockHolder { cookie, description, shared, client, address }
}

/// `rados lock break`, which takes back what another process took.
pub(super) fn give_back(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    on: LockTarget<'_>,
    holder: &LockHolder,
) -> Result<()> {
    let cmd = rados(at, Class::Change, &["lock", "break", &object(on), LOCK, &holder.client]);
    match cli.run(call, &at.access, cmd.arg(format!("--lock-cookie={}", holder.cookie))) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "failed breaking lock: ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, at, &format!("unlock {}", path(at, object(on))))),
    }
}
