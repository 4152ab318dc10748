//! Runs tools and helpers on this machine: the [`Runner`] and [`Helper`] of the daemon.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, info, log, warn};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;

use super::command::Input;
use super::guard;
use super::helper::{HELPER_ARGUMENT, Helper};
use super::limits::ProcessLimits;
use super::process::{Process, Start, WaitEnd};
use super::reaper::{Orphan, Reaper};
use super::starter::Starter;
use super::{
    Class, Cmd, CommandError, Output, Resident, Runner, Script, Tool, Tools, Why, count_command, scope,
};
use crate::dispatch::{Bulkhead, Call, Limits, Permit, Permits, Want};
use crate::sys::crash;
use crate::sys::process::{Orphaned, keep_ended_children};

/// How often the client's deadline is checked, for a process whose call ends at that deadline.
const TICK: Duration = Duration::from_secs(1);

/// How often a shutdown checks whether all processes are gone.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs tools and helpers on this machine. One for the whole daemon.
pub struct Processes {
    tools: Tools,
    search_path: OsString,
    limits: ProcessLimits,
    helper_program: PathBuf,
    /// A directory that exists while systemd runs this machine.
    booted: PathBuf,
    tools_running: Arc<Permits>,
    helpers_running: Arc<Permits>,
    starter: Starter,
    reaper: Reaper,
    /// Can be read from the moment the daemon stops.
    stop: OwnedFd,
    stopping: AtomicBool,
    /// Threads that wait for a process, or for a place to start one, have a clone: shutdown waits for them.
    watched: Arc<()>,
}

/// One process to run, and its call.
struct Task<'a> {
    call: &'a Call,
    /// `process` or `helper`.
    via: &'static str,
    command: &'a str,
    class: Class,
    start: Start<'a>,
    permit: Permit,
}

