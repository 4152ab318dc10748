//! Volumes that are copied to other clusters as they change, taken over there, and brought back.

use std::time::{Duration, SystemTime};

use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// How a volume is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirroringMode {
    /// From one snapshot to the next, at set times.
    Snapshot,
    /// Write by write.
    Journal,
}

impl MirroringMode {
    /// The mode's word, as parameters and tools have it.
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
    /// When snapshots are copied.
    pub schedule: Option<Schedule>,
    /// Whether a clone gets its own copy of what it shares with its parent, if the parent is not replicated.
    pub flatten: bool,
}

/// How a volume is to be made the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Whatever the state of the peer.
    pub force: bool,
    /// Even if more is lost than the changes that were not copied yet.
    pub accept_loss: bool,
    /// When the volume is copied from then on; None for the schedule that was asked for before.
    pub schedule: Option<Schedule>,
}

/// The role of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationRole {
    /// The volume can be written to, and is copied.
    Primary,
    /// The volume is a copy.
    Secondary,
    /// No rbd-mirror has reported the role yet.
    Unknown,
}

impl ReplicationRole {
    /// The role's word, in volume contexts and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Unknown => "unknown",
        }
    }
}

/// The replication of a volume, as far as was looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// The role of the volume.
    pub role: ReplicationRole,
    /// How far the other side is, in words.
    pub state: Option<String>,
}

/// When a volume is copied, if it is copied by snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How often.
    pub minutes: u64,
    /// The time of the day from which it is copied, as `14:00:00+00:00`.
    pub start: Option<String>,
}

/// The longest interval.
const MOST_MINUTES: u64 = 366 * DAY;
const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;

impl Schedule {
    /// A schedule of intervals like `5m`, `12h` and `1d`; None if the text is no interval.
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

    /// The interval in its canonical spelling.
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
    /// The copy is late, or its age is unknown.
    Degraded,
    /// The operator has to act.
    Error,
}

/// How the copying of a volume is doing, and how new the copy is as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationInfo {
    /// In one word.
    pub health: ReplicationHealth,
    /// In words.
    pub message: String,
    /// The time of the newest state that the other side has whole.
    pub last_sync: Option<SystemTime>,
    /// How long copying it took.
    pub duration: Option<Duration>,
    /// How many bytes were copied.
    pub bytes: Option<u64>,
}

/// Replicates volumes. Every method finds the volume by its ID, or by its ID on another cluster.
///
/// # Errors
/// Each method returns [`Kind::NotFound`](crate::error::Kind::NotFound) if there is no such volume, and
/// [`Kind::Precondition`](crate::error::Kind::Precondition) if it is not replicated.
pub trait Replication {
    /// Begins to replicate a volume, or finds it replicated like this.
    fn enable(&self, call: &Call, id: &VolumeId, terms: &ReplicationTerms, secrets: &Secrets) -> Result<()>;

    /// Ends the replication. The copy of a primary is deleted. A copy that follows its primary is left to it;
    /// a copy that does not follow takes `force`, and becomes a volume of its own.
    fn disable(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()>;

    /// Makes a copy the primary, or finds it primary.
    fn promote(&self, call: &Call, id: &VolumeId, asked: &Promotion, secrets: &Secrets) -> Result<()>;

    /// Makes a primary a copy, or finds it a copy. A primary in use takes `force`.
    fn demote(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<()>;

    /// Whether a copy is up to date. With `force`, a copy that cannot follow is copied anew.
    fn resync(&self, call: &Call, id: &VolumeId, force: bool, secrets: &Secrets) -> Result<bool>;

    /// How the copying of a primary volume is doing.
    fn info(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<ReplicationInfo>;

    /// The ID of the volume on the other side.
    fn destination(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<VolumeId>;
}
