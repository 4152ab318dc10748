//! Volumes that are copied to other clusters as they change, taken over there, and brought home.

use std::time::{Duration, SystemTime};

use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// How a volume is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirroringMode {
    /// From one state to the next, at set times.
    Snapshot,
    /// Write by write.
    Journal,
}

impl MirroringMode {
    /// The word for it, as parameters and tools have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Journal => "journal",
        }
    }
}

/// How a volume is to be replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationTerms {
    /// How it is copied.
    pub mode: MirroringMode,
    /// When, by snapshots.
    pub schedule: Option<Schedule>,
    /// What a clone shares with its parent is copied into it, where the parent is not replicated.
    pub flatten: bool,
}

/// How a volume is to be made the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Whatever the peer is.
    pub force: bool,
    /// Also where more is lost than the newest that was copied.
    pub accept_loss: bool,
    /// When it is copied from then on; None for what was asked before.
    pub schedule: Option<Schedule>,
}

/// Which part a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationRole {
    /// It is written to, and copied.
    Primary,
    /// It is a copy.
    Secondary,
    /// No rbd-mirror has said yet.
    Unknown,
}

impl ReplicationRole {
    /// The word for it, in volume contexts and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Unknown => "unknown",
        }
    }
}

/// That a volume is replicated, as far as was looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Which part it has.
    pub role: ReplicationRole,
    /// How far the other side is, in words.
    pub state: Option<String>,
}

/// When a volume is copied that is copied by snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often.
    pub minutes: u64,
    /// From which time of the day on, as `14:00:00+00:00`.
    pub start: Option<String>,
}

/// An interval is at most this long.
const MOST_MINUTES: u64 = 366 * DAY;
const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;

impl Schedule {
    /// A schedule of intervals like `5m`, `12h` and `1d`; None for what is none.
    pub fn parse_interval(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let factor = match unit {
            "m" => 1,
            "h" => HOUR,
            "d" => DAY,
            _ => return None,
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let minutes = number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(factor)?;
        (1..=MOST_MINUTES).contains(&minutes).then_some(Self { minutes, start: None })
    }

    /// The interval in its one spelling.
    pub fn interval(&self) -> String {
        match self.minutes {
            minutes if minutes % DAY == 0 => format!("{}d", minutes / DAY),
            minutes if minutes % HOUR == 0 => format!("{}h", minutes / HOUR),
            minutes => format!("{minutes}m"),
        }
    }

    /// The interval.
    pub fn period(&self) -> Duration {
        Duration::from_secs(60 * self.minutes)
    }
}

/// How the copying of a volume is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationHealth {
    /// The copy is as new as was asked for.
    Healthy,
    /// It is late, or nobody knows.
    Degraded,
    /// Somebody has to do something.
    Error,
}

/// How the copying of a volume is doing, and how new the copy is as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationInfo {
    /// In one word.
    pub health: ReplicationHealth,
    /// In words.
    pub message: String,
    /// From when the newest state is that the other side has whole.
    pub last_sync: Option<SystemTime>,
    /// How long copying it took.
    pub duration: Option<Duration>,
    /// How many bytes that were.
    pub bytes: Option<u64>,
}

/// Replicates volumes. Every method finds the volume by its ID, or by the one that it has on another cluster.
///
/// # Errors
/// Each says [`Kind::NotFound`](crate::error::Kind::NotFound) where there is no such volume, and
/// [`Kind::Precondition`](crate::error::Kind::Precondition) where it is not replicated.
pub trait Replication {
    /// Begins to replicate a volume, or finds it replicated like this.
    fn enable(&self, call: &Call, id: &VolumeId, terms: &ReplicationTerms, secrets: &Secrets) -> Result<()>;

    /// Ends it: of a primary the copy is deleted. A copy that follows its primary is left to that; one that
    /// does not takes `force`, and becomes a volume of its own.
    fn disable(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()>;

    /// Makes a copy the primary, or finds it primary.
    fn promote(&self, call: &Call, id: &VolumeId, asked: &Promotion, secrets: &Secrets) -> Result<()>;

    /// Makes a primary a copy, or finds it one. One that is in use takes `force`.
    fn demote(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()>;

    /// Whether a copy is up to date. One that cannot follow is made anew, by `force`.
    fn resync(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<bool>;

    /// How the copying of a primary volume is doing.
    fn info(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<ReplicationInfo>;

    /// The ID that the volume has at the other side.
    fn destination(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<VolumeId>;
}
