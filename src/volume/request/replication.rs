//! Requests about replicated volumes.

use super::{Map, validate};
use crate::backend::{MirroringMode, Schedule};
use crate::csi::METADATA;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::target::VolumeTarget;

/// The known parameters, by ceph-csi's names and by our own. Orchestrators send the same parameters with
/// every change.
const PARAMETERS: [&str; 6] =
    ["mirroringMode", "schedulingInterval", "schedulingStartTime", "flattenMode", "force", "acceptLoss"];

/// The parameters of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationParameters {
    /// How the volume is copied.
    pub mode: MirroringMode,
    /// When the volume is copied, if by snapshots.
    pub schedule: Option<Schedule>,
    /// Whether a clone may be flattened.
    pub flatten: bool,
    /// Whether a copy that is cut off may be made a volume of its own.
    pub force: bool,
    /// Whether a promotion may lose more than the changes that were not copied yet.
    pub accept_loss: bool,
}

request! {
    /// A request about the replication of a volume.
    ReplicationRequest {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Act regardless of the state of the other side, and of users.
        force: bool,
        /// The settings.
        parameters: ReplicationParameters,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

/// The object that an orchestrator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicatedObject {
    /// A volume.
    Volume(String),
    /// A group of volumes.
    Group(String),
}

/// The volume of a request: from the newer field, else from the older one; if both are set, they must agree.
/// Two numberings of the newer field were published, with volumes and groups exchanged, so a volume's ID is
/// accepted in both places.
pub fn replicated_volume(older: String, newer: Option<ReplicatedObject>) -> Result<String> {
    let newer = match newer {
        Some(ReplicatedObject::Group(id)) if VolumeId::parse(&id).is_none() => {
            return Err(Error::unimplemented(format!(
                "replication_source names the group {id:?}: groups are not replicated, ask for each volume"
            )));
        }
        Some(ReplicatedObject::Volume(id) | ReplicatedObject::Group(id)) => Some(id),
        None => None,
    };
    match newer {
        Some(newer) if !older.is_empty() && older != newer => Err(Error::invalid(format!(
            "volume_id is {older:?} and replication_source {newer:?}: set one of them, or both alike"
        ))),
        Some(newer) => Ok(newer),
        None => Ok(older),
    }
}

impl ReplicationParameters {
    /// The parameters in a map, each checked: the tools would accept intervals of zero, and numbers without a
    /// unit.
    ///
    /// # Errors
    /// The wrong parameter.
    pub fn parse(parameters: &Map) -> Result<Self> {
        validate::map("parameters", parameters)?;
        let is_unknown = |key: &&String| !PARAMETERS.contains(&key.as_str()) && !key.starts_with(METADATA);
        if let Some(unknown) = parameters.keys().find(is_unknown) {
            return Err(Error::invalid(format!(
                "the parameter {unknown:?} is unknown: known are {}",
                PARAMETERS.join(", ")
            )));
        }
        let mode = validate::choice(parameters, "mirroringMode", &["snapshot", "journal"])?;
        let mode = if mode == "journal" { MirroringMode::Journal } else { MirroringMode::Snapshot };
        let schedule = schedule(parameters)?;
        if mode == MirroringMode::Journal && schedule.is_some() {
            return Err(Error::invalid(
                "the parameter \"schedulingInterval\" is for mirroringMode snapshot: a journal is copied all the time",
            ));
        }
        Ok(Self {
            mode,
            schedule,
            flatten: validate::choice(parameters, "flattenMode", &["never", "force"])? == "force",
            force: validate::choice(parameters, "force", &["false", "true"])? == "true",
            accept_loss: validate::choice(parameters, "acceptLoss", &["false", "true"])? == "true",
        })
    }
}

fn schedule(parameters: &Map) -> Result<Option<Schedule>> {
    let given = |key: &str| parameters.get(key).filter(|text| !text.is_empty());
    let start = given("schedulingStartTime").map(|text| {
        time_of_day(text).ok_or_else(|| {
            Error::invalid(format!(
                "the parameter \"schedulingStartTime\" is {text:?}: write a time of the day like 14:00:00-05:00, or \
                 2026-11-22T10:00:00Z"
            ))
        })
    });
    let start = start.transpose()?;
    match given("schedulingInterval") {
        None if start.is_some() => Err(Error::invalid(
            "the parameter \"schedulingStartTime\" was given without \"schedulingInterval\": set both",
        )),
        None => Ok(None),
        Some(text) => {
            let schedule = Schedule::parse_interval(text).ok_or_else(|| {
                Error::invalid(format!(
                    "the parameter \"schedulingInterval\" is {text:?}: write a number of minutes, hours or days, like \
                     5m, 12h or 1d"
                ))
            })?;
            Ok(Some(Schedule { start, ..schedule }))
        }
    }
}

/// The time of the day in UTC, as the tools keep it (`19:00:00+00:00`), from a time with or without a date. A
/// time without a zone is in UTC.
fn time_of_day(text: &str) -> Option<String> {
    let time = match text.split_once('T') {
        Some((date, time)) if is_date(date) => time,
        Some(_) => return None,
        None => text,
    };
    let zone_at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let seconds = clock_seconds(clock)?;
    let shift = match zone.split_at_checked(1) {
        None | Some(("Z", "")) => 0,
        Some(("+", offset)) => clock_seconds(offset)?,
        Some(("-", offset)) => -clock_seconds(offset)?,
        Some(_) => return None,
    };
    let utc = (seconds - shift).rem_euclid(86_400);
    Some(format!("{:02}:{:02}:{:02}+00:00", utc / 3600, utc / 60 % 60, utc % 60))
}

/// `2026-11-22`
fn is_date(text: &str) -> bool {
    let fields: Vec<&str> = text.split('-').collect();
    let is_number = |field: &str, digits| number(field, digits, 9999).is_some();
    matches!(fields.as_slice(), [year, month, day] if is_number(year, 4) && is_number(month, 2) && is_number(day, 2))
}

/// Seconds since midnight in `14:00` or `14:00:30`.
fn clock_seconds(text: &str) -> Option<i64> {
    let fields: Vec<&str> = text.split(':').collect();
    let (hour, minute, second) = match fields.as_slice() {
        [hour, minute] => (hour, minute, &"00"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    Some(3600 * number(hour, 2, 23)? + 60 * number(minute, 2, 59)? + number(second, 2, 59)?)
}

/// A number with this many digits, up to `most`.
fn number(text: &str, digits: usize, most: i64) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn parse(pairs: &[(&str, &str)]) -> Result<ReplicationParameters> {
        let map = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        ReplicationParameters::parse(&map)
    }

    #[test]
    fn what_is_not_said_is_the_least() {
        let none = parse(&[("csi.storage.k8s.io/secret-name", "x")]).unwrap();
        let plain = ReplicationParameters {
            mode: MirroringMode::Snapshot,
            schedule: None,
            flatten: false,
            force: false,
            accept_loss: false,
        };
        assert_eq!(none, plain);
        let all = parse(&[
            ("mirroringMode", "journal"),
            ("flattenMode", "force"),
            ("force", "true"),
            ("acceptLoss", "true"),
        ]);
        let asked = ReplicationParameters {
            mode: MirroringMode::Journal,
            flatten: true,
            force: true,
            accept_loss: true,
            ..plain
        };
        assert_eq!(all.unwrap(), asked);
    }

    #[test]
    fn a_schedule_has_one_spelling() {
        for (text, minutes, spelled) in
            [("5m", 5, "5m"), ("60m", 60, "1h"), ("24h", 1440, "1d"), ("36h", 2160, "36h")]
        {
            let schedule = parse(&[("schedulingInterval", text)]).unwrap().schedule.unwrap();
            assert_eq!(
                (schedule.minutes, schedule.interval().as_str(), schedule.start),
                (minutes, spelled, None)
            );
        }
        for (text, start) in [
            ("14:00:00-05:00", "19:00:00+00:00"),
            ("2026-11-22T10:00:00Z", "10:00:00+00:00"),
            ("01:30+02:00", "23:30:00+00:00"),
            ("23:59:59", "23:59:59+00:00"),
        ] {
            let asked = parse(&[("schedulingInterval", "1d"), ("schedulingStartTime", text)]);
            assert_eq!(asked.unwrap().schedule.unwrap().start.as_deref(), Some(start), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (key, value) in [
            ("mirroringMode", "Snapshot"),
            ("mirroringMode", "pool"),
            ("flattenMode", "true"),
            ("force", "yes"),
            ("acceptLoss", "1"),
            ("mirroringmode", "snapshot"),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert!(error.kind() == Kind::InvalidArgument && error.message().contains(key), "{error}");
        }
        for interval in [
            "0m",
            "30",
            "m",
            "90s",
            "1w",
            "1.5h",
            "-1m",
            "+1m",
            "5 m",
            "5M",
            "99999999999999999999m",
            "367d",
            "µ",
        ] {
            let error = parse(&[("schedulingInterval", interval)]).unwrap_err();
            assert!(error.message().contains(&format!("{interval:?}")), "{error}");
        }
        for start in [
            "bogus",
            "25:00",
            "12:60",
            "1:00",
            "12:00:00+0500",
            "12:00:00UTC",
            "2026-1-1T10:00:00Z",
            "T10:00",
        ] {
            let error = parse(&[("schedulingInterval", "1d"), ("schedulingStartTime", start)]).unwrap_err();
            assert!(error.message().contains(&format!("{start:?}")), "{error}");
        }
        assert!(
            parse(&[("schedulingStartTime", "10:00")]).unwrap_err().message().contains("schedulingInterval")
        );
        assert!(parse(&[("schedulingInterval", "1h"), ("mirroringMode", "journal")]).is_err());
    }

    #[test]
    fn a_volume_is_meant_wherever_its_id_stands() {
        let (id, text) = ("rbd:main:vms::web:1f", String::from);
        let volume = |id: &str| Some(ReplicatedObject::Volume(id.into()));
        let group = |id: &str| Some(ReplicatedObject::Group(id.into()));
        assert_eq!(replicated_volume(text(id), None).unwrap(), id);
        assert_eq!(replicated_volume(text(""), volume(id)).unwrap(), id);
        assert_eq!(replicated_volume(text(id), volume(id)).unwrap(), id);
        assert_eq!(replicated_volume(text(""), group(id)).unwrap(), id, "the other numbering");
        assert_eq!(replicated_volume(text(""), volume("none of ours")).unwrap(), "none of ours");
        assert_eq!(
            replicated_volume(text("rbd:main:vms::b"), volume(id)).unwrap_err().kind(),
            Kind::InvalidArgument
        );
        assert_eq!(replicated_volume(text(id), group("group-1")).unwrap_err().kind(), Kind::Unimplemented);
        assert_eq!(replicated_volume(text(""), None).unwrap(), "", "which the request's check refuses");
    }
}
