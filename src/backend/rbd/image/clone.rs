//! Volumes that begin as copies of a snapshot or of another volume.
//!
//! A copy is made under a temporary name, checked, and renamed when it is whole: what bears a final name is
//! never half made. That the clone command ended well, or that an image is there, proves nothing of an
//! earlier attempt (a killed one leaves blank images of the right size): a temporary image that is found is
//! removed and made again, and the one that was made must say itself that it reads from the snapshot it was
//! cloned from.
//!
//! 1. where the source is (its id stays, its name may have changed)
//! 2. of a volume: a snapshot for this copy only
//! 3. clone
//! 4. of a volume: remove that snapshot; it lives on in the source's trash as long as something reads from it
//! 5. what the clone has taken over from its source: its file system is kept, its limits are not
//! 6. the creation record, limits
//! 7. does it read from the source? size
//! 8. rename; whoever finds the name taken drops his copy and answers from the other one

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::rbd::image::create::{ATTEMPTS, Wanted, size_of_new};
use crate::backend::rbd::image::record::{KEY, Record};
use crate::backend::rbd::parameters::setting;
use crate::backend::rbd::tool::{Changed, Image, Info, Made, NewClone, Removed, Renamed, Spot};
use crate::backend::rbd::{Rbd, names};
use crate::backend::{Begin, Origin};
use crate::call::Call;
use crate::csi::SizeRange;
use crate::error::{Error, Kind, Result};
use crate::ids::{SnapshotId, VolumeId};

/// How metadata keys begin that limit an image.
const LIMIT: &str = "conf_rbd_qos_";
/// A client that was killed counts as a watcher for up to 30 s.
pub(crate) const DEAD_CLIENT: Duration = Duration::from_secs(35);
/// Between two attempts to remove an image that such a client watches.
const PAUSE: Duration = Duration::from_millis(500);

/// What is cloned.
struct Original {
    spot: Spot,
    /// The image's name, as far as is known.
    image: String,
    /// Its id.
    id: String,
    snapshot: String,
    /// The snapshot is taken for this copy only.
    passing: bool,
    /// The name was remembered, not asked for.
    guessed: bool,
}

/// How an attempt ended.
enum Outcome {
    Made(Box<Info>),
    /// Image or snapshot are not there under the names they had.
    NoSource,
    /// Somebody else came in between.
    Disturbed,
}

