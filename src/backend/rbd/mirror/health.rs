//! The health of an image's replication, decided from the statuses of its sites.
//!
//! | the peer of a primary says | health |
//! |---|---|
//! | replaying, with the time of its copy | healthy; degraded if it is older than the schedule allows |
//! | replaying, all of the journal read | healthy |
//! | anything else, or nothing, or it gives no sign of life | degraded |
//! | an error; that its own image is primary | error, though the tools show both sides as healthy |

use std::time::{Duration, SystemTime};

use crate::backend::rbd::tool::{MirrorStatus, Replay, SiteStatus};
use crate::backend::{MirroringMode, ReplicationHealth, ReplicationInfo};
use crate::clock::rfc3339;

/// How much later than its schedule a copy may be: a status is up to half a minute old.
const GRACE: Duration = Duration::from_secs(60);

/// The terms of a replication, and when its health is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub mode: MirroringMode,
    /// Between two snapshots, where that is known.
    pub period: Option<Duration>,
    pub now: SystemTime,
}

/// The health of the replication of a primary image.
pub(super) fn of_primary(status: &MirrorStatus, asked: Asked) -> ReplicationInfo {
    let Some(peer) = status.peers.first() else {
        return degraded("no other site has said anything yet: is its rbd-mirror running?".to_string());
    };
    if status.own.replay == Replay::Error {
        return error(format!("this site says {:?}", status.own.description));
    }
    match peer.is_primary() {
        true => error(format!(
            "it is primary at {} too: both may have been written to; demote the one that is to be given up, and \
             resync it",
            name(peer)
        )),
        false => of_copy(peer, asked),
    }
}

/// The health of a copy.
pub(super) fn of_secondary(status: &MirrorStatus, asked: Asked) -> ReplicationInfo {
    match status.peers.first() {
        _ if status.own.replay == Replay::Error => of_copy(&status.own, asked),
        None => degraded("the primary's site has said nothing yet: is its rbd-mirror running?".to_string()),
        Some(peer) if !peer.is_up => {
            // An operator who is about to take it over wants to know the time of the copy.
            let copy = of_copy(&status.own, asked);
            let message = format!("{} gives no sign of life; {}", name(peer), copy.message);
            ReplicationInfo { health: ReplicationHealth::Degraded, message, ..copy }
        }
        Some(peer) if !peer.is_primary() => degraded(format!("it is not primary at {} either", name(peer))),
        Some(_) => of_copy(&status.own, asked),
    }
}

/// The health of a copy, by the status of its own site.
fn of_copy(site: &SiteStatus, asked: Asked) -> ReplicationInfo {
    let progress = site.progress;
    let words = &site.description;
    let (health, message, last_sync) = match (site.is_up, site.replay, asked.mode) {
        (_, Replay::Error, _) => return error(explain(site)),
        (false, Replay::Unknown, _) if site.updated.is_none() => {
            return degraded(format!("not copied to {} yet", name(site)));
        }
        (false, ..) => (
            ReplicationHealth::Degraded,
            format!("rbd-mirror of {} gives no sign of life", name(site)),
            progress.copied,
        ),
        (true, Replay::Replaying, MirroringMode::Journal) => journal(site),
        (true, Replay::Replaying, MirroringMode::Snapshot) => snapshots(site, asked),
        _ => (ReplicationHealth::Degraded, format!("{} says {words:?}", name(site)), progress.copied),
    };
    let duration = progress.copied.and(progress.seconds).map(Duration::from_secs);
    ReplicationInfo { health, message, last_sync, duration, bytes: progress.copied.and(progress.bytes) }
}

/// A journal that was read to its end is as new as the status that says so.
fn journal(site: &SiteStatus) -> (ReplicationHealth, String, Option<SystemTime>) {
    match site.progress.behind {
        Some(0) => {
            let when = site.updated.map(|at| format!(", as of {}", rfc3339(at))).unwrap_or_default();
            (ReplicationHealth::Healthy, format!("copied to {}{when}", name(site)), site.updated)
        }
        Some(behind) => (
            ReplicationHealth::Degraded,
            format!("{behind} changes are not copied to {} yet", name(site)),
            None,
        ),
        None => (ReplicationHealth::Degraded, format!("{} says {:?}", name(site), site.description), None),
    }
}

fn snapshots(site: &SiteStatus, asked: Asked) -> (ReplicationHealth, String, Option<SystemTime>) {
    let Some(copied) = site.progress.copied else {
        let message = format!("{} copies, and has nothing whole since it began", name(site));
        return (ReplicationHealth::Degraded, message, None);
    };
    let age = asked.now.duration_since(copied).unwrap_or_default();
    let message = format!("{} has it as of {}, {} s ago", name(site), rfc3339(copied), age.as_secs());
    match asked.period {
        Some(period) if age > 2 * period + GRACE => {
            let allowed = period.as_secs() / 60;
            let late = format!("{message}, which is late: a snapshot is asked for every {allowed} min");
            (ReplicationHealth::Degraded, late, Some(copied))
        }
        _ => (ReplicationHealth::Healthy, message, Some(copied)),
    }
}

/// An error of rbd-mirror, with what to do about it.
fn explain(site: &SiteStatus) -> String {
    let advice = match site.description.as_str() {
        text if text.contains("split-brain") => {
            ": both sides were written to; resync the one that is to be given up (`cephlet replication resync ID --force` there)"
        }
        text if text.contains("bootstrapping") => {
            ": a parent that is not replicated, or an image in the way there; its rbd-mirror's log has more"
        }
        _ => ": its rbd-mirror's log has more",
    };
    format!("{} says {:?}{advice}", name(site), site.description)
}

fn degraded(message: String) -> ReplicationInfo {
    said(ReplicationHealth::Degraded, message)
}

fn error(message: String) -> ReplicationInfo {
    said(ReplicationHealth::Error, message)
}

fn said(health: ReplicationHealth, message: String) -> ReplicationInfo {
    ReplicationInfo { health, message, last_sync: None, duration: None, bytes: None }
}

/// The name of a site, for messages.
fn name(site: &SiteStatus) -> &str {
    if site.site.is_empty() { "this site" } else { &site.site }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
