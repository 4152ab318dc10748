//! How a command's failure is classified: absent, refused by the configuration, or a failure that ends the
//! caller's work.
//!
//! The tools write stderr in pieces, and librbd's log comes in between at any place. So only a piece that is
//! written at once is reliable: "rename error: " is one, "(2) No such file or directory" after it is another.

use serde::de::DeserializeOwned;

use super::PoolCommands;
use crate::backend::ceph::objects::{ABSENT, Rados, says};
use crate::backend::ceph::{ClusterTool, Failure, PoolRef, Reason, read};
use crate::backend::rbd::tool::{Changed, ImageRef, Layout};
use crate::clusters::Cluster;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Output};

/// What `rbd` says where it finds no image to open.
pub(super) const NOT_OPENED: &str = "error opening image";

/// Whether the command ended with `status`.
pub(super) fn is(failure: &Failure, status: i32) -> bool {
    failure.status() == Some(status)
}

/// Whether `rbd` reports that the command's object is absent, in one of the `pieces` that say what was tried.
///
/// A full pool is the trap: `rbd rm` then cannot write its note in the trash, and ends with 2 and "delete
/// error: (2)" while the image stays.
pub(super) fn absent(failure: &Failure, pieces: &[&str]) -> bool {
    let is_full = failure.reason() == Some(Reason::Full);
    is(failure, libc::ENOENT) && !is_full && pieces.iter().any(|piece| failure.says(piece))
}

/// Whether `rbd`, `rados` or the manager found no such pool. `rbd` has other words for the pool that it uses
/// by default.
pub(super) fn lacks_pool(failure: &Failure) -> bool {
    failure.says("error opening default pool ")
        || says(failure, "error opening pool ", ABSENT)
        || says(failure, "error opening pool ", "RADOS object not found")
}

/// Whether `rbd` found no such namespace. `rados` does not check that there is one.
fn lacks_namespace(failure: &Failure) -> bool {
    says(failure, "namespace '", "does not exist.")
}

/// Whether `rbd` has refused because the image is not mirrored.
fn is_not_mirrored(failure: &Failure) -> bool {
    is(failure, libc::EINVAL) && failure.says("mirroring not enabled on the image")
}

/// The data pool that is missing, if that is the failure. rbd exits with 2, and only its log names the pool.
/// If the request names none, the pool is that of the option `rbd_default_data_pool`.
pub(super) fn missing_data_pool<'a>(failure: &'a Failure, layout: &'a Layout) -> Option<&'a str> {
    if !is(failure, libc::ENOENT) || lacks_pool(failure) || lacks_namespace(failure) {
        return None;
    }
    let logged = || failure.between("validate_data_pool: data pool ", " does not exist");
    match &layout.data_pool {
        Some(named) if failure.says("import failed: ") || failure.says("validate_data_pool") => Some(named),
        _ => logged(),
    }
}

/// What a pool or a namespace was needed for, which decides the advice if it is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededFor {
    /// A new volume.
    NewVolume,
    /// The data of a new volume.
    NewData,
    /// A volume that was made there.
    Existing,
}

impl Rados for PoolCommands<'_> {
    fn at(&self) -> &PoolRef {
        self.at
    }

    fn run(&self, cmd: Cmd) -> Result<Output, Failure> {
        self.tool.programs.run(self.call, &self.at.access, &cmd)
    }

    /// The failure is about something that was made in the pool and namespace.
    fn error(&self, failure: Failure, doing: &str) -> Error {
        self.error_for(NeededFor::Existing, failure).context(doing)
    }
}

