//! Mirroring, by `rbd mirror`.

use std::collections::BTreeSet;

use super::PoolCommands;
use super::answer::is;
use super::mirror_output::{JournalOutput, PoolOutput, PoolStatusOutput, ScheduleOutput, StatusOutput};
use super::output::{SnapOutput, read};
use crate::backend::MirroringMode;
use crate::backend::ceph::objects::{ABSENT, Rados, says};
use crate::backend::ceph::{Failure, PoolRef};
use crate::backend::rbd::tool::{ImageRef, MirrorScope, MirrorSnapshot, MirrorStatus, MirrorTool, Promoted};
use crate::backend::replication::Schedule;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd};
use crate::sys::byte_lock;

/// The prefix of the object that keeps the tags of a journal; the id of its image follows.
const JOURNAL: &str = "journal.";

/// The object that every rbd-mirror daemon watches in each pool that it mirrors, and no other client.
const WATCHED_BY_DAEMONS: &str = "rbd_mirroring";

impl MirrorTool for PoolCommands<'_> {
    /// `rbd mirror pool info`, without `--all`, which would show keys.
    fn mirror_pool(&self) -> Result<MirrorScope> {
        let cmd = self.rbd(Class::Question, &["mirror", "pool", "info", "--format=json"]);
        let output = self.run(cmd);
        let output = output.map_err(|failure| self.error(failure, "ask how the pool is mirrored"))?;
        read::<PoolOutput>("rbd mirror pool info", &output.stdout).map(MirrorScope::from)
    }

    /// `rados listwatchers`. It shows no names of clients, but ids, which are never used again.
    fn mirror_daemons(&self) -> Result<BTreeSet<String>> {
        match self.run(self.rados(Class::Question, &["listwatchers", WATCHED_BY_DAEMONS])) {
            Ok(output) => Ok(clients(&String::from_utf8_lossy(&output.stdout))),
            Err(failure) if says(&failure, "error listing watchers", ABSENT) => Ok(BTreeSet::new()),
            Err(failure) => Err(self.error(failure, "look which clients are daemons of rbd-mirror")),
        }
    }

    /// `rbd mirror image status`
    fn mirror_status(&self, image: &str) -> Result<Option<MirrorStatus>> {
        let (words, image) = (["mirror", "image", "status"], ImageRef::Name(image));
        let found = self.question::<StatusOutput>(&words, image, "ask for the mirroring of")?;
        Ok(found.map(MirrorStatus::from))
    }

    /// `rbd mirror pool status --verbose`
    fn mirrored_images(&self) -> Result<Vec<(String, Option<bool>)>> {
        let words = ["mirror", "pool", "status", "--verbose", "--format=json"];
        match self.run(self.rbd(Class::Listing, &words)) {
            Ok(output) => read::<PoolStatusOutput>("rbd mirror pool status", &output.stdout)
                .map(PoolStatusOutput::roles),
            Err(failure) if is(&failure, libc::EINVAL) && failure.says("mirroring not enabled") => {
                Ok(Vec::new())
            }
            Err(failure) => Err(self.error(failure, "list the mirrored images of the pool")),
        }
    }

    /// `rbd snap ls --all`
    fn mirror_snapshots(&self, image: &str) -> Result<Option<Vec<MirrorSnapshot>>> {
        self.snap_ls(ImageRef::Name(image), SnapOutput::mirror_snap)
    }

    /// `rados listomapkeys` of the journal shows its tags; `rbd journal status` shows the tags under which
    /// the image has committed entries.
    fn has_bare_tag(&self, image: &str, id: &str) -> Result<bool> {
        const DOING: &str = "look at the journal of";
        let (journal, image) = (format!("{JOURNAL}{id}"), ImageRef::Name(image));
        let keys = match self.run(self.rados(Class::Question, &["listomapkeys", &journal])) {
            Ok(output) => output.stdout,
            Err(failure) if says(&failure, "error getting omap key set ", ABSENT) => return Ok(false),
            Err(failure) => return Err(self.error(failure, &format!("{DOING} image {}", self.path(image)))),
        };
        let journal = self.question::<JournalOutput>(&["journal", "status"], image, DOING)?;
        let newest = newest_tag(&String::from_utf8_lossy(&keys));
        Ok(journal.is_some_and(|journal| journal.committed() < newest))
    }

    /// `rbd mirror image enable`
    fn enable_mirroring(&self, image: &str, mode: MirroringMode) -> Result<()> {
        let cmd = self.mirror_image(image, "enable")?.arg(mode.word());
        self.mirror(image, cmd, "enable the mirroring")
    }

    /// `rbd mirror image disable`. It fails with EBUSY for a parent of mirrored clones.
    fn disable_mirroring(&self, image: &str, force: bool) -> Result<()> {
        let explain = |failure: Failure| {
            let is_parent = is(&failure, libc::EBUSY);
            let doing = format!("end the mirroring of image {}", self.path(image));
            let error = self.error(failure, &doing);
            match is_parent {
                true => error
                    .with_kind(Kind::Precondition)
                    .hint("clones of it are replicated: disable these first"),
                false => error,
            }
        };
        match force {
            true => self.by_force(image, ["disable", "--force"], explain),
            false => self.run(self.mirror_image(image, "disable")?).map(drop).map_err(explain),
        }
    }

    /// `rbd mirror image promote`, which fails with EBUSY as long as another image is primary.
    fn promote(&self, image: &str) -> Result<Promoted> {
        match self.run(self.mirror_image(image, "promote")?) {
            Ok(_) => Ok(Promoted::Done),
            Err(failure) if is(&failure, libc::EBUSY) => Ok(Promoted::PeerIsPrimary),
            Err(failure) => Err(self.not_promoted(failure, image)),
        }
    }

    /// `rbd mirror image promote --force`
    fn promote_by_force(&self, image: &str) -> Result<()> {
        let explain = |failure| self.not_promoted(failure, image);
        self.by_force(image, ["promote", "--force"], explain)
    }

    fn is_promoted_by_force(&self, image: &str) -> Result<bool> {
        let taken = self.tool.promotions.is_taken(self.lock_key(image));
        taken.map_err(|error| Error::io("look for a promotion by force", &error))
    }

    /// `rbd mirror image demote`
    fn demote(&self, image: &str) -> Result<()> {
        self.mirror(image, self.mirror_image(image, "demote")?, "demote the mirroring")
    }

    /// `rbd mirror image resync`
    fn request_resync(&self, image: &str) -> Result<()> {
        self.mirror(image, self.mirror_image(image, "resync")?, "ask for a resync of the mirroring")
    }

    /// `rbd mirror snapshot schedule ls`, which fails with ENOENT, and no text, if there is none.
    fn schedules(&self, image: &str) -> Result<Vec<Schedule>> {
        let cmd = self.schedule(Class::Question, "ls", image)?.arg("--format=json");
        match self.run(cmd) {
            Ok(output) if output.stdout.trim_ascii().is_empty() => Ok(Vec::new()),
            Ok(output) => {
                let rows = read::<Vec<ScheduleOutput>>("rbd mirror snapshot schedule ls", &output.stdout)?;
                Ok(rows.into_iter().filter_map(ScheduleOutput::schedule).collect())
            }
            Err(failure) if is(&failure, libc::ENOENT) && failure.reason().is_none() => Ok(Vec::new()),
            Err(failure) => {
                let doing = format!("ask when image {} is mirrored", self.path(image));
                Err(self.error(failure, &doing))
            }
        }
    }

    /// `rbd mirror snapshot schedule add`
    fn add_schedule(&self, image: &str, wanted: &Schedule) -> Result<()> {
        let cmd = self.schedule(Class::Change, "add", image)?.args(when(wanted));
        self.mirror(image, cmd, "set the schedule of the mirroring")
    }

    /// `rbd mirror snapshot schedule remove`
    fn remove_schedule(&self, image: &str, unwanted: Option<&Schedule>) -> Result<()> {
        let cmd = self.schedule(Class::Change, "remove", image)?.args(unwanted.into_iter().flat_map(when));
        match self.run(cmd) {
            Ok(_) => Ok(()),
            // The pool has never had a schedule.
            Err(failure)
                if is(&failure, libc::ENOENT) && failure.says("oid rbd_mirror_snapshot_schedule") =>
            {
                Ok(())
            }
            Err(failure) => {
                let doing = format!("remove a schedule of the mirroring of image {}", self.path(image));
                Err(self.error(failure, &doing))
            }
        }
    }
}

