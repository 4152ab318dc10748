//! The kernel's storage interfaces, used through a helper: [`Kernel`] is the daemon's side, [`handle`] the
//! helper's. This file carries requests and replies; the files beside it have the operations.
//!
//! Every request is one round trip and all or nothing as far as the kernel allows: a bind that cannot be made
//! read-only is undone, a file system that was frozen is thawed in any case. Requests can be repeated after a
//! crash.

use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Helper};
use crate::sys::block::DeviceNumber;
use crate::sys::loopdev::LoopDevice;
use crate::sys::owner::{Owner, Sharing};
use crate::sys::rbd::MappedImage;

mod backing;
pub mod ceph;
mod device;
mod failure;
mod loops;
mod mount;
pub mod rbd;
mod serve;

use failure::Answer;

pub use backing::{Backing, Identified, Overwrites, ToolGuard, admit};
pub use loops::Loops;
pub use mount::MountSpec;
pub use serve::handle;

/// A request to the helper, whose reply is an [`Answer`] of the type that the asking operation returns. Paths
/// are `OsString`s, which serde writes as their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum HelperRequest {
    AttachLoop { image: OsString, read_only: bool },
    DetachLoop { device: LoopDevice },
    GrowLoop { device: OsString },
    RefuseDiscard { device: Backing },
    ReplayJournal { device: Backing },
    Identify { device: Backing, sparse_file: Option<OsString> },
    RemoveHalfMade { device: Backing, sparse_file: Option<OsString> },
    DeviceSize { device: OsString },
    Mount { source: Backing, target: OsString, fs_type: String, options: Vec<String>, read_only: bool },
    MountTree { tree: ceph::TreeToMount, target: OsString },
    VerifyTree { tree: ceph::TreeToMount, target: OsString },
    LookAtTree { path: OsString },
    Bind { source: OsString, target: OsString, read_only: bool },
    Unmount { target: OsString },
    Statfs { path: OsString },
    Own { root: OsString, owner: Owner, sharing: Option<Sharing> },
    IsShutDown { path: OsString },
    CloneFrozen { mount_points: Vec<OsString>, from: OsString, to: OsString },
    Thaw { mount_point: OsString },
    IsClaimed { device: OsString },
    Openers { device: DeviceNumber },
    MapRbd { image: rbd::ImageToMap },
    UnmapRbd { image: MappedImage },
    RefreshRbd { image: MappedImage },
}

/// Asks the kernel in a process that may hang without harm.
#[derive(Clone)]
pub struct Kernel {
    helper: Arc<dyn Helper>,
}

impl Kernel {
    /// Asks through `helper`.
    pub fn new(helper: Arc<dyn Helper>) -> Self {
        Self { helper }
    }

    fn ask<T: DeserializeOwned>(
        &self,
        call: &Call,
        step: &str,
        class: Class,
        request: &HelperRequest,
    ) -> Result<T> {
        self.ask_holding(call, (step, class), request, None)
    }

    /// The same, by a helper that keeps `held` open until its end.
    fn ask_holding<T: DeserializeOwned>(
        &self,
        call: &Call,
        (step, class): (&str, Class),
        request: &HelperRequest,
        held: Option<&Arc<File>>,
    ) -> Result<T> {
        read_reply(step, &self.helper.ask(call, step, class, &to_bytes(request), held)?)
    }
}

/// A request contains nothing that JSON cannot express. The helper refuses an empty request.
fn to_bytes(request: &HelperRequest) -> Vec<u8> {
    serde_json::to_vec(request).unwrap_or_default()
}

fn read_reply<T: DeserializeOwned>(step: &str, reply: &[u8]) -> Result<T> {
    let answer: Answer<T> = serde_json::from_slice(reply)
        .map_err(|error| Error::internal(format!("{step}: the helper's reply: {error}")))?;
    answer.map_err(|failure| explain_permission(failure.at(step)))
}

fn explain_permission(error: Error) -> Error {
    match error.errno() {
        Some(libc::EPERM | libc::EACCES) => error.hint(
            "cephlet must run as root with CAP_SYS_ADMIN (for owners and groups CAP_CHOWN, CAP_FOWNER and \
             CAP_FSETID), and in a container or unit with DeviceAllow for \
             /dev/loop-control and block devices",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod backing_tests;
