//! The variables: names, defaults, meanings. cephlet(8) and the environment file of the unit are checked
//! against this table.

/// A variable of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its default; empty where that depends on the machine or on other variables.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning }
}

/// All variables.
pub const VARIABLES: &[Variable] = &[
    variable("CSI_ENDPOINT", "", "where to listen: unix:///path.sock; the daemon has no default"),
    variable("CEPHLET_NODE_ID", "", "this node, at most 64 bytes (default: the host name)"),
    variable(
        "CEPHLET_NAME",
        "org.cephlet.csi",
        "the plugin's name, as the orchestrator sees it: a reverse domain name of at most 63 characters",
    ),
    variable(
        "CEPHLET_INSTANCE",
        "default",
        "part of every derived name, at most 63 characters; the same on all controllers of one orchestrator",
    ),
    variable("CEPHLET_SERVICES", "controller,node", "the services of this daemon"),
    variable(
        "CEPHLET_BACKENDS",
        "",
        "the kinds of storage, of local, rbd and cephfs (default: local, and rbd if a cluster is set up)",
    ),
    variable("CEPHLET_STATE_DIR", "", "journal and lock (default: $STATE_DIRECTORY, or /var/lib/cephlet)"),
    variable(
        "CEPHLET_RUNTIME_DIR",
        "",
        "what does not outlive a boot (default: $RUNTIME_DIRECTORY, or /run/cephlet)",
    ),
    variable(
        "CEPHLET_LOCAL_DIR",
        "",
        "volumes of the local backend (default: local, in the state directory)",
    ),
    variable(
        "CEPHLET_WORKERS",
        "8",
        "calls that may work at the same time, 4 to 256; when all are busy, a cluster without a running call may start one more",
    ),
    variable("CEPHLET_QUEUE", "256", "calls that may wait for a worker, a volume or a cluster, 1 to 65536"),
    variable("CEPHLET_LOCK_SLOTS", "1024", "volumes that can be worked on at once, 16 to 65536"),
    variable("CEPHLET_LOCK_WAIT", "60s", "how long a call waits for a volume that another call holds"),
    variable(
        "CEPHLET_TOOL_TIMEOUT",
        "120s",
        "how long a command that changes something may take; with Ceph at least 90s, or commands are killed that would end",
    ),
    variable(
        "CEPHLET_SESSION",
        "auto",
        "with auto, Ceph clusters are asked by one resident process where Ceph's Python bindings are installed; with off, by a process each time",
    ),
    variable("CEPHLET_SESSION_IDLE", "60s", "how long that process stays when it is not asked"),
    variable(
        "CEPHLET_TOOLS",
        "4",
        "tools that may run at the same time for one cluster, 2 to 64; commands without a deadline leave one place to others",
    ),
    variable(
        "CEPHLET_SINGLE_NODE_TARGETS",
        "lenient",
        "a second target for SINGLE_NODE_WRITER and SINGLE_NODE_READER_ONLY: lenient or strict",
    ),
    variable(
        "CEPHLET_STAGING",
        "on",
        "whether an orchestrator stages volumes before it publishes them: on, or off for one that does not unstage",
    ),
    variable(
        "CEPHLET_FENCE",
        "lost",
        "with lost, the client of a node that has not given a volume back is shut out; with off it is not",
    ),
    variable(
        "CEPHLET_TOOL_PATH",
        "",
        "directories to look for tools in, joined by ':' (default: the usual ones)",
    ),
    variable("CEPHLET_CEPH_CONF", "/etc/ceph/ceph.conf", "the one cluster of this host, by the name of ceph"),
    variable("CEPHLET_CEPH_USER", "admin", "its user, without 'client.'"),
    variable("CEPHLET_CEPH_KEYRING", "", "the user's keyring (default: where Ceph looks)"),
    variable("CEPHLET_CLUSTERS", "", "a TOML file with several clusters, in place of the three above"),
    variable(
        "CEPHLET_TOPOLOGY",
        "",
        "this node's labels, the outermost first: region=eu,zone=eu-1, or @FILE with one a line, by its absolute path",
    ),
    variable(
        "CEPHLET_TOPOLOGY_CHANGE",
        "log",
        "when this node's topology has changed: log, or exit, to be started anew and asked again",
    ),
    variable(
        "CEPHLET_CRUSH_LOCATION",
        "",
        "RBD: where reads are near, in CRUSH's terms: zone:eu-1|rack:r7 (default: where the labels say)",
    ),
    variable("CEPHLET_LOG", "info", "what is logged: error, warn, info, debug, trace, or per module"),
    variable(
        "CEPHLET_METRICS",
        "",
        "a file that ends in .prom, in a directory of Prometheus' node exporter: the daemon keeps its numbers there",
    ),
    #[cfg(feature = "crash-points")]
    variable("CEPHLET_CRASH_AT", "0", "the crash point at which the daemon kills itself, for tests"),
];

/// The variable of this name.
pub fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}
