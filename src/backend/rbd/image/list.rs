//! Lists of volumes: one question for each pool and namespace, in the order of the volumes' keys, and no more
//! of them than a page takes.

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use crate::backend::rbd::image::create::Found;
use crate::backend::rbd::tool::{Entry, Info, Parent, Spot};
use crate::backend::rbd::{Rbd, locations as pools, names};
use crate::backend::{Page, Volume};
use crate::call::Call;
use crate::csi::Source;
use crate::error::{Error, Kind, Result};
use crate::ids::{Place, SnapshotId, VolumeId};

/// How the names of volumes begin, and how many digits follow.
const VOLUME: (&str, usize) = ("csi-vol-", 32);
/// The same of snapshots that were asked for.
const SNAPSHOT: (&str, usize) = (names::SNAPSHOT, 16);

/// The digits of a name of ours.
fn digits<'a>(name: &'a str, (prefix, length): (&str, usize)) -> Option<&'a str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(prefix).filter(|rest| rest.len() == length && rest.bytes().all(is_digit))
}

impl Rbd {
    /// Up to `limit` volumes (0: all) whose keys follow `after`. What cannot be asked for its volumes fails
    /// the list: one that lacks them would say that they are gone.
    pub(crate) fn list_volumes(&self, call: &Call, after: &str, limit: usize) -> Result<Page<Volume>> {
        let most = if limit == 0 { usize::MAX } else { limit };
        let mut entries: Vec<Volume> = Vec::new();
        for spot in self.spots_after(call, after)? {
            if entries.len() == most {
                return Ok(page(entries, true));
            }
            let room = most - entries.len();
            let found = self.volumes_of(call, &spot, after)?;
            let is_more = found.len() > room;
            entries.extend(found.into_iter().take(room));
            if is_more {
                return Ok(page(entries, true));
            }
        }
        Ok(page(entries, false))
    }

    /// The volumes of a spot whose keys follow `after`, by their keys.
    fn volumes_of(&self, call: &Call, spot: &Spot, after: &str) -> Result<Vec<Volume>> {
        let place = pools::place_of(spot);
        let list = self.entries_of(call, spot)?;
        let mut entries: Vec<(String, &Entry)> = list
            .iter()
            .filter(|entry| digits(&entry.name, VOLUME).is_some())
            .map(|entry| (place.key(&entry.name), entry))
            .filter(|(key, _)| key.as_str() > after)
            .collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let volume = |(key, entry): (String, &Entry)| self.listed(&place, &key, entry, &list);
        Ok(entries.into_iter().map(volume).collect())
    }

    /// All images of a spot. Why they cannot be listed is said with the cluster's name.
    pub(crate) fn entries_of(&self, call: &Call, spot: &Spot) -> Result<Vec<Entry>> {
        self.tool.list(call, spot).map_err(|error| {
            let place = pools::place_of(spot);
            // A pool that is gone may have been remembered.
            let is_gone = matches!(error.kind(), Kind::InvalidArgument | Kind::Precondition | Kind::NotFound);
            self.pools.forget(&place, is_gone);
            let error = if error.kind() == Kind::InvalidArgument {
                error.with_kind(Kind::Precondition)
            } else {
                error
            };
            not_listed(error, &place)
        })
    }

    /// A volume as a list shows it.
    fn listed(&self, place: &Place, key: &str, entry: &Entry, list: &[Entry]) -> Volume {
        let id = VolumeId { place: place.clone(), object: entry.name.clone(), incarnation: None };
        let record = self.records.of(key, &entry.id);
        let is_known = record.is_some();
        let volume = self.describe(&id, &Found { info: info(entry), record });
        let source = || entry.parent.as_ref().and_then(|parent| source(place, parent, list));
        Volume { source: if is_known { volume.source } else { source() }, ..volume }
    }
}

fn not_listed(error: Error, place: &Place) -> Error {
    let Place { cluster, pool, namespace, .. } = place;
    error.context(format_args!("list pool {pool:?} with namespace {namespace:?} of cluster {cluster:?}"))
}

fn page(entries: Vec<Volume>, is_more: bool) -> Page<Volume> {
    let next = entries.last().filter(|_| is_more).map(|volume| volume.id.key());
    Page { entries, next }
}

/// What an image says of itself, as far as a list tells it.
fn info(entry: &Entry) -> Info {
    Info {
        name: entry.name.clone(),
        id: entry.id.clone(),
        size: entry.size,
        snapshots: entry.snapshots.len() as u64,
        features: BTreeSet::new(),
        created: UNIX_EPOCH,
        parent: entry.parent.clone(),
    }
}

/// What a volume whose record is not known was copied from, as far as the list tells it: the snapshot, while
/// that is there. One that was deleted since, as the passing one that a volume is copied through, goes by a
/// random name.
fn source(place: &Place, parent: &Parent, list: &[Entry]) -> Option<Source> {
    if (&parent.pool, &parent.namespace) != (&place.pool, &place.namespace) {
        return None;
    }
    let snapshot = digits(&parent.snapshot, SNAPSHOT)?.to_string();
    let source = match parent.image.strip_prefix(names::HELD) {
        Some(id) => id.to_string(),
        None => list.iter().find(|entry| entry.name == parent.image)?.id.clone(),
    };
    Some(Source::Snapshot(SnapshotId { place: place.clone(), source, snapshot }.to_string()))
}
