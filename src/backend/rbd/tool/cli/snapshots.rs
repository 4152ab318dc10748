//! Snapshots and what is cloned from them.

use serde::de::IgnoredAny;

use super::answer::{absent, is, missing_data_pool};
use super::images::{NOT_OPENED, change, layout};
use super::output::{SnapOutput, read};
use super::{CommandTool, destination, path, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{
    Changed, ImageRef, Made, NewClone, Removed, RemovedByNumber, SnapshotInfo, SnapshotTool,
};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::Class;

impl SnapshotTool for CommandTool {
    /// `rbd snap create`
    fn create_snapshot(
        &self,
        call: &Call,
        at: &PoolRef,
        image: &str,
        snapshot: &str,
    ) -> Result<Option<Made>> {
        let cmd = rbd_image(at, Class::Change, &["snap", "create", "--no-progress"], ImageRef::Name(image))?;
        match self.run(call, &at.access, cmd.arg(format!("--snap={snapshot}"))) {
            Ok(_) => Ok(Some(Made::New)),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Some(Made::Taken)),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) if is(&failure, libc::EROFS) => {
                Err(of_copy(&format!("take snapshot {}@{snapshot}", path(at, image))))
            }
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("take snapshot {}@{snapshot}", path(at, image))))
            }
        }
    }

    /// `rbd snap ls --all`
    fn snapshots(&self, call: &Call, at: &PoolRef, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>> {
        let cmd = rbd_image(at, Class::Question, &["snap", "ls", "--all", "--format=json"], image)?;
        match self.ask(call, &at.access, cmd) {
            Ok(output) => {
                let rows = read::<Vec<SnapOutput>>("rbd snap ls", &output.stdout)?;
                Ok(Some(rows.into_iter().filter_map(SnapOutput::snap).collect()))
            }
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) => Err(self.error(
                call,
                failure,
                at,
                &format!("list the snapshots of image {}", path(at, image)),
            )),
        }
    }

    /// `rbd snap rm`. Without --force: that would flatten the clones of a protected snapshot.
    fn remove_snapshot(
        &self,
        call: &Call,
        at: &PoolRef,
        image: ImageRef<'_>,
        snapshot: &str,
    ) -> Result<Removed> {
        let cmd = rbd_image(at, Class::Change, &["snap", "rm", "--no-progress"], image)?;
        let doing = || format!("delete snapshot {}@{snapshot}", path(at, image));
        match self.run(call, &at.access, cmd.arg(format!("--snap={snapshot}"))) {
            Ok(_) => Ok(Removed::Gone),
            Err(failure) if absent(&failure, &[NOT_OPENED, "failed to remove snapshot: "]) => {
                Ok(Removed::Absent)
            }
            Err(failure) if failure.says("is protected from removal") => Err(protected(&doing())),
            Err(failure) if is(&failure, libc::EROFS) => Err(of_copy(&doing())),
            Err(failure) => Err(self.error(call, failure, at, &doing())),
        }
    }

    /// `rbd children --all`. In 16.2 it takes no id.
    fn has_clones(&self, call: &Call, at: &PoolRef, image: &str) -> Result<bool> {
        let words = ["children", "--all", "--format=json"];
        let cmd = rbd_image(at, Class::Question, &words, ImageRef::Name(image))?;
        match self.ask(call, &at.access, cmd) {
            Ok(output) => Ok(!read::<Vec<IgnoredAny>>("rbd children", &output.stdout)?.is_empty()),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(false),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("list the clones of image {}", path(at, image))))
            }
        }
    }

    /// `rbd snap rm --snap-id`, which takes no `--no-progress`. In the trash, one with clones is "protected".
    fn remove_snapshot_by_number(
        &self,
        call: &Call,
        at: &PoolRef,
        image: &str,
        snapshot: u64,
    ) -> Result<RemovedByNumber> {
        let cmd = rbd_image(at, Class::Change, &["snap", "rm"], ImageRef::Id(image))?;
        let doing = || format!("delete snapshot {snapshot} of image {}", path(at, ImageRef::Id(image)));
        match self.run(call, &at.access, cmd.arg(format!("--snap-id={snapshot}"))) {
            Ok(_) => Ok(RemovedByNumber::Gone),
            Err(failure) if absent(&failure, &[NOT_OPENED, "failed to remove snapshot: "]) => {
                Ok(RemovedByNumber::Absent)
            }
            Err(failure) if failure.says("is protected from removal") => Ok(RemovedByNumber::Protected),
            Err(failure) if is(&failure, libc::EROFS) => Err(of_copy(&doing())),
            Err(failure) => Err(self.error(call, failure, at, &doing())),
        }
    }

    /// `rbd clone`, of version 2 whatever the cluster's default: its parent need not be protected, and can be
    /// deleted.
    fn clone_image(&self, call: &Call, clone: &NewClone<'_>) -> Result<Option<Made>> {
        let NewClone { from: at, image, snapshot, to, name, layout: how } = *clone;
        let words = ["clone", "--rbd-default-clone-format=2"];
        let cmd =
            rbd_image(at, Class::Change, &words, ImageRef::Name(image))?.arg(format!("--snap={snapshot}"));
        match self.run(call, &at.access, cmd.args(destination(to, name)?).args(layout(how))) {
            Ok(_) => Ok(Some(Made::New)),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Some(Made::Taken)),
            Err(failure)
                if absent(&failure, &["clone error: "]) && missing_data_pool(&failure, how).is_none() =>
            {
                Ok(None)
            }
            Err(failure) if failure.says("parent snapshot must be protected") => {
                let doing = format!("clone {}@{snapshot} to {}", path(at, image), path(to, name));
                Err(without_clones(&doing, &to.pool))
            }
            Err(failure) => {
                let doing = format!("clone {}@{snapshot} to {}", path(at, image), path(to, name));
                // rbd quotes the pool or namespace that it misses: the new image's, if it is not the
                // source's.
                let theirs =
                    [&at.pool, &at.namespace].into_iter().any(|name| failure.says(&format!("'{name}'")));
                Err(if theirs {
                    self.error(call, failure, at, &doing)
                } else {
                    self.not_made(call, failure, to, how, &doing)
                })
            }
        }
    }

    /// `rbd flatten`
    fn flatten(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Lasting, &["flatten", "--no-progress"], ImageRef::Name(image))?;
        change(self, call, at, image, cmd, "copy all data of the parent")
    }

    /// `rbd feature disable`
    fn disable_features(&self, call: &Call, at: &PoolRef, image: &str, features: &[&str]) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Change, &["feature", "disable"], ImageRef::Name(image))?;
        change(self, call, at, image, cmd.args(features), "disable features")
    }

    /// `rbd feature enable`
    fn enable_features(&self, call: &Call, at: &PoolRef, image: &str, features: &[&str]) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Change, &["feature", "enable"], ImageRef::Name(image))?;
        change(self, call, at, image, cmd.args(features), "enable features")
    }

    /// `rbd object-map rebuild`
    fn rebuild_object_map(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed> {
        let words = ["object-map", "rebuild", "--no-progress"];
        let cmd = rbd_image(at, Class::Lasting, &words, ImageRef::Name(image))?;
        change(self, call, at, image, cmd, "rebuild the object map")
    }
}

/// The refusal of a pool whose own option has clones be of the first version. Nothing overrides it, and such
/// clones need a protected snapshot, which could not be deleted.
fn without_clones(doing: &str, pool: &str) -> Error {
    Error::precondition(format!(
        "{doing}: the option rbd_default_clone_format of pool {pool:?} asks for clones of version 1, which \
         keep their parent's snapshot from being deleted: `rbd config pool rm {pool} rbd_default_clone_format`"
    ))
}

/// The refusal of a snapshot that somebody has protected.
fn protected(doing: &str) -> Error {
    Error::precondition(format!(
        "{doing}: it is protected, perhaps for clones of version 1: delete or flatten them, then `rbd snap \
         unprotect` it"
    ))
}

/// What nobody can do to a mirrored image that is no primary.
fn of_copy(doing: &str) -> Error {
    Error::precondition(format!(
        "{doing}: the image is a copy (secondary) that follows another cluster: do it there, or promote it first"
    ))
}