impl Processes {
    /// Starts its threads.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub fn new(tools: Tools, limits: ProcessLimits) -> io::Result<Self> {
        keep_ended_children()?;
        Ok(Self {
            search_path: tools.search_path(),
            tools,
            helper_program: PathBuf::from("/proc/self/exe"),
            booted: PathBuf::from(scope::BOOTED),
            tools_running: Permits::new(at_once(limits.tools)),
            helpers_running: Permits::new(at_once(limits.helpers)),
            starter: Starter::start()?,
            reaper: Reaper::default(),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stopping: AtomicBool::new(false),
            watched: Arc::default(),
            limits,
        })
    }

    /// Ends the running processes and starts no more. Returns when all of them are gone that can be ended, at
    /// `deadline` at the latest.
    ///
    /// Only [`Class::Unbounded`] is left running. Calls that wait for a process get [`Why::Stopping`].
    pub fn shutdown(&self, deadline: Instant) {
        self.stopping.store(true, Ordering::Release);
        self.tools_running.close();
        self.helpers_running.close();
        // It is never read, so it stays readable for every waiter. EAGAIN would mean that it is readable.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let watched = || Arc::strong_count(&self.watched) - 1;
        while watched() > 0 && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
        let (watched, orphans) = (watched(), self.reaper.count());
        info!(
            "processes left behind: {watched} that did not end in time, {orphans} that could or must not be killed"
        );
    }

    /// How many commands and helpers run; how many calls and jobs wait for one; how many processes go on
    /// without their call.
    pub fn load(&self) -> ([usize; 2], usize, usize) {
        let (commands, helpers) = (self.tools_running.load(), self.helpers_running.load());
        ([commands.0, helpers.0], commands.1 + helpers.1, self.reaper.count())
    }

    fn start<'a>(
        &'a self,
        program: &'a Path,
        name: &'a str,
        args: &'a [OsString],
        stdin: &'a Input,
        orphaned: Orphaned,
    ) -> Start<'a> {
        let (search_path, stdout_limit) = (self.search_path.as_os_str(), self.limits.stdout);
        let (files, kept_open, host_name) = (Default::default(), None, None);
        Start { program, name, args, search_path, stdin, files, kept_open, host_name, stdout_limit, orphaned }
    }

    /// Waits until a command may be run.
    fn permit(
        &self,
        permits: &Arc<Permits>,
        call: &Call,
        (command, class): (&str, Class),
        bulkhead: Option<Bulkhead>,
    ) -> Result<Permit, Why> {
        let step = format!("waiting for others to end before {command}");
        // The commands that it waits for may take as long.
        let patience = if class.is_lasting() { Duration::MAX } else { self.limits.change };
        let is_lasting = class.is_lasting();
        let want = Want { bulkhead, is_lasting, is_back: false, step: Some(&step), patience };
        Ok(permits.acquire(call, want)?)
    }

    /// The path of `tool` on this machine, if it is there.
    pub fn path(&self, tool: Tool) -> Option<&Path> {
        self.tools.path(tool).ok()
    }

    /// Starts a process that the daemon talks to over a socket, and returns the daemon's end of the socket.
    ///
    /// # Errors
    /// The daemon is stopping, or fork, exec or a descriptor failed.
    pub fn start_resident(&self, script: Script<'_>, held: &Arc<File>) -> io::Result<(Resident, UnixStream)> {
        match self.stopping.load(Ordering::Acquire) {
            true => Err(io::Error::other("cephlet is stopping")),
            false => Resident::start(script, &self.search_path, held, &self.starter),
        }
    }

    /// Starts the process, watches it to its end, and counts it.
    fn perform(&self, task: Task<'_>) -> Result<Output, Why> {
        let (via, bulkhead) = (task.via, task.permit.bulkhead().clone());
        let outcome = self.start_and_watch(task);
        count_command(via, bulkhead.as_ref(), &outcome);
        outcome
    }

    fn start_and_watch(&self, task: Task<'_>) -> Result<Output, Why> {
        let stuck = self.reaper.count_in(task.permit.bulkhead());
        if stuck >= self.limits.stuck {
            return Err(Why::TooBusy(stuck));
        }
        task.call.enter_step(task.command);
        crash::point("start a process");
        let job = Process::start(&task.start, &self.starter).map_err(Why::NotStarted)?;
        crash::point("process started");
        let result = self.watch(job, task);
        crash::point("a process has ended");
        result
    }

    fn watch(&self, mut job: Process, task: Task<'_>) -> Result<Output, Why> {
        match self.wait(&mut job, task.class, task.call) {
            WaitEnd::Ended => {
                let (call, took) = (task.call.id(), job.elapsed().as_millis());
                debug!("call {call}: `{}` took {took} ms", task.command);
                job.finish(self.limits.stdout)
            }
            _ if task.class == Class::Unbounded => Err(self.let_run(job, task)),
            _ => Err(self.kill(job, task)),
        }
    }

    /// Waits for the end of the process, its deadline, or the stop of the daemon. If the process changes
    /// nothing, or can go on without its call, the client's deadline ends the wait, too.
    fn wait(&self, job: &mut Process, class: Class, call: &Call) -> WaitEnd {
        let now = Instant::now();
        let (deadline, heeds_client) = match class {
            Class::Question => (Some(now + self.limits.question), true),
            Class::Listing => (Some(now + self.limits.listing), true),
            Class::Change => (Some(now + self.limits.change), false),
            Class::Lasting => (None, false),
            Class::Unbounded => (None, true),
        };
        loop {
            let tick = heeds_client.then(|| Instant::now() + TICK);
            let until = tick.into_iter().chain(deadline).min();
            let event = job.wait(until, Some(self.stop.as_fd()), call);
            let over = deadline.is_some_and(|deadline| Instant::now() >= deadline)
                || (heeds_client && call.expired());
            if event != WaitEnd::Time || over {
                return event;
            }
        }
    }

    /// Leaves a process that must not be killed to the reaper; the call ends.
    fn let_run(&self, job: Process, task: Task<'_>) -> Why {
        let (call, command, after) = (task.call.clone(), task.command.to_owned(), job.elapsed());
        let bulkhead = task.permit.bulkhead().clone();
        warn!("call {}: `{command}` (process {}) goes on without its call", call.id(), job.pid());
        let _permit = Some(task.permit);
        self.reaper.adopt(Orphan { job, command, call, bulkhead, _permit });
        self.stopped_or(Why::StillRunning(after))
    }

    /// TERM, a grace, KILL, a short wait. If the process remains, the reaper takes it.
    fn kill(&self, mut job: Process, task: Task<'_>) -> Why {
        let (after, command) = (job.elapsed(), task.command);
        let is_question = matches!(task.class, Class::Question | Class::Listing);
        // A stop kills questions as a matter of course: they change nothing.
        let is_usual = is_question && self.stopping.load(Ordering::Acquire);
        let level = if is_usual { Level::Info } else { Level::Warn };
        let (id, pid, seconds) = (task.call.id(), job.pid(), after.as_secs());
        log!(level, "call {id}: `{command}` (process {pid}) is killed after {seconds} s");
        job.signal_group(Signal::TERM);
        let mut event = job.wait(Some(Instant::now() + self.limits.grace), None, task.call);
        // Also for processes that the leader left behind in its group.
        job.signal_group(Signal::KILL);
        if event != WaitEnd::Ended {
            event = job.wait(Some(Instant::now() + self.limits.last_wait), None, task.call);
        }
        let stderr_tail = job.stderr_tail();
        let reaped = event == WaitEnd::Ended;
        if reaped {
            job.reap();
        } else {
            // A question changes nothing, also later: the volume can be unpublished while it hangs.
            let call = if is_question { task.call.without_hold() } else { task.call.clone() };
            let lock = if is_question { "" } else { "; its volume stays locked" };
            warn!("call {id}: `{command}` (process {pid}) cannot be killed{lock}");
            self.reaper.adopt(Orphan {
                job,
                command: command.to_owned(),
                call,
                bulkhead: task.permit.bulkhead().clone(),
                _permit: None,
            });
        }
        self.stopped_or(Why::TimedOut { after, reaped, stderr_tail })
    }

    /// Whether the command is to get a scope of its own and this machine has scopes.
    fn has_scopes(&self, cmd: &Cmd) -> bool {
        cmd.outlives && self.booted.is_dir() && self.tools.path(Tool::SystemdRun).is_ok()
    }

    fn stopped_or(&self, why: Why) -> Why {
        if self.stopping.load(Ordering::Acquire) { Why::Stopping } else { why }
    }
}

