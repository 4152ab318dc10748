//! RBD through the command line tools `rbd`, `rados` and `ceph` (16.2 and later): what to type, and what
//! their exit statuses and texts mean.
//!
//! What holds for all of it:
//! - `rbd` ends with an errno, but 2 is said of a missing pool, namespace or data pool as well. Something is
//!   absent only where the text says so, and says what was tried (`answer::absent`).
//! - `rados` always ends with 1 and tells the errno in its text.
//! - A change in a full pool waits for ever, in every tool: `OSD_TIMEOUT` ends it, and then the pool is
//!   looked at.
//! - Names go as `--option=value`, which takes any name, one that begins with `-` too. `rbd` takes `--image`
//!   apart at `/` and `@` all the same: such names are refused here.

mod answer;
mod images;
mod locks;
mod metadata;
mod objects;
mod output;
mod pools;
mod snapshots;
mod stream;
mod trash;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{
    Changed, Entry, Handed, Hold, Holder, Image, Info, Limits, Lockable, Made, NewClone, NewImage, RbdTool,
    Removed, Renamed, Room, Snap, Spot, Taken, Trashed, Watcher,
};
use crate::backend::ceph::Access;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Runner, Tool};

/// RBD through the command line tools.
pub struct Cli {
    runner: Arc<dyn Runner>,
}

impl Cli {
    /// Runs the tools with `runner`.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        Self { runner }
    }
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cli")
    }
}

/// How long a change may wait for an OSD, in seconds. Without it a command waits for ever where the pool is
/// full, and nobody hears why. Longer than an OSD takes to fail over, or the owner of an image's lock to be
/// given up.
const OSD_TIMEOUT: &str = "--rados-osd-op-timeout=40";

/// A command of a tool that talks to OSDs.
fn osd_command(spot: &Spot, tool: Tool, class: Class) -> Cmd {
    let cmd = spot.access.command(tool, class);
    if matches!(class, Class::Change | Class::Breakable) { cmd.arg(OSD_TIMEOUT) } else { cmd }
}

/// `rbd` with its words, in a pool and namespace.
fn rbd(spot: &Spot, class: Class, words: &[&str]) -> Cmd {
    let cmd = osd_command(spot, Tool::Rbd, class).args(words).arg(format!("--pool={}", spot.pool));
    // An empty value is refused.
    if spot.namespace.is_empty() { cmd } else { cmd.arg(format!("--namespace={}", spot.namespace)) }
}

/// `rbd` with its words, about an image.
fn rbd_image(spot: &Spot, class: Class, words: &[&str], image: Image<'_>) -> Result<Cmd> {
    let option = match image {
        Image::Named(name) => format!("--image={}", plain(name)?),
        Image::Id(id) => format!("--image-id={id}"),
    };
    Ok(rbd(spot, class, words).arg(option))
}

/// Where an image is made or moved to, as options.
fn destination(spot: &Spot, name: &str) -> Result<impl Iterator<Item = String>> {
    let namespace = Some(&spot.namespace).filter(|namespace| !namespace.is_empty());
    let namespace = namespace.map(|namespace| format!("--dest-namespace={namespace}"));
    let image = format!("--dest={}", plain(name)?);
    Ok([format!("--dest-pool={}", spot.pool)].into_iter().chain(namespace).chain([image]))
}

/// Refuses names that rbd would read as something else.
fn plain(name: &str) -> Result<&str> {
    if name.is_empty() || name.contains(['/', '@']) {
        return Err(Error::invalid(format!(
            "{name:?} cannot be the name of an RBD image: rbd allows no / and no @ in it"
        )));
    }
    Ok(name)
}

/// `pool/namespace/name`, for messages.
fn path(spot: &Spot, name: impl fmt::Display) -> String {
    let Spot { pool, namespace, .. } = spot;
    if namespace.is_empty() { format!("{pool}/{name}") } else { format!("{pool}/{namespace}/{name}") }
}

impl fmt::Display for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Image::Named(name) => f.write_str(name),
            Image::Id(id) => write!(f, "(id {id})"),
        }
    }
}

impl RbdTool for Cli {
    fn usable(&self) -> Result<()> {
        Ok([Tool::Rbd, Tool::Rados].into_iter().try_for_each(|tool| self.runner.has(tool))?)
    }

    fn create(&self, call: &Call, spot: &Spot, image: &NewImage<'_>) -> Result<Made> {
        images::create(self, call, spot, image)
    }

    fn info(&self, call: &Call, spot: &Spot, image: Image<'_>) -> Result<Option<Info>> {
        images::info(self, call, spot, image)
    }

    fn metadata(&self, call: &Call, spot: &Spot, image: &str, key: &str) -> Result<Option<String>> {
        metadata::get(self, call, spot, image, key)
    }