impl PoolCommands<'_> {
    /// Runs a command that promotes by force. The command keeps a lock for as long as it runs, and none of
    /// its operations may time out.
    fn by_force(&self, image: &str, words: [&str; 2], explain: impl FnOnce(Failure) -> Error) -> Result<()> {
        let lock = self.tool.promotions.try_take(self.lock_key(image));
        let lock = lock.map_err(|error| Error::io("note down a promotion by force", &error))?;
        let Some(lock) = lock else {
            return Err(Error::unavailable(format!("image {} is being promoted by force", self.path(image))));
        };
        let [word, force] = words;
        let words = ["mirror", "image", word, force];
        let cmd = self.rbd_image(Class::Unbounded, &words, ImageRef::Name(image))?;
        self.run(cmd.keeping_open(lock.file()).outliving()).map(drop).map_err(explain)
    }

    /// The number that stands for the image in the file of promotions.
    fn lock_key(&self, image: &str) -> u64 {
        let PoolRef { access, pool, namespace } = self.at;
        byte_lock::number_of(&[&access.cluster.name, pool, namespace, image].join("/"))
    }

    /// EROFS means that rbd-mirror works on the image; no other client may write to it meanwhile.
    fn not_promoted(&self, failure: Failure, image: &str) -> Error {
        let is_busy = is(&failure, libc::EROFS);
        let error = self.error(failure, &format!("promote image {}", self.path(image)));
        match is_busy {
            true => error.with_kind(Kind::Unavailable).hint("the rbd-mirror here works on it: try again"),
            false => error,
        }
    }

    /// Runs a change. Every failure is an error; the caller then looks at what the image is.
    fn mirror(&self, image: &str, cmd: Cmd, doing: &str) -> Result<()> {
        let doing = || format!("{doing} of image {}", self.path(image));
        self.run(cmd).map(drop).map_err(|failure| self.error(failure, &doing()))
    }

    /// `rbd mirror image` with a word, about an image.
    fn mirror_image(&self, image: &str, word: &str) -> Result<Cmd> {
        self.rbd_image(Class::Change, &["mirror", "image", word], ImageRef::Name(image))
    }

    /// `rbd mirror snapshot schedule` with a word, about an image.
    fn schedule(&self, class: Class, word: &str, image: &str) -> Result<Cmd> {
        self.rbd_image(class, &["mirror", "snapshot", "schedule", word], ImageRef::Name(image))
    }
}

