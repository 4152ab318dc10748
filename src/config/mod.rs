//! The environment → [`Config`]: read once, checked once, every mistake reported together.

mod parse;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::spelling;
use crate::topology::Labels;

pub use parse::{check_user, duration, is_name};
pub use variables::{VARIABLES, Variable};

/// The default name of the daemon's socket below the runtime directory. The command line connects to it if
/// the environment names no other.
pub const SOCKET: &str = "csi.sock";

/// The variables that describe the one cluster of a host.
const CEPH: [&str; 3] = ["CEPHLET_CEPH_CONF", "CEPHLET_CEPH_USER", "CEPHLET_CEPH_KEYRING"];

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket's path.
    pub endpoint: PathBuf,
    /// This node's ID.
    pub node_id: String,
    /// The plugin's name.
    pub name: String,
    /// Part of every derived name.
    pub instance: String,
    /// The services of this daemon.
    pub services: Services,
    /// The directory for what outlives a boot.
    pub state_dir: PathBuf,
    /// The directory for what does not outlive a boot.
    pub runtime_dir: PathBuf,
    /// The directory for files of the local backend.
    pub local_dir: PathBuf,
    /// Calls that may work at the same time.
    pub workers: usize,
    /// Calls that may wait for a worker, a volume or a cluster.
    pub queue: usize,
    /// Objects that can be locked at once.
    pub lock_slots: usize,
    /// How long a call waits for a lock.
    pub lock_wait: Duration,
    /// The deadline of a command that changes something.
    pub tool_timeout: Duration,
    /// Whether Ceph clusters are asked by a session where one can be had (CEPHLET_SESSION).
    pub session: bool,
    /// How long a session stays that is not asked (CEPHLET_SESSION_IDLE).
    pub session_idle: Duration,
    /// Tools that may run at the same time for one cluster.
    pub tools: usize,
    /// Whether a single-node volume may have a second target.
    pub single_node_targets: SingleNodeTargets,
    /// Whether this is a container: the variable `container` of systemd's container interface says so.
    pub in_container: bool,
    /// Whether the node offers to stage volumes (CEPHLET_STAGING).
    pub stages: bool,
    /// Whether the client of a node that has not given a volume back is shut out.
    pub fences: bool,
    /// Where tools are looked for; empty for the usual directories.
    pub tool_path: Vec<PathBuf>,
    /// The kinds of storage; None for all that are set up.
    pub backends: Option<BTreeSet<BackendName>>,
    /// The one cluster of a host that has a ceph.conf.
    pub ceph: HostCluster,
    /// A file with several clusters, in place of that one.
    pub clusters: Option<PathBuf>,
    /// The labels of this node.
    pub topology: Labels,
    /// Whether the daemon ends when its topology, or the domains it has taken over, change. An orchestrator
    /// asks for the topology only once, so it asks the next daemon again.
    pub ends_on_topology_change: bool,
    /// The place of this node in the CRUSH map, if its labels do not say it.
    pub crush_location: Option<String>,
    /// The directory in which the service manager has put credentials.
    pub credentials_dir: Option<PathBuf>,
    /// What is logged, in env_logger's syntax.
    pub log: String,
    /// The file for the daemon's numbers (CEPHLET_METRICS).
    pub metrics: Option<PathBuf>,
    /// The service manager's socket.
    pub notify_socket: Option<PathBuf>,
    /// The service manager's journal, as `device:inode` of the stream that leads to it.
    pub journal_stream: Option<PathBuf>,
    /// The crash point at which a test wants the daemon to die; 0 for none.
    #[cfg(feature = "crash-points")]
    pub crash_at: usize,
    /// Every variable as it is in force.
    pub settings: Vec<Setting>,
}

/// Who reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The daemon, which must be told where to listen.
    Daemon,
    /// The command line, which has a default for the socket.
    Client,
}

/// The services of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// The controller's service.
    pub controller: bool,
    /// The node's service.
    pub node: bool,
}

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendName {
    /// Files of this node.
    Local,
    /// Images of a Ceph cluster.
    Rbd,
    /// Subvolumes of a Ceph cluster's file system.
    CephFs,
}

/// The one Ceph cluster of a host with a ceph.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCluster {
    /// Its ceph.conf.
    pub conf: PathBuf,
    /// The user, without `client.`.
    pub user: String,
    /// The file with the user's key, if it is not where Ceph looks.
    pub keyring: Option<PathBuf>,
    /// Whether the environment names this cluster; if not, a missing conf means that there is none.
    pub wanted: bool,
}

