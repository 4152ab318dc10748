//! Volumes that begin as copies of a snapshot or of another volume.
//!
//! A copy is made under a temporary name, checked, and renamed when it is whole: no image with a final name
//! is half made. The temporary name is drawn for each attempt, so what a killed attempt has left (a blank
//! image of the right size, or an old snapshot) is never taken for a part of this one. The sweep removes it.
//!
//! 1. find the source (its id stays, its name may have changed): [`clone_source`](super::clone_source)
//! 2. of a volume: a transient snapshot, for this copy only
//! 3. clone
//! 4. of a volume: remove that snapshot; it lives on in the source's trash as long as something reads from it
//! 5. what the clone has inherited from its source: its file system is kept, its limits and the terms of its
//!    replication are not
//! 6. the creation record, limits
//! 7. check that it reads from the source; set the size
//! 8. flatten, if it would have too many parents, or is in another domain
//! 9. rename, and check whose name it is; if it is another image's, the copy is dropped and that image is the
//!    answer
//!
//! A killed flatten is never repeated on the same copy. `rbd flatten` skips every object that exists
//! according to the object map, and the map is changed before the object is written. So after nearly every
//! kill, a second flatten silently loses data when it removes the parent (Ceph 16.2). The copy is removed and
//! begun again.

use std::collections::BTreeMap;

use crate::backend::Origin;
use crate::backend::parameters::other_file_system;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::clone_source::{CloneSource, find_source, no_source};
use crate::backend::rbd::image::find::ImageWithRecord;
use crate::backend::rbd::image::layout;
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::image::rename::{remove_copy, rename_copy};
use crate::backend::rbd::image::retained_checks::{check_parent_later, check_retained_later};
use crate::backend::rbd::image::spec::{CreateSpec, bounds, take_name};
use crate::backend::rbd::jobs::{CopiedVolume, Job};
use crate::backend::rbd::mirror::terms::Terms as ReplicationTerms;
use crate::backend::rbd::names::{
    self, DEMOTED_KEY, LIMIT_KEY, NEVER_DEMOTED, RECORD_KEY, REPLICATION_KEY, drawn_is_taken,
};
use crate::backend::rbd::parameters::setting;
use crate::backend::rbd::tool::{Changed, ImageInfo, ImageRef, Made, NewClone, Removed, Renamed};
use crate::backend::size::Bounds;
use crate::error::{Error, Kind, Result};
use crate::ids;

/// Makes the volume as a copy of `origin`, or finds the one that another controller made meanwhile.
pub(crate) fn create_copy(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    origin: &Origin,
) -> Result<ImageWithRecord> {
    let temporary = names::temporary(&spec.new.object, pool.tag(), &ids::draw()?);
    let source = find_source(pool, spec, origin, &temporary)?;
    // The sweep leaves locked images alone.
    let _working = pool.lock_internal(&temporary)?;
    let cloned = clone_source(pool, spec, &source, &temporary);
    if matches!(cloned, Ok(Changed::Absent)) {
        return Err(match find_source(pool, spec, origin, &temporary)? {
            // The image has kept its name, so the snapshot is gone.
            now if now.image == source.image && !now.is_transient => no_source(origin),
            _ => changed_meanwhile(),
        });
    }
    let named = cloned.and_then(|_| complete(pool, spec, &source, &temporary));
    named.inspect_err(|error| match error.kind() {
        Kind::Timeout | Kind::Unavailable => remove_later(pool, &source, &temporary),
        _ => discard(pool, &source, &temporary),
    })
}

fn changed_meanwhile() -> Error {
    let what = "another controller changed its source or the copy during this call: try again";
    Error::new(Kind::Busy, what)
}

/// Removes a clone that does not become the volume, now or in the background.
fn discard(pool: &Pool<'_>, source: &CloneSource, temporary: &str) {
    if !matches!(remove_copy(pool, temporary), Ok(Removed::Gone | Removed::Absent)) {
        remove_later(pool, source, temporary);
    }
}

/// Removes the leftover image in the background, once the killed command no longer counts as its watcher. A
/// repeated request may find the volume made, and then it never looks for leftovers of an earlier attempt.
fn remove_later(pool: &Pool<'_>, source: &CloneSource, temporary: &str) {
    log::warn!("image {temporary} of {} is left over, it is removed later", pool.at);
    let add = |pause, source| {
        let job = Job::RemoveTemporary { at: pool.at.clone(), temporary: temporary.to_string(), source };
        pool.context.jobs.add(pause, job);
    };
    let dead_client = pool.timing().dead_client;
    add(dead_client, None);
    if source.is_transient {
        // A late `rbd snap create` may take the snapshot until then.
        let copied = CopiedVolume { at: source.at.clone(), image: source.id.clone() };
        add(pool.context.tool.longest_change() + dead_client, Some(copied));
    }
}

/// Clones the source under a temporary name. Absent: there is no source any more.
fn clone_source(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    source: &CloneSource,
    temporary: &str,
) -> Result<Changed> {
    let CloneSource { at: from, image, snapshot, .. } = source;
    let (origin, layout) = (pool.other(from), layout::of_copy(pool, &spec.settings.layout)?);
    let made = |made: Option<Made>, drawn: &str| match made {
        Some(Made::New) => Ok(Changed::Done),
        Some(Made::Taken) => Err(drawn_is_taken(drawn)),
        None => Ok(Changed::Absent),
    };
    if source.is_transient && made(origin.create_snapshot(image, snapshot)?, snapshot)? == Changed::Absent {
        return Ok(Changed::Absent);
    }
    let clone = NewClone { from, image, snapshot, to: pool.at, name: temporary, layout: &layout };
    let cloned = pool.clone_image(&clone).and_then(|clone| made(clone, temporary));
    let goes_on = |error: &Error| matches!(error.kind(), Kind::Timeout | Kind::Unavailable);
    if source.is_transient && !cloned.as_ref().is_err_and(goes_on) {
        // By id: its image may be renamed meanwhile.
        origin.remove_snapshot(ImageRef::Id(&source.id), snapshot)?;
    }
    if source.is_transient && matches!(cloned, Ok(Changed::Absent)) {
        // A source that was deleted while it had the copy's snapshot could not be removed: now it can.
        check_retained_later(&origin, &source.id);
    }
    cloned
}

