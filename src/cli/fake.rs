//! What answers in the daemon's place in tests.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use parking_lot::Mutex;
use protobuf::Message;

use crate::cli::commands::COMMANDS;
use crate::cli::failure::CliResult;
use crate::cli::publications::Publications;
use crate::cli::report::Report;
use crate::cli::session::Session;
use crate::cli::syntax::{self, Action, Command, Parsed};
use crate::config::{Config, Role};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Answers every rpc with what was set, else with an empty message, and remembers what was asked.
#[derive(Default)]
pub struct Fake {
    replies: Mutex<HashMap<&'static str, VecDeque<Result<Vec<u8>>>>>,
    asked: Mutex<Vec<(&'static str, Vec<u8>)>>,
}

impl Fake {
    /// Answers `rpc` with `reply`; set again, with one after the other, the last again and again.
    pub fn replies(self, rpc: &'static str, reply: &impl Message) -> Self {
        let bytes = reply.write_to_bytes().expect("a message can be encoded");
        self.replies.lock().entry(rpc).or_default().push_back(Ok(bytes));
        self
    }

    /// Refuses `rpc`, whatever it answered before.
    pub fn refuses(self, rpc: &'static str, error: Error) -> Self {
        self.replies.lock().insert(rpc, VecDeque::from([Err(error)]));
        self
    }

    /// Which rpcs were called, in order.
    pub fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().iter().map(|(rpc, _)| *rpc).collect()
    }

    /// The last request of `rpc`.
    pub fn request<Q: Message>(&self, rpc: &str) -> Q {
        let asked = self.asked.lock();
        let (_, bytes) =
            asked.iter().rfind(|(asked, _)| *asked == rpc).unwrap_or_else(|| panic!("{rpc} was not called"));
        Q::parse_from_bytes(bytes).expect("the request is of this type")
    }

    pub(super) fn answer<R: Message>(&self, rpc: &'static str, request: &impl Message) -> Result<R> {
        self.asked.lock().push((rpc, request.write_to_bytes().expect("a message can be encoded")));
        let mut replies = self.replies.lock();
        let Some(queue) = replies.get_mut(rpc) else { return Ok(R::new()) };
        let reply = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
        let bytes = reply.expect("a queue is never empty")?;
        Ok(R::parse_from_bytes(&bytes).expect("the reply is of this type"))
    }
}

/// What was published, recorded below `runtime`.
pub fn publications(runtime: &Path) -> Publications {
    let variables = [("CEPHLET_RUNTIME_DIR".into(), runtime.into())];
    Publications::new(Layout::new(
        &Config::from_variables(Role::Client, variables).expect("a valid configuration"),
    ))
}

/// Runs a command line against `fake`, in a runtime directory of its own.
pub fn run(fake: &Fake, line: &str) -> CliResult<Report> {
    let runtime = tempfile::tempdir().expect("a scratch directory");
    run_in(runtime.path(), fake, line)
}

/// Runs a command line against `fake`, with what was published below `runtime`.
pub fn run_in(runtime: &Path, fake: &Fake, line: &str) -> CliResult<Report> {
    let parsed = syntax::parse(COMMANDS, line.split_whitespace().map(Into::into).collect())?;
    let Parsed::Run(Command { action: Action::Ask(ask), .. }, given) = parsed else {
        panic!("{line:?} does not ask the daemon")
    };
    let session = Session { plugin: fake, publications: publications(runtime) };
    ask(&session, &given)
}