/// What happens with a second target for a volume that only one node may use (access modes SINGLE_NODE_WRITER
/// and SINGLE_NODE_READER_ONLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SingleNodeTargets {
    /// Allowed: Nomad starts a replacement before it stops the task that it replaces.
    #[default]
    Lenient,
    /// Refused, as the specification recommends.
    Strict,
}

/// A variable with its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub variable: &'static Variable,
    /// Its value.
    pub value: String,
    /// Whether the environment sets it.
    pub from_environment: bool,
}

/// A mistake in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The variable.
    pub name: String,
    /// What was found, and what is allowed.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

impl Config {
    /// The configuration in this process's environment.
    #[expect(clippy::disallowed_methods, reason = "the environment is read here")]
    pub fn load(role: Role) -> Result<Self, Vec<Mistake>> {
        Self::from_variables(role, std::env::vars_os())
    }

    /// The configuration in these variables.
    pub fn from_variables(
        role: Role,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader::new(variables);
        let config = Self::read(&mut reader, role);
        reader.refuse_unknown();
        if reader.mistakes.is_empty() {
            Ok(Self { settings: reader.settings, ..config })
        } else {
            Err(reader.mistakes)
        }
    }

    fn read(reader: &mut Reader, role: Role) -> Self {
        let state_dir = reader.directory("CEPHLET_STATE_DIR", "STATE_DIRECTORY", "/var/lib/cephlet");
        let runtime_dir = reader.directory("CEPHLET_RUNTIME_DIR", "RUNTIME_DIRECTORY", "/run/cephlet");
        let local_dir = state_dir.join("local").display().to_string();
        // The orchestrator decides where the daemon listens, so there is no default. The command line uses
        // the path of the unit file.
        let socket = match role {
            Role::Daemon => String::new(),
            Role::Client => runtime_dir.join(SOCKET).display().to_string(),
        };
        let targets = [("lenient", SingleNodeTargets::Lenient), ("strict", SingleNodeTargets::Strict)];
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            endpoint: reader.value("CSI_ENDPOINT", &socket, parse::endpoint),
            node_id: reader.value("CEPHLET_NODE_ID", &host, parse::node_id),
            name: reader.known("CEPHLET_NAME", parse::plugin_name),
            instance: reader.known("CEPHLET_INSTANCE", parse::instance),
            services: reader.known("CEPHLET_SERVICES", parse::services),
            local_dir: reader.value("CEPHLET_LOCAL_DIR", &local_dir, parse::path),
            workers: reader.known("CEPHLET_WORKERS", |text| parse::number(text, 4, 256)),
            queue: reader.known("CEPHLET_QUEUE", |text| parse::number(text, 1, 65536)),
            lock_slots: reader.known("CEPHLET_LOCK_SLOTS", |text| parse::number(text, 16, 65536)),
            lock_wait: reader.known("CEPHLET_LOCK_WAIT", parse::duration),
            tool_timeout: reader.known("CEPHLET_TOOL_TIMEOUT", parse::duration),
            session: reader.either("CEPHLET_SESSION", [("auto", true), ("off", false)]),
            session_idle: reader.known("CEPHLET_SESSION_IDLE", parse::duration),
            tools: reader.known("CEPHLET_TOOLS", |text| parse::number(text, 2, 64)),
            single_node_targets: reader.either("CEPHLET_SINGLE_NODE_TARGETS", targets),
            in_container: reader.inherited("container").is_some(),
            stages: reader.either("CEPHLET_STAGING", [("on", true), ("off", false)]),
            fences: reader.either("CEPHLET_FENCE", [("lost", true), ("off", false)]),
            tool_path: reader.known("CEPHLET_TOOL_PATH", parse::search_path),
            backends: reader.known("CEPHLET_BACKENDS", parse::backends),
            ceph: reader.ceph(),
            clusters: reader.clusters(),
            topology: reader.known("CEPHLET_TOPOLOGY", parse::topology),
            ends_on_topology_change: reader
                .either("CEPHLET_TOPOLOGY_CHANGE", [("log", false), ("exit", true)]),
            crush_location: reader.known("CEPHLET_CRUSH_LOCATION", parse::crush_location),
            credentials_dir: reader.inherited("CREDENTIALS_DIRECTORY"),
            log: reader.known("CEPHLET_LOG", parse::log_filter),
            metrics: reader.known("CEPHLET_METRICS", parse::metrics_file),
            notify_socket: reader.inherited("NOTIFY_SOCKET"),
            journal_stream: reader.inherited("JOURNAL_STREAM"),
            #[cfg(feature = "crash-points")]
            crash_at: reader.known("CEPHLET_CRASH_AT", |text| parse::number(text, 0, usize::MAX)),
            state_dir,
            runtime_dir,
            settings: Vec::new(),
        }
    }

    /// Whether a kind of storage is to be served; None if that depends on whether it is set up.
    pub fn wants(&self, backend: BackendName) -> Option<bool> {
        match &self.backends {
            Some(wanted) => Some(wanted.contains(&backend)),
            None => (backend == BackendName::Local).then_some(true),
        }
    }
}