/// Makes the clone the requested volume, and gives it its name. If the name is taken, another controller was
/// faster: its copy is the volume.
fn complete(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    source: &CloneSource,
    temporary: &str,
) -> Result<ImageWithRecord> {
    let inherited = pool.all_metadata(temporary)?.ok_or_else(changed_meanwhile)?;
    let record = complete_record(&spec.record, &inherited)?;
    if pool.set_metadata(temporary, RECORD_KEY, &record.text()?)? == Changed::Absent {
        return Err(changed_meanwhile());
    }
    forget_replication(pool, temporary, &inherited)?;
    let limits = changed_limits(&inherited, &spec.settings.limits);
    if !limits.is_empty() {
        let limits: Vec<_> = limits.iter().map(|(key, limit)| (setting(key), *limit)).collect();
        pool.set_limits(temporary, &limits)?;
    }
    let mut info = pool.info(ImageRef::Name(temporary))?.ok_or_else(changed_meanwhile)?;
    if !source.is_parent_of(&info) {
        return Err(changed_meanwhile());
    }
    let bounds = bounds(&spec.settings, &spec.new.capabilities, record.asked.fs_type.as_deref());
    let size = Bounds { largest: info.largest, ..bounds }.of_new(&spec.new.size, Some(info.size))?;
    if size > info.size {
        pool.resize(temporary, size)?;
        info.size = size;
    }
    if let Some(why) = &source.why_whole {
        flatten(pool, &info, why)?;
    }
    let named = take_name(pool, spec, || match rename_copy(pool, &info, &spec.new.object)? {
        Renamed::Done => {
            pool.memory().records.remember(&spec.key(), &info.id, &record);
            let info = ImageInfo { name: spec.new.object.clone(), ..info.clone() };
            Ok(Some(ImageWithRecord { info, record: Some(record.clone()) }))
        }
        Renamed::Absent => Err(changed_meanwhile()),
        Renamed::Taken => Ok(None),
    })?;
    if named.info.id != info.id {
        discard(pool, source, temporary);
    }
    Ok(named)
}

/// Gives a copy that is being made all its data. The call then continues even if its client gives up: a
/// repeated request waits for the copy, or finds it. Meanwhile the call occupies no worker: the limit on
/// concurrent flattens is that of other commands without a deadline.
fn flatten(pool: &Pool<'_>, copy: &ImageInfo, why: &str) -> Result<()> {
    log::info!("{}: flattening {}, as {why}", pool.at, copy.name);
    pool.call.ignore_deadline();
    let flattened = pool.call.rest(|| pool.flatten(&copy.name));
    // Also after a failure: the command may have been killed between the parent and the rest.
    copy.parent.iter().for_each(|parent| check_parent_later(pool, parent));
    match flattened? {
        Changed::Done => Ok(()),
        Changed::Absent => Err(changed_meanwhile()),
    }
}

/// Resets what the copy has inherited of its source's replication: the copy is not replicated.
fn forget_replication(pool: &Pool<'_>, copy: &str, inherited: &BTreeMap<String, String>) -> Result<()> {
    if let Some(terms) = inherited.get(REPLICATION_KEY) {
        let none = ReplicationTerms::new(None).text()?;
        if *terms != none {
            pool.set_metadata(copy, REPLICATION_KEY, &none)?;
        }
    }
    if inherited.get(DEMOTED_KEY).is_some_and(|image| image != NEVER_DEMOTED) {
        pool.set_metadata(copy, DEMOTED_KEY, NEVER_DEMOTED)?;
    }
    Ok(())
}

/// The record, with the file system of the source if the request names none: a copy has what is on its
/// source. Another file system is refused, unless the source is a block device, whose content is its user's.
fn complete_record(record: &Record, inherited: &BTreeMap<String, String>) -> Result<Record> {
    let mut record = record.clone();
    let source = inherited.get(RECORD_KEY).and_then(|text| Record::parse(text).ok());
    let Some(source) = source else { return Ok(record) };
    match (&record.asked.fs_type, source.asked.mounted_as()) {
        (Some(asked), Some(present)) if asked != present => return Err(other_file_system(present, asked)),
        (Some(_), _) => {}
        (None, _) => record.asked.fs_type = source.asked.fs_type,
    }
    Ok(record)
}

/// The limits to change; zero removes one. These are the requested limits that the clone lacks, and those of
/// its source that were not requested.
fn changed_limits<'a>(
    inherited: &'a BTreeMap<String, String>,
    asked: &[(&'a str, u64)],
) -> Vec<(&'a str, u64)> {
    let has = |key: &str| inherited.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
    let asked_for = |key: &str| asked.iter().any(|(other, _)| *other == key);
    let surplus = inherited
        .keys()
        .map(String::as_str)
        .filter(|key| key.starts_with(LIMIT_KEY) && !asked_for(key) && has(key) != 0);
    let missing = asked.iter().copied().filter(|(key, limit)| has(key) != *limit);
    surplus.map(|key| (key, 0)).chain(missing).collect()
}
