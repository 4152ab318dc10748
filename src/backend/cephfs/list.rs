//! Lists of volumes: the index of each file system, in the order of the volumes' keys.

use std::sync::Arc;

use crate::backend::ceph::ClusterAccess;
use crate::backend::cephfs::context::Context;
use crate::backend::cephfs::find::volume;
use crate::backend::cephfs::index::State;
use crate::backend::{Page, Volume};
use crate::clusters::Cluster;
use crate::dispatch::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// Up to `limit` volumes (0: all) whose keys follow `after`, of all clusters with credentials of their own. A
/// file system that cannot be listed fails the list: a list without its volumes would say that they are gone.
pub(crate) fn list(context: &Context, call: &Call, after: &str, limit: usize) -> Result<Page<Volume>> {
    let mut entries: Vec<(String, Volume)> = Vec::new();
    for cluster in context.clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some()) {
        let name = cluster.name.clone();
        let found = of_cluster(context, call, cluster);
        entries.extend(
            found
                .map_err(|error| error.context(format_args!("list the file systems of cluster {name:?}")))?,
        );
    }
    entries.retain(|(key, _)| key.as_str() > after);
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    let is_more = limit > 0 && entries.len() > limit;
    entries.truncate(if is_more { limit } else { entries.len() });
    let next = entries.last().filter(|_| is_more).map(|(key, _)| key.clone());
    Ok(Page { entries: entries.into_iter().map(|(_, volume)| volume).collect(), next })
}

fn of_cluster(context: &Context, call: &Call, cluster: Arc<Cluster>) -> Result<Vec<(String, Volume)>> {
    let access = ClusterAccess::new(cluster, &Secrets::default())?;
    let mut found = Vec::new();
    for file_system in context.file_systems(call, &access)?.iter() {
        let root = context.at(call, access.clone(), file_system.clone(), "");
        for (path, entry) in root.index().all()? {
            let Some((group, object)) = path.split_once('/').filter(|_| entry.state == State::Whole) else {
                continue;
            };
            // An operator's subvolume is not listed: its entry says only that it is being removed.
            if entry.request.is_some() {
                let volume = volume(&root.in_group(group), object, &entry);
                found.push((volume.id.key(), volume));
            }
        }
    }
    Ok(found)
}
