//! Tools that hang, flood, leave daemons behind or cannot be killed. The stub is always `/bin/sh -c SCRIPT`
//! under a tool's name.

#![allow(clippy::unwrap_used)]

mod files;
mod lasting;

use super::*;
use crate::error::{Error, Kind};
use crate::exec::Tool;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};
use std::process::Command;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::{fs, os::unix::fs::symlink};
use tempfile::TempDir;

/// Long enough for anything that should happen soon, on the slowest machine.
const SOON: Duration = Duration::from_secs(100);
/// Long enough for a few commands of a shell on the slowest machine, and no more.
const HASTE: Duration = Duration::from_secs(15);

/// A machine on which `btrfs` is a shell, and the other tools are those in /usr/bin and /bin.
struct Stubs {
    dir: TempDir,
    processes: Processes,
}

impl Stubs {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ProcessLimits)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        symlink("/bin/sh", dir.path().join("btrfs")).unwrap();
        let mut limits = ProcessLimits::new(4, SOON);
        change(&mut limits);
        let tools = Tools::find(vec![dir.path().into(), "/usr/bin".into(), "/bin".into()]);
        let processes = Processes::new(tools, limits).unwrap();
        Self { dir, processes }
    }

    /// With a deadline of `HASTE`.
    fn hasty(grace: Duration, last_wait: Duration) -> Self {
        Self::with(|limits| {
            limits.change = HASTE;
            limits.grace = grace;
            limits.last_wait = last_wait;
        })
    }

    fn run(&self, script: &str) -> Result<Output, CommandError> {
        self.run_for(&Call::internal("test"), Class::Change, script)
    }

    fn run_for(&self, call: &Call, class: Class, script: &str) -> Result<Output, CommandError> {
        self.processes.run(call, &self.cmd(class, script))
    }

    /// `$0` of the script is the stubs' directory.
    fn cmd(&self, class: Class, script: &str) -> Cmd {
        Cmd::new(Tool::Btrfs, class).args(["-c", script]).arg(self.dir.path())
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    fn stdout(&self, script: &str) -> String {
        String::from_utf8(self.run(script).unwrap().stdout).unwrap()
    }
}

/// Waits for the end of a process that is no child of this one.
fn await_end(pid: &str) {
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(errno) => assert_eq!(errno, Errno::SRCH),
        Ok(fd) => {
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec::try_from(SOON).unwrap();
            assert_eq!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1), "process {pid:?} lives on");
        }
    }
}

/// A call with a deadline, so that a defect fails its test and does not hang it.
fn patient_call() -> Call {
    let begun = Instant::now();
    Call::new("test", move || begun.elapsed() > SOON)
}

/// A call that holds a lock, and a channel that is disconnected when the lock is freed.
fn call_with_lock(expired: bool) -> (Call, mpsc::Receiver<()>) {
    let (guard, released) = mpsc::channel();
    let call = Call::new("test", move || expired);
    call.hold(guard);
    (call, released)
}

#[test]
fn a_failure_is_told_with_status_command_and_last_line() {
    let stubs = Stubs::new();
    let call = Call::internal("test");
    let error = Error::from(
        stubs.run_for(&call, Class::Change, "echo first >&2; echo last >&2; exit 17").unwrap_err(),
    );
    assert_eq!(error.exit_status(), Some(17));
    assert!(error.message().starts_with("last (exit status 17 of `btrfs -c "), "{error}");
    assert!(call.current_step().0.starts_with("btrfs -c "), "{:?}", call.current_step());
}