impl PoolCommands<'_> {
    /// Runs a question about an image. If the image is removed after it was opened, the failure has many
    /// texts; a repeated question finds it absent.
    fn ask(&self, cmd: Cmd) -> Result<Output, Failure> {
        let is_going = |failure: &Failure| {
            is(failure, libc::ENOENT) && !failure.says("error opening ") && !failure.says("does not exist")
        };
        match self.run(cmd.clone()) {
            Err(failure) if is_going(&failure) => self.run(cmd),
            answer => answer,
        }
    }

    /// What `rbd` prints for a question about an image; None if the image is absent, or if the question is
    /// about mirroring and the image is not mirrored. `doing` precedes the image in an error.
    pub(super) fn printed(
        &self,
        words: &[&str],
        image: ImageRef<'_>,
        doing: &str,
    ) -> Result<Option<Vec<u8>>> {
        let cmd = self.rbd_image(Class::Question, &[words, &["--format=json"]].concat(), image)?;
        match self.ask(cmd) {
            Ok(output) => Ok(Some(output.stdout)),
            Err(failure) if absent(&failure, &[NOT_OPENED]) || is_not_mirrored(&failure) => Ok(None),
            Err(failure) => Err(self.error(failure, &format!("{doing} image {}", self.path(image)))),
        }
    }

    /// The same, parsed.
    pub(super) fn question<T: DeserializeOwned>(
        &self,
        words: &[&str],
        image: ImageRef<'_>,
        doing: &str,
    ) -> Result<Option<T>> {
        let printed = self.printed(words, image, doing)?;
        printed.map(|printed| read(&format!("rbd {}", words.join(" ")), &printed)).transpose()
    }

    /// Runs a command that changes something of an image, which may be absent.
    pub(super) fn change(
        &self,
        class: Class,
        words: &[&str],
        image: &str,
        values: &[&str],
        doing: &str,
    ) -> Result<Changed> {
        match self.run(self.rbd_image(class, words, ImageRef::Name(image))?.args(values)) {
            Ok(_) => Ok(Changed::Done),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
            // The limit to remove was not set.
            Err(failure) if absent(&failure, &["failed to remove "]) => Ok(Changed::Done),
            Err(failure) => Err(self.error(failure, &format!("{doing} of image {}", self.path(image)))),
        }
    }

    fn error_for(&self, needed: NeededFor, failure: Failure) -> Error {
        let PoolRef { access, pool, namespace } = self.at;
        if lacks_pool(&failure) {
            return no_pool(&access.cluster, pool, needed);
        }
        if lacks_namespace(&failure) {
            return no_namespace(&access.cluster, (pool, namespace), needed);
        }
        let is_full = || {
            let space = self.tool.monitors().of(self.call, access).free_space(pool);
            space.is_ok_and(|space| space.is_some_and(|space| space.full))
        };
        match failure.reason() {
            Some(Reason::Full) => Error::no_space(full(pool)),
            Some(Reason::Stalled) if is_full() => Error::no_space(full(pool)),
            Some(Reason::Stalled) => failure.into_error(format!("pool {pool:?}")),
            _ => failure.into_bare_error(),
        }
    }

    /// The error for a failure to make an image, whose pool and layout the request named.
    pub(super) fn not_made(&self, failure: Failure, layout: &Layout, doing: &str) -> Error {
        let PoolRef { access, pool, .. } = self.at;
        if let Some(missing) = missing_data_pool(&failure, layout) {
            let error = no_pool(&access.cluster, missing, NeededFor::NewData);
            return match layout.is_default_data_pool {
                true => error.context(format!(
                    "{doing}: the option rbd_default_data_pool of pool {pool:?} (`rbd config pool ls`) or of the cluster"
                )),
                false => error.context(doing),
            };
        }
        // The status is 22 also for monitors that cannot be parsed, and for a key.
        let is_about_layout = is(&failure, libc::EINVAL) && failure.reason().is_none();
        if is_about_layout || failure.says("the argument for option") {
            let refused = "rbd refuses this layout (imageFeatures, objectSize, stripeUnit, stripeCount)";
            return failure.into_error(format!("{doing}: {refused}")).with_kind(Kind::InvalidArgument);
        }
        self.error_for(NeededFor::NewVolume, failure).context(doing)
    }
}

/// The error for a missing pool: which pool, and what to do.
pub(super) fn no_pool(cluster: &Cluster, pool: &str, needed: NeededFor) -> Error {
    let Cluster { name, removed_pools, .. } = cluster;
    let kind = if needed == NeededFor::NewData { "data pool" } else { "pool" };
    let what_to_do = match removed_pools.iter().any(|it| it == pool) {
        true => String::from("it was removed, as `removed_pools` in the clusters file says"),
        false => format!("`ceph osd pool create {pool}` and `rbd pool init {pool}` make it"),
    };
    let otherwise = match needed {
        NeededFor::NewVolume => another("pool"),
        NeededFor::NewData => another("dataPool"),
        NeededFor::Existing if removed_pools.iter().any(|it| it == pool) => String::new(),
        NeededFor::Existing => format!(
            "; if it was removed with all that was in it, say so with `removed_pools = [{pool:?}]` under \
             [cluster.{name}] in the clusters file (CEPHLET_CLUSTERS)"
        ),
    };
    Error::precondition(format!("cluster {name:?} has no {kind} {pool:?}: {what_to_do}{otherwise}"))
}

/// How a request can name another pool or namespace than the missing one.
fn another(parameter: &str) -> String {
    format!("; the parameter {parameter} (`--parameter {parameter}=NAME`) names another one")
}

/// The error for a missing namespace: which namespace, and what to do.
fn no_namespace(cluster: &Cluster, (pool, namespace): (&str, &str), needed: NeededFor) -> Error {
    let otherwise = if needed == NeededFor::Existing { String::new() } else { another("namespace") };
    Error::precondition(format!(
        "pool {pool:?} of cluster {:?} has no namespace {namespace:?}: `rbd namespace create --pool {pool} \
         --namespace {namespace}` makes it{otherwise}",
        cluster.name
    ))
}

fn full(pool: &str) -> String {
    format!(
        "pool {pool:?} is full or its quota is used up, and takes no changes, not even deletions: look at \
         `ceph df detail`, then add \
         storage or raise the quota (`ceph osd pool set-quota {pool} max_bytes N`)"
    )
}