impl Runner for Processes {
    fn run(&self, call: &Call, cmd: &Cmd) -> Result<Output, CommandError> {
        let program = self.tools.path(cmd.tool)?;
        let scoped = self.has_scopes(cmd).then(|| scope::in_scope(cmd, program));
        let cmd = scoped.as_ref().unwrap_or(cmd);
        let (program, command) = (self.tools.path(cmd.tool)?, cmd.to_string());
        self.run_tool(call, cmd, program, &command).map_err(|why| {
            let error = why.of(command);
            debug!("call {}: {error}", call.id());
            error
        })
    }

    fn has(&self, tool: Tool) -> Result<(), CommandError> {
        self.tools.path(tool).map(drop)
    }
}

impl Processes {
    fn run_tool(&self, call: &Call, cmd: &Cmd, program: &Path, command: &str) -> Result<Output, Why> {
        let _watched = Arc::clone(&self.watched);
        let queued = Instant::now();
        let bulkhead = cmd.bulkhead.clone().or_else(|| call.bulkhead());
        let permit = self.permit(&self.tools_running, call, (command, cmd.class), bulkhead)?;
        if !call.may_begin() {
            return Err(Why::Expired(queued.elapsed()));
        }
        let guarded = cmd.guard.as_ref().map(|guard| guard::arguments(guard, program, &cmd.args));
        let (program, args) = match &guarded {
            Some(args) => (self.helper_program.as_path(), args),
            None => (program, &cmd.args),
        };
        let orphaned = orphaned(cmd.class, cmd.outlives);
        let start = self.start(program, cmd.tool.file_name(), args, &cmd.stdin, orphaned);
        let (kept_open, host_name) = (cmd.kept_open.as_ref(), cmd.host_name.as_deref());
        let start = Start { files: &cmd.files, kept_open, host_name, ..start };
        self.perform(Task { call, via: "process", command, class: cmd.class, start, permit })
    }
}

impl Helper for Processes {
    fn ask(
        &self,
        call: &Call,
        step: &str,
        class: Class,
        request: &[u8],
        held: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        let _watched = Arc::clone(&self.watched);
        let permit = self.permit(&self.helpers_running, call, (step, class), call.bulkhead());
        let permit = permit.map_err(|why| why.of(step))?;
        let (args, request) = ([OsString::from(HELPER_ARGUMENT)], Input::from(request));
        let start = self.start(&self.helper_program, "cephlet", &args, &request, orphaned(class, false));
        let start = Start { kept_open: held, ..start };
        let task = Task { call, via: "helper", command: step, class, start, permit };
        self.perform(task).map(|output| output.stdout).map_err(|why| why.of(step))
    }
}

/// This many in each bulkhead. Commands without a deadline leave one place to the others.
fn at_once(each: usize) -> Limits {
    let each = each.max(1);
    Limits { all: usize::MAX, each, lasting: each - 1 }
}

/// What happens to a process when the daemon dies.
fn orphaned(class: Class, outlives: bool) -> Orphaned {
    match class {
        Class::Unbounded => Orphaned::GoesOn,
        _ if outlives => Orphaned::MayWriteNoMore,
        Class::Question | Class::Listing | Class::Change | Class::Lasting => Orphaned::Dies,
    }
}

#[cfg(test)]
mod tests;
