//! The contract on a real cluster, whose directory CLUSTER_DIR names.
//!
//!     tests/cluster up /tmp/c && CLUSTER_DIR=/tmp/c packaging/cargo test --lib contract -- --include-ignored

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::*;
use crate::backend::ceph::monitor::question;
use crate::backend::ceph::{ClusterAccess, Programs, Session, session};
use crate::backend::rbd::tool::cli::CommandTool;
use crate::clusters::{Cluster, Credentials};
use crate::exec::{Class, Cmd, CommandError, Output, ProcessLimits, Processes, Runner, Tool, Tools};
use crate::secrets::{Secret, Secrets};

/// How long a change may take.
const CHANGE: Duration = Duration::from_secs(120);

/// The session leaves it to the programs to look up by id an image that is in the trash.
const IN_TRASH: &str = "rbd info";

/// The programs. Beside a session they record what they did because the session did not.
struct Recording {
    processes: Arc<Processes>,
    done: Mutex<Vec<String>>,
}

impl Runner for Recording {
    fn run(&self, call: &Call, cmd: &Cmd) -> std::result::Result<Output, CommandError> {
        let output = self.processes.run(call, cmd)?;
        // No session serves what may take hours.
        if cmd.class() != Class::Lasting {
            let words = cmd.words().expect("text").into_iter().filter(|word| !word.starts_with('-'));
            self.done.lock().push(words.collect::<Vec<_>>().join(" "));
        }
        Ok(output)
    }

    fn has(&self, tool: Tool) -> std::result::Result<(), CommandError> {
        self.processes.has(tool)
    }
}

/// An implementation on the real cluster.
struct Real {
    tool: Arc<CommandTool>,
    programs: Programs,
    recording: Arc<Recording>,
    _scratch: tempfile::TempDir,
}

impl Real {
    fn new(with_session: bool) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let processes =
            Arc::new(Processes::new(Tools::find(Vec::new()), ProcessLimits::new(8, CHANGE)).unwrap());
        let session = with_session.then(|| {
            let interpreter = session::interpreter(processes.path(Tool::Ceph));
            let times = (CHANGE, Some(Duration::from_secs(60)));
            Session::new((Arc::clone(&processes), interpreter), &scratch.path().join("lock"), times).unwrap()
        });
        let recording = Arc::new(Recording { processes, done: Mutex::default() });
        let programs = Programs::new(Arc::clone(&recording) as _, session.map(Arc::new));
        let tool = Arc::new(CommandTool::new(programs.clone(), CHANGE, scratch.path().join("promotions")));
        Self { tool, programs, recording, _scratch: scratch }
    }

    /// The site that this is in a pair of namespaces.
    fn site(&self, [at, beside]: &[PoolRef; 2]) -> Site {
        let (tool, call) = (Arc::clone(&self.tool) as _, Call::internal("test"));
        let others = Box::new(OthersOfCluster { namespace: at.namespace.clone() });
        Site { tool, call, at: at.clone(), beside: beside.clone(), others }
    }

    /// What the programs did, without options.
    fn done_by_programs(&self) -> Vec<String> {
        let mut done = std::mem::take(&mut *self.recording.done.lock());
        done.sort();
        done
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.programs.end();
    }
}

fn directory() -> PathBuf {
    std::env::var_os("CLUSTER_DIR").expect("CLUSTER_DIR names the directory of a cluster").into()
}

/// A command, as admin.
fn command(tool: &str) -> Command {
    let mut command = Command::new(tool);
    command.env("CEPH_CONF", directory().join("admin.conf")).env_remove("CEPH_ARGS");
    command
}

