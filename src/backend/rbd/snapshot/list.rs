//! Lists of snapshots: one look at each pool tells which there are, one at each image when they were taken,
//! which is remembered.

use crate::backend::rbd::locations::place_of;
use crate::backend::rbd::tool::{Image, Snap, Spot};
use crate::backend::rbd::{NAME, Rbd, names};
use crate::backend::{Page, Snapshot, SnapshotFilter};
use crate::call::Call;
use crate::error::Result;
use crate::ids::{SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// At so many images a part of a list ends: what is listed for the first time takes a process each.
const IMAGES: usize = 200;

/// A snapshot that a look at its pool showed.
struct Seen {
    spot: Spot,
    id: SnapshotId,
    image: String,
    size: u64,
}

impl Rbd {
    /// A page of snapshots, in the order of their IDs. A page may have fewer entries than asked for and still
    /// not be the last.
    pub(crate) fn snapshots_after(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        match filter {
            SnapshotFilter::All => self.all_snapshots(call, after, limit),
            SnapshotFilter::Of(volume) => Ok(page(self.snapshots_of(call, volume)?, after, limit)),
        }
    }

    fn all_snapshots(&self, call: &Call, after: &str, limit: usize) -> Result<Page<Snapshot>> {
        let mut seen = self.seen(call)?;
        seen.sort_by_cached_key(|it| it.id.to_string());
        let mut entries = Vec::new();
        let (mut looked, mut last) = (0, None);
        for it in seen.iter().filter(|it| it.id.to_string().as_str() > after) {
            if (limit != 0 && entries.len() == limit) || looked == IMAGES {
                return Ok(Page { entries, next: last });
            }
            let known = self.shots.of(&it.id.source, &it.id.snapshot).is_some();
            looked += usize::from(!known);
            entries.extend(self.tell(call, it)?);
            last = Some(it.id.to_string());
        }
        Ok(Page { entries, next: None })
    }

    /// The snapshots of all pools.
    fn seen(&self, call: &Call) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        for spot in self.spots_to_list(call)? {
            let place = place_of(&spot);
            for entry in self.tool.list(call, &spot)? {
                let ours = entry
                    .snapshots
                    .iter()
                    .filter_map(|(name, size)| Some((names::snapshot_digits(name)?, *size)));
                let of_image = ours.map(|(digits, size)| Seen {
                    spot: spot.clone(),
                    id: SnapshotId {
                        place: place.clone(),
                        source: entry.id.clone(),
                        snapshot: digits.to_string(),
                    },
                    image: entry.name.clone(),
                    size,
                });
                seen.extend(of_image);
            }
        }
        Ok(seen)
    }

    /// The snapshot; None if it was deleted since its pool was looked at.
    fn tell(&self, call: &Call, seen: &Seen) -> Result<Option<Snapshot>> {
        let Seen { spot, id, image, size } = seen;
        if self.shots.of(&id.source, &id.snapshot).is_none() {
            let snaps = self.tool.snapshots(call, spot, Image::Id(&id.source))?.unwrap_or_default();
            self.remember_all(&id.source, &snaps);
        }
        let Some(shot) = self.shots.of(&id.source, &id.snapshot) else { return Ok(None) };
        let source = self.volume_of(call, spot, image, &id.source)?;
        Ok(Some(Snapshot { id: id.clone(), source, size: *size, created: shot.created }))
    }

    fn remember_all(&self, image: &str, snaps: &[Snap]) {
        for (digits, snap) in ours(snaps).filter(|(digits, _)| self.shots.of(image, digits).is_none()) {
            self.shots.remember(image, digits, snap.created, None);
        }
    }

    /// The snapshots of one volume, deleted or not: its incarnation tells, its name only where there is none.
    fn snapshots_of(&self, call: &Call, volume: &VolumeId) -> Result<Vec<Snapshot>> {
        if volume.place.backend != NAME || matches!(self.clusters.find(&volume.place.cluster), Ok(None)) {
            return Ok(Vec::new());
        }
        let spot = self.spot(&volume.place, &Secrets::default())?;
        let Some((image, snaps)) = self.snaps_of(call, &spot, volume)? else { return Ok(Vec::new()) };
        let source = VolumeId {
            incarnation: Some(volume.incarnation.clone().unwrap_or_else(|| image.clone())),
            ..volume.clone()
        };
        let snapshot = |(digits, snap): (&str, &Snap)| Snapshot {
            id: SnapshotId {
                place: volume.place.clone(),
                source: image.clone(),
                snapshot: digits.to_string(),
            },
            source: source.clone(),
            size: snap.size,
            created: snap.created,
        };
        let mut snapshots: Vec<_> = ours(&snaps).map(snapshot).collect();
        snapshots.sort_by_cached_key(|it| it.id.to_string());
        Ok(snapshots)
    }

    /// The id of a volume's image and its snapshots.
    fn snaps_of(&self, call: &Call, spot: &Spot, volume: &VolumeId) -> Result<Option<(String, Vec<Snap>)>> {
        if let Some(id) = &volume.incarnation
            && let Some(snaps) = self.tool.snapshots(call, spot, Image::Id(id))?
        {
            return Ok(Some((id.clone(), snaps)));
        }
        let Some(info) = self.look_up(call, spot, volume)? else { return Ok(None) };
        Ok(self.tool.snapshots(call, spot, Image::Id(&info.id))?.map(|snaps| (info.id, snaps)))
    }
}

/// The snapshots that were asked for and are not deleted, with their digits.
fn ours(snaps: &[Snap]) -> impl Iterator<Item = (&str, &Snap)> {
    snaps
        .iter()
        .filter(|snap| !snap.trashed)
        .filter_map(|snap| Some((names::snapshot_digits(&snap.name)?, snap)))
}

/// The part of a sorted list that follows `after`.
fn page(mut sorted: Vec<Snapshot>, after: &str, limit: usize) -> Page<Snapshot> {
    sorted.retain(|it| it.id.to_string().as_str() > after);
    if limit == 0 || sorted.len() <= limit {
        return Page { entries: sorted, next: None };
    }
    sorted.truncate(limit);
    let next = sorted.last().map(|it| it.id.to_string());
    Page { entries: sorted, next }
}
