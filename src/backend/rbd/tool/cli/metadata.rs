//! Values kept with an image: its metadata, and its limits, which are metadata that clients obey.

use std::collections::BTreeMap;

use super::answer::absent;
use super::images::NOT_OPENED;
use super::output::read;
use super::{Cli, path, rbd_image};
use crate::backend::rbd::tool::{Changed, Image, Limits, Spot};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd};

/// `rbd image-meta get`, which prints the value and a line end.
pub(super) fn get(cli: &Cli, call: &Call, spot: &Spot, image: &str, key: &str) -> Result<Option<String>> {
    let cmd =
        rbd_image(spot, Class::Question, &["image-meta", "get"], Image::Named(image))?.args(["--", key]);
    let doing = || format!("read {key} of image {}", path(spot, image));
    match cli.run(call, &spot.access, cmd) {
        Ok(mut output) => {
            output.stdout.pop_if(|last| *last == b'\n');
            let value = String::from_utf8(output.stdout);
            value.map(Some).map_err(|_| Error::internal(format!("{}: its value is not UTF-8", doing())))
        }
        Err(failure) if absent(&failure, &[NOT_OPENED, "getting metadata failed: "]) => Ok(None),
        Err(failure) => Err(cli.error(call, failure, spot, &doing())),
    }
}

/// `rbd image-meta ls`, which prints nothing where there is none.
pub(super) fn all(
    cli: &Cli,
    call: &Call,
    spot: &Spot,
    image: &str,
) -> Result<Option<BTreeMap<String, String>>> {
    let words = ["image-meta", "ls", "--format=json"];
    let cmd = rbd_image(spot, Class::Question, &words, Image::Named(image))?;
    match cli.ask(call, &spot.access, cmd) {
        Ok(output) if output.stdout.trim_ascii().is_empty() => Ok(Some(BTreeMap::new())),
        Ok(output) => read("rbd image-meta ls", &output.stdout).map(Some),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
        Err(failure) => {
            Err(cli.error(call, failure, spot, &format!("read the metadata of image {}", path(spot, image))))
        }
    }
}

/// `rbd image-meta set`
pub(super) fn set(
    cli: &Cli,
    call: &Call,
    spot: &Spot,
    image: &str,
    key: &str,
    value: &str,
) -> Result<Changed> {
    let cmd =
        rbd_image(spot, Class::Change, &["image-meta", "set"], Image::Named(image))?.args(["--", key, value]);
    change(cli, call, spot, image, cmd, key)
}

/// `rbd config image set` or `remove`, one process for each limit: the tool takes no more at once.
pub(super) fn set_limits(
    cli: &Cli,
    call: &Call,
    spot: &Spot,
    image: &str,
    limits: Limits<'_>,
) -> Result<Changed> {
    for (key, value) in limits {
        let words = ["config", "image", if *value == 0 { "remove" } else { "set" }];
        let cmd = rbd_image(spot, Class::Change, &words, Image::Named(image))?.arg(*key);
        let cmd = if *value == 0 { cmd } else { cmd.arg(value.to_string()) };
        if change(cli, call, spot, image, cmd, key)? == Changed::Absent {
            return Ok(Changed::Absent);
        }
    }
    Ok(Changed::Done)
}

fn change(cli: &Cli, call: &Call, spot: &Spot, image: &str, cmd: Cmd, key: &str) -> Result<Changed> {
    match cli.run(call, &spot.access, cmd) {
        Ok(_) => Ok(Changed::Done),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
        // A limit that was not set, and is to be none.
        Err(failure) if absent(&failure, &["failed to remove "]) => Ok(Changed::Done),
        Err(failure) => {
            Err(cli.error(call, failure, spot, &format!("set {key} of image {}", path(spot, image))))
        }
    }
}
