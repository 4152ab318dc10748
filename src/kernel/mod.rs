//! The kernel's storage interfaces, used through a helper: [`Kernel`] is the daemon's side, [`handle`] the
//! helper's. This file carries requests and replies; the files beside it have the operations.
//!
//! Every request is one round trip and all or nothing as far as the kernel allows: a bind that cannot be made
//! read-only is undone, a file system that was frozen is thawed in any case. Requests can be repeated after a
//! crash.

use std::ffi::OsString;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Helper};
use crate::sys::block::DeviceNumber;
use crate::sys::copy::Reflink;
use crate::sys::freeze::Thawed;
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::mount::Unmounted;
use crate::sys::openers::Openers;
use crate::sys::owner::{Owner, Sharing};
use crate::sys::statfs::Usage;

mod backing;
pub mod ceph;
mod device;
mod failure;
mod freeze;
mod loopdev;
mod mount;
pub mod rbd;
mod serve;

use failure::SyscallFailure;

pub use backing::{Backing, Identified, Overwrites, ToolGuard, admit};
pub use mount::MountSpec;
pub use serve::handle;

/// A request to the helper. Paths are `OsString`s, which serde writes as their bytes.
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
    Rbd(rbd::RbdRequest),
}

/// The reply of the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum HelperReply {
    Done,
    Attached(LoopDevice),
    Detached(Detached),
    Bytes(u64),
    Identified(Identified),
    Unmounted(Unmounted),
    Usage(Usage),
    ShutDown(bool),
    Tree(ceph::Tree),
    Cloned(Reflink),
    Thawed(Thawed),
    Claimed(bool),
    Openers(Openers),
    Rbd(rbd::RbdReply),
    Failed(SyscallFailure),
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

    fn done(&self, call: &Call, step: &str, request: &HelperRequest) -> Result<()> {
        match self.ask(call, step, Class::Change, request)? {
            HelperReply::Done => Ok(()),
            other => Err(unexpected(step, &other)),
        }
    }

    fn bytes(&self, call: &Call, step: &str, class: Class, request: &HelperRequest) -> Result<u64> {
        match self.ask(call, step, class, request)? {
            HelperReply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(step, &other)),
        }
    }

    fn ask(&self, call: &Call, step: &str, class: Class, request: &HelperRequest) -> Result<HelperReply> {
        read_reply(step, &self.helper.ask(call, step, class, &to_bytes(request))?)
    }
}

/// A request contains nothing that JSON cannot express. The helper refuses an empty request.
fn to_bytes(request: &HelperRequest) -> Vec<u8> {
    serde_json::to_vec(request).unwrap_or_default()
}

fn read_reply(step: &str, reply: &[u8]) -> Result<HelperReply> {
    match serde_json::from_slice(reply)
        .map_err(|error| Error::internal(format!("{step}: the helper's reply: {error}")))?
    {
        HelperReply::Failed(failure) => Err(explain_permission(failure.into())),
        reply => Ok(reply),
    }
}

fn unexpected(step: &str, reply: &HelperReply) -> Error {
    Error::internal(format!("{step}: the helper answered another question: {reply:?}"))
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
