//! Common to every backend on Ceph: access to clusters, running Ceph's tools, and the meaning of their
//! failures.

pub(crate) mod cache;
pub(crate) mod claim;
pub(crate) mod domains;
pub(crate) mod examine;
mod failure;
pub mod fencing;
pub(crate) mod health;
pub(crate) mod locations;
pub mod locks;
pub mod monitor;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod placement;
pub(crate) mod publication;
pub(crate) mod reach;
pub mod session;

use std::sync::Arc;

use serde::de::DeserializeOwned;

pub use failure::{Failure, Reason};
pub use monitor::Monitors;
pub use monitor::space::FreeSpace;
pub use placement::PoolRef;
pub use session::Session;

use crate::clusters::{Cluster, Credentials};
use crate::dispatch::{Bulkhead, Call};
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Output, Runner, Tool};
use crate::secrets::{Secret, Secrets};

/// How long a tool tries to reach the cluster, in seconds: less than any deadline of ours, so that it can
/// still report why it failed, and longer than monitors take to elect a leader. The tools' default is five
/// minutes.
const CONNECT_SECONDS: &str = "20";

/// How long a change may wait for an OSD each time, in seconds. Without this limit a command waits for ever,
/// and reports no reason, if the pool is full or the OSDs are away. The limit is longer than the failover of
/// an OSD, and than the time after which the owner of an image's lock is given up.
const OSD_TIMEOUT: &str = "--rados-osd-op-timeout=40";

/// A cluster and the credentials to reach it with.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The user that asks.
    pub credentials: Credentials,
    /// The bulkhead that the commands count against ([`Cmd::within`]): usually one per cluster.
    pub bulkhead: Bulkhead,
}

impl ClusterAccess {
    /// Access to `cluster` with a request's secrets, else with the cluster's own credentials.
    ///
    /// # Errors
    /// As [`Cluster::credentials`].
    pub fn new(cluster: Arc<Cluster>, secrets: &Secrets) -> Result<Self> {
        let credentials = cluster.credentials(secrets)?;
        let bulkhead = Arc::from(cluster.name.as_str());
        Ok(Self { cluster, credentials, bulkhead })
    }

    /// A Ceph tool with its options to reach the cluster: `-c CONF`, or `-c /dev/null -m MONITORS`; `--id
    /// USER`, and `--keyfile` with the key in memory, unless the tool has to find the key itself.
    pub fn command(&self, tool: Tool, class: Class) -> Cmd {
        let cmd = Cmd::new(tool, class).within(Arc::clone(&self.bulkhead));
        let cmd = match &self.cluster.conf {
            Some(conf) => cmd.arg("-c").arg(conf),
            None => cmd.args(["-c", "/dev/null", "-m"]).arg(self.cluster.monitors_text()),
        };
        let cmd = cmd.args(["--id", &self.credentials.user]);
        let cmd = match &self.credentials.key {
            Some(key) => cmd.memory_file("--keyfile", key.clone()),
            None => cmd,
        };
        match tool {
            // The Python program has its own option and ignores the other.
            Tool::Ceph => cmd.args(["--connect-timeout", CONNECT_SECONDS]),
            _ => cmd.args(["--client-mount-timeout", CONNECT_SECONDS]),
        }
        .after_access()
    }

    /// The same for a tool that talks to OSDs.
    pub fn osd_command(&self, tool: Tool, class: Class) -> Cmd {
        let cmd = self.command(tool, class);
        if matches!(class, Class::Change | Class::Lasting) { cmd.arg(OSD_TIMEOUT) } else { cmd }
    }

    /// Whether the credentials are the cluster's own, not a request's.
    pub fn is_own(&self) -> bool {
        self.cluster.credentials.as_ref() == Some(&self.credentials)
    }

    /// The key, for what does not find one by itself, as Ceph's tools do.
    ///
    /// # Errors
    /// Unauthenticated if it is not known here.
    pub fn key(&self) -> Result<Secret> {
        let Credentials { user, key } = &self.credentials;
        key.clone().ok_or_else(|| {
            Error::unauthenticated(format!(
                "the key of client.{user} of cluster {:?} is not known here, and this node needs it: set \
                 CEPHLET_CEPH_KEYRING or the cluster's key file, or give `userID` and `userKey` as secrets",
                self.cluster.name
            ))
        })
    }

    /// Where the key comes from, for people.
    fn key_from(&self) -> String {
        match self.is_own() {
            true => self.cluster.key_from.clone(),
            false => String::from("the secret userKey"),
        }
    }
}

/// The programs that ask clusters, and the session that replaces them, if there is one.
#[derive(Clone)]
pub struct Programs {
    runner: Arc<dyn Runner>,
    session: Option<Arc<Session>>,
}

