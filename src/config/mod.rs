//! The environment, turned into a [`Config`] once, at start: the only place that reads it. Every mistake is reported, not just
//! the first.

mod nearest;
mod reader;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use self::nearest::nearest;
pub use self::reader::{Mistake, Origin, Setting};
use self::reader::{Reader, Variable};
pub use self::values::{Backend, Endpoint, Service, Targets};

/// Where the daemon listens if the systemd unit has started it, and where its command line looks.
const CLIENT_ENDPOINT: &str = "unix:///run/cephlet/csi.sock";

/// Bytes a node ID may take, percent-encoded, so that the IDs of local volumes and their snapshots, which hold it, fit the 128
/// bytes of the specification.
const LOCAL_NODE_ID_MAX: usize = 58;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Declares the variables and the list of all of them.
macro_rules! variables {
    ($($variable:ident = $name:literal, $meaning:literal;)*) => {
        $(const $variable: Variable = Variable { name: $name, meaning: $meaning };)*
        const VARIABLES: &[&Variable] = &[$(&$variable),*];
    };
}

variables! {
    ENDPOINT = "CSI_ENDPOINT", "the unix socket to serve: unix:///path/name.sock";
    NODE_ID = "CEPHLET_NODE_ID", "this node, the same after every restart";
    NAME = "CEPHLET_NAME", "the plugin's name, told to the orchestrator";
    INSTANCE = "CEPHLET_INSTANCE", "part of every derived name; the same on all controllers of one orchestrator";
    SERVICES = "CEPHLET_SERVICES", "what this copy serves: controller, node";
    BACKENDS = "CEPHLET_BACKENDS", "kinds of storage";
    STATE_DIR = "CEPHLET_STATE_DIR", "journal and lock; outlives reboots";
    RUNTIME_DIR = "CEPHLET_RUNTIME_DIR", "mounts and whatever else ends with the boot";
    LOCAL_DIR = "CEPHLET_LOCAL_DIR", "files of the local backend";
    WORKERS = "CEPHLET_WORKERS", "how many calls are worked on at once";
    QUEUE = "CEPHLET_QUEUE", "how many calls may wait";
    LOCK_SLOTS = "CEPHLET_LOCK_SLOTS", "how many volumes may be worked on or waited for at once";
    LOCK_WAIT = "CEPHLET_LOCK_WAIT", "how long a call waits for another one on the same volume";
    TOOL_TIMEOUT = "CEPHLET_TOOL_TIMEOUT", "deadline of a command that changes something";
    TOOLS = "CEPHLET_TOOLS", "how many commands run at once";
    TARGETS = "CEPHLET_SINGLE_NODE_TARGETS", "a second target for SINGLE_NODE_WRITER: lenient (Nomad needs it) or strict";
    TOOL_PATH = "CEPHLET_TOOL_PATH", "directories in which commands are looked for";
    LOG = "CEPHLET_LOG", "what is logged: a level, or target=level, with commas between them";
}

/// What the daemon was told by its environment.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket to serve.
    pub endpoint: Endpoint,
    /// Who this is.
    pub identity: Identity,
    /// What this copy serves.
    pub services: BTreeSet<Service>,
    /// Kinds of storage.
    pub backends: BTreeSet<Backend>,
    /// Where files go.
    pub directories: Directories,
    /// How much, how many, how long.
    pub limits: Limits,
    /// Whether a SINGLE_NODE_WRITER volume may have a second target.
    pub single_node_targets: Targets,
    /// Directories in which commands are looked for, in order.
    pub tool_path: Vec<PathBuf>,
    /// env_logger's filter.
    pub log: String,
    /// `$NOTIFY_SOCKET`: where systemd listens.
    pub notify_socket: Option<String>,
    settings: Vec<Setting>,
}

/// Names of this daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node's ID.
    pub node_id: String,
    /// The plugin's name.
    pub name: String,
    /// What derived names begin from.
    pub instance: String,
}

