//! A substitute for the daemon in tests.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use protobuf::Message;

use crate::cli::commands::COMMANDS;
use crate::cli::failure::CliResult;
use crate::cli::names;
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;
use crate::cli::syntax::{self, Action, Command, Parsed};
use crate::error::{Error, Result};
use crate::grpc::proto::Rpc;
use crate::grpc::proto::cephlet_operator_v1::{FindByNameRequest, FindByNameResponse};

/// Answers every rpc with the reply that a test has set, else with an empty message, and keeps the requests.
#[derive(Default)]
pub struct Fake {
    replies: Mutex<HashMap<&'static str, VecDeque<Result<Vec<u8>>>>>,
    asked: Mutex<Vec<(&'static str, Vec<u8>)>>,
}

impl Fake {
    /// Answers requests of type `Q` with `reply`. Several replies are given one after the other, and the last
    /// one is repeated.
    pub fn replies<Q: Rpc>(self, reply: &Q::Reply) -> Self {
        let bytes = protobuf::Message::write_to_bytes(reply).expect("a message can be encoded");
        self.replies.lock().entry(Q::PATH).or_default().push_back(Ok(bytes));
        self
    }

    /// Refuses requests of type `Q`. Replies that were set before are dropped.
    pub fn refuses<Q: Rpc>(self, error: Error) -> Self {
        self.replies.lock().insert(Q::PATH, VecDeque::from([Err(error)]));
        self
    }

    /// Which rpcs were called, in order, without their services; except for questions about names.
    pub fn asked(&self) -> Vec<&'static str> {
        let asked = self.asked.lock();
        let others = asked.iter().map(|(path, _)| *path).filter(|path| *path != FindByNameRequest::PATH);
        others.map(|path| path.rsplit('/').next().unwrap_or(path)).collect()
    }

    /// The last request of its type.
    pub fn request<Q: Rpc>(&self) -> Q {
        let asked = self.asked.lock();
        let last = asked.iter().rfind(|(path, _)| *path == Q::PATH);
        let (_, bytes) = last.unwrap_or_else(|| panic!("{} was not called", Q::PATH));
        Q::parse_from_bytes(bytes).expect("the request is of this type")
    }
}

impl Plugin for Fake {
    fn send(&self, path: &'static str, request: Vec<u8>) -> Result<Vec<u8>> {
        self.asked.lock().push((path, request.clone()));
        let mut replies = self.replies.lock();
        let Some(queue) = replies.get_mut(path) else { return Ok(usual(path, &request)) };
        let reply = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
        reply.expect("a queue is never empty")
    }
}

/// The reply where a test has set none: a name is its own ID, and all else is empty.
fn usual(path: &str, request: &[u8]) -> Vec<u8> {
    if path != FindByNameRequest::PATH {
        return Vec::new();
    }
    let asked = FindByNameRequest::parse_from_bytes(request).expect("a request");
    FindByNameResponse { id: asked.text, ..Default::default() }
        .write_to_bytes()
        .expect("a message can be encoded")
}

/// Runs a command line against `fake`.
pub fn run(fake: &Fake, line: &str) -> CliResult<Report> {
    let parsed = syntax::parse(COMMANDS, line.split_whitespace().map(Into::into).collect())?;
    let Parsed::Run(command @ Command { action: Action::Ask(ask), .. }, given) = parsed else {
        panic!("{line:?} does not ask the daemon")
    };
    names::ask(fake, command, ask, given)
}
