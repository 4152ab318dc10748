//! A running session: the process, the callers that wait for its answers, and the clusters that it knows.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use log::{debug, warn};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::wire::{self, Answer, Forget, Hello, PROTOCOL, Question, Reach, Request};
use crate::backend::ceph::ClusterAccess;
use crate::dispatch::{Call, Permit, TICK};
use crate::exec::{Class, Resident};
use crate::metrics;
use crate::sys::crash;

/// How long a session may take to send its first message, or to read a request; and the longest pause between
/// two looks whether it is to be ended or killed.
const MOMENT: Duration = Duration::from_secs(10);

/// How long a session that was killed is awaited for what it has said.
const END_KILLED: Duration = Duration::from_secs(1);

/// How long a session may take to finish its requests, once it was told to end.
const END: Duration = Duration::from_secs(60);

/// The most clusters, each with a user, to which a session keeps connections. Each takes 2 MB.
const MOST_CLUSTERS: usize = 16;

/// How long librados waits, in seconds: for a monitor at first, and for an OSD. Manager commands have no
/// limit: librados 16.2 crashes when an answer comes after it (tracker.ceph.com 65985).
const WAITS: [(&str, &str); 3] =
    [("client_mount_timeout", "20"), ("rados_osd_op_timeout", "40"), ("rados_mon_op_timeout", "0")];

/// Settings that the tools get as options; and the library writes no log and opens no admin socket.
const SETTINGS: [(&str, &str); 7] = [
    ("rbd_default_clone_format", "2"),
    ("rbd_move_to_trash_on_remove", "false"),
    ("rbd_move_parent_to_trash_on_remove", "false"),
    ("admin_socket", ""),
    ("log_file", "/dev/null"),
    ("log_to_stderr", "false"),
    ("err_to_stderr", "false"),
];

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The request was not sent.
    NotSent,
    /// The session died. The request may have been carried out.
    Died,
    /// The request takes longer than it may, or than its client waits, and goes on.
    Late,
}

/// A running session.
pub(super) struct Live {
    socket: UnixStream,
    sending: Mutex<Sending>,
    /// When the session was told to end.
    ended: OnceLock<Instant>,
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
}

/// What ends when an answer arrives.
struct Waiting {
    /// The wait of the caller; None if it has given up.
    caller: Option<Sender<(Answer, Vec<u8>)>>,
    /// The lock of the volume, if the call has given up, but its change goes on.
    _lock: Option<Call>,
    /// The request's place in the session.
    _permit: Permit,
}

/// State that only one request at a time may use.
#[derive(Default)]
struct Sending {
    requests: u64,
    clusters: Vec<Known>,
    used: Option<Instant>,
}

/// A cluster and user that the session knows, under a number.
struct Known {
    number: u64,
    access: ClusterAccess,
    used: u64,
}

