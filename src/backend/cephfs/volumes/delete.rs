//! Deleting a volume.
//!
//! `rm` of the manager succeeds while clients use the subvolume, so the volume's lock is taken first, which
//! no publication holds then, and the metadata servers are asked for clients that have mounted it without a
//! publication, if the user may ask them. The entry in the index says *deleted* before the subvolume is
//! removed: from then on the ID means nothing, and the sweep finishes what a crash leaves. The claim goes
//! after the subvolume, and the entry last.

use crate::backend::ceph::claim::Claim;
use crate::backend::ceph::locks::LockTarget;
use crate::backend::ceph::publication::deletion::{Acquired, is_published};
use crate::backend::cephfs::clients;
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::volumes::copy;
use crate::backend::cephfs::volumes::find::{find, is_replaced};
use crate::backend::cephfs::volumes::share;
use crate::backend::types::Deleted;
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId};

/// Deletes a volume that is not in use, or finishes its deletion.
pub(crate) fn delete(fs: &Fs<'_>, id: &VolumeId, snapshots_may_outlive: bool) -> Result<Deleted> {
    let path = fs.path(&id.object);
    let (target, deleter) = (LockTarget::Subvolume(&path), fs.deleter());
    if is_replaced(fs, id)? {
        // Lock and entry are those of the present subvolume.
        return Ok(Deleted::Absent);
    }
    if let Some(entry) = fs.index().get(&path)?.filter(|entry| entry.state == State::Deleted) {
        return finish(fs, &id.object, &entry).map(|()| Deleted::Gone);
    }
    let lock = match deleter.acquire(target)? {
        Acquired::Locked(lock) => Ok(lock),
        Acquired::Published(holders) => Err(holders),
        Acquired::HeldElsewhere => return Err(deleter.held_elsewhere()),
    };
    let found = find(fs, id).inspect_err(|_| deleter.release(target))?;
    match (found, lock) {
        (None, _) => remove_rest(fs, &id.object).map(|()| Deleted::Absent),
        (Some(_), Err(holders)) => Err(is_published(&holders)),
        (Some(found), Ok(lock)) => {
            let may_have_snapshots = snapshots_may_outlive && found.subvolume.retains_snapshots;
            let unused = await_unmounted(fs, found.own_path())
                .and_then(|()| if may_have_snapshots { Ok(()) } else { refuse_snapshots(fs, &id.object) });
            let in_time = unused.and_then(|()| lock.call(fs.call));
            let call = in_time.inspect_err(|_| deleter.release(target))?;
            remove_unused(&fs.within_call(&call), &id.object, &found.into_entry(fs, id))
                .map(|()| Deleted::Gone)
        }
    }
}

/// Removes what is left of a volume whose subvolume was removed by hand: its lock, whose object this deletion
/// may have made, its claim, and its entry last. The next request with the name would find the entry *whole*,
/// and get an ID that means nothing. Nothing is marked: should the subvolume exist after all, its ID means it
/// as before.
fn remove_rest(fs: &Fs<'_>, object: &str) -> Result<()> {
    let (path, index) = (fs.path(object), fs.index());
    index.0.remove_lockable(LockTarget::Subvolume(&path))?;
    if let Some(key) = ids::undrawn(object).and_then(ids::volume_key)
        && let Some(claim) = fs.name(key).find()?.filter(|claim| claim.of == path)
    {
        // The subvolume was gone before, so another controller may be about to claim the name.
        fs.name(key).release(&claim)?;
    }
    match index.get(&path)?.filter(|entry| entry.state == State::Whole) {
        Some(_) => index.remove(&path),
        None => Ok(()),
    }
}

fn refuse_snapshots(fs: &Fs<'_>, object: &str) -> Result<()> {
    let snapshots = fs.subvolumes().snapshots(object)?;
    match snapshots.is_empty() {
        true => Ok(()),
        false => Err(Error::needed_by(&snapshots.iter().map(String::as_str).collect::<Vec<_>>())),
    }
}

/// Waits a moment for clients to go that have just unmounted the path.
fn await_unmounted(fs: &Fs<'_>, path: Option<&str>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let (times, mut left) = (&fs.context.timing.deletion, Vec::new());
    let gone = fs.call.wait_for("its clients to unmount it", times.wait, times.poll, || {
        left = clients::find(fs, path)?.unwrap_or_default();
        Ok(left.is_empty().then_some(()))
    });
    match gone? {
        Some(()) => Ok(()),
        None => Err(clients::is_mounted(fs, &left)),
    }
}

/// Removes a subvolume that is no volume for any client, or whose volume is locked.
pub(crate) fn remove_unused(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    fs.index().set(&fs.path(object), &entry.become_state(State::Deleted, &fs.context.identity.tag))?;
    finish(fs, object, entry)
}

/// Removes a subvolume whose entry says *deleted*, and then its lock, its claim, what was made only for its
/// copy, and its entry. The entry of a name that is never used again stays while snapshots retain the
/// subvolume. A volume that shares a snapshot has no subvolume.
pub(crate) fn finish(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    let (path, key) = (fs.path(object), ids::undrawn(object).and_then(ids::volume_key));
    let find_claim = || key.map_or(Ok(None), |key| fs.name(key).find());
    let (claim, index): (Option<Claim>, _) = (find_claim()?.filter(|claim| claim.of == path), fs.index());
    let is_retained = match entry.shares {
        Some(_) => false,
        None if is_made_anew(fs, object, entry)? => return index.remove(&path),
        None => {
            match entry.copy_of {
                Some(_) => copy::remove_begun(fs, object, entry)?,
                None => fs.subvolumes().remove(object)?,
            }
            entry.path.is_none() && fs.subvolumes().is_retained(object)?
        }
    };
    index.0.remove_lockable(LockTarget::Subvolume(&path))?;
    // A request with the name may have released the claim meanwhile, and have made another one.
    if let (Some(claim), Some(key)) = (claim, key)
        && find_claim()?.is_some_and(|now| now.is_as(&claim))
    {
        fs.name(key).give_back(&claim)?;
    }
    if is_retained || !copy::remove_transient(fs, entry)? {
        return Ok(());
    }
    index.remove(&path)?;
    entry.shares.as_ref().map_or(Ok(()), |of| share::let_go(fs, of))
}

/// Whether an operator has made a subvolume of the name anew.
fn is_made_anew(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<bool> {
    let Some(path) = &entry.path else { return Ok(false) };
    Ok(fs.subvolumes().info(object)?.is_some_and(|present| present.path != *path))
}
