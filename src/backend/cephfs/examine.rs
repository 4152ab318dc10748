//! What `cephlet doctor` finds in file systems: an index or entries that cannot be read, deletions that do
//! not end, copies that their manager has lost, and snapshots that it keeps for copies that have ended.

use std::sync::Arc;

use crate::backend::Finding;
use crate::backend::ceph::examine::{clusters, refused, whole};
use crate::backend::ceph::{ClusterAccess, PoolRef};
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::index::{Entry, SnapshotPath, State};
use crate::backend::cephfs::names::INDEX;
use crate::backend::cephfs::snapshot;
use crate::backend::cephfs::subvolumes::CloneState;
use crate::backend::cephfs::volumes::{copy, delete};
use crate::backend::finding::{COPY_LEFT, DELETED_STAYS, ENTRY_UNREADABLE};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::secrets::Secrets;

/// The findings in all clusters that answer. A user who may read the index may change it.
pub(crate) fn examine(context: &Arc<Context>) -> Vec<Finding> {
    let own = Arc::clone(context);
    let look = move |call: &Call, access: &ClusterAccess| {
        whole(&own.monitors.of(call, access), || in_file_systems(&own, call, access))
    };
    clusters(&context.clusters, Arc::new(look))
}

fn in_file_systems(context: &Arc<Context>, call: &Call, access: &ClusterAccess) -> Result<Vec<Finding>> {
    let in_one = |root: Fs<'_>| {
        let place = format!("{}/{}", access.cluster.name, root.file_system.name);
        in_index(context, &root, &place).unwrap_or_else(|error| vec![refused(place, &error)])
    };
    Ok(context.roots(call, access)?.into_iter().flat_map(in_one).collect())
}

fn in_index(context: &Arc<Context>, root: &Fs<'_>, place: &str) -> Result<Vec<Finding>> {
    let unreadable = root.index().unreadable()?;
    let mut found: Vec<Finding> =
        unreadable.iter().map(|(path, why)| entry_unreadable(root, (place, path.as_str()), why)).collect();
    for (group, object, entry) in root.index().all()? {
        let (fs, subject) = (root.in_group(&group), format!("{place}/{group}/{object}"));
        if copy::is_lost(&fs, &object, &entry)? {
            let meaning =
                format!("the manager died when it began the copy {object}, and no command removes it");
            let lost = Finding::new(&COPY_LEFT, subject, meaning);
            found.push(lost.mended_by(copy::how_to_remove_lost(&fs, &object)));
        } else if let Some(of) = snapshot_left(&fs, &object, &entry)
            && fs.subvolumes().is_held_by_ended_clone(&of)?
        {
            let meaning = format!(
                "the manager died when it ended a copy of snapshot {} of {}, and never removes that snapshot",
                of.snapshot, of.subvolume
            );
            let held = Finding::new(&COPY_LEFT, subject, meaning);
            found.push(held.mended_by(copy::how_to_free(&fs, &of)));
        } else if entry.state == State::Deleted && is_overdue(&fs, &object, &entry)? {
            found.push(deleted_stays(context, &fs, subject, object));
        }
    }
    Ok(found)
}

/// The snapshot that an entry says is to be removed: a deleted one, or that of a copy that has ended, for
/// long enough that the manager must have noted the end.
fn snapshot_left(fs: &Fs<'_>, object: &str, entry: &Entry) -> Option<SnapshotPath> {
    if entry.state == State::Making || entry.age() < fs.context.timing.lost_copy {
        return None;
    }
    match object.split_once('@') {
        Some((subvolume, taken)) => {
            (entry.state == State::Deleted).then(|| snapshot_path(fs, subvolume, taken))
        }
        None => entry.copy_of.clone(),
    }
}

fn snapshot_path(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> SnapshotPath {
    let [subvolume, snapshot] = [subvolume, snapshot].map(str::to_string);
    SnapshotPath { group: fs.place.namespace.clone(), subvolume, snapshot }
}

/// Only an operator can tell what it is the entry of: a volume that shares a snapshot is lost without it.
fn entry_unreadable(root: &Fs<'_>, (place, path): (&str, &str), why: &Error) -> Finding {
    let found = Finding::new(&ENTRY_UNREADABLE, format!("{place}/{path}"), why);
    if why.kind() == Kind::Precondition {
        return found;
    }
    let PoolRef { pool, namespace, .. } = &root.registry;
    found.mended_by(format!(
        "if `ceph fs subvolume ls` shows its subvolume, or its volume is not needed any more: rados \
         --pool {pool} --namespace {namespace} rmomapkey {INDEX} {path}"
    ))
}

/// Whether at least one sweep should have removed what is deleted: nothing needs it.
fn is_overdue(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<bool> {
    if entry.age() < 2 * fs.context.timing.sweep_interval {
        return Ok(false);
    }
    match (object.split_once('@'), &entry.shares, &entry.copy_of) {
        (Some((subvolume, taken)), ..) => Ok(!is_needed(fs, subvolume, taken)?),
        (None, Some(_), _) => Ok(true),
        // Until the manager has finished a copy, it can only be asked how far that is.
        (None, None, Some(_)) if is_being_copied(fs, object)? => Ok(false),
        (None, None, _) => Ok(!fs.subvolumes().is_retained(object)?),
    }
}

fn is_being_copied(fs: &Fs<'_>, object: &str) -> Result<bool> {
    let state = fs.subvolumes().clone_state(object)?;
    Ok(matches!(state, CloneState::Pending | CloneState::Unfinished(_)))
}

/// Whether a volume shares the snapshot, or is being copied from it.
fn is_needed(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> Result<bool> {
    let this = snapshot_path(fs, subvolume, snapshot);
    fs.index().has(|entry| [&entry.shares, &entry.copy_of].into_iter().flatten().any(|of| *of == this))
}

fn deleted_stays(context: &Arc<Context>, fs: &Fs<'_>, subject: String, object: String) -> Finding {
    let meaning = format!("{object} was deleted, and nothing needs it any more");
    let (context, place) = (Arc::clone(context), fs.place.clone());
    Finding::new(&DELETED_STAYS, subject, meaning).with_remedy(move |call| {
        context.within(call, (&place, &Secrets::default()), |fs| finish_deletion(fs, &object))
    })
}

fn finish_deletion(fs: &Fs<'_>, object: &str) -> Result<()> {
    let path = fs.path(object);
    let deleted = || -> Result<Option<Entry>> {
        Ok(fs.index().get(&path)?.filter(|entry| entry.state == State::Deleted))
    };
    let Some(entry) = deleted()? else { return Ok(()) };
    match object.split_once('@') {
        Some((subvolume, taken)) => snapshot::finish(fs, subvolume, taken)?,
        None => delete::finish(fs, object, &entry)?,
    }
    match deleted()? {
        None => Ok(()),
        Some(_) => Err(Error::precondition(format!("a snapshot, a volume or a copy still needs {path}"))),
    }
}