impl Rbd {
    /// Makes the volume as a copy of `origin`, or finds the one that the same request made.
    pub(crate) fn make_copy(
        &self,
        call: &Call,
        wanted: &Wanted<'_>,
        origin: &Origin,
        begin: Begin<'_>,
    ) -> Result<Info> {
        if let Some(info) = self.look_if_known(call, wanted)? {
            return self.same_volume(call, wanted, info);
        }
        let refused = match self.copy(call, wanted, origin, begin) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::OutOfRange) => error,
            outcome => return outcome,
        };
        // The source may be deleted or grown since this request was first answered.
        match self.named(call, &wanted.spot, &wanted.new.object)? {
            Some(info) => self.same_volume(call, wanted, info),
            None => Err(refused),
        }
    }

    fn copy(&self, call: &Call, wanted: &Wanted<'_>, origin: &Origin, begin: Begin<'_>) -> Result<Info> {
        let spot = self.spot_of_source(wanted, origin)?;
        let mut missed: Option<String> = None;
        for attempt in 0..ATTEMPTS {
            let original = self.original(call, &spot, wanted, origin, attempt == 0)?;
            if !original.passing && !original.guessed && missed.as_ref() == Some(&original.image) {
                return Err(no_source(origin));
            }
            if attempt == 0 {
                begin()?;
            }
            match self.attempt(call, wanted, &original)? {
                Outcome::Made(info) => return Ok(*info),
                Outcome::NoSource => missed = Some(original.image),
                Outcome::Disturbed => missed = None,
            }
        }
        Err(Error::unavailable(
            "its source or the volume itself is changed by others at this moment: try again",
        ))
    }

    fn spot_of_source(&self, wanted: &Wanted<'_>, origin: &Origin) -> Result<Spot> {
        let place = match origin {
            Origin::Snapshot(id) => &id.place,
            Origin::Volume(id) => &id.place,
        };
        if place.backend != wanted.new.place.backend || place.cluster != wanted.new.place.cluster {
            return Err(Error::invalid(format!(
                "the source is on {:?} of backend {:?}, the volume would be on {:?}: a copy stays in its \
                 source's cluster",
                place.cluster, place.backend, wanted.new.place.cluster
            )));
        }
        self.spot(place, &wanted.new.secrets)
    }

    fn original(
        &self,
        call: &Call,
        spot: &Spot,
        wanted: &Wanted<'_>,
        origin: &Origin,
        may_guess: bool,
    ) -> Result<Original> {
        match origin {
            Origin::Snapshot(id) => self.original_snapshot(call, spot, id, may_guess),
            Origin::Volume(id) => self.original_volume(call, spot, id, &wanted.new.object),
        }
    }

    /// A remembered name saves a question: were it out of date, the clone would tell by its parent.
    fn original_snapshot(
        &self,
        call: &Call,
        spot: &Spot,
        id: &SnapshotId,
        may_guess: bool,
    ) -> Result<Original> {
        let remembered = if may_guess { self.records.name_of(&id.place, &id.source) } else { None };
        let guessed = remembered.is_some();
        let image = match remembered {
            Some(name) => Some(name),
            None => self.tool.info(call, spot, Image::Id(&id.source))?.map(|info| info.name),
        };
        let image = image.ok_or_else(|| no_source(&Origin::Snapshot(id.clone())))?;
        let (spot, snapshot) = (spot.clone(), names::snapshot(&id.snapshot));
        Ok(Original { spot, image, id: id.source.clone(), snapshot, passing: false, guessed })
    }

    fn original_volume(&self, call: &Call, spot: &Spot, id: &VolumeId, object: &str) -> Result<Original> {
        names::refuse_internal(&id.object)?;
        let info = self.existing(call, spot, id).map_err(|error| error.context("the content source"))?;
        let (spot, snapshot) = (spot.clone(), names::passing(object, &self.tag));
        Ok(Original { spot, image: info.name, id: info.id, snapshot, passing: true, guessed: false })
    }

    fn attempt(&self, call: &Call, wanted: &Wanted<'_>, original: &Original) -> Result<Outcome> {
        let temporary = names::temporary(&wanted.new.object, &self.tag);
        let _working = self.temporaries.begin(&temporary);
        let outcome = match self.clone_original(call, wanted, original, &temporary) {
            Ok(true) => self.complete(call, wanted, original, &temporary),
            Ok(false) => return Ok(Outcome::NoSource),
            Err(error) => Err(error),
        };
        if let Err(error) = &outcome {
            self.clean_up(call, wanted, &temporary, error);
        }
        outcome
    }

    /// Leaves nothing behind where the cluster still answers. Else it is done later: a repeated request may
    /// find the volume made, and never look for what is left of an earlier attempt.
    fn clean_up(&self, call: &Call, wanted: &Wanted<'_>, temporary: &str, error: &Error) {
        let answers = !matches!(error.kind(), Kind::Timeout | Kind::Unavailable);
        let removed =
            if answers { self.remove_copy(call, &wanted.spot, temporary) } else { Ok(Removed::Watched) };
        if !matches!(removed, Ok(Removed::Gone | Removed::Absent)) {
            log::warn!("image {temporary} of pool {:?} is left over for now: {removed:?}", wanted.spot.pool);
            self.chores.remove(&wanted.spot, temporary);
        }
    }

    /// Clones the original under a temporary name; false if it is not there.
    fn clone_original(
        &self,
        call: &Call,
        wanted: &Wanted<'_>,
        original: &Original,
        temporary: &str,
    ) -> Result<bool> {
        if !original.passing {
            return self.clone_anew(call, wanted, original, temporary);
        }
        if !self.take_passing(call, original)? {
            return Ok(false);
        }
        let cloned = self.clone_anew(call, wanted, original, temporary);
        match &cloned {
            Err(error) if matches!(error.kind(), Kind::Timeout | Kind::Unavailable) => {}
            // By id: its image may be renamed meanwhile.
            _ => drop(self.tool.remove_snapshot(
                call,
                &original.spot,
                Image::Id(&original.id),
                &original.snapshot,
            )?),
        }
        if let Ok(false) = cloned {
            self.release_if_held(call, original)?;
        }
        cloned
    }

    /// Takes the snapshot a volume is copied from; false if the volume is gone. One that is there is as old
    /// as the attempt that was killed, and so are its data.
    fn take_passing(&self, call: &Call, original: &Original) -> Result<bool> {
        let Original { spot, image, snapshot, .. } = original;
        for _ in 0..ATTEMPTS {
            match self.tool.take_snapshot(call, spot, image, snapshot)? {
                Some(Made::New) => return Ok(true),
                Some(Made::Taken) => {
                    self.tool.remove_snapshot(call, spot, Image::Named(image), snapshot)?;
                }
                None => return Ok(false),
            }
        }
        Err(Error::unavailable(format!(
            "snapshot {image}@{snapshot} is there again and again: two controllers have the same tag"
        )))
    }

    /// A source that was deleted while the copy's snapshot was on it could not go: it can now.
    fn release_if_held(&self, call: &Call, original: &Original) -> Result<()> {
        match self.tool.info(call, &original.spot, Image::Id(&original.id))? {
            Some(info) if info.name.starts_with(names::HELD) => {
                self.release_held(call, &original.spot, &original.id)
            }
            _ => Ok(()),
        }
    }

    fn clone_anew(
        &self,
        call: &Call,
        wanted: &Wanted<'_>,
        original: &Original,
        temporary: &str,
    ) -> Result<bool> {
        let Original { spot: from, image, snapshot, .. } = original;
        let clone = NewClone {
            from,
            image,
            snapshot,
            to: &wanted.spot,
            name: temporary,
            layout: &wanted.settings.layout,
        };
        for _ in 0..ATTEMPTS {
            match self.tool.clone_image(call, &clone)? {
                Some(Made::New) => return Ok(true),
                Some(Made::Taken) => self.remove_temporary(call, &wanted.spot, temporary)?,
                None => return Ok(false),
            }
        }
        Err(Error::unavailable(format!(
            "image {temporary} is there again and again: two controllers have the same tag"
        )))
    }

    /// Removes a copy of ours, as soon as a killed command no longer counts as its watcher.
    fn remove_temporary(&self, call: &Call, spot: &Spot, temporary: &str) -> Result<()> {
        let until = Instant::now() + DEAD_CLIENT;
        loop {
            match self.remove_copy(call, spot, temporary)? {
                Removed::Gone | Removed::Absent => return Ok(()),
                Removed::Watched if Instant::now() < until && !call.expired() => {
                    call.step(format!(
                        "waiting until the cluster gives up the killed command that had {temporary} open"
                    ));
                    thread::sleep(PAUSE);
                }
                Removed::Watched => {
                    return Err(Error::unavailable(format!(
                        "image {temporary}, left over from an earlier attempt, is still open: see `rbd \
                         status {}/{temporary}`",
                        spot.pool
                    )));
                }
                Removed::HasSnapshots => {
                    return Err(Error::precondition(format!(
                        "image {temporary}, left over from an earlier attempt, has snapshots, which are not \
                         cephlet's: remove them"
                    )));
                }
            }
        }
    }

    /// Makes the clone the volume that is wanted, and gives it its name.
    fn complete(
        &self,
        call: &Call,
        wanted: &Wanted<'_>,
        original: &Original,
        temporary: &str,
    ) -> Result<Outcome> {
        let Some(inherited) = self.tool.metadata_of(call, &wanted.spot, temporary)? else {
            return Ok(Outcome::Disturbed);
        };
        let record = complete_record(&wanted.record, &inherited);
        if self.tool.set_metadata(call, &wanted.spot, temporary, KEY, &record.text()?)? == Changed::Absent {
            return Ok(Outcome::Disturbed);
        }
        let limits = changed_limits(&inherited, &wanted.settings.limits);
        if !limits.is_empty() {
            let limits: Vec<_> = limits.iter().map(|(key, limit)| (setting(key), *limit)).collect();
            self.tool.set_limits(call, &wanted.spot, temporary, &limits)?;
        }
        let Some(mut info) = self.tool.info(call, &wanted.spot, Image::Named(temporary))? else {
            return Ok(Outcome::Disturbed);
        };
        if let Some(wrong) = not_of(&info, original) {
            self.remove_temporary(call, &wanted.spot, temporary)?;
            return Ok(wrong);
        }
        if original.passing
            && info.parent.as_ref().is_some_and(|parent| parent.image.starts_with(names::HELD))
        {
            self.release_held(call, &original.spot, &original.id)?;
        }
        let size = size_of_copy(&wanted.new.size, info.size)?;
        if size > info.size {
            self.tool.resize(call, &wanted.spot, temporary, size)?;
            info.size = size;
        }
        self.give_name(call, wanted, info, &record)
    }

    /// The last step. Who finds the name taken was too late.
    fn give_name(&self, call: &Call, wanted: &Wanted<'_>, info: Info, record: &Record) -> Result<Outcome> {
        let (spot, name, temporary) = (&wanted.spot, &wanted.new.object, info.name.clone());
        let mut taken_by_nothing = false;
        for _ in 0..ATTEMPTS {
            match self.tool.rename(call, spot, &temporary, name)? {
                Renamed::Done => {
                    self.records.remember(&wanted.key(), &info.id, record);
                    self.chores.flatten(spot, &info);
                    return Ok(Outcome::Made(Box::new(Info { name: name.clone(), ..info })));
                }
                Renamed::Absent => return Ok(Outcome::Disturbed),
                Renamed::Taken => {}
            }
            match self.await_image(call, spot, name)? {
                Some(winner) => {
                    self.remove_temporary(call, spot, &temporary)?;
                    return self.same_volume(call, wanted, winner).map(|info| Outcome::Made(Box::new(info)));
                }
                // Deleted between the two looks; or, the second time, a name that a killed creation left
                // without an image.
                None if taken_by_nothing => drop(self.tool.remove(call, spot, name)?),
                None => taken_by_nothing = true,
            }
        }
        Err(Error::unavailable("it is made and deleted by others at this moment: try again"))
    }
}

