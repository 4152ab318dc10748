//! What the newest mirror snapshot says of an image: whether it can be promoted, and as of when.

use std::time::SystemTime;

use crate::backend::rbd::tool::{MirrorSnapshot, MirrorSnapshotKind as Kind};

/// What the newest mirror snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    /// There is none.
    None,
    /// A snapshot of a primary, taken here.
    Primary,
    /// The snapshot of a demotion here: nothing has happened to the image since.
    DemotedHere,
    /// A demotion here was broken off: the cluster takes the image for demoted, and no peer ever copies that.
    HalfDemoted,
    /// The peer was demoted, and everything that it had then is here.
    DemotionArrived,
    /// A whole copy of the primary, of this time.
    Copied(SystemTime),
    /// A copy that is being made, or was broken off, with the number of objects that are there. `before` is
    /// the time of the whole copy before it, if there is one.
    Copying { objects: u64, before: Option<SystemTime> },
    /// A promotion by force was broken off when no copy was being made.
    Orphan,
    /// A promotion by force was broken off in the middle of a copy: some of the data may be newer than the
    /// rest.
    Torn,
}

impl Newest {
    /// By all mirror snapshots of an image.
    pub fn of(snapshots: &[MirrorSnapshot]) -> Self {
        let mut sorted: Vec<&MirrorSnapshot> = snapshots.iter().collect();
        sorted.sort_by_key(|it| it.id);
        let Some(top) = sorted.last() else { return Self::None };
        let is_whole = |it: &&&MirrorSnapshot| it.complete && it.kind != Kind::Orphan;
        match (top.kind, top.complete) {
            (Kind::Orphan, _) if sorted.iter().any(|it| !it.complete) => Self::Torn,
            (Kind::Orphan, _) => Self::Orphan,
            (Kind::Demoted, false) => Self::HalfDemoted,
            (_, false) => Self::Copying {
                objects: top.objects,
                before: sorted.iter().rev().find(is_whole).map(|it| it.created),
            },
            (Kind::Primary, true) => Self::Primary,
            (Kind::Demoted, true) => Self::DemotedHere,
            (Kind::CopyOfDemoted, true) => Self::DemotionArrived,
            (Kind::Copy, true) => Self::Copied(top.created),
        }
    }
}

/// Whether a peer has begun to copy an image since it became primary here; None if its snapshots do not tell.
/// Once the peer has begun, no earlier snapshot is linked (Ceph 16.2: some tenths of a second after the
/// promotion, if both daemons of rbd-mirror run). Without peers, none is linked.
pub(super) fn is_followed(snapshots: &[MirrorSnapshot]) -> Option<bool> {
    let newest = snapshots.iter().map(|it| it.id).max()?;
    let is_handover = |it: &&MirrorSnapshot| matches!(it.kind, Kind::Demoted | Kind::CopyOfDemoted);
    if snapshots.iter().filter(is_handover).any(|it| it.linked && it.id < newest) {
        return Some(false);
    }
    let is_of_primary = |it: &&MirrorSnapshot| it.kind == Kind::Primary || is_handover(it);
    snapshots.iter().filter(is_of_primary).any(|it| !it.linked).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::rbd::tool::cli::mirror_output::recorded;
    use crate::clock::rfc3339;

    fn newest(record: &str) -> Newest {
        Newest::of(&recorded::snapshots(record))
    }

    #[test]
    fn each_record_means_one_thing() {
        assert_eq!(Newest::of(&[]), Newest::None);
        assert_eq!(newest("snapshots-demoted"), Newest::DemotedHere);
        assert_eq!(newest("snapshots-split-brain"), Newest::DemotedHere, "the peer's part is in the status");
        assert_eq!(newest("snapshots-demotion-arrived"), Newest::DemotionArrived);
        let Newest::Copied(of) = newest("snapshots-copy") else { panic!("{:?}", newest("snapshots-copy")) };
        assert_eq!(rfc3339(of), "2026-11-24T22:33:23Z");
        let Newest::Copying { objects: 13, before: Some(of) } = newest("snapshots-incomplete") else {
            panic!("{:?}", newest("snapshots-incomplete"));
        };
        assert_eq!(rfc3339(of), "2026-11-24T22:41:39Z");
        assert_eq!(newest("snapshots-orphan"), Newest::Orphan);
        let mut half = recorded::snapshots("snapshots-demoted");
        half.iter_mut().filter(|it| it.kind == Kind::Demoted).for_each(|it| it.complete = false);
        assert_eq!(Newest::of(&half), Newest::HalfDemoted);
    }

    /// The cluster takes a second attempt for whole, which it is not.
    #[test]
    fn an_orphan_on_an_unfinished_copy_is_torn() {
        let mut snapshots = recorded::snapshots("snapshots-incomplete");
        snapshots.extend(recorded::snapshots("snapshots-orphan"));
        assert_eq!(Newest::of(&snapshots), Newest::Torn);
        snapshots.reverse();
        assert_eq!(Newest::of(&snapshots), Newest::Torn, "whatever their order");
        snapshots.retain(|it| it.complete);
        assert_eq!(Newest::of(&snapshots), Newest::Orphan);
        let first = recorded::snapshots("snapshots-incomplete").pop().into_iter().collect::<Vec<_>>();
        assert_eq!(Newest::of(&first), Newest::Copying { objects: 13, before: None });
    }
}
