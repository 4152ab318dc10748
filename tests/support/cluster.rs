//! A real Ceph cluster, by `tests/cluster`, on loopback: one that all tests share, or one for the calling
//! test. A cluster that was started here ends with the test process, however that ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use super::corner::{await_that, unused_name};
use super::machine::{limited, run, run_within, text};
use super::{LONG_PATIENCE, PATIENCE, Setup};

/// The variables in which `tests/run` and `tests/vm/run` name the directory of the shared cluster, and
/// `tests/vm/run` the address that runs commands beside it.
const DIRECTORY: &str = "CLUSTER_DIR";
const CONTROL: &str = "CLUSTER_CONTROL";

/// A cluster; see `tests/cluster` for what is in it.
pub struct Cluster {
    dir: PathBuf,
    /// Started by this process, and ended when this value is dropped.
    own: bool,
}

/// The cluster that all tests share: that of the whole run if there is one, or one of this process.
pub fn cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var_os(DIRECTORY) {
        Some(dir) => Cluster { dir: dir.into(), own: false },
        None => Cluster::start(),
    })
}

/// A cluster that forgets a dead client after 30 s, as Ceph does by default, not after the 10 s of the other
/// clusters. Shared by the tests of this process.
pub fn patient_cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start_with(&["--watch-timeout", "30"]))
}

impl Cluster {
    /// A cluster for the caller alone.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A cluster that has a daemon of rbd-mirror.
    #[track_caller]
    pub fn start_site() -> Self {
        Self::start_with(&["--mirror"])
    }

    #[track_caller]
    fn start_with(options: &[&str]) -> Self {
        // The process that keeps watch over the cluster removes the directory.
        if control().is_some() {
            return Self::start_outside(options);
        }
        let dir = tempfile::Builder::new().prefix("cl-ceph-").tempdir().expect("a directory").keep();
        // One cluster starts at a time, and there may be others before this one.
        let owner = std::process::id().to_string();
        let up = ["up", text(&dir), "--owner", &owner];
        run_within(LONG_PATIENCE, script(), &[&up, options].concat());
        Self { dir, own: true }
    }

    /// A cluster on the machine that this VM runs on, beside the shared one, whose address and directory the
    /// VM sees.
    #[track_caller]
    fn start_outside(options: &[&str]) -> Self {
        let shared = cluster();
        let dir = shared.dir.join(unused_name("cl-ceph-"));
        let host = shared.mon_host();
        let (host, _) = host.rsplit_once(':').expect("a port");
        outside(&[&[script(), "up", text(&dir), host], options].concat());
        Self { dir, own: true }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in its directory, as text.
    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The clients' ceph.conf, which names no keyring.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// The value of a line of ceph.conf.
    fn configured(&self, key: &str) -> String {
        let conf = fs::read_to_string(self.conf()).expect("the cluster's ceph.conf");
        let line = conf.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("no '{key}' in {conf}")).to_string()
    }

    pub fn fsid(&self) -> String {
        self.configured("fsid")
    }

    /// The monitor as `[v2:127.0.0.1:3300/0,v1:127.0.0.1:6789/0]`.
    pub fn mon_vector(&self) -> String {
        self.configured("mon host")
    }

    /// The monitor as `127.0.0.1:6789`, protocol v1.
    pub fn mon_host(&self) -> String {
        self.mon_of_protocol("v1:")
    }

    /// The monitor as `127.0.0.1:3300`, protocol v2.
    pub fn mon_host_v2(&self) -> String {
        self.mon_of_protocol("v2:")
    }

    fn mon_of_protocol(&self, protocol: &str) -> String {
        let vector = self.mon_vector();
        let (_, address) = vector.split_once(protocol).expect("the monitor speaks both protocols");
        address.split('/').next().unwrap_or_default().to_string()
    }

    /// A user's key. The users are `admin`, `cephlet` (controller), `cephlet-fence` (one that may fence),
    /// `cephlet-zones` (with the pools of the tests of topology), `cephlet-node` and `reader`.
    pub fn key(&self, user: &str) -> String {
        fs::read_to_string(self.path(&format!("{user}.key"))).expect("the user's key")
    }

    /// A user's keyring.
    pub fn keyring(&self, user: &str) -> PathBuf {
        self.dir.join(format!("ceph.client.{user}.keyring"))
    }

