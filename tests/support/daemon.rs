//! A daemon of this checkout, on a socket of its own.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::client::{Answer, Client};
use super::log::Log;
use super::machine::{loops_below, mounts_below};
use super::notify::{Manager, pidfd, timeout};
use super::{PATIENCE, Scratch, session};

/// The program under test: CEPHLET_BINARY, or the one that was built with the tests.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        std::env::var("CEPHLET_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cephlet").to_string())
    });
    &BINARY
}

/// How a daemon is started: a scratch directory and environment.
pub struct Setup {
    pub scratch: Arc<Scratch>,
    environment: BTreeMap<String, String>,
    /// A program that starts the daemon, with its arguments.
    wrapper: Vec<&'static str>,
}

impl Setup {
    /// The usual environment, everything below a new scratch directory.
    pub fn new() -> Self {
        Self::within(Arc::new(Scratch::new()))
    }

    /// The usual environment below this directory.
    pub fn within(scratch: Arc<Scratch>) -> Self {
        let path = |name: &str| scratch.path(name).display().to_string();
        let usual = [
            ("CSI_ENDPOINT", format!("unix://{}", path("csi.sock"))),
            ("CEPHLET_STATE_DIR", path("state")),
            ("CEPHLET_RUNTIME_DIR", path("run")),
            ("CEPHLET_LOCAL_DIR", path("local")),
            ("CEPHLET_NODE_ID", "node-1".to_string()),
            ("CEPHLET_LOG", "debug".to_string()),
        ];
        let environment = usual.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        Self { scratch, environment, wrapper: Vec::new() }
    }

