//! Lists of volumes and snapshots: the index of each file system, in the order of the keys.

use crate::backend::ceph::ClusterAccess;
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::volumes::find::volume;
use crate::backend::{Page, Unlisted, Volume};
use crate::dispatch::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// Up to `limit` volumes (0: all) whose keys follow `after`. The subvolume of an operator is not listed: its
/// entry says only that it is being removed.
pub(crate) fn list(
    context: &Context,
    call: &Call,
    range: (&str, usize),
    unlisted: Unlisted<'_>,
) -> Result<Page<Volume>> {
    of_every_file_system(context, call, range, unlisted, |fs, object, entry| {
        let is_volume = entry.state == State::Whole && entry.request.is_some();
        is_volume.then(|| volume(fs, object, entry)).map(|volume| (volume.id.key(), volume))
    })
}

/// Up to `limit` (0: all) of what `read` finds in the entries, whose keys follow `after`, in all clusters
/// with credentials of their own. `unlisted` decides about a cluster that cannot be listed.
pub(crate) fn of_every_file_system<T>(
    context: &Context,
    call: &Call,
    (after, limit): (&str, usize),
    unlisted: Unlisted<'_>,
    read: impl Fn(&Fs<'_>, &str, &Entry) -> Option<(String, T)>,
) -> Result<Page<T>> {
    let mut found: Vec<(String, T)> = Vec::new();
    for cluster in context.clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some()) {
        let name = cluster.name.clone();
        let access = ClusterAccess::new(cluster, &Secrets::default());
        match access.and_then(|access| context.roots(call, &access)) {
            Ok(roots) => {
                for root in roots {
                    match in_file_system(&root, &read) {
                        Ok(here) => found.extend(here),
                        Err(error) => unlisted(error.context(format_args!(
                            "list file system {:?} of cluster {name:?}",
                            root.file_system.name
                        )))?,
                    }
                }
            }
            Err(error) => {
                unlisted(error.context(format_args!("list the file systems of cluster {name:?}")))?;
            }
        }
    }
    found.retain(|(key, _)| key.as_str() > after);
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let is_more = limit > 0 && found.len() > limit;
    found.truncate(if is_more { limit } else { found.len() });
    let next = found.last().filter(|_| is_more).map(|(key, _)| key.clone());
    Ok(Page { entries: found.into_iter().map(|(_, found)| found).collect(), next })
}

fn in_file_system<T>(
    root: &Fs<'_>,
    read: &impl Fn(&Fs<'_>, &str, &Entry) -> Option<(String, T)>,
) -> Result<Vec<(String, T)>> {
    let all = root.index().all()?.into_iter();
    Ok(all.filter_map(|(group, object, entry)| read(&root.in_group(&group), &object, &entry)).collect())
}