#[test]
fn what_may_not_begin_any_more_when_its_turn_comes_is_not_begun() {
    let stubs = Stubs::with(|limits| limits.tools = 1);
    let (ready, go) = (stubs.fifo("ready"), stubs.fifo("go"));
    let in_time = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&in_time);
    let call = patient_call().only_while(move || asked.load(Ordering::Relaxed));
    assert!(stubs.run_for(&call, Class::Change, "").is_ok());
    thread::scope(|scope| {
        let before = scope.spawn(|| stubs.run("echo > $0/ready; read line < $0/go"));
        fs::read(&ready).unwrap();
        let waits = scope.spawn(|| stubs.run_for(&call, Class::Change, "echo > $0/begun"));
        while !format!("{:?}", stubs.processes.tools_running).ends_with("1 waited for") {
            thread::yield_now();
        }
        in_time.store(false, Ordering::Relaxed);
        fs::write(go, "\n").unwrap();
        before.join().unwrap().unwrap();
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error.why, Why::Expired(_)), "{error}");
    });
    assert!(!stubs.dir.path().join("begun").exists(), "UNSAFE: it was begun too late");
}

#[test]
fn a_signal_is_no_exit_status() {
    let error = Stubs::new().run("echo so long >&2; kill -KILL $$").unwrap_err();
    assert!(matches!(error.why, Why::Signaled { signal: 9, .. }), "{error}");
    assert!(error.to_string().starts_with("so long (signal 9"), "{error}");
}

#[test]
fn a_missing_tool_is_named() {
    let error =
        Stubs::new().processes.run(&Call::internal("test"), &Cmd::new(Tool::Resize2fs, Class::Change));
    assert!(
        matches!(error, Err(CommandError { why: Why::NotFound { tool: Tool::Resize2fs, .. }, .. })),
        "{error:?}"
    );
}

#[test]
fn a_tool_removed_since_start_is_not_started() {
    let stubs = Stubs::new();
    fs::remove_file(stubs.dir.path().join("btrfs")).unwrap();
    let error = stubs.run("").unwrap_err();
    assert!(
        matches!(&error.why, Why::NotStarted(cause) if cause.kind() == io::ErrorKind::NotFound),
        "{error}"
    );
}

#[test]
fn stdin_comes_from_memory() {
    let (stubs, call) = (Stubs::new(), Call::internal("test"));
    let bytes = vec![b'x'; 1_000_000];
    let run = |script| {
        stubs.processes.run(&call, &stubs.cmd(Class::Change, script).stdin(bytes.clone())).unwrap().stdout
    };
    assert_eq!(run("cat"), bytes);
    assert_eq!(run("cat /proc/self/fd/0"), bytes);
    assert_eq!(stubs.stdout("readlink /proc/self/fd/0"), "/dev/null\n");
}

#[test]
fn the_environment_is_bare() {
    let stubs = Stubs::new();
    let seen = stubs.stdout("tr '\\0' '\\n' < /proc/$$/environ; pwd; umask");
    let mut lines: Vec<_> = seen.lines().collect();
    lines[..3].sort_unstable();
    let path = format!("PATH={}:/usr/bin:/bin", stubs.dir.path().display());
    assert_eq!(lines, ["LC_ALL=C", path.as_str(), "TZ=UTC", "/", "0022"]);
}

#[test]
fn a_process_leads_its_own_group() {
    let seen = Stubs::new().stdout("cut -d' ' -f1,5 /proc/$$/stat");
    let (pid, group) = seen.trim().split_once(' ').unwrap();
    assert_eq!(pid, group);
}

#[test]
fn no_descriptor_of_the_daemon_is_seen() {
    let inheritable = open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(Stubs::new().stdout("ls /proc/$$/fd"), "0\n1\n2\n");
    drop(inheritable);
}

#[test]
fn floods_on_both_pipes_are_read_together() {
    let output = Stubs::new().run("head -c 3000000 /dev/zero | tee /dev/stderr; echo last >&2").unwrap();
    assert_eq!(output.stdout.len(), 3_000_000);
    assert_eq!(output.stderr_tail.len(), 4096);
    assert!(output.stderr_tail.ends_with("\0last\n"));
}

#[test]
fn too_much_output_is_an_error_and_breaks_nothing_off() {
    let stubs = Stubs::with(|limits| limits.stdout = 1000);
    let error = stubs.run("head -c 3000000 /dev/zero; echo through > $0/end").unwrap_err();
    assert!(matches!(error.why, Why::TooMuchOutput(1000)), "{error}");
    assert_eq!(fs::read_to_string(stubs.dir.path().join("end")).unwrap(), "through\n");
}

