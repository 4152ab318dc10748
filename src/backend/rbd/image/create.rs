//! Volumes: making them from nothing, finding and expanding them.
//!
//! Requests of the same name meet at one image, whichever controller they come through: the cluster lets only
//! one of them make it, and the others answer from what they find.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::backend::creation_record::Origin as RecordedOrigin;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::record::{self, Record};
use crate::backend::rbd::parameters::Settings;
use crate::backend::rbd::tool::{Image, Info, Made, NewImage, Spot};
use crate::backend::{Begin, NewVolume, Volume};
use crate::call::Call;
use crate::csi::{Map, SizeRange, Source};
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// What a volume gets that was asked for without a size, in bytes.
const USUAL_SIZE: u64 = 1 << 30;
/// The kernel maps an image of another size only in part.
pub(crate) const GRAIN: u64 = 4096;
/// How often an image is looked for that another controller makes or removes at the same moment.
pub(crate) const ATTEMPTS: usize = 4;
/// An image that is older than this and has no record never gets one from whoever made it: a new one has it
/// from birth.
const MAKING: Duration = Duration::from_secs(10);
/// A name that has no image for longer than this, twice, is what a killed command has left.
pub(crate) const HOLLOW: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 3000 });
/// Between two looks at an image that is being made or renamed.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);

/// A volume that is to exist, understood.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// As it was asked for.
    pub new: &'a NewVolume,
    /// Where it is to be.
    pub spot: Spot,
    /// What its parameters say.
    pub settings: Settings,
    /// What is written down of the request.
    pub record: Record,
}

/// An image and what is known of how it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub info: Info,
    /// None for an image that was made by hand.
    pub record: Option<Record>,
}

impl Wanted<'_> {
    /// The key of its object.
    pub fn key(&self) -> String {
        self.new.place.key(&self.new.object)
    }

    /// What the image is born with: the record, and the limits.
    fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        let limits = self.settings.limits.iter().filter(|(_, limit)| *limit > 0);
        let limits = limits.map(|(key, limit)| (*key, limit.to_string()));
        Ok([(record::KEY, self.record.text()?)].into_iter().chain(limits).collect())
    }
}

impl Rbd {
    pub(crate) fn create_volume(&self, call: &Call, new: &NewVolume, begin: Begin<'_>) -> Result<Volume> {
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
        let record = Record::new(new, &settings);
        let wanted = Wanted { new, spot: self.spot(&new.place, &new.secrets)?, settings, record };
        let made = match &new.source {
            None => self.make_blank(call, &wanted, begin),
            Some((_, origin)) => self.make_copy(call, &wanted, origin, begin),
        };
        let info = made.map_err(|error| error.context(format_args!("create volume {:?}", new.name)))?;
        self.pools.note(&new.place);
        let id = VolumeId { place: new.place.clone(), object: new.object.clone(), incarnation: None };
        // The record it has is remembered by now; it may say more than this request, as a file system taken
        // over from a source.
        Ok(self.describe(&id, &self.with_record(call, &wanted.spot, &wanted.key(), info)?))
    }

    /// Makes an image with its record in one step, or finds the one that the same request made.
    fn make_blank(&self, call: &Call, wanted: &Wanted<'_>, begin: Begin<'_>) -> Result<Info> {
        let Wanted { new, spot, .. } = wanted;
        let size = size_of_new(&new.size, 0)?;
        if let Some(info) = self.look_if_known(call, wanted)? {
            return self.same_volume(call, wanted, info);
        }
        begin()?;
        let metadata = wanted.metadata()?;
        let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let image =
            NewImage { name: &new.object, size, layout: &wanted.settings.layout, metadata: &metadata };
        let mut hollow = false;
        for _ in 0..ATTEMPTS {
            let made = self.tool.create(call, spot, &image)?;
            match (made, self.await_image(call, spot, &new.object)?) {
                (Made::New, Some(info)) => {
                    self.records.remember(&wanted.key(), &info.id, &wanted.record);
                    return Ok(info);
                }
                (Made::Taken, Some(info)) => return self.same_volume(call, wanted, info),
                // Deleted by another controller at this moment.
                (Made::New, None) => {}
                // A name without an image: a killed creation left it, and only a removal takes it away.
                (Made::Taken, None) if hollow => drop(self.tool.remove(call, spot, &new.object)?),
                (Made::Taken, None) => hollow = true,
            }
        }
        Err(Error::unavailable("it is made and deleted by others at this moment: try again"))
    }

