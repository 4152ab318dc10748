//! The session with Ceph clusters: a process that answers in place of the tools. It may hang or die at any
//! moment, and its daemon may die before it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cephlet::proto::csi_v1 as wire;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::support::client::{Answer, ask};
use crate::support::notify::timeout;
use crate::support::requests::*;
use crate::support::stub::{BEHIND, install};
use crate::support::{Client, Cluster, Code, Corner, Daemon, MIB, await_that, cluster, refused};

/// The end of a line about a command that the session carried out.
const BY_SESSION: &str = " in the session";

/// The session of a running daemon.
pub struct Session {
    pid: Pid,
    process: OwnedFd,
}

impl Session {
    #[track_caller]
    fn of(daemon: &Daemon) -> Self {
        Self::find(daemon).expect("the daemon has a session")
    }

    pub fn find(daemon: &Daemon) -> Option<Self> {
        let entries = fs::read_dir("/proc").expect("/proc is readable").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let pid = pids.filter(|pid| is_session(*pid, daemon.pid())).find_map(Pid::from_raw)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor of the process");
        Some(Self { pid, process })
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("signal the session");
    }

    #[track_caller]
    fn await_end(&self) {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&timeout())).expect("poll"), 1, "the session does not end");
    }
}

/// proc_pid_stat(5): the state and the parent follow the name in parentheses.
fn is_session(pid: i32, daemon: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let Some((name, fields)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = fields.split(' ').collect();
    name.ends_with("(python3") && fields[0] != "Z" && fields[1] == daemon.to_string()
}

/// The lines about commands, those of the session and those of processes.
fn commands(daemon: &Daemon) -> (Vec<String>, Vec<String>) {
    daemon.log.lines_with("` took ").into_iter().partition(|line| line.ends_with(BY_SESSION))
}

/// Creates a volume, and gives up after a moment: the request is then under way.
#[track_caller]
fn begin(client: &Client, request: &wire::CreateVolumeRequest) {
    let answer = ask(&client.channel, request, Duration::from_secs(2));
    assert_eq!(answer.expect_err("the session stands still").code, Code::DEADLINE_EXCEEDED);
}

/// Repeats a request until it succeeds. It may fail only in a way that asks for a repetition.
#[track_caller]
fn insist<T>(ask: impl Fn() -> Answer<T>) -> T {
    await_that("it succeeds", || {
        ask().map_err(|failure| {
            let again = matches!(failure.code, Code::UNAVAILABLE | Code::ABORTED | Code::DEADLINE_EXCEEDED);
            assert!(again, "{failure:?}");
            failure.message
        })
    })
}

#[test]
fn the_life_of_volumes_needs_no_processes() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
    let taken =
        client.create_snapshot(&snapshot("taken", &id)).expect("snapshot").snapshot.snapshot_id.clone();
    let copy = client.create(&from_snapshot(corner.volume("copy", 8), &taken)).expect("copy").volume_id;
    client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    client.controller_get_volume(&get(&id)).expect("get");
    client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");
    client.controller_expand_volume(&expand(&id, 16 * MIB)).expect("expand");
    client.controller_modify_volume(&modify(&id, &[("iops", "500")])).expect("modify");
    assert_eq!(client.list_volumes(&page(0, "")).expect("list").entries.len(), 2);
    let place = corner.volume("one", 8).parameters;
    client
        .get_capacity(&wire::GetCapacityRequest { parameters: place, ..Default::default() })
        .expect("capacity");
    client.delete_volume(&delete(&copy)).expect("delete");
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete the snapshot");
    client.delete_volume(&delete(&id)).expect("delete");
    let (by_session, by_processes) = commands(&daemon);
    assert!(by_session.len() > 20 && by_processes.is_empty(), "{by_processes:#?}");
    assert_eq!(daemon.setup.cephlet("config").matches("every question starts a process").count(), 0);
    corner.await_empty();
}