impl Programs {
    /// Programs that `runner` starts.
    pub fn new(runner: Arc<dyn Runner>, session: Option<Arc<Session>>) -> Self {
        Self { runner, session }
    }

    /// Runs a command of [`ClusterAccess::command`].
    ///
    /// # Errors
    /// Every way in which it did not end with status 0.
    pub fn run(&self, call: &Call, access: &ClusterAccess, cmd: &Cmd) -> Result<Output, Failure> {
        let answer = self.session.as_ref().and_then(|session| session.run((call, access), cmd));
        let answer = answer.unwrap_or_else(|| self.runner.run(call, cmd));
        answer.map_err(|error| Failure::new(access, error))
    }

    /// Why processes ask the clusters in place of a session that is wanted; None if a session can.
    pub fn session_trouble(&self) -> Option<String> {
        self.session.as_ref().and_then(|session| session.trouble())
    }

    /// Ends the session once its requests have ended.
    pub fn end(&self) {
        self.session.iter().for_each(|session| session.end());
    }

    /// Whether a session answers questions, so that they cost no processes.
    pub fn is_resident(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.serves())
    }

    /// Whether `tool` is on this machine.
    ///
    /// # Errors
    /// It is not.
    pub fn has(&self, tool: Tool) -> Result<()> {
        Ok(self.runner.has(tool)?)
    }
}

/// Reads what `command` printed.
pub(crate) fn read<T: DeserializeOwned>(command: &str, stdout: &[u8]) -> Result<T> {
    serde_json::from_slice(stdout).map_err(|error| unreadable(command, &error))
}

/// Reads the documents that `command` printed one after another.
pub(crate) fn read_all<T: DeserializeOwned>(command: &str, stdout: &[u8]) -> Result<Vec<T>> {
    let documents = serde_json::Deserializer::from_slice(stdout).into_iter::<T>();
    documents.collect::<Result<_, _>>().map_err(|error| unreadable(command, &error))
}

fn unreadable(command: &str, error: &serde_json::Error) -> Error {
    Error::internal(format!("`{command}` printed what cephlet cannot read: {error}"))
}

/// Questions to a cluster that concern no volume.
pub trait ClusterTool: Send + Sync {
    /// Its monitors and its manager.
    fn monitors(&self) -> &dyn Monitors;

    /// Whether questions cost no processes.
    fn is_resident(&self) -> bool {
        false
    }

    /// Whether the cluster has the pool of `at`, for any application; the namespace does not matter.
    fn has_pool(&self, call: &Call, at: &PoolRef) -> Result<bool>;

    /// The namespaces of a pool, without the default one; the namespace of `at` does not matter.
    fn namespaces(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>>;

    /// The free space in the pool `pool`, which may be another than that of `at`.
    fn free_space(&self, call: &Call, at: &PoolRef, pool: &str) -> Result<FreeSpace>;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::secrets::Secret;

    const KEY: &str = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==";

    fn access(conf: Option<&str>, key: Option<&str>) -> ClusterAccess {
        let mut cluster = Cluster::named("main");
        cluster.conf = conf.map(Into::into);
        cluster.monitors = crate::clusters::parse_monitors("10.0.0.1").unwrap();
        cluster.credentials = Some(Credentials { user: "web".into(), key: key.map(Secret::new) });
        ClusterAccess::new(Arc::new(cluster), &Secrets::default()).unwrap()
    }

    #[test]
    fn a_command_reaches_the_cluster_with_or_without_a_conf() {
        let cmd = access(None, Some(KEY)).command(Tool::Rbd, Class::Question).arg("ls");
        let text = "rbd -c /dev/null -m \"[v2:10.0.0.1:3300,v1:10.0.0.1:6789]\" --id web --keyfile \
                    /proc/self/fd/3 \
                    --client-mount-timeout 20 ls";
        assert_eq!(cmd.to_string(), text);
        assert_eq!(cmd.memory_files().collect::<Vec<_>>(), [KEY]);
        let cmd = access(Some("/etc/ceph/ceph.conf"), None).command(Tool::Ceph, Class::Question);
        assert_eq!(cmd.to_string(), "ceph -c /etc/ceph/ceph.conf --id web --connect-timeout 20");
    }

    #[test]
    fn the_keys_of_a_request_win() {
        let cluster = Arc::clone(&access(None, Some(KEY)).cluster);
        let secrets: Secrets = [("userID", "tenant"), ("userKey", KEY)].into_iter().collect();
        let cmd = ClusterAccess::new(cluster, &secrets).unwrap().command(Tool::Rados, Class::Change);
        assert!(cmd.to_string().contains(" --id tenant --keyfile "), "{cmd}");
    }
}
