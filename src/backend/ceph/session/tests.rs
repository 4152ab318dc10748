//! The session with bindings that stand still until the test lets them go on.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command as Process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;
use crate::backend::ceph::{Monitors, Programs};
use crate::clusters::{Cluster, Credentials};
use crate::exec::fake::FakeRunner;
use crate::exec::{ProcessLimits, Resident, Tool, Tools};

/// Bindings that stand still until the test lets them go on.
const RADOS: &str = include_str!("tests/rados.py");
const RBD: &str = include_str!("tests/rbd.py");

/// Longer than any test.
const LONG: Duration = Duration::from_secs(300);

/// A session as a test needs it.
struct Fixture {
    session: Session,
    access: ClusterAccess,
    scratch: TempDir,
}

impl Fixture {
    /// A session whose changes take no longer than `change`.
    fn new(change: Duration) -> Self {
        Self::ending(change, LONG)
    }

    /// The same, but it ends when it was idle for so long.
    fn ending(change: Duration, idle: Duration) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let interpreter = scratch.path().join("python");
        fs::write(scratch.path().join("rados.py"), RADOS).unwrap();
        fs::write(scratch.path().join("rbd.py"), RBD).unwrap();
        // Another process writes the program: a child that another test is starting could inherit this
        // process's descriptor, and what is open for writing cannot be executed.
        let write = "printf '#!/bin/sh\\nshift; PYTHONPATH=%s exec /usr/bin/python3 -B \"$@\"\\n' \"$1\" > \"$2\" \
                     && chmod 755 \"$2\"";
        #[expect(clippy::disallowed_methods, reason = "a test")]
        let mut process = Process::new("sh");
        process.args(["-c", write, "sh"]).args([scratch.path(), &interpreter]);
        assert!(process.status().unwrap().success());
        let processes = Processes::new(Tools::find(Vec::new()), ProcessLimits::new(8, LONG)).unwrap();
        let (lock, times) = (scratch.path().join("lock"), (change, Some(idle)));
        let session = Session::new((Arc::new(processes), interpreter), &lock, times).unwrap();
        let credentials = Credentials { user: "cephlet".into(), key: None };
        let access =
            ClusterAccess { cluster: Arc::new(Cluster::named("main")), credentials, bulkhead: "main".into() };
        Self { session, access, scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Asks for the content of a file.
    fn ask(&self, call: &Call, class: Class, file: &Path) -> Result<Output, CommandError> {
        self.session.command((call, &self.access), class, &[read(file)]).expect("the session serves it")
    }
}

/// The command for the content of a file.
fn read(file: &Path) -> Command {
    vec![("prefix", "read".into()), ("file", file.to_str().unwrap().into())]
}

/// A request that the session has begun, and that goes on until this is dropped.
struct Held {
    _file: File,
}

/// FIFOs for requests that are held.
fn fifos<const N: usize>(fixture: &Fixture) -> [PathBuf; N] {
    std::array::from_fn(|number| {
        let path = fixture.path(&format!("fifo-{number}"));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    })
}

/// Waits until the session has begun the request with this FIFO.
fn begun(fifo: &Path) -> Held {
    Held { _file: File::options().write(true).open(fifo).unwrap() }
}

/// The session's process, by its protocol.
struct Raw {
    process: Resident,
    socket: UnixStream,
    read: BufReader<UnixStream>,
}

impl Raw {
    fn new(fixture: &Fixture) -> Self {
        let Session { processes, interpreter, former, .. } = &fixture.session;
        let script = Script { interpreter, options: &["-I"], text: PROGRAM, environment: &[] };
        let (process, socket) = processes.start_resident(script, former.file().unwrap()).unwrap();
        // A defect fails the test instead of hanging it.
        socket.set_read_timeout(Some(LONG)).unwrap();
        let mut read = BufReader::new(socket.try_clone().unwrap());
        wire::read::<wire::Hello>(&mut read).unwrap();
        Self { process, socket, read }
    }

    fn reach(&mut self, cluster: u64, conf: Option<&Path>) {
        let (conf, options) = (conf.map(|conf| conf.to_str().unwrap()), [("id".into(), "cephlet".into())]);
        let reach = wire::Reach { cluster, conf, options: options.into_iter().collect() };
        wire::write(&mut self.socket, &reach, &[]).unwrap();
    }

    /// Asks monitors for the content of a file.
    fn ask(&mut self, id: u64, cluster: u64, file: &Path) {
        let command = read(file).into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        let question = &Question::Commands { commands: vec![command], manager: false };
        wire::write(&mut self.socket, &wire::Request { id, cluster, question }, &[]).unwrap();
    }

