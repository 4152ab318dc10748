//! Ceph's tools as one resident process: a program on Ceph's Python bindings, which are installed with the
//! tools. A process takes 25 ms before its command begins; the session answers in 1 ms.
//!
//! The session replaces the tools: it takes the command lines of `rbd` and `rados`, and commands for monitors
//! and manager, and returns the exit status, the JSON and the messages of the tool. If it does not serve a
//! command, or cannot run, the tool is started. So the meaning of answers is defined in one place.
//!
//! It is started when it is needed, and ends after it was idle for a while. When the daemon dies, the session
//! finishes its requests, so that no image stays half made, and begins no other.

mod former;
mod live;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, warn};
use parking_lot::Mutex;

use self::live::{Live, NoAnswer};
use self::wire::{Answer, Question};
use crate::backend::ceph::ClusterAccess;
use crate::backend::ceph::monitor::Command;
use crate::dispatch::{Call, Limits, Permit, Permits, Want};
use crate::exec::{Class, Cmd, CommandError, Output, Processes, Script, Why, count_command};
use crate::metrics;

/// The program.
const PROGRAM: &str = include_str!("session.py");

/// A session that has to be started more often than this within [`LATELY`] has a lasting defect. One that
/// ends when it is idle may be started that often in as many of its times of idleness.
const MOST_STARTS: u32 = 5;
const LATELY: Duration = Duration::from_secs(60);

/// The limits that the tools have for a question and for a list.
const QUESTION: Duration = Duration::from_secs(30);
const LISTING: Duration = Duration::from_secs(600);

/// How long processes are used instead, after too many starts and after a start that failed.
const REST: Duration = Duration::from_secs(600);

/// How many requests of a user the session carries out at once, and how many of them for the manager. It has
/// as many threads for each (`WORKERS`).
const AT_ONCE: Limits = Limits { all: usize::MAX, each: 8, lasting: 1 };

/// How the names of commands begin that the manager carries out.
const OF_MANAGER: [&str; 4] = ["rbd ", "fs subvolume", "fs clone", "mds."];

/// The session, whether it runs or not.
pub struct Session {
    processes: Arc<Processes>,
    interpreter: PathBuf,
    former: former::Lock,
    change: Duration,
    idle: Option<Duration>,
    /// A request has one from before it is sent until it is answered.
    permits: Arc<Permits>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    starts: VecDeque<Instant>,
    rests_until: Option<Instant>,
    trouble: Option<String>,
}

/// The words at the beginning of a command.
fn name(command: &Command) -> &str {
    command.first().and_then(|(_, prefix)| prefix.as_str()).unwrap_or_default()
}

/// The interpreter for which Ceph's bindings are installed: that of the program `ceph`. Another `python3` in
/// the path may have no bindings. A `ceph` that is no Python program says nothing about it.
pub fn interpreter(ceph: Option<&Path>) -> PathBuf {
    let text = ceph.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let line = text.lines().next().and_then(|line| line.strip_prefix("#!"));
    let named = line.and_then(|line| line.split_whitespace().next()).map(Path::new);
    let is_python = |path: &&Path| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("python"))
    };
    named.filter(is_python).map_or_else(|| PathBuf::from("/usr/bin/python3"), Path::to_path_buf)
}

