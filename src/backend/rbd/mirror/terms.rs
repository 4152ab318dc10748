//! The terms of a volume's replication. They are kept in the metadata of its image and go wherever the image
//! goes: the side that takes over sets the same schedule.
//!
//! `{"version":1,"interval":"5m","start":"02:00:00+00:00"}`: the schedule of its snapshots, if it has one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::creation_record::{VERSION, from_bytes};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::names::REPLICATION_KEY;
use crate::backend::rbd::tool::ImageInfo;
use crate::backend::replication::Schedule;
use crate::error::{Error, Result};

/// The terms, as they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    version: u32,
    /// How often a snapshot is taken, as `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    /// From which time of the day on, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<String>,
}

impl Terms {
    /// Snapshots by this schedule, or by none.
    pub fn new(schedule: Option<&Schedule>) -> Self {
        Self {
            version: VERSION,
            interval: schedule.map(Schedule::interval),
            start: schedule.and_then(|schedule| schedule.start.clone()),
        }
    }

    /// The text that goes into the metadata.
    pub fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::internal(format!("what is kept of a replication cannot be written: {error}"))
        })
    }

    /// The schedule, if there is one.
    pub fn schedule(&self) -> Option<Schedule> {
        let schedule = Schedule::parse_interval(self.interval.as_deref()?)?;
        Some(Schedule { start: self.start.clone(), ..schedule })
    }

    /// The terms in this text.
    ///
    /// # Errors
    /// Internal, also for a later version: csi-addons' clients promote by force after FAILED_PRECONDITION.
    fn parse(text: &str) -> Result<Self> {
        from_bytes(text.as_bytes()).map_err(|wrong| {
            Error::internal(format!(
                "what is kept of its replication ({REPLICATION_KEY} in its metadata): {wrong}"
            ))
        })
    }
}

/// The schedule that is kept with an image, if there is one.
pub(crate) fn read(pool: &Pool<'_>, info: &ImageInfo) -> Result<Option<Schedule>> {
    let text = pool.metadata(&info.name, REPLICATION_KEY)?;
    in_metadata(pool, info, text.as_ref())
}

/// The same for a text that was read already.
pub(super) fn in_metadata(
    pool: &Pool<'_>,
    info: &ImageInfo,
    text: Option<&String>,
) -> Result<Option<Schedule>> {
    let terms = text.map(|text| Terms::parse(text)).transpose();
    let terms = terms.map_err(|wrong| wrong.context(format_args!("image {:?}", info.name)))?;
    let schedule = terms.and_then(|terms| terms.schedule());
    pool.memory().schedules.0.remember(info.id.clone(), schedule.clone());
    Ok(schedule)
}

/// How much time passes between two snapshots of an image. The schedule may be a remembered one.
pub(crate) fn period(pool: &Pool<'_>, info: &ImageInfo) -> Result<Option<Duration>> {
    let schedule = match pool.memory().schedules.0.get(&info.id) {
        Some(known) => known,
        None => read(pool, info)?,
    };
    Ok(schedule.map(|schedule| schedule.period()))
}

/// Leaves the image only this schedule, or none. The new schedule is added before the old one is removed.
pub(super) fn ensure_schedule(pool: &Pool<'_>, image: &str, wanted: Option<&Schedule>) -> Result<()> {
    let present = pool.schedules(image)?;
    if let Some(wanted) = wanted.filter(|wanted| !present.contains(wanted)) {
        pool.add_schedule(image, wanted)?;
    }
    let others = present.iter().filter(|schedule| Some(*schedule) != wanted);
    others.into_iter().try_for_each(|schedule| pool.remove_schedule(image, Some(schedule)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// Images with this text exist in clusters.
    #[test]
    fn the_text_never_changes() {
        let schedule = Schedule { minutes: 300, start: Some("02:00:00+00:00".into()) };
        let text = "{\"version\":1,\"interval\":\"5h\",\"start\":\"02:00:00+00:00\"}";
        let terms = Terms::new(Some(&schedule));
        assert_eq!(serde_json::to_string(&terms).unwrap(), text);
        assert_eq!(Terms::parse(text).unwrap().schedule(), Some(schedule));
        let none = Terms::new(None);
        assert_eq!(serde_json::to_string(&none).unwrap(), "{\"version\":1}");
        assert_eq!(none.schedule(), None);
        let newer = Terms::parse("{\"version\":2}").unwrap_err();
        assert_eq!(newer.kind(), Kind::Internal);
        assert!(newer.to_string().contains("cephlet.replication"), "{newer}");
    }
}