    /// The number of the next request that is answered; None at the end.
    fn answered(&mut self) -> Option<u64> {
        wire::read::<Answer>(&mut self.read).ok().map(|(answer, _)| answer.id)
    }
}

/// Waits until the call is in some step.
fn step_of(call: &Call) -> String {
    loop {
        match call.current_step().0 {
            step if step == "queued" => thread::yield_now(),
            step => return step,
        }
    }
}

#[test]
fn a_request_that_the_session_cannot_begin_at_once_is_not_sent() {
    let fixture = Fixture::new(LONG);
    let fifos = fifos::<8>(&fixture);
    let (may_begin, call) = (Arc::new(AtomicBool::new(true)), Call::internal("test"));
    let condition = Arc::clone(&may_begin);
    let late = call.only_while(move || condition.load(Ordering::Relaxed));
    fs::write(fixture.path("file"), "content").unwrap();
    let ask = |call: &Call| fixture.ask(call, Class::Change, &fixture.path("file"));
    let hold = |fifo: &Path| fixture.ask(&Call::internal("test"), Class::Change, fifo).unwrap();
    thread::scope(|scope| {
        fifos.iter().for_each(|fifo| drop(scope.spawn(|| hold(fifo))));
        let held: Vec<_> = fifos.iter().map(|fifo| begun(fifo)).collect();
        let waiting = scope.spawn(|| ask(&late));
        assert!(step_of(&call).starts_with("waiting for others"), "{:?}", call.current_step());
        let expired = Call::new("test", || true);
        assert!(matches!(ask(&expired).unwrap_err().why, Why::Expired(_)));
        may_begin.store(false, Ordering::Relaxed);
        drop(held);
        assert!(matches!(waiting.join().unwrap().unwrap_err().why, Why::Expired(_)));
    });
    assert_eq!(ask(&call).unwrap().stdout, b"content");
}

#[test]
fn a_request_has_its_place_until_a_late_answer_comes() {
    let fixture = Fixture::new(Duration::from_millis(100));
    let fifos = fifos::<8>(&fixture);
    let ask = |class, file: &Path| fixture.ask(&Call::internal("test"), class, file).map_err(|it| it.why);
    let file = fixture.path("file");
    fs::write(&file, "content").unwrap();
    let hold = |fifo: &Path| ask(Class::Change, fifo);
    let held: Vec<_> = thread::scope(|scope| {
        let holding: Vec<_> = fifos.iter().map(|fifo| scope.spawn(|| hold(fifo))).collect();
        let held = fifos.iter().map(|fifo| begun(fifo)).collect();
        let mut outcomes = holding.into_iter().map(|it| it.join().unwrap());
        assert!(outcomes.all(|it| matches!(it, Err(Why::NoAnswer(_)))));
        held
    });
    assert!(matches!(ask(Class::Question, &file), Err(Why::Expired(_))));
    drop(held);
    while fixture.session.permits.load() != (0, 0) {
        thread::yield_now();
    }
    assert_eq!(ask(Class::Question, &file).unwrap().stdout, b"content");
}

#[test]
fn a_change_that_waits_long_for_another_of_its_image_is_left_to_the_tool() {
    let fixture = Fixture::new(LONG);
    let [image] = &fifos(&fixture);
    let image_option = format!("--image={}", image.display());
    let rm = Cmd::new(Tool::Rbd, Class::Change).args(["--pool=rbd", "rm", &image_option]);
    let remove = || fixture.session.run((&Call::internal("test"), &fixture.access), &rm);
    thread::scope(|scope| {
        let first = scope.spawn(remove);
        let held = begun(image);
        assert!(remove().is_none(), "it was not to be served");
        drop(held);
        assert!(first.join().unwrap().unwrap().is_ok());
    });
}

#[test]
fn a_question_ends_with_its_client_and_a_change_does_not() {
    let fixture = Fixture::new(LONG);
    let [question, change] = &fifos(&fixture);
    let client_is_gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&client_is_gone);
    let call = Call::new("test", move || is_gone.load(Ordering::Relaxed));
    thread::scope(|scope| {
        let questioning = scope.spawn(|| (fixture.ask(&call, Class::Question, question), Instant::now()));
        let changing = scope.spawn(|| fixture.ask(&call, Class::Change, change));
        let held = [question, change].map(|fifo| begun(fifo));
        let gone = Instant::now();
        client_is_gone.store(true, Ordering::Relaxed);
        let (answer, ended) = questioning.join().unwrap();
        assert!(matches!(answer.unwrap_err().why, Why::NoAnswer(_)));
        assert!(ended - gone < QUESTION, "it has waited for the answer");
        drop(held);
        changing.join().unwrap().unwrap();
    });
}

#[test]
fn no_cluster_is_changed_while_a_former_session_runs() {
    let Fixture { session, access, scratch } = Fixture::new(LONG);
    let former = File::open(scratch.path().join("lock")).unwrap();
    former.try_lock().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "content").unwrap();
    let runner = Arc::new(FakeRunner::default());
    let programs = Programs::new(Arc::clone(&runner) as _, Some(Arc::new(session)));
    let expired = Call::new("test", || true);
    let change = |call: &Call| Monitors::ask(&programs, (call, &access), Class::Change, &[read(&file)]);
    let refused = change(&expired).unwrap_err().into_bare_error().to_string();
    assert!(refused.contains("of a former cephlet is finishing its requests"), "{refused}");
    assert!(runner.ran().is_empty());
    drop(former);
    assert_eq!(change(&Call::internal("test")).unwrap().stdout, b"content");
}

