//! Values kept with an image: its metadata, and its limits, which are metadata that clients obey.

use std::collections::BTreeMap;

use super::answer::absent;
use super::images::NOT_OPENED;
use super::output::read;
use super::{CommandTool, path, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{Changed, ImageRef, Limits};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd};

/// `rbd image-meta get`, which prints the value and a line end.
pub(super) fn get(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
    key: &str,
) -> Result<Option<String>> {
    let cmd =
        rbd_image(at, Class::Question, &["image-meta", "get"], ImageRef::Name(image))?.args(["--", key]);
    let doing = || format!("read {key} of image {}", path(at, image));
    match cli.run(call, &at.access, cmd) {
        Ok(mut output) => {
            output.stdout.pop_if(|last| *last == b'\n');
            let value = String::from_utf8(output.stdout);
            value.map(Some).map_err(|_| Error::internal(format!("{}: its value is not UTF-8", doing())))
        }
        Err(failure) if absent(&failure, &[NOT_OPENED, "getting metadata failed: "]) => Ok(None),
        Err(failure) => Err(cli.error(call, failure, at, &doing())),
    }
}

/// `rbd image-meta ls`, which prints nothing where there is none.
pub(super) fn all(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
) -> Result<Option<BTreeMap<String, String>>> {
    let words = ["image-meta", "ls", "--format=json"];
    let cmd = rbd_image(at, Class::Question, &words, ImageRef::Name(image))?;
    match cli.ask(call, &at.access, cmd) {
        Ok(output) if output.stdout.trim_ascii().is_empty() => Ok(Some(BTreeMap::new())),
        Ok(output) => read("rbd image-meta ls", &output.stdout).map(Some),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(None),
        Err(failure) => {
            Err(cli.error(call, failure, at, &format!("read the metadata of image {}", path(at, image))))
        }
    }
}

/// `rbd image-meta set`
pub(super) fn set(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
    key: &str,
    value: &str,
) -> Result<Changed> {
    let cmd =
        rbd_image(at, Class::Change, &["image-meta", "set"], ImageRef::Name(image))?.args(["--", key, value]);
    change(cli, call, at, image, cmd, key)
}

/// `rbd config image set` or `remove`, one process for each limit: the tool takes no more at once.
pub(super) fn set_limits(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    image: &str,
    limits: Limits<'_>,
) -> Result<Changed> {
    for (key, value) in limits {
        let words = ["config", "image", if *value == 0 { "remove" } else { "set" }];
        let cmd = rbd_image(at, Class::Change, &words, ImageRef::Name(image))?.arg(*key);
        let cmd = if *value == 0 { cmd } else { cmd.arg(value.to_string()) };
        if change(cli, call, at, image, cmd, key)? == Changed::Absent {
            return Ok(Changed::Absent);
        }
    }
    Ok(Changed::Done)
}

fn change(cli: &CommandTool, call: &Call, at: &PoolRef, image: &str, cmd: Cmd, key: &str) -> Result<Changed> {
    match cli.run(call, &at.access, cmd) {
        Ok(_) => Ok(Changed::Done),
        Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
        // A limit that was not set, and is to be none.
        Err(failure) if absent(&failure, &["failed to remove "]) => Ok(Changed::Done),
        Err(failure) => Err(cli.error(call, failure, at, &format!("set {key} of image {}", path(at, image)))),
    }
}
