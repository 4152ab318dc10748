//! The state of a volume: to which nodes it is published, and whether its cluster, its pool and its clients
//! can go on.

use std::collections::BTreeSet;

use crate::backend::ceph::publication::{PublicationLock, Stage};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{ImageWithRecord, find_volume, last_known, unknown, with_record};
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::mirror::replicated;
use crate::backend::rbd::tool::LockTarget;
use crate::backend::{Condition, Fault, Reason, Volume};
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;

/// Looks a volume up.
pub(crate) fn find(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<Volume>> {
    Ok(look_up(pool, id)?.map(|found| found.volume(id, pool.plugin())))
}

fn look_up(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<ImageWithRecord>> {
    if pool.is_removed()? {
        return Ok(None);
    }
    let found = find_volume(pool, id)?;
    found.map(|info| with_record(pool, info)).transpose()
}

/// The volume with its nodes and its condition. If its cluster cannot be reached, a known volume is in a bad
/// condition.
pub(crate) fn inspect(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<Volume>> {
    let inspected = look_closely(pool, id);
    match (inspected, last_known(pool, id)) {
        (Err(error), Some((image, record))) if is_unreachable(&error) => {
            let volume = ImageWithRecord { info: unknown(&id.object, &image), record: Some(record) }
                .volume(id, pool.plugin());
            let cluster = &id.place.cluster;
            let detail = format!("cluster {cluster:?} cannot be reached: {error}");
            let condition = Some(Fault::new(Reason::ClusterUnreachable, detail));
            Ok(Some(Volume { condition: Some(condition), ..volume }))
        }
        (inspected, _) => inspected,
    }
}

fn look_closely(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<Volume>> {
    let Some(found) = look_up(pool, id)? else { return Ok(None) };
    let holders = pool.holders(LockTarget::Header(&found.info.id))?;
    // A later version's lock counts: its node is in the cookie.
    let is_given = |lock: Result<Option<PublicationLock>>| {
        lock.map_or(true, |lock| lock.is_some_and(|lock| lock.stage == Stage::Given))
    };
    let given = holders.iter().filter(|holder| is_given(PublicationLock::read(holder)));
    let nodes: BTreeSet<String> = given.map(|holder| holder.cookie.clone()).collect();
    let Some(watchers) = pool.watchers(&id.object)? else { return Ok(None) };
    let clients: Vec<&str> = watchers.iter().map(|watcher| watcher.address.as_str()).collect();
    let (replication, failed) = replicated(pool, id, &found.info)?.unzip();
    let condition = condition(pool, &found, &clients)?.or(failed.flatten());
    let published = nodes.into_iter().collect();
    Ok(Some(Volume { published, condition: Some(condition), replication, ..found.volume(id, pool.plugin()) }))
}

fn condition(pool: &Pool<'_>, found: &ImageWithRecord, clients: &[&str]) -> Result<Condition> {
    let (tool, health) = (&*pool.context.tool, &pool.memory().health);
    if let Some(address) = health.find_blocked(tool, pool.call, pool.at, clients)? {
        let detail = format!(
            "its client at {address} is on the cluster's blocklist and can write no more: unstage the volume \
             there and stage it again"
        );
        return Ok(Some(Fault::new(Reason::ClientShutOut, detail)));
    }
    let settings = found.record.as_ref().map(Record::settings).transpose()?.unwrap_or_default();
    let data_pool = settings.layout.data_pool.as_deref().unwrap_or(&pool.at.pool);
    health.shortage(tool, pool.call, pool.at, (data_pool, found.info.size))
}

fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind(), Kind::Timeout | Kind::Unavailable)
}