/// Directories of this daemon; absolute, not yet made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// Outlives reboots.
    pub state: PathBuf,
    /// Ends with the boot.
    pub runtime: PathBuf,
    /// The local backend's store.
    pub local: PathBuf,
}

/// Bounds of this daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads of the work lane.
    pub workers: usize,
    /// Calls that may be queued and parked.
    pub queue: usize,
    /// Slots of the lock table.
    pub lock_slots: usize,
    /// How long a call waits for a lock.
    pub lock_wait: Duration,
    /// Deadline of a command that changes something.
    pub tool_timeout: Duration,
    /// Commands that run at once.
    pub tools: usize,
}

/// What the command line needs to reach a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The daemon's socket.
    pub endpoint: Endpoint,
    /// The daemon's runtime directory.
    pub runtime: PathBuf,
}

impl Config {
    /// The configuration in this process's environment, and all mistakes if there are any.
    pub fn load() -> Result<Self, Vec<Mistake>> {
        Self::from_env(env::vars_os(), &host_name())
    }

    /// The configuration in `variables`, on a host of this name.
    pub fn from_env(variables: impl IntoIterator<Item = (OsString, OsString)>, host: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader::new(variables);
        let config = Self::read(&mut reader, host);
        reader.refuse_unknown(VARIABLES);
        match config {
            Some(config) if reader.mistakes.is_empty() => Ok(Self { settings: reader.settings, ..config }),
            _ => Err(reader.mistakes),
        }
    }

    /// Every setting that is in force and where it came from.
    pub fn describe(&self) -> &[Setting] {
        &self.settings
    }

    /// Everything is read before anything is found missing.
    fn read(reader: &mut Reader, host: &str) -> Option<Self> {
        let endpoint = reader.read(&ENDPOINT, None, values::endpoint);
        let identity = Identity::read(reader, host);
        let services = reader.read(&SERVICES, default("controller,node"), values::words);
        let backends = reader.read(&BACKENDS, default("local"), values::words);
        let directories = Directories::read(reader);
        let limits = Limits::read(reader);
        let targets = [("lenient", Targets::Lenient), ("strict", Targets::Strict)];
        let single_node_targets = reader.read(&TARGETS, default("lenient"), |value| values::word(value, &targets));
        let tools = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let tool_path = reader.read(&TOOL_PATH, default(tools), values::directories);
        let log = reader.read(&LOG, default("info"), values::log_filter);
        if let (Some(identity), Some(backends)) = (&identity, &backends) {
            check_node_id(reader, &identity.node_id, backends);
        }
        Some(Self {
            endpoint: endpoint?,
            identity: identity?,
            services: services?,
            backends: backends?,
            directories: directories?,
            limits: limits?,
            single_node_targets: single_node_targets?,
            tool_path: tool_path?,
            log: log?,
            notify_socket: reader.foreign("NOTIFY_SOCKET"),
            settings: Vec::new(),
        })
    }
}

impl ClientConfig {
    /// The configuration in this process's environment; what the daemon alone needs may be missing or wrong.
    pub fn load() -> Result<Self, Vec<Mistake>> {
        Self::from_env(env::vars_os())
    }

    /// The configuration in `variables`.
    pub fn from_env(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader::new(variables);
        let endpoint = reader.read(&ENDPOINT, default(CLIENT_ENDPOINT), values::endpoint);
        let runtime = runtime_dir(&mut reader);
        match (endpoint, runtime) {
            (Some(endpoint), Some(runtime)) => Ok(Self { endpoint, runtime }),
            _ => Err(reader.mistakes),
        }
    }
}

impl Identity {
    fn read(reader: &mut Reader, host: &str) -> Option<Self> {
        let node_id = reader.read(&NODE_ID, default(host), values::text);
        let name = reader.read(&NAME, default("org.cephlet.csi"), values::plugin_name);
        let instance = reader.read(&INSTANCE, default("default"), values::text);
        Some(Self { node_id: node_id?, name: name?, instance: instance? })
    }
}