impl Live {
    /// Waits for the session's first message.
    ///
    /// # Errors
    /// What the session said before it ended, or that it said nothing.
    pub fn greet((mut process, socket): (Resident, UnixStream), idle: Duration) -> Result<Arc<Self>, String> {
        let hello = match process.wait(&socket, MOMENT) {
            true => wire::read::<Hello>(&mut &socket).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => String::from("it ends at once"),
                _ => error.to_string(),
            }),
            false => Err(String::from("it says nothing")),
        };
        let hello = match hello {
            Ok((Hello { protocol: PROTOCOL, python, rbd }, _)) => {
                debug!("session: Python {python}, librbd {rbd}, process {}", process.id());
                Ok(())
            }
            Ok((Hello { protocol, .. }, _)) => Err(format!("it speaks protocol {protocol}")),
            Err(why) => Err(why),
        };
        let live = hello.and_then(|()| Self::start(&socket).map_err(|error| error.to_string()));
        match live {
            Ok(live) => {
                let reader = Arc::clone(&live);
                let read = move || reader.read(process, socket, idle);
                let started = thread::Builder::new().name(String::from("session")).spawn(read);
                started.map(|_| live).map_err(|error| error.to_string())
            }
            Err(why) => {
                drop(socket);
                // A process that hangs in the kernel does not end: only this thread waits for it.
                let (ended, said) = bounded(1);
                let end = move || drop(ended.send(process.end(Instant::now()).1));
                let ending = thread::Builder::new().name(String::from("session end")).spawn(end);
                let said = ending.ok().and_then(|_| said.recv_timeout(END_KILLED).ok());
                Err(said.and_then(|said| last_words(&said)).unwrap_or(why))
            }
        }
    }

    fn start(socket: &UnixStream) -> io::Result<Arc<Self>> {
        let (waiting, socket) = (Mutex::new(Some(HashMap::new())), socket.try_clone()?);
        socket.set_write_timeout(Some(MOMENT))?;
        Ok(Arc::new(Self { socket, sending: Mutex::default(), ended: OnceLock::new(), waiting }))
    }

    /// Whether the session takes requests.
    pub fn is_up(&self) -> bool {
        self.waiting.lock().is_some()
    }

    /// Tells the session to end once its requests have ended.
    pub fn end(&self) {
        self.ended.get_or_init(Instant::now);
        // An error means that the session has ended.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Asks a cluster, and waits for the answer until `deadline`, or until no client waits for it. A change
    /// is waited for also then. It keeps the volume of its call locked, and every request its permit, until
    /// it has ended, even if that is later.
    pub fn ask(
        &self,
        (call, class, access, permit): (&Call, Class, &ClusterAccess, Permit),
        (question, body): (&Question<'_>, &[u8]),
        deadline: Instant,
    ) -> Result<(Answer, Vec<u8>), NoAnswer> {
        let (answered, answer) = bounded(1);
        crash::point("ask the session");
        let waiting = Waiting { caller: Some(answered), _lock: None, _permit: permit };
        let id = self.send(access, question, body, waiting).ok_or(NoAnswer::NotSent)?;
        crash::point("session asked");
        let is_change = class == Class::Change;
        let answer = loop {
            let until = if is_change { deadline } else { deadline.min(Instant::now() + TICK) };
            match answer.recv_deadline(until) {
                Err(RecvTimeoutError::Timeout) if until < deadline && !call.expired() => {}
                answer => break answer,
            }
        };
        crash::point("session has answered");
        match answer {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(NoAnswer::Died),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(late) = self.waiting.lock().as_mut().and_then(|waiting| waiting.get_mut(&id)) {
                    (late.caller, late._lock) = (None, is_change.then(|| call.clone()));
                }
                Err(NoAnswer::Late)
            }
        }
    }

    /// Sends a request; None if the session has ended.
    fn send(
        &self,
        access: &ClusterAccess,
        question: &Question<'_>,
        body: &[u8],
        waiting: Waiting,
    ) -> Option<u64> {
        let mut sending = self.sending.lock();
        // After an error a part of a frame may have been sent.
        let cluster = self.number_of(&mut sending, access).inspect_err(|_| self.end()).ok()?;
        sending.requests += 1;
        sending.used = Some(Instant::now());
        let id = sending.requests;
        self.waiting.lock().as_mut()?.insert(id, waiting);
        let sent = wire::write(&mut &self.socket, &Request { id, cluster, question }, body);
        if sent.is_err() {
            self.end();
            self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        }
        sent.ok().map(|()| id)
    }

    /// The session's number of a cluster and user. The session is told of them if it does not know them.
    fn number_of(&self, sending: &mut Sending, access: &ClusterAccess) -> io::Result<u64> {
        let Sending { requests, clusters, .. } = sending;
        if let Some(known) = clusters.iter_mut().find(|known| is_same(&known.access, access)) {
            known.used = *requests;
            return Ok(known.number);
        }
        if clusters.len() >= MOST_CLUSTERS {
            clusters.sort_by_key(|known| std::cmp::Reverse(known.used));
            if let Some(Known { number: forget, .. }) = clusters.pop() {
                wire::write(&mut &self.socket, &Forget { forget }, &[])?;
            }
        }
        // No request had this number, so no cluster has it.
        let number = *requests + 1;
        let key = access.credentials.key.as_ref().map(|key| key.reveal().as_bytes()).unwrap_or_default();
        let conf = access.cluster.conf.as_ref().and_then(|conf| conf.to_str());
        let reach = Reach { cluster: number, conf, options: options(access) };
        wire::write(&mut &self.socket, &reach, key)?;
        clusters.push(Known { number, access: access.clone(), used: number });
        Ok(number)
    }

    /// Passes answers to the callers until the session ends. No caller waits in vain: when the process is
    /// gone, all its requests have ended. It is killed if it takes too long to end, or makes no sense.
    fn read(&self, mut process: Resident, socket: UnixStream, idle: Duration) {
        let mut answers = BufReader::new(&socket);
        let kill_at = loop {
            if answers.buffer().is_empty() && !process.wait(&socket, idle.min(MOMENT)) {
                match self.ended.get() {
                    Some(ended) if ended.elapsed() >= END => break Instant::now(),
                    Some(_) => {}
                    None => self.end_if_idle(idle),
                }
                continue;
            }
            let (answer, body) = match wire::read::<Answer>(&mut answers) {
                Ok(answer) => answer,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Instant::now() + END,
                Err(_) => break Instant::now(),
            };
            let waiting = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&answer.id));
            if let Some(caller) = waiting.as_ref().and_then(|waiting| waiting.caller.as_ref()) {
                // The caller may just have given up.
                let _ = caller.send((answer, body));
            }
        };
        let (status, said) = process.end(kill_at);
        let was_asked = self.waiting.lock().take().is_some_and(|waiting| !waiting.is_empty());
        if was_asked {
            metrics::count(&metrics::SESSION_DEATHS, &[]);
            let status = status.map_or_else(|| String::from("unknown"), |status| status.to_string());
            let said = last_words(&said).map(|said| format!(": {said}")).unwrap_or_default();
            warn!("the session with Ceph clusters died with requests under way ({status}){said}");
        }
    }

    fn end_if_idle(&self, idle: Duration) {
        // Nothing is sent meanwhile: it would not be begun any more.
        let sending = self.sending.lock();
        let is_asked = self.waiting.lock().as_ref().is_some_and(|waiting| !waiting.is_empty());
        if !is_asked && sending.used.is_none_or(|used| used.elapsed() >= idle) {
            self.end();
        }
    }
}