    /// The image of a name that was just taken. One that another controller is making or renaming has its
    /// name before it can be opened: removed as half made, it would be lost to whom it is promised.
    pub(crate) fn await_image(&self, call: &Call, spot: &Spot, name: &str) -> Result<Option<Info>> {
        let until = Instant::now() + HOLLOW;
        loop {
            let found = self.named(call, spot, name)?;
            if found.is_some() || Instant::now() >= until || call.expired() {
                return Ok(found);
            }
            call.step(format!("waiting for image {name}, whose name is taken, to be there"));
            thread::sleep(PAUSE);
        }
    }

    /// A look at what was there a while ago: a repeated request then costs one process. For others the
    /// attempt to make the volume is the look.
    pub(crate) fn look_if_known(&self, call: &Call, wanted: &Wanted<'_>) -> Result<Option<Info>> {
        if !self.records.knows(&wanted.key()) {
            return Ok(None);
        }
        self.named(call, &wanted.spot, &wanted.new.object)
    }

    /// Answers a request whose image is there already; finishes it where a killed creation did not.
    pub(crate) fn same_volume(&self, call: &Call, wanted: &Wanted<'_>, info: Info) -> Result<Info> {
        let Wanted { new, spot, record, .. } = wanted;
        let Found { info, record: present } = self.with_record_in_making(call, spot, &wanted.key(), info)?;
        match present {
            Some(present) => self.refuse_difference(new, &present, &info)?,
            None if new.source.is_some() => {
                return Err(Error::already_exists(format!(
                    "image {:?} exists, was not made by cephlet and is no copy of the source: choose another \
                     name",
                    new.object
                )));
            }
            None if !new.size.admits(info.size) => return Err(size_differs(new, info.size)),
            None => {
                self.tool.set_metadata(call, spot, &new.object, record::KEY, &record.text()?)?;
                self.records.remember(&wanted.key(), &info.id, record);
            }
        }
        Ok(info)
    }

    fn refuse_difference(&self, new: &NewVolume, present: &Record, info: &Info) -> Result<()> {
        match present.asked.difference(new, info.size) {
            None => Ok(()),
            Some(difference) => Err(Error::already_exists(format!(
                "a volume for {:?} exists already as image {} of pool {:?}, but {difference}",
                new.name, info.name, new.place.pool
            ))),
        }
    }

    /// Gives whoever is making the image the time to write its record.
    fn with_record_in_making(&self, call: &Call, spot: &Spot, key: &str, info: Info) -> Result<Found> {
        loop {
            let found = self.with_record(call, spot, key, info.clone())?;
            let age = SystemTime::now().duration_since(info.created).unwrap_or_default();
            if found.record.is_some() || age > MAKING || call.expired() {
                return Ok(found);
            }
            call.step("waiting for another controller to write the record of the image");
            thread::sleep(PAUSE);
        }
    }

    /// The image with its record, which is asked for once and then remembered: it never changes.
    pub(crate) fn with_record(&self, call: &Call, spot: &Spot, key: &str, info: Info) -> Result<Found> {
        if let Some(record) = self.records.of(key, &info.id) {
            return Ok(Found { info, record: Some(record) });
        }
        let record = match self.tool.metadata(call, spot, &info.name, record::KEY)? {
            None => None,
            Some(text) => Some(
                Record::parse(&text)
                    .map_err(|wrong| Error::internal(format!("image {:?}: {wrong}", info.name)))?,
            ),
        };
        if let Some(record) = &record {
            self.records.remember(key, &info.id, record);
        }
        Ok(Found { info, record })
    }

    /// The image that an ID means; None where there is none, or one of another incarnation.
    pub(crate) fn look_up(&self, call: &Call, spot: &Spot, id: &VolumeId) -> Result<Option<Info>> {
        let Some(info) = self.tool.info(call, spot, Image::Named(&id.object))? else { return Ok(None) };
        if id.means(&info.id) {
            return Ok(Some(info));
        }
        // A mirrored image has an id of its own, and the first one in its record.
        let found = self.with_record(call, spot, &id.key(), info)?;
        let first = found.record.and_then(|record| record.first_id);
        Ok(first.is_some_and(|first| id.means(&first)).then_some(found.info))
    }

