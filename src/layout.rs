//! The paths under the state and the runtime directory. The code that uses a path creates it.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::node_name;

/// Paths under the state and the runtime directory.
#[derive(Clone, Debug)]
pub struct Layout {
    state: PathBuf,
    runtime: PathBuf,
    local: PathBuf,
}

impl Layout {
    /// The paths of this configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            state: config.state_dir.clone(),
            runtime: config.runtime_dir.clone(),
            local: config.local_dir.clone(),
        }
    }

    /// The directory for what outlives a boot.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// The lock of the daemon that uses the state directory.
    pub fn state_lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// The tag of this controller.
    pub fn controller_tag(&self) -> PathBuf {
        self.state.join("tag")
    }

    /// The file that remembers the name of this node.
    pub fn node_name(&self) -> PathBuf {
        self.state.join(node_name::FILE)
    }

    /// The files of the local backend.
    pub fn local_dir(&self) -> &Path {
        &self.local
    }

    /// The file that remembers which directory the local backend has served under its path.
    pub fn local_dir_id(&self) -> PathBuf {
        self.state.join("local-dirs").join(short_hash(&self.local.to_string_lossy()))
    }

    /// The lock of the daemon that serves at this socket. It does not lie beside the socket, whose directory
    /// may belong to an orchestrator.
    pub fn socket_lock(&self, socket: &Path) -> PathBuf {
        self.runtime.join("sockets").join(short_hash(&socket.to_string_lossy()))
    }

    /// The daemon's own mount of the volume with this key. Staging paths and targets are binds of it.
    pub fn mount_point(&self, key: &str) -> PathBuf {
        self.mount_points().join(short_hash(key))
    }

    /// The directory of the daemon's own mounts.
    pub fn mount_points(&self) -> PathBuf {
        self.runtime.join("mounts")
    }

    /// The file whose byte locks are held by commands that map images, even after their daemon was killed.
    pub fn map_locks(&self) -> PathBuf {
        self.runtime.join("map-locks")
    }

    /// Locked as long as a session with Ceph clusters runs, which may outlive its daemon.
    pub fn session_lock(&self) -> PathBuf {
        self.runtime.join("session.lock")
    }

    /// The file with the byte locks of the forced promotions in progress, which outlive the daemon.
    pub fn promotions(&self) -> PathBuf {
        self.runtime.join("promotions")
    }

    /// The file whose byte locks are held by commands that format volumes, even after their daemon was
    /// killed.
    pub fn formatting_locks(&self) -> PathBuf {
        self.runtime.join("formatting-locks")
    }
}

/// A file name for a text of any length: 32 hexadecimal digits of its SHA-256.
fn short_hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
