//! How a copy can be promoted now, by its newest snapshot and what the peer says of itself.
//!
//! | the newest snapshot | without force | by force |
//! |---|---|---|
//! | the peer's demotion, or one here that was broken off | unless the peer was promoted since | yes |
//! | a demotion here | no | yes |
//! | a whole copy | no | it becomes that copy |
//! | a copy in progress, and the peer is up | no | after a wait for the copy |
//! | a copy in progress, and the peer is gone | no | if the loss is accepted and rbd-mirror here is stopped |
//! | begun by a promotion, on top of a whole snapshot | no | yes |
//! | begun by a promotion, on top of one that is incomplete | no | no |
//!
//! A journal has no such snapshots: there the marks in the metadata and the sites' statuses decide.

use std::time::SystemTime;

use super::newest::Newest;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::names::{DEMOTED_KEY, FIRST_COPY, NEVER_DEMOTED};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, MirrorStatus, Mirroring, Replay, SiteStatus};
use crate::backend::{MirroringMode, Promotion};
use crate::clock::rfc3339;
use crate::csi::NOT_YET;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;

/// What a promotion without force relies on, in the words of its refusals.
const ARRIVED: &str = "the demotion has arrived";
pub(super) const BROKEN_OFF: &str = "a promotion or demotion here was broken off";

/// An attempt to promote a volume.
pub(super) struct Attempt<'a> {
    pub pool: &'a Pool<'a>,
    pub id: &'a VolumeId,
    pub info: &'a ImageInfo,
    pub asked: &'a Promotion,
}

/// How an image is to be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Another command is promoting it.
    Taken,
    /// No other site is primary.
    Plain,
    /// A primary elsewhere is ignored; the promoted data is of this time, if that is known.
    Forced(Option<SystemTime>),
    /// The same in mid-copy: the image becomes what it was one snapshot before the one of this time.
    ForcedBack(SystemTime),
}

/// Refuses a copy that a promotion by force would not turn into its last whole copy.
pub(super) fn ensure_whole(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    mirroring: &Mirroring,
) -> Result<()> {
    let asked = Promotion { force: true, accept_loss: false, schedule: None };
    let attempt = Attempt { pool, id, info, asked: &asked };
    match attempt.way(mirroring)? {
        Way::Taken => Err(attempt.under_way()),
        Way::Plain | Way::Forced(_) | Way::ForcedBack(_) => Ok(()),
    }
}

