//! Snapshots and what is cloned from them.

use serde::de::IgnoredAny;

use super::answer::{NOT_OPENED, absent, is, missing_data_pool};
use super::images::layout;
use super::output::SnapOutput;
use super::{PoolCommands, destination};
use crate::backend::ceph::objects::Rados;
use crate::backend::rbd::tool::{
    Changed, ImageRef, Made, NewClone, Removed, RemovedByNumber, SnapshotInfo, SnapshotTool,
};
use crate::error::{Error, Result};
use crate::exec::Class;

impl PoolCommands<'_> {
    /// `rbd snap ls --all`: what `which` returns for each snapshot of an image, without the None.
    pub(super) fn snap_ls<T>(
        &self,
        image: ImageRef<'_>,
        which: fn(SnapOutput) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let words = ["snap", "ls", "--all"];
        let rows = self.question::<Vec<SnapOutput>>(&words, image, "list the snapshots of")?;
        Ok(rows.map(|rows| rows.into_iter().filter_map(which).collect()))
    }

    /// `rbd snap rm`. Without --force: that would flatten the clones of a protected snapshot.
    fn snap_rm(
        &self,
        image: ImageRef<'_>,
        options: &[&str],
        snapshot: String,
        doing: &str,
    ) -> Result<RemovedByNumber> {
        let cmd = self.rbd_image(Class::Change, &[&["snap", "rm"], options].concat(), image)?;
        match self.run(cmd.arg(snapshot)) {
            Ok(_) => Ok(RemovedByNumber::Gone),
            Err(failure) if absent(&failure, &[NOT_OPENED, "failed to remove snapshot: "]) => {
                Ok(RemovedByNumber::Absent)
            }
            Err(failure) if failure.says("is protected from removal") => Ok(RemovedByNumber::Protected),
            Err(failure) if is(&failure, libc::EROFS) => Err(of_copy(doing)),
            Err(failure) => Err(self.error(failure, doing)),
        }
    }
}

impl SnapshotTool for PoolCommands<'_> {
    /// `rbd snap create`
    fn create_snapshot(&self, image: &str, snapshot: &str) -> Result<Option<Made>> {
        let words = ["snap", "create", "--no-progress"];
        let cmd = self.rbd_image(Class::Change, &words, ImageRef::Name(image))?;
        let doing = || format!("take snapshot {}@{snapshot}", self.path(image));
        match self.run(cmd.arg(format!("--snap={snapshot}"))) {
            Ok(_) => Ok(Some(Made::New)),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Some(Made::Taken)),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) if is(&failure, libc::EROFS) => Err(of_copy(&doing())),
            Err(failure) => Err(self.error(failure, &doing())),
        }
    }

    /// `rbd snap ls --all`
    fn snapshots(&self, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>> {
        self.snap_ls(image, SnapOutput::snap)
    }

    fn remove_snapshot(&self, image: ImageRef<'_>, snapshot: &str) -> Result<Removed> {
        let doing = format!("delete snapshot {}@{snapshot}", self.path(image));
        match self.snap_rm(image, &["--no-progress"], format!("--snap={snapshot}"), &doing)? {
            RemovedByNumber::Gone => Ok(Removed::Gone),
            RemovedByNumber::Absent => Ok(Removed::Absent),
            RemovedByNumber::Protected => Err(protected(&doing)),
        }
    }

    /// `rbd children --all`. In 16.2 it takes no id.
    fn has_clones(&self, image: &str) -> Result<bool> {
        let (words, image) = (["children", "--all"], ImageRef::Name(image));
        let clones = self.question::<Vec<IgnoredAny>>(&words, image, "list the clones of")?;
        Ok(clones.is_some_and(|clones| !clones.is_empty()))
    }

    /// `rbd snap rm --snap-id` takes no `--no-progress`. In the trash a snapshot with clones is "protected".
    fn remove_snapshot_by_number(&self, image: &str, snapshot: u64) -> Result<RemovedByNumber> {
        let image = ImageRef::Id(image);
        let doing = format!("delete snapshot {snapshot} of image {}", self.path(image));
        self.snap_rm(image, &[], format!("--snap-id={snapshot}"), &doing)
    }

    /// `rbd clone`, of version 2 even if the cluster's default is 1: the parent's snapshot need not be
    /// protected, and can be deleted.
    fn clone_image(&self, clone: &NewClone<'_>) -> Result<Option<Made>> {
        let NewClone { from, image, snapshot, to, name, layout: how } = *clone;
        let (from, to) = (self.tool.at(self.call, from), self.tool.at(self.call, to));
        let words = ["clone", "--rbd-default-clone-format=2"];
        let cmd = from.rbd_image(Class::Change, &words, ImageRef::Name(image))?;
        let cmd = cmd.arg(format!("--snap={snapshot}")).args(destination(to.at, name)?).args(layout(how));
        let doing = || format!("clone {}@{snapshot} to {}", from.path(image), to.path(name));
        match from.run(cmd) {
            Ok(_) => Ok(Some(Made::New)),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Some(Made::Taken)),
            Err(failure)
                if absent(&failure, &["clone error: "]) && missing_data_pool(&failure, how).is_none() =>
            {
                Ok(None)
            }
            Err(failure) if failure.says("parent snapshot must be protected") => {
                Err(without_clones(&doing(), &to.at.pool))
            }
            Err(failure) => {
                // rbd quotes the pool or namespace that is missing. If it is not the source's, it is the new
                // image's.
                let is_theirs = |name: &&String| failure.says(&format!("'{name}'"));
                match [&from.at.pool, &from.at.namespace].iter().any(is_theirs) {
                    true => Err(from.error(failure, &doing())),
                    false => Err(to.not_made(failure, how, &doing())),
                }
            }
        }
    }

    /// `rbd flatten`, which writes how far it is
    fn flatten(&self, image: &str) -> Result<Changed> {
        self.change(Class::Lasting, &["flatten"], image, &[], "copy all data of the parent")
    }

    /// `rbd feature disable`
    fn disable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.change(Class::Change, &["feature", "disable"], image, features, "disable features")
    }

    /// `rbd feature enable`
    fn enable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.change(Class::Change, &["feature", "enable"], image, features, "enable features")
    }

    /// `rbd object-map rebuild`, which writes how far it is
    fn rebuild_object_map(&self, image: &str) -> Result<Changed> {
        self.change(Class::Lasting, &["object-map", "rebuild"], image, &[], "rebuild the object map")
    }
}

/// The error for a pool whose own option makes clones of version 1. Nothing overrides that option, and such
/// clones need a protected snapshot, which could not be deleted.
fn without_clones(doing: &str, pool: &str) -> Error {
    Error::precondition(format!(
        "{doing}: the option rbd_default_clone_format of pool {pool:?} asks for clones of version 1, which \
         keep their parent's snapshot from being deleted: `rbd config pool rm {pool} rbd_default_clone_format`"
    ))
}

/// The error for a snapshot that an operator has protected.
fn protected(doing: &str) -> Error {
    Error::precondition(format!(
        "{doing}: it is protected, perhaps for clones of version 1: delete or flatten them, then `rbd snap \
         unprotect` it"
    ))
}

/// The error for a change of a mirrored image that is not primary.
fn of_copy(doing: &str) -> Error {
    Error::precondition(format!(
        "{doing}: the image is a copy (secondary) that follows another cluster: do it there, or promote it first"
    ))
}