    fn metadata_of(&self, call: &Call, spot: &Spot, image: &str) -> Result<Option<BTreeMap<String, String>>> {
        metadata::all(self, call, spot, image)
    }

    fn set_metadata(&self, call: &Call, spot: &Spot, image: &str, key: &str, value: &str) -> Result<Changed> {
        metadata::set(self, call, spot, image, key, value)
    }

    fn names(&self, call: &Call, spot: &Spot) -> Result<Vec<String>> {
        images::names(self, call, spot)
    }

    fn list(&self, call: &Call, spot: &Spot) -> Result<Vec<Entry>> {
        images::list(self, call, spot)
    }

    fn remove(&self, call: &Call, spot: &Spot, image: &str) -> Result<Removed> {
        images::remove(self, call, spot, image)
    }

    fn rename(&self, call: &Call, spot: &Spot, from: &str, to: &str) -> Result<Renamed> {
        images::rename(self, call, spot, from, to)
    }

    fn remove_name(&self, call: &Call, spot: &Spot, name: &str) -> Result<()> {
        objects::remove_name(self, call, spot, name)
    }

    fn resize(&self, call: &Call, spot: &Spot, image: &str, size: u64) -> Result<Changed> {
        images::resize(self, call, spot, image, size)
    }

    fn watchers(&self, call: &Call, spot: &Spot, image: &str) -> Result<Option<Vec<Watcher>>> {
        images::watchers(self, call, spot, image)
    }

    fn take_snapshot(&self, call: &Call, spot: &Spot, image: &str, snapshot: &str) -> Result<Option<Made>> {
        snapshots::take(self, call, spot, image, snapshot)
    }

    fn snapshots(&self, call: &Call, spot: &Spot, image: Image<'_>) -> Result<Option<Vec<Snap>>> {
        snapshots::list(self, call, spot, image)
    }

    fn remove_snapshot(&self, call: &Call, spot: &Spot, image: Image<'_>, snapshot: &str) -> Result<Removed> {
        snapshots::remove(self, call, spot, image, snapshot)
    }

    fn clone_image(&self, call: &Call, clone: &NewClone<'_>) -> Result<Option<Made>> {
        snapshots::clone(self, call, clone)
    }

    fn flatten(&self, call: &Call, spot: &Spot, image: &str) -> Result<Changed> {
        snapshots::flatten(self, call, spot, image)
    }

    fn move_to_trash(&self, call: &Call, spot: &Spot, image: &str) -> Result<Changed> {
        trash::put(self, call, spot, image)
    }

    fn trash(&self, call: &Call, spot: &Spot) -> Result<Vec<Trashed>> {
        trash::list(self, call, spot)
    }

    fn restore_from_trash(&self, call: &Call, spot: &Spot, id: &str, name: &str) -> Result<Renamed> {
        trash::restore(self, call, spot, id, name)
    }

    fn purge(&self, call: &Call, spot: &Spot, id: &str) -> Result<Removed> {
        trash::purge(self, call, spot, id)
    }

    fn purge_by_manager(&self, call: &Call, spot: &Spot, id: &str) -> Result<Handed> {
        trash::purge_by_manager(self, call, spot, id)
    }

    fn lock(&self, call: &Call, spot: &Spot, on: Lockable<'_>, hold: &Hold) -> Result<Taken> {
        locks::take(self, call, spot, on, hold)
    }

    fn holders(&self, call: &Call, spot: &Spot, on: Lockable<'_>) -> Result<Vec<Holder>> {
        locks::holders(self, call, spot, on)
    }

    fn unlock(&self, call: &Call, spot: &Spot, on: Lockable<'_>, holder: &Holder) -> Result<()> {
        locks::give_back(self, call, spot, on, holder)
    }

    fn remove_lockable(&self, call: &Call, spot: &Spot, on: Lockable<'_>) -> Result<()> {
        objects::remove_lockable(self, call, spot, on)
    }

    fn pools(&self, call: &Call, access: &Access) -> Result<Vec<String>> {
        pools::all(self, call, access)
    }

    fn namespaces(&self, call: &Call, spot: &Spot) -> Result<Vec<String>> {
        pools::namespaces(self, call, spot)
    }

    fn room(&self, call: &Call, spot: &Spot, pool: &str) -> Result<Room> {
        pools::room(self, call, &spot.access, pool)
    }

    fn set_limits(&self, call: &Call, spot: &Spot, image: &str, limits: Limits<'_>) -> Result<Changed> {
        metadata::set_limits(self, call, spot, image, limits)
    }

    fn blocklist(&self, call: &Call, access: &Access) -> Result<Vec<String>> {
        pools::blocklist(self, call, access)
    }
}
