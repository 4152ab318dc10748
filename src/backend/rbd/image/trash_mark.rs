//! The mark of an image that a controller moves to the trash: a lock on its header, which goes with the image
//! wherever that goes, and with which it dies. What bears none was put there by somebody else, and is his to
//! remove.
//!
//! The mark is written before the move: whoever dies in between leaves nothing in the trash that nobody
//! purges. But an image that was marked and not moved is one that may be used again, and be put into the
//! trash by hand some day. So the mark says when it was written, and counts only if the move followed it
//! while the deletion lock lasted. Both moments are of the clock of one machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::deletion_lock;
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked, TrashSource, Trashed};
use crate::error::{Error, Result};

/// The cookie of a mark. Marks lie in clusters, so this may never change, and neither may how a description
/// begins: the version of what follows, and whole seconds since 1970.
const COOKIE: &str = "deleted";
const VERSION: &str = "1";

/// Marks an image as one that is moved to the trash now. The caller holds its deletion lock.
pub(crate) fn mark(pool: &Pool<'_>, image: &str) -> Result<()> {
    let target = LockTarget::TrashMark(image);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let description = format!("{VERSION} {seconds} by controller {}", pool.tag());
    let request = LockRequest { cookie: COOKIE.into(), description, shared: None, seconds: None };
    if pool.lock(target, &request)? == Locked::Now {
        return Ok(());
    }
    // An earlier attempt has marked it.
    pool.holders(target)?.iter().try_for_each(|earlier| pool.unlock(target, earlier))?;
    match pool.lock(target, &request)? {
        Locked::Now => Ok(()),
        Locked::Held => {
            Err(Error::unavailable("it is marked as deleted by another at this moment: try again"))
        }
    }
}

/// Whether a controller has moved this image to the trash, to be purged.
pub(crate) fn is_marked(pool: &Pool<'_>, trashed: &Trashed) -> Result<bool> {
    if trashed.source != TrashSource::User || trashed.is_deferred {
        return Ok(false);
    }
    let at_most = deletion_lock::lifetime(pool.context);
    let followed = |written| trashed.moved.duration_since(written).is_ok_and(|after| after <= at_most);
    Ok(pool.holders(LockTarget::TrashMark(&trashed.id))?.iter().filter_map(written).any(followed))
}

/// When a mark was written; None for one that this version does not know.
fn written(mark: &LockHolder) -> Option<SystemTime> {
    let mut words = mark.description.split(' ');
    let version = words.next().filter(|_| mark.cookie == COOKIE)?;
    let seconds = words.next().filter(|_| version == VERSION)?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_of_this_version_are_read() {
        let mark = |cookie: &str, description: &str| LockHolder {
            cookie: cookie.into(),
            description: description.into(),
            shared: None,
            client: "client.7".into(),
            address: "10.0.0.7:0/7".into(),
        };
        let known = mark("deleted", "1 1795240879 by controller 0000aaaa");
        assert_eq!(written(&known), Some(UNIX_EPOCH + Duration::from_secs(1_795_240_879)));
        for (cookie, description) in [
            ("node-1", "1 1795240879 by controller 0000aaaa"),
            ("deleted", "2 1795240879 by controller 0000aaaa"),
            ("deleted", "1 now"),
            ("deleted", ""),
        ] {
            assert_eq!(written(&mark(cookie, description)), None, "{cookie} {description}");
        }
    }
}
