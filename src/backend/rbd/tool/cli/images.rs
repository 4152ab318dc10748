//! Images: made, looked up, listed, renamed, resized, removed.

use super::answer::{absent, is};
use super::output::{InfoOutput, Row, StatusOutput, entries, read};
use super::stream::empty_image;
use super::{CommandTool, destination, osd_command, path, rbd, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{
    Changed, ImageInfo, ImageRef, Layout, ListedImage, Made, NewImage, Removed, Renamed, Watcher,
};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Tool};

/// What `rbd` says where it finds no image to open.
pub(super) const NOT_OPENED: &str = "error opening image";

/// `rbd import`: it makes image and metadata in one process, where `rbd create` would need another one for
/// each value. The image first gets the size of the file that is read, so that file looks as large: one whose
/// making is killed has the right size or does not exist. From a pipe it would first be as large as an
/// object.
pub(super) fn create(cli: &CommandTool, call: &Call, at: &PoolRef, image: &NewImage<'_>) -> Result<Made> {
    let words = ["import", "--no-progress", "--export-format=2", "--path=/proc/self/fd/0"];
    let cmd = osd_command(at, Tool::Rbd, Class::Change).args(words);
    let cmd = cmd.args(destination(at, image.name)?).args(layout(image.layout));
    let cmd = cmd.stdin(empty_image(image.size, image.metadata)).stdin_length(image.size);
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Made::New),
        Err(failure) if is(&failure, libc::EEXIST) => Ok(Made::Taken),
        Err(failure) => Err(cli.not_made(
            call,
            failure,
            at,
            image.layout,
            &format!("make image {}", path(at, image.name)),
        )),
    }
}

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

/// `rbd info`
pub(super) fn info(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: ImageRef<'_>,
) -> Result<Option<ImageInfo>> {
    let cmd = rbd_image(at, Class::Question, &["info", "--format=json"], image)?;
    match cli.ask(call, &at.access, cmd) {
        Ok(output) => read::<InfoOutput>("rbd info", &output.stdout).map(|it| Some(it.into())),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
        Err(failure) => Err(cli.error(call, failure, at, &format!("look up image {}", path(at, image)))),
    }
}

/// `rbd ls -l`. It complains about images that are half made or vanish meanwhile, leaves them out and ends
/// with 0.
pub(super) fn list(cli: &CommandTool, call: &Call, at: &PoolRef) -> Result<Vec<ListedImage>> {
    match cli.run(call, &at.access, rbd(at, Class::Question, &["ls", "--long", "--format=json"])) {
        Ok(output) => read::<Vec<Row>>("rbd ls", &output.stdout).map(entries),
        // One or more could not be opened: half made or half removed, or just going. The others are told all
        // the same.
        Err(failure) if absent(&failure, &["listing images failed: "]) && !failure.stdout().is_empty() => {
            read::<Vec<Row>>("rbd ls", failure.stdout()).map(entries)
        }
        Err(failure) => Err(cli.error(call, failure, at, &format!("list the images of {}", path(at, "")))),
    }
}

/// `rbd ls`
pub(super) fn names(cli: &CommandTool, call: &Call, at: &PoolRef) -> Result<Vec<String>> {
    match cli.run(call, &at.access, rbd(at, Class::Question, &["ls", "--format=json"])) {
        Ok(output) => read("rbd ls", &output.stdout),
        Err(failure) => Err(cli.error(call, failure, at, &format!("list the names of {}", path(at, "")))),
    }
}

/// `rbd rm`. It also clears up half-made images.
pub(super) fn remove(cli: &CommandTool, call: &Call, at: &PoolRef, image: &str) -> Result<Removed> {
    let words = ["rm", "--no-progress", "--rbd-move-parent-to-trash-on-remove=true"];
    let cmd = rbd_image(at, Class::Change, &words, ImageRef::Name(image))?;
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Removed::Gone),
        Err(failure) if absent(&failure, &["delete error: "]) => verify_absent(cli, call, at, image),
        // Somebody else removed it at the same time.
        Err(failure) if is(&failure, libc::ESTALE) => verify_absent(cli, call, at, image),
        Err(failure) if is(&failure, libc::EBUSY) => Ok(Removed::Watched),
        Err(failure) if is(&failure, libc::ENOTEMPTY) => Ok(Removed::HasSnapshots),
        Err(failure) => Err(cli.error(call, failure, at, &format!("remove image {}", path(at, image)))),
    }
}

/// `rbd rm` says 2 as well where it fails half way (a full pool, a second `rbd rm` at the same time): what is
/// there counts.
fn verify_absent(cli: &CommandTool, call: &Call, at: &PoolRef, image: &str) -> Result<Removed> {
    match info(cli, call, at, ImageRef::Name(image))? {
        None => Ok(Removed::Absent),
        Some(_) => {
            let image = path(at, image);
            Err(Error::unavailable(format!(
                "remove image {image}: `rbd rm` found it gone, but it is there; it will be tried again"
            )))
        }
    }
}

/// `rbd rename`
pub(super) fn rename(cli: &CommandTool, call: &Call, at: &PoolRef, from: &str, to: &str) -> Result<Renamed> {
    let cmd = rbd_image(at, Class::Change, &["rename"], ImageRef::Name(from))?.args(destination(at, to)?);
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Renamed::Done),
        Err(failure) if absent(&failure, &["rename error: "]) => Ok(Renamed::Absent),
        Err(failure) if is(&failure, libc::EEXIST) => Ok(Renamed::Taken),
        Err(failure) => {
            Err(cli.error(call, failure, at, &format!("rename image {} to {to}", path(at, from))))
        }
    }
}

/// `rbd resize`, which never shrinks without being told to.
pub(super) fn resize(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
    size: u64,
) -> Result<Changed> {
    let cmd = rbd_image(at, Class::Change, &["resize", "--no-progress"], ImageRef::Name(image))?;
    match cli.run(call, &at.access, cmd.arg(format!("--size={size}B"))) {
        Ok(_) => Ok(Changed::Done),
        Err(failure) if failure.says("new size is equal to original size") => Ok(Changed::Done),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
        Err(failure) if failure.says("--allow-shrink") => {
            let image = path(at, image);
            Err(Error::out_of_range(format!(
                "resize image {image}: it is larger than {size} bytes, and images never shrink"
            )))
        }
        Err(failure) => {
            Err(cli.error(call, failure, at, &format!("resize image {} to {size} bytes", path(at, image))))
        }
    }
}

/// `rbd status`, which does not count itself.
pub(super) fn watchers(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
) -> Result<Option<Vec<Watcher>>> {
    let cmd = rbd_image(at, Class::Question, &["status", "--format=json"], ImageRef::Name(image))?;
    match cli.ask(call, &at.access, cmd) {
        Ok(output) => read::<StatusOutput>("rbd status", &output.stdout).map(|it| Some(it.watchers())),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
        Err(failure) => {
            Err(cli.error(call, failure, at, &format!("look for clients of image {}", path(at, image))))
        }
    }
}
