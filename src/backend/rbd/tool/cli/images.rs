//! Images: made, looked up, listed, renamed, resized, removed; and the values kept with them: metadata, and
//! limits, which are metadata that clients obey.

use std::collections::BTreeMap;

use super::answer::{absent, is};
use super::objects::remove_object;
use super::options;
use super::output::{InfoOutput, Row, StatusOutput, entries, read};
use super::stream::empty_image;
use super::{CommandTool, destination, osd_command, path, rbd, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{
    Changed, ImageInfo, ImageRef, ImageTool, Layout, Limits, ListedImage, Made, NewImage, PoolOptions,
    Removed, Renamed, Watcher,
};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Tool};

/// What `rbd` says where it finds no image to open.
pub(super) const NOT_OPENED: &str = "error opening image";

/// An image that is removed does not go to the trash, neither always nor as long as it has clones.
const FOR_GOOD: [&str; 2] =
    ["--rbd-move-to-trash-on-remove=false", "--rbd-move-parent-to-trash-on-remove=false"];

/// A layout as options.
pub(super) fn layout(layout: &Layout) -> impl Iterator<Item = String> {
    let data_pool = layout.data_pool.as_ref().map(|pool| format!("--data-pool={pool}"));
    let features = layout.features.as_ref().map(|features| {
        let names: Vec<&str> = features.iter().map(String::as_str).collect();
        format!("--image-feature={}", names.join(","))
    });
    let object_size = layout.object_size.map(|bytes| format!("--object-size={bytes}B"));
    let unit = layout.striping.map(|(unit, _)| format!("--stripe-unit={unit}B"));
    let count = layout.striping.map(|(_, count)| format!("--stripe-count={count}"));
    [data_pool, features, object_size, unit, count].into_iter().flatten()
}

/// `rbd rm`, whatever the cluster says of the trash. It also clears up half-made images.
fn remove(cli: &CommandTool, call: &Call, at: &PoolRef, image: &str, class: Class) -> Result<Removed> {
    let cmd = rbd_image(at, class, &["rm", "--no-progress"], ImageRef::Name(image))?.args(FOR_GOOD);
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Removed::Gone),
        Err(failure) if absent(&failure, &["delete error: "]) => Ok(Removed::Absent),
        // Another command removed it at the same time.
        Err(failure) if is(&failure, libc::ESTALE) => Ok(Removed::Absent),
        Err(failure) if is(&failure, libc::EBUSY) => Ok(Removed::Watched),
        Err(failure) if is(&failure, libc::ENOTEMPTY) => Ok(Removed::HasSnapshots),
        Err(failure) => Err(cli.error(call, failure, at, &format!("remove image {}", path(at, image)))),
    }
}