#[test]
fn a_daemon_that_keeps_the_pipe_keeps_nobody_waiting() {
    let begun = Instant::now();
    let pid = Stubs::new().stdout("sleep 1000 & echo $!");
    assert!(begun.elapsed() < SOON / 2, "waited for a grandchild");
    let daemon = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(daemon, Signal::KILL).expect("the daemon must have survived its parent");
}

#[test]
fn a_deadline_terminates_the_whole_group() {
    let begun = Instant::now();
    let error = Stubs::hasty(SOON, SOON)
        .run("sleep 1000 & trap 'echo terminated; exit' TERM; echo $! >&2; wait")
        .unwrap_err();
    let Why::TimedOut { reaped: true, stderr_tail, after, .. } = &error.why else { panic!("{error}") };
    assert!(*after >= HASTE && begun.elapsed() < SOON, "it was not TERM that ended it");
    await_end(stderr_tail);
    assert_eq!(Error::from(error).kind(), Kind::Timeout);
}

#[test]
fn what_ignores_term_is_killed() {
    let begun = Instant::now();
    let error = Stubs::hasty(Duration::from_millis(300), SOON)
        .run("trap '' TERM; sleep 1000 & echo $! >&2; wait")
        .unwrap_err();
    let Why::TimedOut { reaped: true, stderr_tail, .. } = error.why else { panic!("{error:?}") };
    assert!(begun.elapsed() >= HASTE + Duration::from_millis(300), "the grace was not given");
    await_end(&stderr_tail);
}

#[test]
fn what_outlives_its_terminated_leader_is_killed() {
    let error =
        Stubs::hasty(SOON, SOON).run("(trap '' TERM; exec sleep 1000) & echo $! >&2; wait").unwrap_err();
    let Why::TimedOut { reaped: true, stderr_tail, .. } = error.why else { panic!("{error:?}") };
    await_end(&stderr_tail);
}

#[test]
fn no_more_run_at_once_than_allowed() {
    let stubs = Stubs::with(|limits| limits.tools = 2);
    fs::create_dir(stubs.dir.path().join("running")).unwrap();
    let script = "cd $0/running; : > $$; ls | wc -l; sleep 0.1; rm $$";
    let seen: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| stubs.stdout(script))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().trim().parse().unwrap()).collect()
    });
    assert!(seen.iter().all(|count| (1..=2).contains(count)), "{seen:?}");
}

#[test]
fn nothing_is_started_beside_too_many_stuck_ones() {
    let error = Stubs::with(|limits| limits.stuck = 0).run("").unwrap_err();
    assert!(matches!(error.why, Why::TooBusy(0)), "{error}");
    assert_eq!(Error::from(error).kind(), Kind::Unavailable);
}

/// A frozen file system: a process that writes to it sleeps uninterruptibly, deaf to signals until a thaw.
struct Frozen(PathBuf);

impl Frozen {
    fn below(dir: &std::path::Path) -> Self {
        let (image, mount) = (dir.join("image"), dir.join("mount"));
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&mount).unwrap();
        system(Command::new("mkfs.ext4").arg("-q").arg(&image));
        system(Command::new("mount").args(["-o", "loop"]).args([&image, &mount]));
        system(Command::new("fsfreeze").arg("-f").arg(&mount));
        Self(mount)
    }
}

/// Thaws the file system, which disappears with its last user.
impl Drop for Frozen {
    fn drop(&mut self) {
        system(Command::new("fsfreeze").arg("-u").arg(&self.0));
        system(Command::new("umount").arg("-l").arg(&self.0));
    }
}

fn system(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_killed_keeps_the_lock_until_it_is_gone() {
    let stubs = Stubs::hasty(Duration::from_millis(100), Duration::from_millis(200));
    let frozen = Frozen::below(stubs.dir.path());
    let (call, released) = call_with_lock(false);
    let error = stubs.run_for(&call, Class::Change, "echo stuck > $0/mount/file").unwrap_err();
    assert!(matches!(error.why, Why::TimedOut { reaped: false, .. }), "{error}");
    drop(call);
    assert_eq!(released.try_recv(), Err(TryRecvError::Empty), "the lock is free while the process hangs");
    assert_eq!(stubs.processes.reaper.count(), 1);
    assert_eq!(stubs.stdout("echo others go on"), "others go on\n");
    drop(frozen);
    assert!(released.recv_timeout(SOON).is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected));
    assert_eq!(stubs.processes.reaper.count(), 0);
}

