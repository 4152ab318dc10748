//! Locks on objects, by `rados lock`.

use serde::Deserialize;

use super::answer::says;
use super::output::read;
use super::{Cli, osd_command, path};
use crate::backend::rbd::tool::{Hold, Holder, Lockable, Spot, Taken};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Tool};

/// The name of our locks: others may have locks of theirs on the same object.
const LOCK: &str = "cephlet";

/// How `rados` says EBUSY and ENOENT.
const BUSY: &str = "(16) Device or resource busy";
const ABSENT: &str = "(2) No such file or directory";

/// `rados lock get`: a true compare-and-swap. The object is made where it is not there.
pub(super) fn take(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>, hold: &Hold) -> Result<Taken> {
    let cmd = rados(spot, Class::Change, &["lock", "get", &object(on), LOCK]);
    let cmd = cmd.arg(format!("--lock-cookie={}", hold.cookie)).arg(format!("--lock-description={}", hold.description));
    let shared = hold.shared.iter().flat_map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
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
    match cli.run(call, &spot.access, rados(spot, Class::Question, &["lock", "info", &object(on), LOCK, "--format=json"])) {
        Ok(output) => {
            let LockOutput { kind, tag, lockers } = read("rados lock info", &output.stdout)?;
            let shared = (kind == "shared").then_some(tag);
            Ok(lockers.into_iter().map(|locker| holder(locker, shared.clone())).collect())
        }
        Err(failure) if says(&failure, "rados_lock_get_lock_info(): ", ABSENT) => Ok(Vec::new()),
        Err(failure) => Err(cli.error(call, failure, spot, &format!("look who has locked {}", path(spot, object(on))))),
    }
}

fn holder(locker: Locker, shared: Option<String>) -> Holder {
    let Locker { name: client, cookie, description, addr: address } = locker;
    Holder { cookie, description, shared, client, address }
}

/// `rados lock break`, which takes back what another process took.
pub(super) fn give_back(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>, holder: &Holder) -> Result<()> {
    let cmd = rados(spot, Class::Change, &["lock", "break", &object(on), LOCK, &holder.client]);
    match cli.run(call, &spot.access, cmd.arg(format!("--lock-cookie={}", holder.cookie))) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "failed breaking lock: ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, spot, &format!("unlock {}", path(spot, object(on))))),
    }
}

/// `rados rm`. The header of an image is looked at first: one that has anything in it is an image, and removing it would lose all
/// data. Ids are never given twice, so an empty one stays empty.
pub(super) fn remove_object(cli: &Cli, call: &Call, spot: &Spot, on: Lockable<'_>) -> Result<()> {
    let doing = || format!("remove {}", path(spot, object(on)));
    if let Lockable::Header(_) = on {
        match cli.run(call, &spot.access, rados(spot, Class::Question, &["listomapkeys", &object(on)])) {
            Ok(output) if output.stdout.is_empty() => {}
            Ok(_) => return Err(Error::precondition(format!("{}: it is the header of an image", doing()))),
            Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(()),
            Err(failure) => return Err(cli.error(call, failure, spot, &doing())),
        }
    }
    match cli.run(call, &spot.access, rados(spot, Class::Change, &["rm", &object(on)])) {
        Ok(_) => Ok(()),
        Err(failure) if says(&failure, "error removing ", ABSENT) => Ok(()),
        Err(failure) => Err(cli.error(call, failure, spot, &doing())),
    }
}

/// `rados` with its words, in a pool and namespace.
fn rados(spot: &Spot, class: Class, words: &[&str]) -> Cmd {
    let cmd = osd_command(spot, Tool::Rados, class).arg(format!("--pool={}", spot.pool));
    let cmd = if spot.namespace.is_empty() { cmd } else { cmd.arg(format!("--namespace={}", spot.namespace)) };
    cmd.args(words)
}

fn object(on: Lockable<'_>) -> String {
    match on {
        Lockable::Header(id) => format!("rbd_header.{id}"),
        Lockable::SnapshotName(digits) => format!("cephlet.snap.{digits}"),
    }
}
