//! External commands and helper processes: the only place that starts processes.
//!
//! What every started process gets: an absolute path found once at start, no shell, a cleared environment
//! (`LC_ALL=C`, `TZ=UTC`, `PATH`), `/` as its directory, a process group of its own, stdin from memory or
//! `/dev/null`, and no descriptors of the daemon but those that the command was given.
//!
//! How it ends:
//! 1. It exits. [`Runner::run`] returns then, not when a grandchild closes the pipe: pidfd and pipes are
//!    polled together, and what the pipes hold at that moment is all that is read.
//! 2. Its deadline passes: TERM to its group, a grace, KILL to its group, a short wait.
//! 3. It is still there (uninterruptible sleep): it goes to the reaper together with a clone of the
//!    [`Call`](crate::dispatch::Call), which keeps the volume locked until the process is gone.
//! 4. [`Class::Unbounded`] has no deadline and is never killed: once the client's deadline has passed, the
//!    call ends and the process goes to the reaper, which goes on reading its output.
//! 5. The daemon dies in any way: the kernel kills the process, so the next daemon meets no process that
//!    could still change something. Exceptions must not be broken off ([`Class::Unbounded`]), or leave a
//!    process behind on purpose ([`Cmd::outliving`]). The next daemon finds them by the device that they have
//!    open, or by a lock that they keep ([`Cmd::keeping_open`]). A [`Resident`] process ends by itself at the
//!    end of its input.

mod command;
mod count;
mod error;
mod guard;
mod helper;
mod limits;
mod process;
mod reaper;
mod resident;
mod runner;
mod scope;
mod starter;
mod stream;
mod tools;

#[cfg(test)]
pub mod fake;

pub use command::{Class, Cmd, Output, Runner};
pub use count::count_command;
pub use error::{CommandError, Why};
pub use guard::{GUARD_ARGUMENT, NOT_BEGUN, become_tool};
pub use helper::{HELPER_ARGUMENT, Helper, serve};
pub use limits::ProcessLimits;
pub use resident::{Resident, Script};
pub use runner::Processes;
pub use tools::{Tool, Tools};