#[test]
fn a_session_that_is_killed_loses_nothing() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let requests: Vec<_> = (0..8).map(|number| corner.volume(&format!("new-{number}"), 8)).collect();
    client.create(&requests[0]).expect("create");
    let session = Session::of(&daemon);
    session.signal(Signal::STOP);
    let answers: Vec<_> = thread::scope(|scope| {
        let client = &client;
        let create = |request| scope.spawn(move || (client.create(request), request));
        let asked: Vec<_> = requests[2..].iter().map(create).collect();
        begin(client, &requests[1]);
        session.signal(Signal::KILL);
        asked.into_iter().map(|one| one.join().expect("a client")).collect()
    });
    session.await_end();
    for (answer, request) in answers {
        if let Err(failure) = &answer {
            assert_eq!(failure.code, Code::UNAVAILABLE, "{failure:?}");
        }
        let id = insist(|| client.create(request)).volume_id;
        assert!(answer.is_err() || answer.is_ok_and(|first| first.volume_id == id), "UNSAFE: another volume");
    }
    let ids: Vec<String> = requests.iter().map(|it| insist(|| client.create(it)).volume_id).collect();
    assert_eq!(corner.images().len(), ids.len());
    ids.iter().for_each(|id| drop(insist(|| client.delete_volume(&delete(id)))));
    corner.await_empty();
}