#[test]
fn nothing_is_begun_after_the_end() {
    let fixture = Fixture::new(LONG);
    let (fifos, mut raw, file) = (fifos::<9>(&fixture), Raw::new(&fixture), fixture.path("file"));
    fs::write(&file, "content").unwrap();
    let (end_of_first, fifos) = fifos.split_first().unwrap();
    raw.reach(1, Some(end_of_first));
    raw.reach(2, None);
    raw.ask(100, 1, &file);
    assert_eq!(raw.answered(), Some(100));
    (0..).zip(fifos).for_each(|(id, fifo)| raw.ask(id, 2, fifo));
    let held: Vec<_> = fifos.iter().map(|fifo| begun(fifo)).collect();
    raw.ask(200, 2, &file);
    raw.socket.shutdown(Shutdown::Write).unwrap();
    // Before that of the second cluster, which still has something to do.
    let end_of_first = begun(end_of_first);
    drop(held);
    let mut answered: Vec<_> = fifos.iter().map(|_| raw.answered().unwrap()).collect();
    drop(end_of_first);
    answered.sort_unstable();
    assert_eq!(answered, Vec::from_iter(0..8));
    assert_eq!(raw.answered(), None);
    raw.process.end(Instant::now() + LONG);
}

#[test]
fn what_was_asked_of_a_forgotten_cluster_is_answered() {
    let fixture = Fixture::new(LONG);
    let (fifos, mut raw, file) = (fifos::<8>(&fixture), Raw::new(&fixture), fixture.path("file"));
    fs::write(&file, "content").unwrap();
    (1..3).for_each(|cluster| raw.reach(cluster, None));
    (0..).zip(&fifos).for_each(|(id, fifo)| raw.ask(id, 1, fifo));
    let held: Vec<_> = fifos.iter().map(|fifo| begun(fifo)).collect();
    raw.ask(8, 1, &file);
    wire::write(&mut raw.socket, &wire::Forget { forget: 1 }, &[]).unwrap();
    raw.ask(9, 2, &file);
    assert_eq!(raw.answered(), Some(9), "the session has read all of it");
    drop(held);
    let mut answered: Vec<_> = (0..9).map(|_| raw.answered().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, Vec::from_iter(0..9));
    raw.socket.shutdown(Shutdown::Write).unwrap();
    raw.process.end(Instant::now() + LONG);
}

#[test]
fn a_client_that_is_shut_out_leaves_no_connections() {
    let Fixture { session, access, scratch: _kept } = Fixture::new(LONG);
    let call = Call::internal("test");
    for _ in 0..3 {
        let cmd = Cmd::new(Tool::Rados, Class::Change).args(["--pool=rbd", "rm", "object"]);
        let refused = session.run((&call, &access), &cmd).unwrap().unwrap_err();
        assert_eq!(refused.status(), Some(libc::ESHUTDOWN), "{refused}");
    }
    let open = session.command((&call, &access), Class::Question, &[read(Path::new(""))]).unwrap();
    assert_eq!(open.unwrap().stdout, b"1");
}

#[test]
fn a_daemon_that_dies_in_the_middle_of_a_request_is_gone() {
    let fixture = Fixture::new(LONG);
    let ([fifo], mut raw) = (fifos(&fixture), Raw::new(&fixture));
    raw.reach(1, None);
    raw.ask(1, 1, &fifo);
    let held = begun(&fifo);
    let mut request = Vec::new();
    wire::write(&mut request, &wire::Forget { forget: 1 }, &[]).unwrap();
    raw.socket.write_all(&request[..request.len() - 1]).unwrap();
    raw.socket.shutdown(Shutdown::Write).unwrap();
    // A session that has failed ends without an answer, and says why.
    drop(held);
    assert_eq!(raw.answered(), Some(1));
    assert_eq!(raw.process.end(Instant::now() + LONG).1, "");
}

#[test]
fn a_session_that_makes_no_sense_is_gone_before_its_callers_go_on() {
    let fixture = Fixture::new(LONG);
    let file = fixture.path("nonsense");
    let answer = fixture.ask(&Call::internal("test"), Class::Change, &file);
    assert!(matches!(answer.unwrap_err().why, Why::Died));
    let process = fs::read_to_string(file).unwrap();
    assert!(!Path::new("/proc").join(&process).exists(), "process {process} still runs");
}

#[test]
fn a_session_that_ends_when_it_is_idle_has_no_defect() {
    let fixture = Fixture::ending(LONG, Duration::from_millis(1));
    let (call, file) = (Call::internal("test"), read(&fixture.path("none")));
    for _ in 0..=MOST_STARTS {
        // The session may have ended before it is asked.
        fixture.session.command((&call, &fixture.access), Class::Question, std::slice::from_ref(&file));
        while fixture.session.state.lock().live.as_ref().is_some_and(|live| live.is_up()) {
            thread::yield_now();
        }
    }
    assert_eq!(fixture.session.trouble(), None);
}
