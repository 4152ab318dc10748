//! What a cluster reports about mirrored images, and how it is told to mirror them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::backend::MirroringMode;
use crate::backend::replication::Schedule;
use crate::error::Result;

/// How an image is mirrored, and which role it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirroring {
    /// By snapshots, or by a journal.
    pub mode: MirroringMode,
    /// How far the mirroring is.
    pub state: MirrorState,
    /// Whether the image is the one that is written to. Means nothing while mirroring ends.
    pub primary: bool,
}

/// How far the mirroring of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// Mirroring begins.
    Creating,
    /// The image is mirrored.
    Enabled,
    /// Mirroring ends, or its end was broken off.
    Disabling,
}

impl Mirroring {
    /// Whether this image is a copy that follows another one.
    pub fn is_secondary(&self) -> bool {
        self.state != MirrorState::Disabling && !self.primary
    }

    /// Whether this image is the one that copies follow.
    pub fn is_primary(&self) -> bool {
        self.state == MirrorState::Enabled && self.primary
    }
}

/// Which images of a pool, or of a namespace of it, are mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorScope {
    /// Nothing.
    Nothing,
    /// Images that an operator or cephlet chose.
    Images,
    /// The same, but the pool has no peer that they are copied to.
    Alone,
    /// All images with a journal; single images cannot be chosen.
    Pool,
}

/// What a daemon of rbd-mirror does with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Nothing yet.
    Unknown,
    /// It cannot go on.
    Error,
    /// It copies, or will in a moment.
    Starting,
    /// It follows the primary.
    Replaying,
    /// It does not copy: the image is the primary, or copying was stopped.
    Stopped,
}

/// What one site reports about an image. It is up to half a minute old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteStatus {
    /// The site's name; empty for our own.
    pub site: String,
    /// Whether the site's rbd-mirror daemon gives signs of life.
    pub is_up: bool,
    /// What the daemon does.
    pub replay: Replay,
    /// The daemon's report in words.
    pub description: String,
    /// How far the copying is.
    pub progress: Progress,
    /// When the daemon reported this; None if it never did.
    pub updated: Option<SystemTime>,
}

impl SiteStatus {
    /// Whether the site's daemon is up and takes its own image for the primary one.
    pub fn is_primary(&self) -> bool {
        self.is_up && self.was_primary()
    }

    /// The same by the daemon's last report, even if it is down now.
    pub fn was_primary(&self) -> bool {
        self.replay == Replay::Stopped && self.description.contains("local image is primary")
    }
}

/// How far the copying of an image is, as far as the site reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The time of the newest state that was copied whole.
    pub copied: Option<SystemTime>,
    /// How many bytes the last copying took.
    pub bytes: Option<u64>,
    /// How many seconds the last copying took.
    pub seconds: Option<u64>,
    /// With a journal: how many entries are not copied yet.
    pub behind: Option<u64>,
}

/// What the sites say of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Our own site.
    pub own: SiteStatus,
    /// The other sites. A primary has an entry for each secondary, a secondary has one for the primary.
    pub peers: Vec<SiteStatus>,
}

/// A snapshot by which an image is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// Its number.
    pub id: u64,
    /// What it is the state of.
    pub kind: MirrorSnapshotKind,
    /// It was copied whole. A snapshot that was taken here always is.
    pub complete: bool,
    /// How many objects of it were copied.
    pub objects: u64,
    /// A peer has not begun to copy anything newer.
    pub linked: bool,
    /// When the snapshot was taken or, for a copy, when copying began.
    pub created: SystemTime,
}

/// What a mirror snapshot is the state of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorSnapshotKind {
    /// A primary image, here.
    Primary,
    /// A primary image that was demoted, here.
    Demoted,
    /// A copy of the primary.
    Copy,
    /// A copy of the primary at the moment it was demoted: there is no primary.
    CopyOfDemoted,
    /// No image: a promotion by force has begun on top of the state below.
    Orphan,
}

/// The outcome of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// The image is the primary now.
    Done,
    /// Another image is the primary, or its demotion has not arrived here.
    PeerIsPrimary,
}

/// Mirrored images.
pub trait MirrorTool {
    /// Which images of a pool are mirrored.
    fn mirror_pool(&self) -> Result<MirrorScope>;

    /// The daemons of rbd-mirror, of this cluster and of its peers, that are clients of a pool, as
    /// `client.4711`.
    fn mirror_daemons(&self) -> Result<BTreeSet<String>>;

    /// What the sites say of a mirrored image; None where it is absent, or not mirrored.
    fn mirror_status(&self, image: &str) -> Result<Option<MirrorStatus>>;

    /// The names of the mirrored images of a pool, and which of them are primary as far as is known. Empty
    /// where nothing is mirrored.
    fn mirrored_images(&self) -> Result<Vec<(String, Option<bool>)>>;

    /// The snapshots by which an image is mirrored; None where it is absent.
    fn mirror_snapshots(&self, image: &str) -> Result<Option<Vec<MirrorSnapshot>>>;

    /// Whether the newest tag in an image's journal has no entry. A change of role makes a tag, and then
    /// writes an entry under it, from which the peer learns of the change.
    fn has_bare_tag(&self, image: &str, id: &str) -> Result<bool>;

    /// Begins to mirror an image. Fails if the image is mirrored already.
    fn enable_mirroring(&self, image: &str, mode: MirroringMode) -> Result<()>;

    /// Ends the mirroring of an image. The copies of a primary are deleted. A copy needs `force`, which
    /// promotes it like [`Self::promote_by_force`] and makes it an image of its own.
    fn disable_mirroring(&self, image: &str, force: bool) -> Result<()>;

    /// Makes a copy the primary. Fails if it is the primary already.
    fn promote(&self, image: &str) -> Result<Promoted>;

    /// Makes a copy the primary, in any state of the peer. Has no time limit, is never broken off, and
    /// outlives the daemon. No second one is begun on this host meanwhile.
    fn promote_by_force(&self, image: &str) -> Result<()>;

    /// Whether a promotion by force is under way on this host, begun by this daemon or an earlier one.
    fn is_promoted_by_force(&self, image: &str) -> Result<bool>;

    /// Makes a primary a copy, even if it is in use. Fails if it is a copy already.
    fn demote(&self, image: &str) -> Result<()>;

    /// Asks rbd-mirror to delete a copy and to make it anew.
    fn request_resync(&self, image: &str) -> Result<()>;

    /// The schedules of an image that is mirrored by snapshots.
    fn schedules(&self, image: &str) -> Result<Vec<Schedule>>;

    /// Adds a schedule; one that exists is no error.
    fn add_schedule(&self, image: &str, schedule: &Schedule) -> Result<()>;

    /// Removes one schedule of an image, or all of them.
    fn remove_schedule(&self, image: &str, schedule: Option<&Schedule>) -> Result<()>;
}
