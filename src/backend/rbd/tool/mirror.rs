//! What a cluster says of mirrored images, and how it is told to mirror them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::backend::MirroringMode;
use crate::backend::replication::Schedule;
use crate::error::Result;

/// That an image is mirrored, and which part it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirroring {
    /// By snapshots, or by a journal.
    pub mode: MirroringMode,
    /// Whether it is, will be or was.
    pub state: MirrorState,
    /// It is the one that is written to. While mirroring ends this says nothing.
    pub primary: bool,
    /// The same on all clusters that have the image.
    pub global_id: String,
}

/// How far the mirroring of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// It begins.
    Creating,
    /// It is there.
    Enabled,
    /// It ends, or its end was broken off.
    Disabling,
}

impl Mirroring {
    /// Whether this is a copy that follows another.
    pub fn is_secondary(&self) -> bool {
        self.state != MirrorState::Disabling && !self.primary
    }

    /// Whether this is the one that others follow.
    pub fn is_primary(&self) -> bool {
        self.state == MirrorState::Enabled && self.primary
    }
}

/// How a pool, or a namespace of it, is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPool {
    /// What is mirrored of it.
    pub scope: MirrorScope,
    /// The sites that it is mirrored to, by their names.
    pub peers: Vec<String>,
}

/// What of a pool is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorScope {
    /// Nothing.
    Nothing,
    /// Images that were chosen.
    Images,
    /// All images with a journal, which cannot be chosen.
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
    /// It does not: the image is the primary, or it was stopped.
    Stopped,
}

/// What one site says of an image. It is up to half a minute old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteStatus {
    /// The site's name; empty for our own.
    pub site: String,
    /// Its daemon of rbd-mirror gives signs of life.
    pub is_up: bool,
    /// What it does.
    pub replay: Replay,
    /// What it says in words.
    pub description: String,
    /// How far it is.
    pub progress: Progress,
    /// When it said so; None where it never did.
    pub updated: Option<SystemTime>,
}

impl SiteStatus {
    /// Whether it takes its own image for the primary one.
    pub fn is_primary(&self) -> bool {
        self.is_up && self.was_primary()
    }

    /// The same of when it gave a sign of life last.
    pub fn was_primary(&self) -> bool {
        self.replay == Replay::Stopped && self.description.contains("local image is primary")
    }
}

/// How far the copying of an image is, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// From when the newest state is that was copied whole.
    pub copied: Option<SystemTime>,
    /// How many bytes the last copying took.
    pub bytes: Option<u64>,
    /// How many seconds it took.
    pub seconds: Option<u64>,
    /// With a journal: how many entries are not copied.
    pub behind: Option<u64>,
}

/// What the sites say of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Our own site.
    pub own: SiteStatus,
    /// The others. A primary has one for each secondary, a secondary has one for the primary.
    pub peers: Vec<SiteStatus>,
}

/// A snapshot by which an image is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSnapshot {
    /// Its number.
    pub id: u64,
    /// Whose state it is.
    pub kind: MirrorSnapshotKind,
    /// It was copied whole. One that was taken here always is.
    pub complete: bool,
    /// How many objects of it were copied.
    pub objects: u64,
    /// A peer has not begun to copy anything newer.
    pub linked: bool,
    /// When it was taken or, of a copy, begun.
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
    /// Nothing: a promotion by force has begun on top of what is below.
    Orphan,
}

/// What came of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// It is the primary now.
    Done,
    /// Another is, or its demotion has not arrived here.
    PeerIsPrimary,
}

/// Mirrored images.
pub trait MirrorTool {
    /// How a pool is mirrored.
    fn mirror_pool(&self) -> Result<MirrorPool>;

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

    /// Whether nothing is written under the newest tag in the journal of an image: what changes its role
    /// makes a tag, and then writes an entry under it, by which the peer learns of that.
    fn has_bare_tag(&self, image: &str, id: &str) -> Result<bool>;

    /// Begins to mirror an image that is not mirrored. Fails also where it is by now.
    fn enable_mirroring(&self, image: &str, mode: MirroringMode) -> Result<()>;

    /// Ends it. Of a primary the copies are deleted; a copy takes `force`, by which it is promoted as by
    /// [`Self::promote_by_force`], and becomes an image of its own.
    fn disable_mirroring(&self, image: &str, force: bool) -> Result<()>;

    /// Makes a copy the primary. Fails also where it is by now.
    fn promote(&self, image: &str) -> Result<Promoted>;

    /// The same whatever the peer is. Takes as long as it takes, is never broken off, and outlives the
    /// daemon; no second one is begun on this host meanwhile.
    fn promote_by_force(&self, image: &str) -> Result<()>;

    /// Whether that is under way on this host, begun by this daemon or one before it.
    fn is_promoted_by_force(&self, image: &str) -> Result<bool>;

    /// Makes a primary a copy, even one that is in use. Fails also where it is by now.
    fn demote(&self, image: &str) -> Result<()>;

    /// Asks rbd-mirror to delete a copy and to make it anew.
    fn request_resync(&self, image: &str) -> Result<()>;

    /// When snapshots of an image are taken, which is mirrored by snapshots.
    fn schedules(&self, image: &str) -> Result<Vec<Schedule>>;

    /// Adds a schedule, or finds it.
    fn add_schedule(&self, image: &str, schedule: &Schedule) -> Result<()>;

    /// Removes a schedule, or all of an image.
    fn remove_schedule(&self, image: &str, schedule: Option<&Schedule>) -> Result<()>;
}