impl Directories {
    fn read(reader: &mut Reader) -> Option<Self> {
        let systemd = reader.systemd("STATE_DIRECTORY");
        let state = reader.read(&STATE_DIR, systemd.or(default("/var/lib/cephlet")), values::directory);
        let runtime = runtime_dir(reader);
        let beside = state.as_ref().and_then(|state| Some(state.join("local").to_str()?.to_owned()));
        // The default hangs on another variable: where that one is wrong, its own mistake is enough.
        let local = reader.read(&LOCAL_DIR, default(beside.as_deref().unwrap_or("/")), values::directory);
        let directories = Self { state: state?, runtime: runtime?, local: local? };
        directories.check(reader);
        Some(directories)
    }

    /// Volumes and the journal must not be where things are swept away.
    fn check(&self, reader: &mut Reader) {
        let found = |path: &PathBuf| Some(path.display().to_string());
        if self.state.starts_with(&self.runtime) {
            let problem =
                format!("must not be in {} ({}): that is emptied with every boot", RUNTIME_DIR.name, self.runtime.display());
            reader.mistake::<()>(STATE_DIR.name, found(&self.state), problem);
        }
        if self.local.starts_with(&self.runtime) {
            let problem =
                format!("must not be in {} ({}): that is emptied with every boot", RUNTIME_DIR.name, self.runtime.display());
            reader.mistake::<()>(LOCAL_DIR.name, found(&self.local), problem);
        }
        if self.local == self.state {
            let problem = format!("must be a directory of its own, not {}", STATE_DIR.name);
            reader.mistake::<()>(LOCAL_DIR.name, found(&self.local), problem);
        }
    }
}

impl Limits {
    fn read(reader: &mut Reader) -> Option<Self> {
        let workers = reader.read(&WORKERS, default("8"), |value| values::number(value, 4..=64));
        let queue = reader.read(&QUEUE, default("256"), |value| values::number(value, 8..=8192));
        let lock_slots = reader.read(&LOCK_SLOTS, default("1024"), |value| values::number(value, 16..=65536));
        let wait = SECOND / 10..=HOUR;
        let lock_wait = reader.read(&LOCK_WAIT, default("60s"), |value| values::duration(value, wait));
        let timeout = SECOND / 10..=24 * HOUR;
        let tool_timeout = reader.read(&TOOL_TIMEOUT, default("120s"), |value| values::duration(value, timeout));
        let tools = reader.read(&TOOLS, default("4"), |value| values::number(value, 1..=64));
        Some(Self {
            workers: workers?,
            queue: queue?,
            lock_slots: lock_slots?,
            lock_wait: lock_wait?,
            tool_timeout: tool_timeout?,
            tools: tools?,
        })
    }
}

fn default(value: &str) -> Option<(String, Origin)> {
    Some((value.to_owned(), Origin::Default))
}

fn runtime_dir(reader: &mut Reader) -> Option<PathBuf> {
    let systemd = reader.systemd("RUNTIME_DIRECTORY");
    reader.read(&RUNTIME_DIR, systemd.or(default("/run/cephlet")), values::directory)
}

/// A local volume's ID names its node, and must fit the specification's limit.
fn check_node_id(reader: &mut Reader, node_id: &str, backends: &BTreeSet<Backend>) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let length: usize = node_id.bytes().map(|byte| if plain(byte) { 1 } else { 3 }).sum();
    if backends.contains(&Backend::Local) && length > LOCAL_NODE_ID_MAX {
        let problem = format!(
            "takes {length} bytes in the ID of a local volume (other characters than letters, digits and -._~ take three), and there \
             is room for {LOCAL_NODE_ID_MAX}: set a shorter one, or leave local out of {}",
            BACKENDS.name
        );
        reader.mistake::<()>(NODE_ID.name, Some(node_id.to_owned()), problem);
    }
}

/// The kernel's node name: uname(2).
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
