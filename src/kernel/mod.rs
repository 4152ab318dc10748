//! The kernel's storage interfaces, asked through a helper: the files beside this one have the questions that
//! can be asked.
//!
//! Every question is one round trip and all or nothing as far as the kernel allows: a bind that cannot be made
//! read-only is undone, a file system that was frozen is thawed whatever happened meanwhile. Questions can be
//! repeated after a crash.

use std::any::type_name;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Helper};

mod backing;
mod device;
mod failure;
mod freeze;
mod loopdev;
mod mount;
pub mod rbd;

pub use backing::{Backing, Identified, Overwrites, ToolGuard, admit};
pub use device::{DeviceSize, FindOpeners, Identify, IsClaimed, RemoveHalfMade};
pub use failure::{Answer, SyscallFailure};
pub use freeze::Thaw;
pub use loopdev::{AttachLoop, DetachLoop, GrowLoop, RefuseDiscard};
pub use mount::{Bind, IsShutDown, MountDevice, ReplayJournal, Statfs};

use failure::During;

/// A question to the kernel. Its fields travel to the helper and back as JSON; paths are `OsString`s, which
/// serde writes as their bytes.
pub trait Ask: Serialize + DeserializeOwned {
    /// The answer.
    type Reply: Serialize + DeserializeOwned;

    /// How long it may take.
    const CLASS: Class;

    /// The step in words.
    fn step(&self) -> String;

    /// Answers the question. In the helper.
    ///
    /// # Errors
    /// The system call that failed, and in which step.
    fn answer(&self) -> Answer<Self::Reply>;

    /// What a failure means to the caller.
    fn explain(&self, error: Error) -> Error {
        error
    }
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

    /// Asks.
    ///
    /// # Errors
    /// Every way in which the helper did not answer, and those of the question.
    pub fn ask<Q: Ask>(&self, call: &Call, question: &Q) -> Result<Q::Reply> {
        let step = question.step();
        let reply = self.helper.ask(call, &step, Q::CLASS, &to_bytes(question))?;
        read_reply(question, &reply)
    }
}

/// A question as it travels: with its type, which is the same on both sides as the program is. It holds nothing
/// that JSON cannot say; an empty one is refused by the other side.
fn to_bytes<Q: Ask>(question: &Q) -> Vec<u8> {
    serde_json::to_vec(&(type_name::<Q>(), question)).unwrap_or_default()
}

fn read_reply<Q: Ask>(question: &Q, reply: &[u8]) -> Result<Q::Reply> {
    let reply: Answer<Q::Reply> = serde_json::from_slice(reply)
        .map_err(|error| Error::internal(format!("{}: the helper's reply: {error}", question.step())))?;
    reply.map_err(|failure| question.explain(explain_permission(failure.into())))
}

fn explain_permission(error: Error) -> Error {
    match error.errno() {
        Some(libc::EPERM | libc::EACCES) => error.hint(
            "cephlet must run as root with CAP_SYS_ADMIN, and in a container or unit with DeviceAllow for \
             /dev/loop-control and block devices",
        ),
        _ => error,
    }
}

/// Serves one request. To be called in a helper process, which SIGTERM does not end.
pub fn handle(request: &[u8]) -> Vec<u8> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let failure =
            SyscallFailure { action: "read the request".into(), errno: None, text: error.to_string() };
        reply::<Value>(&Err(failure))
    };
    match serde_json::from_slice::<(String, Value)>(request) {
        Ok((name, question)) => serve(&name, question).unwrap_or_else(|error| unreadable(&error)),
        Err(error) => unreadable(&error),
    }
}

/// Answers the question of this type.
fn serve(name: &str, question: Value) -> serde_json::Result<Vec<u8>> {
    macro_rules! answer_one_of {
        ($($question:ty),* $(,)?) => {
            $(if name == type_name::<$question>() {
                return serde_json::from_value::<$question>(question).map(|question| reply(&question.answer()));
            })*
        };
    }
    answer_one_of!(
        AttachLoop,
        DetachLoop,
        GrowLoop,
        RefuseDiscard,
        ReplayJournal,
        Identify,
        RemoveHalfMade,
        DeviceSize,
        IsClaimed,
        FindOpeners,
        MountDevice,
        Bind,
        mount::Unmount,
        Statfs,
        IsShutDown,
        freeze::CloneFrozen,
        Thaw,
        rbd::ImageToMap,
        rbd::Unmap,
        rbd::Refresh,
    );
    Err(serde::de::Error::custom(format_args!("no question is called {name}")))
}

/// Replies hold nothing that JSON cannot say; an empty one is a broken reply to the other side.
fn reply<T: Serialize>(answer: &Answer<T>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod backing_tests;