fn is_same(one: &ClusterAccess, other: &ClusterAccess) -> bool {
    let place = |access: &ClusterAccess| (access.cluster.conf.clone(), access.cluster.monitors_text());
    // Each bulkhead has threads of its own, so that one that hangs takes none from the others.
    one.bulkhead == other.bulkhead && one.credentials == other.credentials && place(one) == place(other)
}

/// How librados reaches a cluster, beside the key.
fn options(access: &ClusterAccess) -> Map<String, Value> {
    let monitors = access.cluster.monitors_text();
    let monitors = access.cluster.conf.is_none().then_some(("mon_host", monitors.as_str()));
    let user = ("id", access.credentials.user.as_str());
    let all = WAITS.into_iter().chain(SETTINGS).chain([user]).chain(monitors);
    all.map(|(name, value)| (name.to_string(), value.into())).collect()
}

/// The error with which a Python program ended, or what librados or librbd has found to be false. No other
/// output is shown: libraries write keys that they cannot read.
fn last_words(said: &str) -> Option<String> {
    if let Some(failed) = said.lines().find(|line| line.contains("FAILED ceph_assert")) {
        return Some(failed.to_string());
    }
    let last = said.lines().rfind(|line| !line.trim().is_empty())?;
    let (error, _) = last.split_once(':')?;
    let is_error = error.ends_with("Error") && error.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    is_error.then(|| last.to_string())
}
