//! The environment → [`Config`]: read once, checked once, every mistake reported together.

mod parse;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::spelling;
use crate::topology::Labels;

pub use parse::check_user;
pub use variables::VARIABLES;

/// Where the daemon listens and the command line asks when nobody says otherwise, below the runtime
/// directory.
pub const SOCKET: &str = "csi.sock";

/// What describes the one cluster of a host.
const CEPH: [&str; 3] = ["CEPHLET_CEPH_CONF", "CEPHLET_CEPH_USER", "CEPHLET_CEPH_KEYRING"];

/// Everything that can be set.
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
    /// What this copy serves.
    pub services: Services,
    /// What outlives a boot.
    pub state_dir: PathBuf,
    /// What does not.
    pub runtime_dir: PathBuf,
    /// Files of the local backend.
    pub local_dir: PathBuf,
    /// Threads of the work lane.
    pub workers: usize,
    /// Calls that may wait for a worker, a volume or a cluster.
    pub queue: usize,
    /// Objects that can be locked at once.
    pub lock_slots: usize,
    /// How long a call waits for a lock.
    pub lock_wait: Duration,
    /// The deadline of a command that changes something.
    pub tool_timeout: Duration,
    /// Commands that run at once.
    pub tools: usize,
    /// What a second target means.
    pub single_node_targets: SingleNodeTargets,
    /// The client of a node that has not given a volume back is shut out.
    pub fences: bool,
    /// Where tools are looked for; empty for the usual directories.
    pub tool_path: Vec<PathBuf>,
    /// The kinds of storage; None for all that are set up.
    pub backends: Option<BTreeSet<BackendName>>,
    /// The one cluster of a host that has a ceph.conf.
    pub ceph: Ceph,
    /// A file with several clusters, in place of that one.
    pub clusters: Option<PathBuf>,
    /// Where this node is.
    pub topology: Labels,
    /// What to do when that changes, or what it has taken over.
    pub topology_change: TopologyChange,
    /// Where in the CRUSH map it is, if not where its labels say.
    pub crush_location: Option<String>,
    /// Where the service manager has put credentials.
    pub credentials_dir: Option<PathBuf>,
    /// What is logged, in env_logger's syntax.
    pub log: String,
    /// The service manager's socket.
    pub notify_socket: Option<PathBuf>,
    /// The service manager's journal, as `device:inode` of the stream that leads to it.
    pub journal_stream: Option<PathBuf>,
    /// The crash point at which a test wants the daemon to die; 0 for none.
    #[cfg(feature = "crash-points")]
    pub crash_at: usize,
    settings: Vec<Setting>,
}

/// Who reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The daemon, which must be told where to listen.
    Daemon,
    /// The command line, which can guess.
    Client,
}

/// What a copy of the daemon serves.
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
}

/// How the one Ceph cluster of a host is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceph {
    /// Its ceph.conf.
    pub conf: PathBuf,
    /// The user, without `client.`.
    pub user: String,
    /// Where the user's key is, if not where Ceph looks.
    pub keyring: Option<PathBuf>,
    /// Whether the environment names any of it.
    pub named: bool,
}

/// A second target for a volume that only one node may use (access modes SINGLE_NODE_WRITER and
/// SINGLE_NODE_READER_ONLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SingleNodeTargets {
    /// Allowed: Nomad overlaps a replacement with what it replaces.
    #[default]
    Lenient,
    /// Refused, as the specification recommends.
    Strict,
}

/// What to do when what the orchestrator is told of this node's topology changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyChange {
    /// Say so: whoever asks is told.
    #[default]
    Log,
    /// End as well: an orchestrator that asks once asks the daemon that is started next.
    Exit,
}