/// The record with the file system of the source, where the request names none: what is on the source is on
/// its copy.
fn complete_record(record: &Record, inherited: &BTreeMap<String, String>) -> Record {
    let mut record = record.clone();
    if record.asked.fs_type.is_none() {
        let source = inherited.get(KEY).and_then(|text| Record::parse(text).ok());
        record.asked.fs_type = source.and_then(|source| source.asked.fs_type);
    }
    record
}

/// The limits to change, zero to take one away: those asked for that the clone has not, and those of its
/// source that were not.
fn changed_limits<'a>(
    inherited: &'a BTreeMap<String, String>,
    asked: &[(&'a str, u64)],
) -> Vec<(&'a str, u64)> {
    let has = |key: &str| inherited.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
    let asked_for = |key: &str| asked.iter().any(|(other, _)| *other == key);
    let surplus = inherited
        .keys()
        .map(String::as_str)
        .filter(|key| key.starts_with(LIMIT) && !asked_for(key) && has(key) != 0);
    let missing = asked.iter().copied().filter(|(key, limit)| has(key) != *limit);
    surplus.map(|key| (key, 0)).chain(missing).collect()
}

/// Why a clone is not one of the original, if it is not. A passing snapshot has no other of its name beside
/// it, and by now it is in the trash, where it goes by another.
fn not_of(info: &Info, original: &Original) -> Option<Outcome> {
    match &info.parent {
        None => Some(Outcome::Disturbed),
        Some(parent) if original.passing && parent.id.as_ref() == Some(&original.id) => None,
        Some(parent) if parent.id.as_ref() != Some(&original.id) || parent.snapshot != original.snapshot => {
            Some(Outcome::NoSource)
        }
        Some(_) => None,
    }
}

/// The size of a volume whose source has `least` bytes.
fn size_of_copy(range: &SizeRange, least: u64) -> Result<u64> {
    if range.limit > 0 && least > range.limit {
        return Err(Error::out_of_range(format!(
            "its source has {least} bytes, more than limit_bytes {}: raise the limit, a copy is never \
             smaller than its source",
            range.limit
        )));
    }
    size_of_new(&SizeRange { required: range.required.max(least), ..*range }, least)
}

fn no_source(origin: &Origin) -> Error {
    let what = match origin {
        Origin::Snapshot(id) => format!("snapshot {id}"),
        Origin::Volume(id) => format!("volume {id}"),
    };
    Error::not_found(format!("{what}, the content source, does not exist: check the ID"))
}