impl ImageTool for CommandTool {
    /// `rbd import`: it makes image and metadata in one process, where `rbd create` would need another one
    /// for each value. The image first gets the size of the file that is read, so that file looks as large:
    /// one whose making is killed has the right size or does not exist. From a pipe it would first be as
    /// large as an object.
    fn create(&self, call: &Call, at: &PoolRef, image: &NewImage<'_>) -> Result<Made> {
        let words = ["import", "--no-progress", "--export-format=2", "--path=/proc/self/fd/0"];
        let cmd = osd_command(at, Tool::Rbd, Class::Change).args(words);
        let cmd = cmd.args(destination(at, image.name)?).args(layout(image.layout));
        let cmd = cmd.stdin(empty_image(image.size, image.metadata)).stdin_length(image.size);
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(Made::New),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Made::Taken),
            Err(failure) => Err(self.not_made(
                call,
                failure,
                at,
                image.layout,
                &format!("make image {}", path(at, image.name)),
            )),
        }
    }

    /// `rbd info`
    fn info(&self, call: &Call, at: &PoolRef, image: ImageRef<'_>) -> Result<Option<ImageInfo>> {
        let cmd = rbd_image(at, Class::Question, &["info", "--format=json"], image)?;
        match self.ask(call, &at.access, cmd) {
            Ok(output) => read::<InfoOutput>("rbd info", &output.stdout).map(|it| Some(it.into())),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) => Err(self.error(call, failure, at, &format!("look up image {}", path(at, image)))),
        }
    }

    /// `rbd image-meta get`, which prints the value and a line end.
    fn metadata(&self, call: &Call, at: &PoolRef, image: &str, key: &str) -> Result<Option<String>> {
        let cmd =
            rbd_image(at, Class::Question, &["image-meta", "get"], ImageRef::Name(image))?.args(["--", key]);
        let doing = || format!("read {key} of image {}", path(at, image));
        match self.run(call, &at.access, cmd) {
            Ok(mut output) => {
                output.stdout.pop_if(|last| *last == b'\n');
                let value = String::from_utf8(output.stdout);
                value.map(Some).map_err(|_| Error::internal(format!("{}: its value is not UTF-8", doing())))
            }
            Err(failure) if absent(&failure, &[NOT_OPENED, "getting metadata failed: "]) => Ok(None),
            Err(failure) => Err(self.error(call, failure, at, &doing())),
        }
    }

    /// `rbd image-meta ls`, which prints nothing where there is none.
    fn all_metadata(
        &self,
        call: &Call,
        at: &PoolRef,
        image: &str,
    ) -> Result<Option<BTreeMap<String, String>>> {
        let words = ["image-meta", "ls", "--format=json"];
        let cmd = rbd_image(at, Class::Question, &words, ImageRef::Name(image))?;
        match self.ask(call, &at.access, cmd) {
            Ok(output) if output.stdout.trim_ascii().is_empty() => Ok(Some(BTreeMap::new())),
            Ok(output) => read("rbd image-meta ls", &output.stdout).map(Some),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("read the metadata of image {}", path(at, image))))
            }
        }
    }

    /// `rbd image-meta set`
    fn set_metadata(
        &self,
        call: &Call,
        at: &PoolRef,
        image: &str,
        key: &str,
        value: &str,
    ) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Change, &["image-meta", "set"], ImageRef::Name(image))?
            .args(["--", key, value]);
        change(self, call, at, image, cmd, &format!("set {key}"))
    }

    /// `rbd config image set` or `remove`, one process for each limit: the tool takes no more at once.
    fn set_limits(&self, call: &Call, at: &PoolRef, image: &str, limits: Limits<'_>) -> Result<Changed> {
        for (key, value) in limits {
            let words = ["config", "image", if *value == 0 { "remove" } else { "set" }];
            let cmd = rbd_image(at, Class::Change, &words, ImageRef::Name(image))?.arg(*key);
            let cmd = if *value == 0 { cmd } else { cmd.arg(value.to_string()) };
            if change(self, call, at, image, cmd, &format!("set {key}"))? == Changed::Absent {
                return Ok(Changed::Absent);
            }
        }
        Ok(Changed::Done)
    }

    /// `rbd ls -l`. It complains about images that are half made or vanish meanwhile, leaves them out and
    /// ends with 0.
    fn list(&self, call: &Call, at: &PoolRef) -> Result<Vec<ListedImage>> {
        match self.run(call, &at.access, rbd(at, Class::Listing, &["ls", "--long", "--format=json"])) {
            Ok(output) => read::<Vec<Row>>("rbd ls", &output.stdout).map(entries),
            // One or more could not be opened: half made or half removed, or just going. The others are
            // listed all the same.
            Err(failure)
                if absent(&failure, &["listing images failed: "]) && !failure.stdout().is_empty() =>
            {
                read::<Vec<Row>>("rbd ls", failure.stdout()).map(entries)
            }
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("list the images of {}", path(at, ""))))
            }
        }
    }

    /// `rbd ls`
    fn names(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>> {
        match self.run(call, &at.access, rbd(at, Class::Listing, &["ls", "--format=json"])) {
            Ok(output) => read("rbd ls", &output.stdout),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("list the names of {}", path(at, ""))))
            }
        }
    }

    /// `rbd config pool ls`
    fn pool_options(&self, call: &Call, at: &PoolRef) -> Result<Option<PoolOptions>> {
        options::pool_options(self, call, at)
    }

    fn remove(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Removed> {
        remove(self, call, at, image, Class::Change)
    }

    fn remove_large(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Removed> {
        remove(self, call, at, image, Class::Lasting)
    }

    /// `rbd rename`
    fn rename(&self, call: &Call, at: &PoolRef, from: &str, to: &str) -> Result<Renamed> {
        let cmd = rbd_image(at, Class::Change, &["rename"], ImageRef::Name(from))?.args(destination(at, to)?);
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(Renamed::Done),
            Err(failure) if absent(&failure, &["rename error: "]) => Ok(Renamed::Absent),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Renamed::Taken),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("rename image {} to {to}", path(at, from))))
            }
        }
    }

    /// Removes the object by which an image is found under a name; `rbd rm` would remove the image.
    fn remove_name(&self, call: &Call, at: &PoolRef, name: &str) -> Result<()> {
        remove_object(self, call, at, &format!("rbd_id.{name}"))
    }

    /// `rbd resize`, which never shrinks unless it is asked to.
    fn resize(&self, call: &Call, at: &PoolRef, image: &str, size: u64) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Change, &["resize", "--no-progress"], ImageRef::Name(image))?;
        match self.run(call, &at.access, cmd.arg(format!("--size={size}B"))) {
            Ok(_) => Ok(Changed::Done),
            Err(failure) if failure.says("new size is equal to original size") => Ok(Changed::Done),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
            Err(failure) if failure.says("--allow-shrink") => {
                let image = path(at, image);
                Err(Error::out_of_range(format!(
                    "resize image {image}: it is larger than {size} bytes, and images never shrink"
                )))
            }
            Err(failure) => Err(self.error(
                call,
                failure,
                at,
                &format!("resize image {} to {size} bytes", path(at, image)),
            )),
        }
    }

    /// `rbd status`, which does not count itself.
    fn watchers(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Option<Vec<Watcher>>> {
        let cmd = rbd_image(at, Class::Question, &["status", "--format=json"], ImageRef::Name(image))?;
        match self.ask(call, &at.access, cmd) {
            Ok(output) => read::<StatusOutput>("rbd status", &output.stdout).map(|it| Some(it.watchers())),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("look for clients of image {}", path(at, image))))
            }
        }
    }
}

/// Runs a command that changes something of an image, which may be absent.
pub(super) fn change(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
    cmd: Cmd,
    doing: &str,
) -> Result<Changed> {
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Changed::Done),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
        // A limit that was not set, and is to be none.
        Err(failure) if absent(&failure, &["failed to remove "]) => Ok(Changed::Done),
        Err(failure) => Err(cli.error(call, failure, at, &format!("{doing} of image {}", path(at, image)))),
    }
}