/// Reads variables one by one, remembers what was found and what was wrong.
struct Reader {
    variables: BTreeMap<OsString, OsString>,
    settings: Vec<Setting>,
    mistakes: Vec<Mistake>,
}

impl Reader {
    fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        // An empty variable is how unit files unset one.
        let variables = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Self { variables, settings: Vec::new(), mistakes: Vec::new() }
    }

    /// A variable whose default stands in the table.
    fn known<T: Default>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let default = variables::find(name).map_or("", |variable| variable.default);
        self.value(name, default, parse)
    }

    /// The same for a variable that is one of two words.
    fn either<T: Copy + Default>(&mut self, name: &str, words: [(&str, T); 2]) -> T {
        self.known(name, |text| parse::either(text, words))
    }

    /// A variable with this default. After a mistake the value is arbitrary, so that the others are read too.
    fn value<T: Default>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let found = self.variables.get(&OsString::from(name)).cloned();
        let from_environment = found.is_some();
        let text = found.map_or(Ok(default.to_string()), OsString::into_string);
        let parsed = match text.as_deref() {
            Ok("") => parse("").map_err(|what| format!("is not set: {what}")),
            Ok(text) => parse(text).map_err(|what| format!("found {text:?}: {what}")),
            Err(_) => Err(String::from("is not valid UTF-8")),
        };
        let value = text.unwrap_or_default();
        let setting = |variable| Setting { variable, value, from_environment };
        self.settings.extend(variables::find(name).map(setting));
        parsed.unwrap_or_else(|what| {
            self.mistakes.push(Mistake { name: name.to_string(), what });
            T::default()
        })
    }

    /// A directory: cephlet's own variable, else systemd's (a list; the first counts), else the usual place.
    fn directory(&mut self, name: &str, inherited: &str, usual: &str) -> PathBuf {
        let given = self.inherited(inherited).unwrap_or_else(|| usual.into());
        let first = given.to_string_lossy().split(':').next().unwrap_or_default().to_string();
        self.value(name, &first, parse::path)
    }

    fn ceph(&mut self) -> HostCluster {
        HostCluster {
            conf: self.known("CEPHLET_CEPH_CONF", parse::path),
            user: self.known("CEPHLET_CEPH_USER", parse::ceph_user),
            keyring: self.known("CEPHLET_CEPH_KEYRING", parse::optional_path),
            wanted: CEPH.iter().any(|name| self.is_set(name)),
        }
    }

    /// The clusters file. The variables that it replaces are mistakes then: they would silently do nothing.
    fn clusters(&mut self) -> Option<PathBuf> {
        let file = self.known("CEPHLET_CLUSTERS", parse::optional_path)?;
        for name in CEPH {
            if self.is_set(name) {
                let what = "has no effect together with CEPHLET_CLUSTERS: put it into that file".to_string();
                self.mistakes.push(Mistake { name: name.to_string(), what });
            }
        }
        Some(file)
    }

    fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(&OsString::from(name))
    }

    /// A variable that the service manager sets.
    fn inherited(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(&OsString::from(name)).map(PathBuf::from)
    }

    /// A misspelt variable would be a setting that silently does nothing.
    fn refuse_unknown(&mut self) {
        for name in self.variables.keys().filter_map(|name| name.to_str()) {
            if name.starts_with("CEPHLET_") && variables::find(name).is_none() {
                let near = spelling::nearest(name, VARIABLES.iter().map(|variable| variable.name));
                self.mistakes.push(Mistake {
                    name: name.to_string(),
                    what: format!("is not a variable of cephlet; did you mean {near}?"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
