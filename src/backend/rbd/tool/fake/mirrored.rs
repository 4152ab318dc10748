//! The state of mirroring in a cluster.

use std::collections::BTreeSet;

use crate::backend::rbd::tool::{MirrorScope, MirrorSnapshot, MirrorStatus, Mirroring};
use crate::backend::replication::Schedule;

/// The part of mirroring that belongs to no image.
pub(super) struct MirrorSetup {
    pub(super) pool: MirrorScope,
    pub(super) daemons: BTreeSet<String>,
    /// Images that a daemon before this one is promoting by force.
    pub(super) promotions: BTreeSet<String>,
}

impl Default for MirrorSetup {
    fn default() -> Self {
        let pool = MirrorScope::Nothing;
        Self { pool, daemons: BTreeSet::new(), promotions: BTreeSet::new() }
    }
}

/// How an image is mirrored.
#[derive(Default)]
pub(super) struct MirroredDisk {
    pub(super) mirroring: Option<Mirroring>,
    pub(super) snapshots: Vec<MirrorSnapshot>,
    pub(super) status: Option<MirrorStatus>,
    pub(super) schedules: Vec<Schedule>,
    /// A demotion was broken off before it was written into the journal.
    pub(super) bare_tag: bool,
}