#[track_caller]
fn run(tool: &str, arguments: &[&str]) {
    let output = command(tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two new namespaces.
fn namespaces() -> [PoolRef; 2] {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    let key = std::fs::read_to_string(directory().join("cephlet.key")).unwrap();
    let credentials = Some(Credentials { user: "cephlet".into(), key: Some(Secret::new(key)) });
    let conf = Some(directory().join("ceph.conf"));
    let cluster = Arc::new(Cluster { conf, credentials, ..Cluster::named("main") });
    let access = ClusterAccess::new(cluster, &Secrets::default()).unwrap();
    ["one", "two"].map(|name| {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("contract-{}-{count}-{name}", std::process::id());
        run("rbd", &["namespace", "create", "--pool=rbd", &format!("--namespace={namespace}")]);
        PoolRef { access: access.clone(), pool: "rbd".into(), namespace }
    })
}

struct OthersOfCluster {
    namespace: String,
}

impl OthersOfCluster {
    fn spec(&self, image: &str) -> String {
        format!("rbd/{}/{image}", self.namespace)
    }

    /// `rados` in the namespace, for a shell.
    fn rados(&self) -> String {
        format!("rados --pool=rbd --namespace={}", self.namespace)
    }
}

/// A client that has an image open.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        // At the end of its stdin it closes the image; a client that is killed is remembered for a while.
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Others for OthersOfCluster {
    fn put_aside(&self, image: &str) {
        run("rbd", &["trash", "mv", &self.spec(image)]);
    }

    fn protect(&self, image: &str, snapshot: &str) {
        run("rbd", &["snap", "protect", &format!("{}@{snapshot}", self.spec(image))]);
    }

    fn add_name(&self, image: &str, second: &str) {
        let rados = self.rados();
        run("sh", &["-c", &format!("{rados} get rbd_id.{image} - | {rados} put rbd_id.{second} -")]);
    }

    fn half_make(&self, image: &str) {
        let (rados, spec) = (self.rados(), self.spec(image));
        // The id follows its length.
        let id = format!("{rados} get rbd_id.{image} - | tail -c +5");
        run("sh", &["-ec", &format!("rbd create --size=8M {spec}; {rados} rm rbd_header.$({id})")]);
    }

    fn half_remove(&self, image: &str) {
        run("sh", &["-c", &format!("{} rm rbd_id.{image}", self.rados())]);
    }

    /// As `rbd rm` and `rbd trash rm` do, by what they write first: the source of an entry that was just
    /// moved, and the state at its end.
    fn half_purge(&self, image: &str, by_name: bool) {
        let (rados, spec) = (self.rados(), self.spec(image));
        let id = format!("id=$({rados} get rbd_id.{image} - | tail -c +5)");
        let write = match by_name {
            true => "printf '\\3' | dd of=$file bs=1 seek=6 conv=notrunc status=none",
            false => "truncate -s -1 $file; printf '\\2' >>$file",
        };
        let [get, set] = ["get", "set"].map(|verb| format!("{rados} {verb}omapval rbd_trash id_$id"));
        let change = format!("file=$(mktemp); {get} $file; {write}; {set} <$file; rm $file");
        run("sh", &["-ec", &format!("{id}; rbd trash mv {spec}; {change}")]);
    }

    fn open(&self, image: &str) -> Box<dyn Any> {
        let mut watch = command("rbd");
        watch.args(["watch", &self.spec(image)]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = watch.stderr(Stdio::null()).spawn().unwrap();
        // It says how to end it when the image is open.
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Box::new(Client(process))
    }
}

/// Runs all scenarios, side by side.
fn keeps_contract(real: &Real) {
    let failed: Vec<&str> = thread::scope(|scope| {
        let run = |&(name, scenario): &(&'static str, fn(&Site))| {
            let named = thread::Builder::new().name(name.into());
            let run = move || scenario(&real.site(&namespaces()));
            (name, named.spawn_scoped(scope, run).unwrap())
        };
        let running: Vec<_> = SCENARIOS.iter().map(run).collect();
        running.into_iter().filter_map(|(name, it)| it.join().is_err().then_some(name)).collect()
    });
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
#[ignore = "needs a Ceph cluster: tests/run"]
fn the_programs_keep_the_contract() {
    keeps_contract(&Real::new(false));
}

#[test]
#[ignore = "needs a Ceph cluster: tests/run"]
fn the_session_keeps_the_contract() {
    let session = Real::new(true);
    keeps_contract(&session);
    let left_to_programs =
        ["rbd feature disable object-map fast-diff", "rbd feature enable object-map fast-diff", IN_TRASH];
    let mut done = session.done_by_programs();
    // A lock that is shared on another object than a header is known by its client: that of a process.
    done.retain(|command| !command.starts_with("rados lock get "));
    assert_eq!(done, left_to_programs);
}

/// Everything that can be read in a namespace, a line for each answer.
fn read_all(site: &Site) -> Vec<String> {
    let tool = site.tool();
    let (list, names, trash) = (tool.list().unwrap(), tool.names().unwrap(), tool.trash().unwrap());
    let mut told = vec![format!("{:?} {names:?} {trash:?}", tool.pool_options().unwrap())];
    told.extend(list.iter().map(|image| format!("{image:?}")));
    for name in names {
        let image = ImageRef::Name(&name);
        told.push(format!("{:?} {:?}", tool.info(image), tool.watchers(&name)));
        told.push(format!("{:?} {:?}", tool.snapshots(image), tool.has_clones(&name)));
        told.push(format!("{:?} {:?}", tool.all_metadata(&name), tool.metadata(&name, "text")));
    }
    for id in list.iter().map(|image| &image.id).chain(trash.iter().map(|image| &image.id)) {
        let image = ImageRef::Id(id);
        told.push(format!("{:?} {:?}", tool.info(image), tool.snapshots(image)));
        let on_header = [LockTarget::Header(id), LockTarget::Clients(id), LockTarget::Owner(id)];
        told.extend(on_header.map(|target| format!("{:?}", tool.lock_state(target))));
    }
    for target in [LockTarget::BareName("a"), LockTarget::SnapshotName("1"), LockTarget::VolumeName("1")] {
        told.push(format!("{:?}", tool.lock_state(target)));
    }
    told
}

/// Images of every kind, and a client that has one of them open.
fn build(site: &Site) -> Box<dyn Any> {
    let (tool, id) = (site.tool(), site.create_with_snapshot("a"));
    let striped = Layout { data_pool: Some("data".into()), striping: Some((4096, 3)), ..Layout::default() };
    let metadata = [("text", "two\nlines, \"quotes\" and 日本"), ("empty", "")];
    let image = NewImage { name: "striped", size: 5000, layout: &striped, metadata: &metadata };
    assert_ne!(tool.create(&image).unwrap(), MadeImage::Taken);
    tool.set_limits("striped", &[("rbd_qos_iops_limit", 7)]).unwrap();
    tool.resize("a", 2 * SIZE).unwrap();
    for (to, name) in [(&site.at, "clone"), (&site.at, "flat"), (&site.beside, "far")] {
        assert_eq!(site.clone_image("a", to, name).unwrap(), Some(Made::New));
    }
    tool.flatten("flat").unwrap();
    tool.remove_snapshot(ImageRef::Name("a"), "s").unwrap();
    tool.create_snapshot("a", "s").unwrap();
    tool.rename("flat", "renamed").unwrap();
    site.create_with_snapshot("aside");
    site.clone_image("aside", &site.at, "of-aside").unwrap();
    site.others.put_aside("aside");
    site.others.half_make("half");
    site.create("going");
    site.others.half_remove("going");
    let lock = |target, cookie: &str, shared: Option<&str>| {
        let (cookie, shared) = (cookie.to_string(), shared.map(str::to_string));
        let request = LockRequest { cookie, description: "d \"e\"".into(), shared, seconds: None };
        assert_eq!(tool.lock(target, &request).unwrap(), Locked::Now);
    };
    lock(LockTarget::Header(&id), "n1", Some("rw"));
    lock(LockTarget::Header(&id), "n2", Some("rw"));
    lock(LockTarget::Clients(&id), "n1", None);
    lock(LockTarget::BareName("a"), "c", None);
    lock(LockTarget::SnapshotName("1"), "c", None);
    tool.unlock(LockTarget::BareName("a"), &tool.holders(LockTarget::BareName("a")).unwrap()[0]).unwrap();
    site.others.open("a")
}

#[test]
#[ignore = "needs a Ceph cluster: tests/run"]
fn the_session_and_the_programs_say_the_same() {
    let (programs, session) = (Real::new(false), Real::new(true));
    for builder in [&programs, &session] {
        let at = namespaces();
        let _client = build(&builder.site(&at));
        let swapped = [at[1].clone(), at[0].clone()];
        for place in [&at, &swapped] {
            let (by_session, by_programs) = (read_all(&session.site(place)), read_all(&programs.site(place)));
            for (by_session, by_programs) in by_session.iter().zip(&by_programs) {
                assert_eq!(by_session, by_programs);
            }
            assert_eq!(by_session.len(), by_programs.len());
        }
    }
    assert_eq!(session.done_by_programs(), [IN_TRASH, IN_TRASH]);
}

/// The cluster's manager, which stands still until this is dropped.
struct StoppedManager(String);

impl StoppedManager {
    fn new() -> Self {
        let id = std::fs::read_to_string(directory().join("run/mgr.pid")).unwrap().trim().to_string();
        run("kill", &["-STOP", &id]);
        // The signal stops the threads one after the other.
        while !has_stopped(&id) {
            thread::yield_now();
        }
        Self(id)
    }
}

/// Whether every thread of a process is stopped, as proc(5) has it.
fn has_stopped(process: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let state = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'))
    };
    threads.map(state).all(|is_stopped| is_stopped == Some(true))
}

impl Drop for StoppedManager {
    fn drop(&mut self) {
        run("kill", &["-CONT", &self.0]);
    }
}

#[test]
#[ignore = "needs a Ceph cluster: tests/run"]
fn the_session_survives_a_manager_that_is_restarted_while_it_is_asked() {
    let (session, [at, _], call) = (Real::new(true), namespaces(), Call::internal("test"));
    let ask = |prefix| {
        let asked =
            session.tool.monitors().of(&call, &at.access).ask(Class::Question, &[question(prefix, None)]);
        asked.map(|output| String::from_utf8(output.stdout).unwrap().trim().to_string())
    };
    let tasks = || ask("rbd task list");
    assert_eq!(tasks().unwrap(), "[]");
    let stopped = StoppedManager::new();
    thread::scope(|scope| {
        // More than the session has threads for.
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(tasks)).collect();
        assert!(ask("osd blocklist ls").is_ok(), "monitors answer");
        assert_eq!(session.tool.bind(&call, &at).names().unwrap(), Vec::<String>::new(), "OSDs answer");
        assert!(waiting.iter().all(|it| !it.is_finished()));
        // It starts anew when it learns of that.
        run("ceph", &["mgr", "fail", "x"]);
        drop(stopped);
        // The former manager has still answered, or the new one has, or it had not loaded the module.
        for answer in waiting {
            let refusal = answer.join().unwrap().err();
            let status = refusal.map(|failure| failure.status());
            assert!(
                [None, Some(Some(libc::EAGAIN)), Some(Some(libc::ENOTSUP))].contains(&status),
                "{status:?}"
            );
        }
    });
    let answer = call.wait_for("the manager", CHANGE, Duration::from_millis(100), || Ok(tasks().ok()));
    assert_eq!(answer.unwrap().unwrap(), "[]");
    assert!(session.done_by_programs().is_empty(), "the session has answered all");
}
