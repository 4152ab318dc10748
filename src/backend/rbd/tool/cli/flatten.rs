//! Flattening, and the object maps that it relies on.

use super::answer::{absent, is};
use super::images::{NOT_OPENED, change};
use super::{CommandTool, path, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{Changed, FlattenTool, ImageRef};
use crate::call::Call;
use crate::error::Result;
use crate::exec::Class;

impl FlattenTool for CommandTool {
    /// `rbd flatten`
    fn flatten(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Breakable, &["flatten", "--no-progress"], ImageRef::Name(image))?;
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(Changed::Done),
            Err(failure) if is(&failure, libc::EINVAL) && failure.says("image has no parent") => {
                Ok(Changed::Done)
            }
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
            Err(failure) => Err(self.error(call, failure, at, &format!("flatten image {}", path(at, image)))),
        }
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
        let cmd = rbd_image(at, Class::Breakable, &words, ImageRef::Name(image))?;
        change(self, call, at, image, cmd, "rebuild the object map")
    }
}