    /// The settings of a daemon that serves this cluster as this user.
    pub fn settings(&self, user: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CEPHLET_BACKENDS", "rbd".to_string()),
            ("CEPHLET_CEPH_CONF", self.path("ceph.conf")),
            ("CEPHLET_CEPH_USER", user.to_string()),
            ("CEPHLET_CEPH_KEYRING", text(&self.keyring(user)).to_string()),
        ]
    }

    /// Runs `rbd` as admin; gives what it printed.
    #[track_caller]
    pub fn rbd(&self, arguments: &[&str]) -> String {
        self.must("rbd", arguments)
    }

    /// Runs `ceph` as admin; gives what it printed.
    #[track_caller]
    pub fn ceph(&self, arguments: &[&str]) -> String {
        self.must("ceph", arguments)
    }

    /// Runs `rados` as admin; gives what it printed.
    #[track_caller]
    pub fn rados(&self, arguments: &[&str]) -> String {
        self.must("rados", arguments)
    }

    #[track_caller]
    fn must(&self, tool: &str, arguments: &[&str]) -> String {
        self.told(tool, arguments).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// What one of Ceph's tools prints when it is run as admin, or how it fails. A manager that another test
    /// has restarted is awaited.
    pub fn told(&self, tool: &str, arguments: &[&str]) -> Result<String, String> {
        await_that("the manager to load its modules", || {
            let Output { status, stdout, stderr } = self.attempt(tool, arguments);
            if status.success() {
                return Ok(Ok(String::from_utf8_lossy(&stdout).trim().to_string()));
            }
            let failure = format!("{tool} {arguments:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
            if failure.contains(" is not enabled/loaded") { Err(failure) } else { Ok(Err(failure)) }
        })
    }

    /// Runs a tool of Ceph as admin, which may fail. One that hangs is killed.
    pub fn attempt(&self, tool: &str, arguments: &[&str]) -> Output {
        self.command(tool).args(arguments).output().expect(tool)
    }

    /// What `rados` says of cephlet's locks on an image's header that have a holder. A lock without a holder
    /// is still listed.
    #[track_caller]
    pub fn holders(&self, pool: &str, image_id: &str) -> String {
        let header = format!("rbd_header.{image_id}");
        let locks = self.rados(&["--pool", pool, "lock", "list", &header, "--format", "json"]);
        let names: Vec<&str> = locks.split('"').filter(|word| word.starts_with("cephlet")).collect();
        let info = |name: &&str| self.rados(&["--pool", pool, "lock", "info", &header, name]);
        names.iter().map(info).filter(|said| !said.contains("\"lockers\":[]")).collect()
    }

    /// Types a command in, as admin, in this directory.
    #[track_caller]
    pub fn type_in(&self, line: &str, directory: &Path) {
        let output = self.command("sh").args(["-c", line]).current_dir(directory).output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A tool of Ceph, to be run as admin.
    pub fn command(&self, tool: &str) -> Command {
        let mut command = limited(PATIENCE, tool);
        command.env("CEPH_CONF", self.path("admin.conf")).env_remove("CEPH_ARGS");
        command
    }

    /// Stops all daemons of a cluster that has rbd-mirror: it does not answer until this is dropped.
    #[track_caller]
    pub fn lose(&self) -> [Paused<'_>; 4] {
        ["mon", "osd", "mgr", "rbd-mirror"].map(|daemon| self.pause(daemon))
    }

    /// Stops a daemon, `mon`, `osd`, `mgr` or `rbd-mirror`, until the guard is dropped. Its threads stop one
    /// after the other, and the last could still answer.
    #[track_caller]
    pub fn pause<'a>(&'a self, daemon: &'a str) -> Paused<'a> {
        self.signal("STOP", daemon);
        let runs = "grep -h ^State: /proc/$0/task/*/status | grep -qv stopped";
        outside(&["sh", "-c", &format!("while {runs}; do sleep 0.01; done"), &self.pid(daemon)]);
        Paused { cluster: self, daemon }
    }

    /// Kills a daemon for good.
    #[track_caller]
    pub fn kill(&self, daemon: &str) {
        self.signal("KILL", daemon);
    }

    /// Kills a daemon, and starts another one in its place.
    #[track_caller]
    pub fn replace(&self, daemon: &str) {
        let former = self.pid(daemon);
        self.signal("KILL", daemon);
        let watcher = self.pid("watcher");
        await_that("another one is started", || {
            outside(&["kill", "-s", "HUP", &watcher]);
            let now = fs::read_to_string(self.path(&format!("run/{daemon}.pid"))).unwrap_or_default();
            let now = now.trim();
            if now.is_empty() || now == former { Err(format!("process {now:?}")) } else { Ok(()) }
        });
    }

    #[track_caller]
    fn signal(&self, signal: &str, daemon: &str) {
        outside(&["kill", "-s", signal, &self.pid(daemon)]);
    }

    #[track_caller]
    fn pid(&self, daemon: &str) -> String {
        let pid = fs::read_to_string(self.path(&format!("run/{daemon}.pid"))).expect("the daemon runs");
        pid.trim().to_string()
    }
}

/// Makes this VM stand still while a command runs on the other machine, with these variables beside that of
/// its cluster.
#[track_caller]
pub fn stand_still_while(variables: &[(&str, &str)], command: &[&str]) {
    let set: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let words =
        ["still", "env"].into_iter().chain(set.iter().map(String::as_str)).chain(command.iter().copied());
    tell(&control().expect("this is a VM of tests/vm/run"), words);
}

/// Runs a command where the daemons of the clusters are: here, or on the machine that this VM runs on.
#[track_caller]
pub fn outside(command: &[&str]) {
    match control() {
        Some(control) => tell(&control, ["outside"].into_iter().chain(command.iter().copied())),
        None => drop(run(command[0], &command[1..])),
    }
}

/// The address of the program that started this VM; None outside of a VM.
fn control() -> Option<String> {
    std::env::var(CONTROL).ok()
}

/// Sends that program a request, and waits until it is done.
#[track_caller]
fn tell<'a>(control: &str, words: impl Iterator<Item = &'a str>) {
    let line = words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ");
    let mut control = TcpStream::connect(control).expect("the one that started the VM");
    control.set_read_timeout(Some(LONG_PATIENCE)).expect("set a timeout");
    writeln!(control, "{line}").expect("ask it");
    let mut answer = String::new();
    BufReader::new(control).read_line(&mut answer).expect("its answer");
    assert_eq!(answer.trim(), "done", "{line}");
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own {
            match control() {
                Some(_) => outside(&[script(), "down", text(&self.dir)]),
                None => drop(limited(PATIENCE, script()).arg("down").arg(&self.dir).status()),
            }
        }
    }
}

/// A daemon of the cluster that stands still until this is dropped.
pub struct Paused<'a> {
    cluster: &'a Cluster,
    daemon: &'a str,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.cluster.signal("CONT", self.daemon);
    }
}

impl Setup {
    /// Makes the daemon serve a cluster as one of its users.
    pub fn on(self, cluster: &Cluster, user: &str) -> Self {
        cluster.settings(user).into_iter().fold(self, |setup, (key, value)| setup.set(key, value))
    }
}

fn script() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster")
}