impl Session {
    /// A session that `interpreter` runs when needed, and that holds the lock of the file `lock` while it
    /// runs. No change takes longer than `change`; the session ends after it was `idle` for so long. Without
    /// an `idle` time no session is started, and only that of a former daemon is waited for.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn new(
        (processes, interpreter): (Arc<Processes>, PathBuf),
        lock: &Path,
        (change, idle): (Duration, Option<Duration>),
    ) -> io::Result<Self> {
        let former = former::Lock::open(lock)?;
        let (permits, state) = (Permits::new(AT_ONCE), Mutex::default());
        Ok(Self { processes, interpreter, former, change, idle, permits, state })
    }

    /// Runs a command as its tool would; None if the tool has to be started. A change waits, also then, until
    /// no session of a former daemon is left.
    pub(crate) fn run(
        &self,
        (call, access): (&Call, &ClusterAccess),
        cmd: &Cmd,
    ) -> Option<Result<Output, CommandError>> {
        let question = cmd.words().map(|argv| Question::Tool { argv });
        self.ask((call, access), cmd.class(), (question.as_ref(), cmd.stdin_bytes()), &cmd.to_string())
    }

    /// The same for commands that the monitors or the manager carry out, whose tool is `ceph`.
    pub(crate) fn command(
        &self,
        asker: (&Call, &ClusterAccess),
        class: Class,
        commands: &[Command],
    ) -> Option<Result<Output, CommandError>> {
        let step = format!("ceph {}", commands.iter().map(name).collect::<Vec<_>>().join(", "));
        let is_of_manager = |name: &str| OF_MANAGER.iter().any(|it| name.starts_with(it));
        let manager = commands.iter().any(|command| is_of_manager(name(command)));
        let json =
            |command: &Command| command.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let question = Question::Commands { commands: commands.iter().map(json).collect(), manager };
        self.ask(asker, class, (Some(&question), &[]), &step)
    }

    /// Why the session did not start when it was needed last; None if it did.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    /// Whether a session is wanted, and can be had as far as is known.
    pub(crate) fn serves(&self) -> bool {
        self.idle.is_some() && self.trouble().is_none()
    }

    /// Ends the session once its requests have ended, and takes no others.
    pub fn end(&self) {
        self.permits.close();
        if let Some(live) = self.state.lock().live.take() {
            live.end();
        }
    }

    fn ask(
        &self,
        (call, access): (&Call, &ClusterAccess),
        class: Class,
        (question, body): (Option<&Question<'_>>, &[u8]),
        step: &str,
    ) -> Option<Result<Output, CommandError>> {
        let is_change = !matches!(class, Class::Question | Class::Listing);
        if is_change && let Err(why) = self.former.await_former(call) {
            return Some(Err(why.of(step)));
        }
        let question = question?;
        let limit = match class {
            Class::Question => QUESTION,
            Class::Listing => LISTING,
            Class::Change => self.change,
            Class::Lasting | Class::Unbounded => return None,
        };
        let permit = match self.permit((call, access), question, step) {
            Ok(permit) => permit,
            Err(why) => return Some(Err(why.of(step))),
        };
        let live = self.live()?;
        call.enter_step(step);
        let begun = Instant::now();
        let outcome = match live.ask((call, class, access, permit), (question, body), begun + limit) {
            Ok((Answer { status: None, said, .. }, _)) => {
                if !said.is_empty() {
                    warn!("the session does not serve `{step}`: {said}");
                }
                return None;
            }
            Ok((Answer { status: Some(status), said, .. }, stdout)) => {
                let (call, took) = (call.id(), begun.elapsed().as_millis());
                debug!("call {call}: `{step}` took {took} ms in the session");
                match status {
                    0 => Ok(Output { stdout, stderr_tail: said }),
                    status => Err(Why::Failed { status, stdout, stderr_tail: said }),
                }
            }
            Err(NoAnswer::NotSent) => return None,
            // The tool asks the question again.
            Err(NoAnswer::Died) if class != Class::Change => return None,
            Err(NoAnswer::Died) => Err(Why::Died),
            Err(NoAnswer::Late) => Err(Why::NoAnswer(begun.elapsed())),
        };
        count_command("session", Some(&access.bulkhead), &outcome);
        Some(outcome.map_err(|why| why.of(step)))
    }

    /// Waits until the session can begin a request. What is sent is carried out, however late; so a request
    /// that its call may not begin any more, or for which nobody waits, is never sent.
    fn permit(
        &self,
        (call, access): (&Call, &ClusterAccess),
        question: &Question<'_>,
        step: &str,
    ) -> Result<Permit, Why> {
        let (asked, waiting) = (Instant::now(), format!("waiting for others to end before {step}"));
        // Each of them may go on without the others.
        let crew = match question {
            Question::Commands { manager: true, .. } => "manager",
            Question::Commands { .. } => "monitors",
            _ => "cluster",
        };
        let bulkhead = format!("{crew} {} {}", access.credentials.user, access.bulkhead);
        let (bulkhead, step, patience) = (Some(bulkhead.into()), Some(waiting.as_str()), self.change);
        let want = Want { bulkhead, is_lasting: false, is_back: false, step, patience };
        let permit = self.permits.acquire(call, want)?;
        if call.may_begin() { Ok(permit) } else { Err(Why::Expired(asked.elapsed())) }
    }

    /// The running session, or a new one; None if a session cannot run now.
    fn live(&self) -> Option<Arc<Live>> {
        let (idle, lock) = (self.idle?, self.former.file()?);
        let mut state = self.state.lock();
        if let Some(live) = state.live.as_ref().filter(|live| live.is_up()) {
            return Some(Arc::clone(live));
        }
        let now = Instant::now();
        if state.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        let lately = LATELY.min(MOST_STARTS * idle);
        state.starts.retain(|start| now.duration_since(*start) < lately);
        let started = match state.starts.len() < MOST_STARTS as usize {
            true => self.start(lock, idle),
            false => Err(format!("it was started {MOST_STARTS} times within {} s", lately.as_secs())),
        };
        state.starts.push_back(now);
        match started {
            Ok(live) => {
                state.trouble = None;
                state.live = Some(Arc::clone(&live));
                Some(live)
            }
            Err(why) => {
                let why =
                    format!("without a session with Ceph clusters every question starts a process: {why}");
                if state.trouble.as_ref() != Some(&why) {
                    warn!("{why}");
                }
                state.starts.clear();
                (state.trouble, state.rests_until) = (Some(why), Some(now + REST));
                None
            }
        }
    }

    fn start(&self, lock: &Arc<File>, idle: Duration) -> Result<Arc<Live>, String> {
        let script = Script {
            interpreter: &self.interpreter,
            // No file of the user, the environment or the present directory is used (python3(1), -I).
            options: &["-I"],
            text: PROGRAM,
            environment: &[("MALLOC_ARENA_MAX", "1")],
        };
        metrics::count(&metrics::SESSION_STARTS, &[]);
        let started = self.processes.start_resident(script, lock).map_err(|error| error.to_string());
        let greeted = started.and_then(|started| Live::greet(started, idle));
        greeted.map_err(|why| format!("{}: {why}", self.interpreter.display()))
    }
}