/// A variable as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether the environment says so, or nobody.
    pub from_environment: bool,
    /// What it means.
    pub meaning: &'static str,
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
        let state_dir =
            reader.directory("CEPHLET_STATE_DIR", "STATE_DIRECTORY", Path::new("/var/lib/cephlet"));
        let runtime_dir =
            reader.directory("CEPHLET_RUNTIME_DIR", "RUNTIME_DIRECTORY", Path::new("/run/cephlet"));
        // Where the daemon listens is for the orchestrator to say; the command line looks where the unit file
        // puts it.
        let socket = match role {
            Role::Daemon => String::new(),
            Role::Client => runtime_dir.join(SOCKET).display().to_string(),
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            endpoint: reader.value("CSI_ENDPOINT", &socket, parse::endpoint),
            node_id: reader.value("CEPHLET_NODE_ID", &host, parse::node_id),
            name: reader.known("CEPHLET_NAME", parse::plugin_name),
            instance: reader.known("CEPHLET_INSTANCE", parse::instance),
            services: reader.known("CEPHLET_SERVICES", parse::services),
            local_dir: reader.value(
                "CEPHLET_LOCAL_DIR",
                &state_dir.join("local").display().to_string(),
                parse::path,
            ),
            workers: reader.known("CEPHLET_WORKERS", |text| parse::number(text, 4, 256)),
            queue: reader.known("CEPHLET_QUEUE", |text| parse::number(text, 1, 65536)),
            lock_slots: reader.known("CEPHLET_LOCK_SLOTS", |text| parse::number(text, 16, 65536)),
            lock_wait: reader.known("CEPHLET_LOCK_WAIT", parse::duration),
            tool_timeout: reader.known("CEPHLET_TOOL_TIMEOUT", parse::duration),
            tools: reader.known("CEPHLET_TOOLS", |text| parse::number(text, 1, 64)),
            single_node_targets: reader.known("CEPHLET_SINGLE_NODE_TARGETS", parse::single_node_targets),
            fences: reader.known("CEPHLET_FENCE", parse::fence),
            tool_path: reader.known("CEPHLET_TOOL_PATH", parse::search_path),
            backends: reader.known("CEPHLET_BACKENDS", parse::backends),
            ceph: reader.ceph(),
            clusters: reader.clusters(),
            topology: reader.known("CEPHLET_TOPOLOGY", parse::topology),
            topology_change: reader.known("CEPHLET_TOPOLOGY_CHANGE", parse::topology_change),
            crush_location: reader.known("CEPHLET_CRUSH_LOCATION", parse::crush_location),
            credentials_dir: reader.inherited("CREDENTIALS_DIRECTORY"),
            log: reader.known("CEPHLET_LOG", parse::log_filter),
            notify_socket: reader.inherited("NOTIFY_SOCKET"),
            journal_stream: reader.inherited("JOURNAL_STREAM"),
            #[cfg(feature = "crash-points")]
            crash_at: reader.known("CEPHLET_CRASH_AT", |text| parse::number(text, 0, usize::MAX)),
            state_dir,
            runtime_dir,
            settings: Vec::new(),
        }
    }

    /// Whether a kind of storage is to be served; None where that depends on whether it is set up.
    pub fn wants(&self, backend: BackendName) -> Option<bool> {
        match &self.backends {
            Some(wanted) => Some(wanted.contains(&backend)),
            None => (backend == BackendName::Local).then_some(true),
        }
    }

    /// Every variable as it is in force.
    pub fn describe(&self) -> &[Setting] {
        &self.settings
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

    /// A variable with this default. A mistake is noted and anything taken, so that the others are read too.
    fn value<T: Default>(
        &mut self,
        name: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let found = self.variables.get(&OsString::from(name)).cloned();
        let text = match &found {
            None => default.to_string(),
            Some(value) => value.to_str().map_or_else(|| self.not_text(name, default), str::to_string),
        };
        self.remember(name, text.clone(), found.is_some());
        parse(&text).unwrap_or_else(|what| {
            let what = if text.is_empty() {
                format!("is not set: {what}")
            } else {
                format!("found {text:?}: {what}")
            };
            self.mistakes.push(Mistake { name: name.to_string(), what });
            T::default()
        })
    }

    fn not_text(&mut self, name: &str, default: &str) -> String {
        self.mistakes.push(Mistake { name: name.to_string(), what: "is not valid UTF-8".to_string() });
        default.to_string()
    }

    fn remember(&mut self, name: &str, value: String, from_environment: bool) {
        if let Some(variable) = variables::find(name) {
            self.settings.push(Setting {
                name: variable.name,
                value,
                from_environment,
                meaning: variable.meaning,
            });
        }
    }

    /// A directory: our own variable, else what systemd gives (a list; the first counts), else the usual
    /// place.
    fn directory(&mut self, name: &str, inherited: &str, usual: &Path) -> PathBuf {
        let given = self.inherited(inherited).unwrap_or_else(|| usual.to_path_buf());
        let first = given.to_string_lossy().split(':').next().unwrap_or_default().to_string();
        self.value(name, &first, parse::path)
    }

    fn ceph(&mut self) -> Ceph {
        Ceph {
            conf: self.known("CEPHLET_CEPH_CONF", parse::path),
            user: self.known("CEPHLET_CEPH_USER", parse::ceph_user),
            keyring: self.known("CEPHLET_CEPH_KEYRING", parse::optional_path),
            named: CEPH.iter().any(|name| self.is_set(name)),
        }
    }

    /// The clusters file. What it replaces would otherwise silently do nothing.
    fn clusters(&mut self) -> Option<PathBuf> {
        let file = self.known("CEPHLET_CLUSTERS", parse::optional_path)?;
        for name in CEPH {
            if self.is_set(name) {
                let what =
                    String::from("has no effect together with CEPHLET_CLUSTERS: put it into that file");
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