/// A schedule as arguments.
fn when(schedule: &Schedule) -> impl Iterator<Item = String> {
    [schedule.interval()].into_iter().chain(schedule.start.clone())
}

/// The highest number in lines like `tag_000000000000001f`.
fn newest_tag(keys: &str) -> Option<u64> {
    keys.lines().filter_map(|key| u64::from_str_radix(key.strip_prefix("tag_")?, 16).ok()).max()
}

/// The clients in lines like `watcher=10.0.0.7:0/123 client.4711 cookie=1`.
fn clients(lines: &str) -> BTreeSet<String> {
    lines.split_whitespace().filter(|word| word.starts_with("client.")).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_named_once() {
        let lines = "watcher=127.0.0.1:0/2630017465 client.4145 cookie=94228983070720\n\
                     watcher=127.0.0.1:0/2630017465 client.4145 cookie=94228983076480\n\
                     watcher=127.0.0.1:0/1759082975 client.4149 cookie=94722737361280\n";
        assert_eq!(clients(lines), ["client.4145", "client.4149"].map(String::from).into());
        assert_eq!(clients(""), BTreeSet::new());
    }

    #[test]
    fn the_newest_tag_is_found() {
        assert_eq!(newest_tag("client_\ntag_0000000000000009\ntag_000000000000001f\nwidth\n"), Some(31));
        assert_eq!(newest_tag("client_\n"), None);
    }
}