    /// Sets a variable.
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.environment.insert(key.to_string(), value.to_string());
        self
    }

    /// Starts tools from these directories only, and no session in their place.
    pub fn with_tools(self, search_path: impl ToString) -> Self {
        self.set("CEPHLET_TOOL_PATH", search_path).set("CEPHLET_SESSION", "off")
    }

    /// Takes a variable away.
    pub fn unset(mut self, key: &str) -> Self {
        self.environment.remove(key);
        self
    }

    /// Runs the daemon in a session of its own, so that what it started can be told from everything else.
    pub fn in_own_session(self) -> Self {
        self.under(&["/usr/bin/setsid"])
    }

    /// Starts the daemon through another program, which becomes the daemon.
    pub fn under(mut self, wrapper: &[&'static str]) -> Self {
        self.wrapper = wrapper.to_vec();
        self
    }

    /// The command, not yet started. Nothing of the test's own environment reaches it.
    pub fn command(&self) -> Command {
        let words: Vec<&str> = self.wrapper.iter().copied().chain([binary()]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// What `cephlet config`, or another command, says with these settings.
    #[track_caller]
    pub fn cephlet(&self, command: &str) -> String {
        let output = self.command().arg(command).stdout(Stdio::piped()).output().expect("run cephlet");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}\n{said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a daemon that is expected to refuse to start; gives its exit code and what it said.
    #[track_caller]
    pub fn fail(&self) -> (i32, String) {
        let mut child = self.command().spawn().expect("start the daemon");
        let log = Log::default();
        let reader = log.follow(child.stderr.take().expect("stderr is piped"));
        let status = wait(&mut child, &log);
        await_reader(reader, &log);
        let code = status.code().unwrap_or_else(|| panic!("ended by a signal: {status}\n{}", log.text()));
        assert_ne!(code, 0, "should have refused to start:\n{}", log.text());
        (code, log.text())
    }

    /// Starts the daemon and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Daemon {
        let manager = Manager::bind(self.scratch.path("notify.sock"));
        let mut daemon = Daemon {
            setup: self,
            manager,
            child: None,
            lives: Vec::new(),
            begun: 0,
            log: Log::default(),
            reader: None,
        };
        daemon.spawn();
        daemon.await_ready();
        daemon
    }
}

/// A daemon; it is killed and cleaned up after when it is dropped.
pub struct Daemon {
    pub setup: Setup,
    pub manager: Manager,
    pub log: Log,
    child: Option<Child>,
    /// The process IDs of its lives so far.
    lives: Vec<u32>,
    /// The lines of the log that are older than the present life.
    begun: usize,
    reader: Option<thread::JoinHandle<()>>,
}

impl Daemon {
    /// A daemon in the usual environment.
    #[track_caller]
    pub fn start() -> Self {
        Setup::new().start()
    }

    fn spawn(&mut self) {
        self.manager.drain();
        self.begun = self.log.len();
        let mut child =
            self.setup.command().env("NOTIFY_SOCKET", self.manager.path()).spawn().expect("start the daemon");
        self.reader = Some(self.log.follow(child.stderr.take().expect("stderr is piped")));
        self.lives.push(child.id());
        self.child = Some(child);
    }

    #[track_caller]
    fn await_ready(&mut self) {
        if let Some(status) = self.await_ready_or_end() {
            panic!("the daemon ended before it was ready: {status}\n{}", self.log.text());
        }
    }

    /// Waits until it is ready; gives how it ended if it ended before.
    #[track_caller]
    fn await_ready_or_end(&mut self) -> Option<ExitStatus> {
        loop {
            if !self.manager.await_message_or_end(self.child.as_ref().expect("the daemon runs")) {
                return Some(self.wait());
            }
            match self.manager.next() {
                Some(message) if message.contains("READY=1") => return None,
                Some(_) => {}
                None => panic!("the daemon was not ready within {PATIENCE:?}:\n{}", self.log.text()),
            }
        }
    }

    /// The directory of the test.
    pub fn scratch(&self) -> &Scratch {
        &self.setup.scratch
    }

    /// A path in the directory of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.setup.scratch.path(name)
    }

    /// Types in a command on the daemon's host, with its settings and these variables; returns what it
    /// prints, or what it says when it fails.
    pub fn type_in(&self, line: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let programs = Path::new(binary()).parent().expect("a directory");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", line]).env_clear().envs(&self.setup.environment).env("PATH", programs);
        let output = shell.envs(variables.iter().copied()).output().expect("a shell");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into()),
            false => Err(String::from_utf8_lossy(&output.stderr).into()),
        }
    }

    /// The same as text, for requests.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Where its volumes are kept.
    pub fn local_dir(&self) -> PathBuf {
        PathBuf::from(&self.setup.environment["CEPHLET_LOCAL_DIR"])
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(&self.path("csi.sock"))
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// How many file descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its descriptors").count()
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads").count()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("the daemon runs"));
        kill_process(pid, signal).expect("send a signal");
    }

    /// Waits for its end; everything it logged is read afterwards.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the daemon runs");
        let status = wait(&mut child, &self.log);
        if let Some(reader) = self.reader.take() {
            await_reader(reader, &self.log);
        }
        status
    }

    /// SIGTERM, and waits.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// SIGKILL, and waits.
    #[track_caller]
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().signal(), Some(9));
    }

    /// Starts it again in the same place; ends it first if it runs.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.child.is_some() {
            assert!(self.terminate().success(), "{}", self.log.text());
        }
        self.spawn();
        self.await_ready();
    }

    /// Starts a daemon that has ended, so that it kills itself at its `point`-th crash point. False if it did
    /// that before it was ready.
    #[track_caller]
    pub fn start_to_crash(&mut self, point: usize) -> bool {
        self.setup.environment.insert("CEPHLET_CRASH_AT".to_string(), point.to_string());
        self.spawn();
        self.setup.environment.remove("CEPHLET_CRASH_AT");
        let ended = self.await_ready_or_end();
        if let Some(status) = ended {
            assert_eq!(status.signal(), Some(9), "{status}\n{}", self.log.text());
        }
        ended.is_none()
    }

    /// Ends a daemon that was to kill itself while it served a request. True if it did so, which is then why
    /// the request failed; false if it answered before, and is killed now.
    #[track_caller]
    pub fn end_at_crash_point<T>(&mut self, answer: &Answer<T>) -> bool {
        let Err(failure) = answer else {
            self.kill9();
            return false;
        };
        let status = self.wait();
        assert_eq!(
            status.signal(),
            Some(9),
            "{status} after {failure:?}\n{}",
            self.log.after(self.begun).join("\n")
        );
        true
    }

    /// Waits for the end of what its former lives started and left behind. For daemons in a session of their
    /// own.
    pub fn await_leftovers(&self) {
        self.former_lives().for_each(session::await_end);
    }

    /// Kills what its former lives started and left behind, but for what must not be killed, and waits for
    /// the end of it all.
    pub fn kill_leftovers(&self) {
        self.former_lives().for_each(session::kill);
    }

    fn former_lives(&self) -> impl Iterator<Item = u32> {
        let now = self.child.as_ref().map(Child::id);
        self.lives.iter().copied().filter(move |life| Some(*life) != now)
    }

    /// Asserts that it is ready. At its end every daemon is checked for panics.
    #[track_caller]
    pub fn assert_well(&self) {
        assert!(self.client().is_ready(), "not ready:\n{}", self.log.text());
    }

    /// Asserts that nothing of any volume is left on this node.
    #[track_caller]
    pub fn assert_node_is_clean(&self) {
        let mounts: Vec<PathBuf> =
            mounts_below(&self.path("")).into_iter().map(|mount| mount.point).collect();
        let mounts: Vec<&PathBuf> = mounts.iter().filter(|point| **point != self.local_dir()).collect();
        assert!(mounts.is_empty(), "UNSAFE: still mounted: {mounts:?}");
        let loops = loops_below(&self.local_dir());
        assert!(loops.is_empty(), "UNSAFE: still attached: {loops:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
        let panics = self.log.lines_with("panicked");
        if thread::panicking() {
            eprintln!("--- log of the daemon ---\n{}", self.log.text());
            panics.iter().for_each(|panic| eprintln!("UNSAFE: {panic}"));
        } else {
            assert!(panics.is_empty(), "UNSAFE: {panics:?}");
        }
    }
}

/// Waits for a process, on a thread, so that one that hangs fails the test.
#[track_caller]
fn wait(child: &mut Child, log: &Log) -> ExitStatus {
    if !ends_within(child, &timeout()) {
        end(child);
        panic!("process {} did not end:\n{}", child.id(), log.text());
    }
    child.wait().expect("wait for the process")
}

/// Waits until a log is read to its end. What a daemon leaves behind might keep it open.
#[track_caller]
fn await_reader(reader: thread::JoinHandle<()>, log: &Log) {
    let end = Instant::now() + PATIENCE;
    while !reader.is_finished() {
        assert!(Instant::now() < end, "somebody has the log open still:\n{}", log.text());
        thread::sleep(Duration::from_millis(1));
    }
    reader.join().expect("the log is read");
}

fn ends_within(child: &Child, time: &Timespec) -> bool {
    let ended = pidfd(child);
    poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(time)).expect("poll the process") == 1
}

/// Kills a process. One that hangs in the kernel is left there.
fn end(child: &mut Child) {
    let _ = child.kill();
    if ends_within(child, &Timespec { tv_sec: 10, tv_nsec: 0 }) {
        let _ = child.wait();
    }
}
