//! Locks on objects, by `rados lock`.

use serde::Deserialize;

use super::answer::says;
use super::objects::{ABSENT, object, rados};
use super::output::read;
use super::{Cli, path};
use crate::backend::rbd::tool::{Hold, Holder, Lockable, Spot, Taken};
use crate::call::Call;
use crate::error::Result;
use crate::exec::Class;

/// The name of our locks: others may have locks of theirs on the same object.
const LOCK: &str = "cephlet";

/// How `rados` says EBUSY.
const BUSY: &str = "(16) Device or resource busy";

/// `rados lock get`: a true compare-and-swap. The object is made where it is not there.
pub(super) fn take(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>, hold: &Hold) -> Result<Taken> {
    let cmd = rados(spot, Class::Change, &["lock", "get", &object(on), LOCK]);
    let cmd = cmd
        .arg(format!("--lock-cookie={}", hold.cookie))
        .arg(format!("--lock-description={}", hold.description));
    let shared =
        hold.shared.iter().flat_map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
    let seconds = hold.seconds.map(|seconds| format!("--lock-duration={seconds}"));
    match cli.run(call, &spot.access, cmd.args(shared).args(seconds)) {
        Ok(_) => Ok(Taken::Now),
        Err(failure) if says(&failure, "failed locking: ", BUSY) => Ok(Taken::Held),
        Err(failure) => Err(cli.error(call, failure, spot, &format!("lock {}", path(spot, object(on))))),
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
pub(super) fn holders(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>) -> Result<Vec<Holder>> {
    match cli.run(
        call,
        &spot.access,
        rados(spot, Class::Question, &["lock", "info", &object(on), LOCK, "--format=json"]),
    ) {
        Ok(output) => {
            let LockOutput { kind, tag, lockers } = read("rados lock info", &output.stdout)?;
            let shared = (kind == "shared").then_some(tag);
            Ok(lockers.into_iter().map(|locker| holder(locker, shared.clone())).collect())
        }
        Err(failure) if says(&failure, "rados_lock_get_lock_info(): ", ABSENT) => Ok(Vec::new()),
        Err(failure) => {
            Err(cli.error(call, failure, spot, &format!("look who has locked {}", path(spot, object(on)))))
        }
    }
}

fn holder(locker: Locker, shared: Option<String>) -> Holder {
    let Locker { name: client, cookie, description, addr: address } = locker;
    Holder { cookie, description, shared, client, address }
}

/// `rados lock break`, which takes back what another process took.
pub(super) fn give_back(
    cli: &Cli,
    call: &Call,
    spot: &Spot,
    on: Lockable<'_>,
    holder: &Holder,
) -> Result<()> {
    let cmd = rados(spot, Class::Change, &["lock", "break", &object(on), LOCK, &holder.client]);
    match cli.run(call, &spot.access, cmd.arg(format!("--lock-cookie={}", holder.cookie))) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "failed breaking lock: ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, spot, &format!("unlock {}", path(spot, object(on))))),
    }
}