impl Attempt<'_> {
    /// How the image can be promoted now.
    pub fn way(&self, mirroring: &Mirroring) -> Result<Way> {
        if mirroring.mode == MirroringMode::Journal {
            return if self.asked.force { self.forced_by_the_journal() } else { self.by_the_journal() };
        }
        match (self.settled()?, self.asked.force) {
            (Newest::DemotionArrived | Newest::HalfDemoted, true) => Ok(Way::Plain),
            (Newest::DemotionArrived, false) => self.unless_promoted_again(ARRIVED),
            (Newest::HalfDemoted, false) => self.unless_promoted_again(BROKEN_OFF),
            (Newest::Primary, _) => Ok(Way::Taken),
            (Newest::DemotedHere, false) => Err(self.given_away()),
            (Newest::DemotedHere, true) => Ok(Way::Plain),
            (Newest::Copied(since), false) => Err(self.not_yet(&newest_copy(Some(since)))),
            (Newest::Copied(since), true) => Ok(Way::Forced(Some(since))),
            (Newest::Copying { before, .. }, false) => Err(self.not_yet(&newest_copy(before))),
            (Newest::Copying { before, .. }, true) => self.in_mid_copy(before),
            (Newest::Orphan, false) => Err(self.broken_off()),
            (Newest::Orphan, true) => Ok(Way::Forced(None)),
            (Newest::Torn, _) => Err(self.torn()),
            (Newest::None, _) => Err(self.never_whole()),
        }
    }

    /// Once the first copy is whole, the journal has brought the state of some moment. During the first copy
    /// the image has a snapshot of rbd-mirror, and is promoted with what is there (Ceph 16.2: status 0 with
    /// 87 of 400 objects). If the other site is lost then, the snapshot stays; but rbd-mirror says that it
    /// replays only when all is there. Before the first copy, the image is empty without a mark.
    fn forced_by_the_journal(&self) -> Result<Way> {
        let own = self.status()?.map(|status| status.own);
        if own.as_ref().is_some_and(|own| own.replay == Replay::Replaying) {
            return Ok(Way::Forced(None));
        }
        let snapshots = self.pool.snapshots(ImageRef::Id(&self.info.id))?.unwrap_or_default();
        if snapshots.iter().any(|it| it.name.starts_with(FIRST_COPY)) {
            return Err(self.never_whole());
        }
        let is_begun = own.is_some_and(|own| own.updated.is_some() && own.replay != Replay::Starting);
        if is_begun || self.asked.accept_loss || self.demoted_last()?.is_some() {
            return Ok(Way::Forced(None));
        }
        Err(Error::precondition(format!(
            "nobody says whether volume {} was ever copied whole, and if not it is empty: the rbd-mirror here does \
             not replay its journal. See to that, or promote it and accept the loss (`cephlet replication promote {} \
             --force --accept-loss`; parameter acceptLoss=true)",
            self.id, self.id
        )))
    }

    /// The way without force for a journal. The cluster itself refuses a copy until the demotion of the peer
    /// has arrived, but refuses no image that was demoted here.
    fn by_the_journal(&self) -> Result<Way> {
        match self.demoted_last()? {
            Some(demoted) if demoted == self.info.id => Err(self.given_away()),
            Some(_) => self.unless_promoted_again(ARRIVED),
            None => self.unless_peer_is_primary(),
        }
    }

    /// The id of the volume's image that was demoted last, if a controller did it.
    fn demoted_last(&self) -> Result<Option<String>> {
        let demoted = self.pool.metadata(&self.info.name, DEMOTED_KEY)?;
        Ok(demoted.filter(|image| image != NEVER_DEMOTED))
    }

    /// For an image that no controller demoted, so the site of a demotion is unknown.
    fn unless_peer_is_primary(&self) -> Result<Way> {
        let status = self.status()?;
        match peer(status.as_ref()) {
            Some(peer) if peer.is_primary() => Err(refusal(
                status.as_ref(),
                format!(
                    "{NOT_YET}: volume {} is primary at {:?}, as that site said last: demote it there and wait for \
                     that; promoted here as well (force) the two would go different ways, and one of them would \
                     have to be given up",
                    self.id, peer.site
                ),
            )),
            Some(peer) if peer.is_up => Ok(Way::Plain),
            _ => Err(Error::precondition(format!(
                "{NOT_YET}: nobody says whether volume {} is primary elsewhere, as the other site gives no sign of \
                 life: promote it with force if it is not",
                self.id
            ))),
        }
    }

    /// After the peer's demotion has arrived, or one here was broken off, the peer may have been promoted by
    /// force, and nothing of that has arrived. Its status says so within some tenths of a second.
    pub fn unless_promoted_again(&self, what: &str) -> Result<Way> {
        let status = self.status()?;
        let Some(peer) = peer(status.as_ref()).filter(|peer| peer.was_primary()) else {
            return Ok(Way::Plain);
        };
        let (id, site) = (self.id, &peer.site);
        let since = peer.updated.map(rfc3339).unwrap_or_else(|| "an unknown time".to_string());
        let said = format!("volume {id}: {what}, but {site:?} said at {since} that it is primary there");
        let what = match peer.is_up {
            true => format!(
                "{NOT_YET}: {said}: if it stays so it was promoted there again by force, so demote it there; if it is \
                 no primary there, that site's rbd-mirror hangs, and force does no harm"
            ),
            false => format!(
                "{NOT_YET}: {said}, and gives no sign of life: if it was promoted there again, demote it; if that \
                 site is gone, promote it here with force, which loses nothing that was written before the demotion"
            ),
        };
        Err(refusal(status.as_ref(), what))
    }

    pub fn status(&self) -> Result<Option<MirrorStatus>> {
        self.pool.mirror_status(&self.info.name)
    }

    fn newest(&self) -> Result<Newest> {
        let snapshots = self.pool.mirror_snapshots(&self.info.name)?.unwrap_or_default();
        Ok(Newest::of(&snapshots))
    }

    /// The newest snapshot, once no command changes it any more and, by force, no copying does. A copy in
    /// progress is waited for as long as it goes on, or can go on.
    fn settled(&self) -> Result<Newest> {
        let (timing, name) = (self.pool.timing(), &self.info.name);
        let mut newest = self.newest()?;
        loop {
            let look = || Ok(Some(self.newest()?).filter(|now| *now != newest));
            let changed = match newest {
                Newest::HalfDemoted => await_end_of_command(self.pool, name, look)?,
                Newest::Copying { objects, .. } if self.asked.force => {
                    let patience = match is_up(peer(self.status()?.as_ref())) {
                        true => timing.copy_goes_on,
                        false => timing.copy_stands_still,
                    };
                    let what = format!("the copying of {name} (object {objects})");
                    self.pool.call.wait_for(what, patience, timing.copy_look, look)?
                }
                _ => None,
            };
            match changed {
                Some(now) => newest = now,
                None => return Ok(newest),
            }
        }
    }

    /// The way by force while a copy is incomplete and does not advance.
    fn in_mid_copy(&self, before: Option<SystemTime>) -> Result<Way> {
        let status = self.status()?;
        if is_up(peer(status.as_ref())) {
            let name = &self.info.name;
            return Err(Error::unavailable(format!(
                "{NOT_YET}: image {name:?} is still being copied, and a promotion in the middle of that fails; \
                 the other site is up, so it goes on: try again, or look at the rbd-mirror here"
            )));
        }
        match (before, self.asked.accept_loss) {
            (None, _) => Err(Error::precondition(format!(
                "volume {} was never copied whole, and the other site is gone: there is nothing to take over",
                self.id
            ))),
            (Some(before), false) => Err(self.would_lose(before)),
            (Some(before), true) if is_up(status.as_ref().map(|status| &status.own)) => {
                Err(Error::precondition(format!(
                    "the rbd-mirror of this cluster still waits for the rest of volume {} (whole as of {}): stop \
                     all its daemons, wait for 30 s and try again; as long as one runs the promotion never ends",
                    self.id,
                    rfc3339(before)
                )))
            }
            (Some(before), true) => Ok(Way::ForcedBack(before)),
        }
    }

    fn would_lose(&self, before: SystemTime) -> Error {
        Error::precondition(format!(
            "volume {} was being copied when the other site went, and promoting it now loses more than that: it \
             would be what it was one snapshot before that of {}, and nothing but zeros if that was the first; \
             bring the other site back, or promote it and accept the loss (`cephlet replication promote {} --force \
             --accept-loss`; parameter acceptLoss=true)",
            self.id,
            rfc3339(before),
            self.id
        ))
    }

    fn never_whole(&self) -> Error {
        Error::precondition(format!(
            "volume {} was never copied whole: there is nothing to take over yet",
            self.id
        ))
    }

    fn torn(&self) -> Error {
        Error::precondition(format!(
            "a promotion by force of volume {} was broken off in the middle of a copy: some of its data may be \
             newer than the rest, and promoted it would look well. Bring the other site back and let it copy (the \
             promotion is undone by that), or restore it from elsewhere",
            self.id
        ))
    }

    fn broken_off(&self) -> Error {
        Error::precondition(format!(
            "a promotion by force of volume {} was broken off: promote it with force once more",
            self.id
        ))
    }

    /// `known` is what is known of the copy.
    pub fn not_yet(&self, known: &str) -> Error {
        self.refuse(format!(
            "{NOT_YET}: the demotion of volume {} at the other site has not arrived here{known}: demote it there and \
             wait for that; if that site is lost, promote it with force",
            self.id
        ))
    }

    fn given_away(&self) -> Error {
        self.refuse(format!(
            "{NOT_YET}: volume {} was demoted here, and nothing has arrived since: if the other site had it, demote \
             it there and wait for that (if nothing comes, promote it there with force, and demote it again once \
             it is copied); if nobody had it, promote it here with force",
            self.id
        ))
    }

    fn refuse(&self, what: String) -> Error {
        match self.status() {
            Ok(status) => refusal(status.as_ref(), what),
            Err(_) => Error::unavailable(what),
        }
    }

    pub fn under_way(&self) -> Error {
        let what = format!("volume {} is just being promoted by somebody else: try again", self.id);
        Error::new(Kind::Busy, what)
    }
}

/// What looks broken off may be another controller's command in progress: then `look` finds a change within a
/// while.
pub(super) fn await_end_of_command<T>(
    pool: &Pool<'_>,
    name: &str,
    look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let what = format!("a command that may be changing the role of image {name}");
    pool.call.wait_for(what, pool.timing().role_change, pool.timing().copy_look, look)
}

/// The refusal of a promotion without force. As long as the peer is up, the answer is to wait: some clients
/// of csi-addons use force by themselves after a failed precondition, and would lose what is on its way.
fn refusal(status: Option<&MirrorStatus>, what: String) -> Error {
    if is_up(peer(status)) { Error::unavailable(what) } else { Error::precondition(what) }
}

fn peer(status: Option<&MirrorStatus>) -> Option<&SiteStatus> {
    status.and_then(|status| status.peers.first())
}

fn is_up(site: Option<&SiteStatus>) -> bool {
    site.is_some_and(|site| site.is_up)
}

fn newest_copy(of: Option<SystemTime>) -> String {
    of.map_or(", and nothing was copied whole yet".to_string(), |of| {
        format!(", the newest copy is of {}", rfc3339(of))
    })
}