#[test]
fn a_volume_stays_locked_until_a_late_answer_comes() {
    let corner = Corner::new();
    let setup = corner.setup().set("CEPHLET_TOOL_TIMEOUT", "2s").set("CEPHLET_LOCK_WAIT", "1s");
    let daemon = setup.start();
    let client = daemon.client();
    client.create(&corner.volume("one", 8)).expect("create");
    let session = Session::of(&daemon);
    session.signal(Signal::STOP);
    refused(client.create(&corner.volume("two", 8)), Code::DEADLINE_EXCEEDED, &["not answered", "goes on"]);
    refused(client.create(&corner.volume("two", 8)), Code::ABORTED, &[]);
    session.signal(Signal::CONT);
    let id = insist(|| client.create(&corner.volume("two", 8))).volume_id;
    assert_eq!(corner.images().len(), 2);
    client.delete_volume(&delete(&id)).expect("delete");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_late_answer_to_a_question_locks_nothing() {
    let corner = Corner::new();
    let daemon = corner.setup().set("CEPHLET_LOCK_WAIT", "1s").start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
    let session = Session::of(&daemon);
    session.signal(Signal::STOP);
    for _ in 0..2 {
        let asked = client.controller_expand_volume(&expand(&id, 16 * MIB));
        refused(asked, Code::DEADLINE_EXCEEDED, &["look up image", "not answered"]);
    }
    session.signal(Signal::CONT);
    insist(|| client.controller_expand_volume(&expand(&id, 16 * MIB)));
}

/// A daemon that follows one that was killed while its session had a request to finish. The session stands
/// still.
fn followed(corner: &Corner) -> (Daemon, Session) {
    let mut daemon = corner.start();
    daemon.client().create(&corner.volume("one", 8)).expect("create");
    let session = Session::of(&daemon);
    let paused = corner.cluster.pause("osd");
    begin(&daemon.client(), &corner.volume("two", 8));
    daemon.kill9();
    // Not earlier: a stopped process whose parent dies gets SIGHUP (setpgid(2)).
    session.signal(Signal::STOP);
    drop(paused);
    daemon.restart();
    begin(&daemon.client(), &corner.volume("three", 8));
    daemon.log.await_lines("is finishing its requests, and is killed in", 1);
    (daemon, session)
}

fn own_corner() -> Corner {
    Corner::of(Box::leak(Box::new(Cluster::start())))
}

#[test]
fn the_next_daemon_changes_nothing_before_the_session_has_ended() {
    let corner = own_corner();
    let (daemon, session) = followed(&corner);
    session.signal(Signal::CONT);
    session.await_end();
    // The session has finished what it was asked for.
    assert_eq!(corner.images().len(), 2);
    for name in ["two", "three"] {
        insist(|| daemon.client().create(&corner.volume(name, 8)));
    }
    assert_eq!(corner.images().len(), 3);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_session_of_a_former_daemon_that_never_ends_is_killed() {
    let corner = own_corner();
    let (daemon, session) = followed(&corner);
    insist(|| daemon.client().create(&corner.volume("two", 8)));
    session.await_end();
    daemon.log.await_lines("does not end and is killed", 1);
    assert_eq!(corner.images().len(), 2);
}

#[test]
fn a_session_ends_when_it_is_idle_and_with_its_daemon() {
    let corner = Corner::new();
    let mut daemon = corner.setup().set("CEPHLET_SESSION_IDLE", "1s").start();
    let id = daemon.client().create(&corner.volume("one", 8)).expect("create").volume_id;
    // A background job may have been the last one that asked.
    while let Some(session) = Session::find(&daemon) {
        session.await_end();
    }
    daemon.client().controller_get_volume(&get(&id)).expect("a new session");
    let session = Session::of(&daemon);
    assert!(daemon.terminate().success());
    session.await_end();
}

#[test]
fn a_session_that_is_shut_out_connects_anew() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
    client.controller_publish_volume(&publish_to(&id, "node-1")).expect("publish");
    let image = corner.info(&id)["id"].as_str().expect("an id").to_string();
    let header = format!("rbd_header.{image}");
    let holder = ["--pool", "rbd", "--namespace", &corner.namespace, "lock", "info", &header, "cephlet"];
    let holder: serde_json::Value = serde_json::from_str(&cluster().rados(&holder)).expect("JSON");
    let address = holder["lockers"][0]["addr"].as_str().expect("the session's address");
    cluster().ceph(&["osd", "blocklist", "add", address]);
    insist(|| client.controller_unpublish_volume(&unpublish_from(&id, "node-1")));
    insist(|| client.delete_volume(&delete(&id)));
    cluster().ceph(&["osd", "blocklist", "rm", address]);
    let (_, by_processes) = commands(&daemon);
    assert!(by_processes.is_empty(), "{by_processes:#?}");
    corner.await_empty();
}

/// Interpreters that run no session, with what the operator is told.
const NO_SESSIONS: [(&str, &str, &str); 4] = [
    ("python-dies", "exit 1", "it ends at once"),
    ("python-babbles", "echo 'Traceback, all of it' >&0; exec sleep 600", "a frame of"),
    ("python-bare", "exec /usr/bin/python3 -S \"$@\"", "ModuleNotFoundError"),
    ("python-hangs", "exec sleep 600", "it says nothing"),
];

#[test]
fn without_a_session_the_tools_are_started() {
    let started = |program: &Path| {
        let corner = Corner::new();
        let setup = corner.setup();
        let tools = setup.scratch.dir("tools");
        install(&tools.join("ceph"), &format!("#!{}\n", program.display()));
        let setup = setup.set("CEPHLET_TOOL_PATH", format!("{}:{BEHIND}", tools.display()));
        (corner, setup.start())
    };
    let replaced = |program: &Path, why: &str| {
        let (corner, daemon) = started(program);
        let client = daemon.client();
        for _ in 0..2 {
            let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
            client.delete_volume(&delete(&id)).expect("delete");
        }
        let said = daemon.log.await_lines("every question starts a process", 1);
        assert!(said.len() == 1 && said[0].contains(why), "{said:?}");
        assert!(daemon.setup.cephlet("config").contains(why), "{}", daemon.setup.cephlet("config"));
        assert!(commands(&daemon).0.is_empty());
        corner.await_empty();
    };
    let scratch = crate::support::Scratch::new();
    thread::scope(|scope| {
        for (name, script, why) in NO_SESSIONS {
            let program = scratch.path(name);
            install(&program, &format!("#!/bin/sh\n{script}\n"));
            scope.spawn(move || replaced(&program, why));
        }
        scope.spawn(|| replaced(&scratch.path("python-none"), "No such file or directory"));
    });
}

#[test]
fn a_session_shows_no_key() {
    let corner = Corner::new();
    let daemon = corner.setup().set("CEPHLET_LOG", "trace").start();
    let client = daemon.client();
    let key = cluster().key("cephlet");
    let create = |name: &str, key: &str| {
        let secrets = map(&[("userID", "cephlet"), ("userKey", key)]);
        client.create(&wire::CreateVolumeRequest { secrets, ..corner.volume(name, 8) })
    };
    create("brought", &key).expect("create");
    // As long as a key, and none: libraries write such keys to stderr.
    let bad = format!("{}!!", &key[..key.len() - 2]);
    let said = create("bad", &bad).expect_err("a bad key").message;
    let other = create("other", &cluster().key("admin")).expect_err("another user's key").message;
    let session = Session::of(&daemon);
    let of_process = ["environ", "cmdline"].map(|file| {
        fs::read(format!("/proc/{}/{file}", session.pid.as_raw_nonzero())).expect("a file of the process")
    });
    let of_process = of_process.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let shown = [said, other, daemon.log.text(), of_process.concat()].concat();
    for key in [key, cluster().key("admin"), bad] {
        assert!(!shown.contains(&key[..key.len() - 2]), "a key is shown");
    }
}