#[test]
fn a_question_that_cannot_be_killed_frees_the_lock() {
    let stubs = Stubs::hasty(Duration::from_millis(100), Duration::from_millis(200));
    let frozen = Frozen::below(stubs.dir.path());
    let (call, released) = call_with_lock(false);
    let error = stubs.run_for(&call, Class::Question, "echo stuck > $0/mount/file").unwrap_err();
    assert!(matches!(error.why, Why::TimedOut { reaped: false, .. }), "{error}");
    drop(call);
    assert!(released.recv_timeout(SOON).is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected));
    assert_eq!(stubs.processes.reaper.count(), 1);
    drop(frozen);
}

/// Stubs whose helper is a script. Another process writes it: a child that another test is starting could
/// inherit this process's descriptor for writing, and exec would fail with ETXTBSY.
fn stubs_with_helper(script: &str) -> Stubs {
    let mut stubs = Stubs::with(|limits| limits.tools = 1);
    let program = stubs.dir.path().join("helper");
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
    system(Command::new("sh").args(["-c", write, "sh", script]).arg(&program));
    stubs.processes.helper_program = program;
    stubs
}

#[test]
fn helpers_need_no_place_of_a_tool() {
    let stubs = stubs_with_helper("echo $1; cat");
    let (ready, go) = (stubs.fifo("ready"), stubs.fifo("go"));
    thread::scope(|scope| {
        let tool = scope.spawn(|| stubs.run("echo > $0/ready; read line < $0/go"));
        fs::read(&ready).unwrap();
        let call = patient_call();
        let reply = stubs.processes.ask(&call, "mount /dev/rbd0", Class::Change, b"request", None).unwrap();
        assert_eq!(reply, b"@helper\nrequest");
        assert_eq!(call.current_step().0, "mount /dev/rbd0");
        fs::write(&go, "\n").unwrap();
        tool.join().unwrap().unwrap();
    });
}

#[test]
fn a_helper_that_fails_is_named_by_its_step() {
    let stubs = stubs_with_helper("echo thread panicked >&2; exit 101");
    let error = stubs
        .processes
        .ask(&Call::internal("test"), "statfs /mnt/a", Class::Question, b"", None)
        .unwrap_err();
    assert_eq!(error.to_string(), "thread panicked (exit status 101 of `statfs /mnt/a`)");
}

#[test]
fn a_helper_is_this_binary_again() {
    // By process, not by path: a build during the test may replace the file.
    let binary = format!("/proc/{}/exe", std::process::id());
    let test = "exec::helper::tests::serve_as_helper";
    let stubs = stubs_with_helper(&format!("exec {binary} --exact {test} --ignored --nocapture"));
    let reply =
        stubs.processes.ask(&Call::internal("test"), "test", Class::Question, b"a question", None).unwrap();
    assert!(String::from_utf8_lossy(&reply).contains("<reply to a question>"), "{reply:?}");
}

#[test]
fn a_question_ends_with_its_client_and_a_change_does_not() {
    let stubs = Stubs::with(|limits| limits.question = 2 * SOON);
    let (call, _lock) = call_with_lock(true);
    let expired = stubs.processes.run(&Call::new("test", || true), &stubs.cmd(Class::Change, "exit 0"));
    assert!(expired.is_ok(), "a place was free: {expired:?}");
    let begun = Instant::now();
    let error = stubs.run_for(&call, Class::Question, "sleep 1000").unwrap_err();
    assert!(matches!(error.why, Why::TimedOut { reaped: true, .. }) && begun.elapsed() < SOON, "{error}");
    assert_eq!(stubs.run_for(&call, Class::Change, "sleep 1.5; echo done").unwrap().stdout, b"done\n");
}
