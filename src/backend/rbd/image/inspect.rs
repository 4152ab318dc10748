//! How a volume is doing: to which nodes it is given, and whether its cluster, its pool and its clients can
//! go on.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::create::Found;
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::publish::lock::{Grant, Stage};
use crate::backend::rbd::tool::{Info, Lockable, Room, Spot, Watcher};
use crate::backend::{Condition, Volume};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// So long is remembered what is the same for all volumes of a pool: orchestrators ask for one after the
/// other.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A pool is nearly full for a volume when this part of the volume's size is not left.
const NEARLY: u64 = 20;

/// Answers by what was asked.
type Answers<T> = Mutex<HashMap<String, (Instant, T)>>;

/// What was asked for one volume and holds for others.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// By cluster and pool.
    rooms: Answers<Room>,
    /// By cluster.
    blocklists: Answers<Vec<String>>,
}

/// What is remembered under `key`, else what `ask` says.
fn recent<T: Clone>(answers: &Answers<T>, key: String, ask: impl FnOnce() -> Result<T>) -> Result<T> {
    let known = answers
        .lock()
        .get(&key)
        .filter(|(since, _)| since.elapsed() < REMEMBERED)
        .map(|(_, answer)| answer.clone());
    if let Some(answer) = known {
        return Ok(answer);
    }
    let answer = ask()?;
    answers.lock().insert(key, (Instant::now(), answer.clone()));
    Ok(answer)
}

impl Rbd {
    /// The volume with its nodes and its condition. One whose cluster cannot be reached is in a bad
    /// condition, if it is known.
    pub(crate) fn inspect_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<Option<Volume>> {
        let spot = self.spot(&id.place, secrets)?;
        let inspected = self.look_closely(call, &spot, id);
        match (inspected, self.remembered(id)) {
            (Err(error), Some((image, record))) if is_unreachable(&error) => {
                let volume = self.describe(id, &Found { info: unknown(id, image), record: Some(record) });
                let cluster = &id.place.cluster;
                let condition = Some(Some(format!("cluster {cluster:?} cannot be reached: {error}")));
                Ok(Some(Volume { condition, ..volume }))
            }
            (inspected, _) => inspected,
        }
    }

    /// What was known of the volume a while ago.
    fn remembered(&self, id: &VolumeId) -> Option<(String, Record)> {
        let (image, record) = self.records.last(&id.key())?;
        let is_meant = id.means(&image) || record.first_id.as_ref().is_some_and(|first| id.means(first));
        is_meant.then_some((image, record))
    }

    fn look_closely(&self, call: &Call, spot: &Spot, id: &VolumeId) -> Result<Option<Volume>> {
        let Some(info) = self.look_up(call, spot, id)? else { return Ok(None) };
        let found = self.with_record(call, spot, &id.key(), info)?;
        let holders = self.tool.holders(call, spot, Lockable::Header(&found.info.id))?;
        let given = holders.iter().filter_map(Grant::of).filter(|grant| grant.stage == Stage::Given);
        let nodes: BTreeSet<String> = given.map(|grant| grant.node).collect();
        let Some(watchers) = self.tool.watchers(call, spot, &id.object)? else { return Ok(None) };
        let condition = match self.shut_out(call, spot, &watchers)? {
            Some(address) => Some(format!(
                "its client at {address} is on the cluster's blocklist and can write no more: unstage the \
                 volume there and stage it \
                 again"
            )),
            None => self.shortage(call, spot, &found)?,
        };
        let published = nodes.into_iter().collect();
        Ok(Some(Volume { published, condition: Some(condition), ..self.describe(id, &found) }))
    }

    /// A watcher that the cluster has shut out.
    fn shut_out(&self, call: &Call, spot: &Spot, watchers: &[Watcher]) -> Result<Option<String>> {
        if watchers.is_empty() {
            return Ok(None);
        }
        let ask = || self.tool.blocklist(call, &spot.access);
        let blocked = recent(&self.recent.blocklists, spot.access.cluster.name.clone(), ask)?;
        let is_blocked = |watcher: &&Watcher| blocked.iter().any(|entry| covers(entry, &watcher.address));
        Ok(watchers.iter().find(is_blocked).map(|watcher| watcher.address.clone()))
    }

    fn shortage(&self, call: &Call, spot: &Spot, found: &Found) -> Result<Condition> {
        let settings = found.record.as_ref().map(Record::settings).transpose()?.unwrap_or_default();
        let pool = settings.layout.data_pool.as_deref().unwrap_or(&spot.pool);
        let key = [&spot.access.cluster.name, pool].map(crate::ids::encode).join(":");
        let room = recent(&self.recent.rooms, key, || self.tool.room(call, spot, pool))?;
        let cluster = &spot.access.cluster.name;
        let what_to_do = "add storage, raise its quota, or delete what is not needed";
        Ok(if room.full {
            Some(format!(
                "pool {pool:?} of cluster {cluster:?} is full and takes no more writes: {what_to_do}"
            ))
        } else if room.available < found.info.size / NEARLY {
            Some(format!(
                "pool {pool:?} of cluster {cluster:?} is nearly full, {} bytes are left: {what_to_do}",
                room.available
            ))
        } else {
            None
        })
    }
}

/// Whether an entry of the blocklist means a client. Nonce 0 means all clients of the host, or of the port.
fn covers(entry: &str, address: &str) -> bool {
    let plain = |text: &str| {
        text.trim_start_matches("v1:").trim_start_matches("v2:").trim_start_matches("any:").to_string()
    };
    let (entry, address) = (plain(entry), plain(address));
    let host =
        |text: &str| text.rsplit_once(':').map_or_else(|| text.to_string(), |(host, _)| host.to_string());
    entry == address || (entry.ends_with(":0/0") && host(&entry) == host(&address))
}

fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind(), Kind::Timeout | Kind::Unavailable)
}

/// An image of which only the id is known.
fn unknown(id: &VolumeId, image: String) -> Info {
    Info {
        name: id.object.clone(),
        id: image,
        size: 0,
        snapshots: 0,
        features: BTreeSet::new(),
        created: UNIX_EPOCH,
        parent: None,
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn an_entry_means_one_client_or_a_whole_host() {
        assert!(covers("10.0.0.7:0/4711", "10.0.0.7:0/4711"));
        assert!(covers("v1:10.0.0.7:0/4711", "10.0.0.7:0/4711"));
        assert!(covers("10.0.0.7:0/0", "10.0.0.7:0/4711"));
        assert!(covers("[fd00::7]:0/0", "[fd00::7]:0/4711"));
        assert!(!covers("10.0.0.7:0/4712", "10.0.0.7:0/4711"));
        assert!(!covers("10.0.0.70:0/0", "10.0.0.7:0/4711"));
    }
}