    /// The image that an ID means, or NOT_FOUND.
    pub(crate) fn existing(&self, call: &Call, spot: &Spot, id: &VolumeId) -> Result<Info> {
        let found = self.look_up(call, spot, id)?;
        found.ok_or_else(|| {
            Error::not_found(format!("volume {id} does not exist: check the ID, or create it again"))
        })
    }

    pub(crate) fn find_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<Option<Volume>> {
        let spot = self.spot(&id.place, secrets)?;
        let Some(info) = self.look_up(call, &spot, id)? else { return Ok(None) };
        let found = self.with_record(call, &spot, &id.key(), info)?;
        Ok(Some(self.describe(id, &found)))
    }

    /// Never makes it smaller.
    pub(crate) fn expand_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        range: &SizeRange,
        secrets: &Secrets,
    ) -> Result<u64> {
        let spot = self.spot(&id.place, secrets)?;
        let info = self.existing(call, &spot, id)?;
        let size = size_of_expanded(range, info.size)
            .map_err(|error| error.context(format_args!("expand volume {id}")))?;
        if size > info.size {
            self.tool.resize(call, &spot, &id.object, size)?;
        }
        Ok(size)
    }

    /// The volume as the orchestrator is told of it. The ID keeps its caller's form where it names the
    /// incarnation; one that leaves it out is that of a new volume, or an operator's.
    pub(crate) fn describe(&self, id: &VolumeId, found: &Found) -> Volume {
        let asked = found.record.as_ref().map(|record| &record.asked);
        let incarnation = id.incarnation.clone().unwrap_or_else(|| found.info.id.clone());
        Volume {
            id: VolumeId { incarnation: Some(incarnation), ..id.clone() },
            size: found.info.size,
            // Everything a node must know is in the ID, or in what the controller gives it when it publishes
            // the volume: a list, which sees no records, says the same of a volume as its creation.
            context: Map::new(),
            fs_type: asked.and_then(|asked| asked.fs_type.clone()),
            source: asked.and_then(|asked| asked.source.as_ref()).map(source),
            topology: Vec::new(),
            published: Vec::new(),
            condition: None,
        }
    }
}

fn source(origin: &RecordedOrigin) -> Source {
    origin.into()
}

/// The size of a new volume whose source, if any, has `least` bytes.
pub(crate) fn size_of_new(range: &SizeRange, least: u64) -> Result<u64> {
    let wanted = match (range.required, range.limit) {
        (0, 0) => USUAL_SIZE,
        (0, limit) => USUAL_SIZE.min(limit / GRAIN * GRAIN),
        (required, _) => required,
    };
    rounded(range, wanted.max(least).max(1))
}

/// The size that an expansion to `range` gives a volume of `present` bytes.
fn size_of_expanded(range: &SizeRange, present: u64) -> Result<u64> {
    if range.limit > 0 && present > range.limit {
        return Err(Error::out_of_range(format!(
            "it has {present} bytes already, more than limit_bytes {}; it is never made smaller",
            range.limit
        )));
    }
    if present >= range.required { Ok(present) } else { rounded(range, range.required) }
}

fn rounded(range: &SizeRange, wanted: u64) -> Result<u64> {
    let size = wanted.checked_next_multiple_of(GRAIN).filter(|size| i64::try_from(*size).is_ok());
    let size =
        size.ok_or_else(|| Error::out_of_range(format!("{wanted} bytes are more than an image can have")))?;
    if range.limit > 0 && size > range.limit {
        return Err(Error::out_of_range(format!(
            "it would have {size} bytes ({wanted} in multiples of {GRAIN}), more than limit_bytes {}: raise \
             the limit",
            range.limit
        )));
    }
    Ok(size)
}

fn size_differs(new: &NewVolume, size: u64) -> Error {
    Error::already_exists(format!(
        "image {:?} exists already and has {size} bytes, which is not within {} to {} (0 is no limit)",
        new.object, new.size.required, new.size.limit
    ))
}
