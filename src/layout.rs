//! Every path of our own. Whoever uses one makes it.

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

    /// What outlives a boot.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// Held by the one daemon that uses the state directory.
    pub fn state_lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// The tag of this controller.
    pub fn controller_tag(&self) -> PathBuf {
        self.state.join("tag")
    }

    /// Remembers the name of this node.
    pub fn node_name(&self) -> PathBuf {
        self.state.join(node_name::FILE)
    }

    /// The files of the local backend.
    pub fn local_dir(&self) -> &Path {
        &self.local
    }

    /// Remembers which directory the local backend has served under its path.
    pub fn local_dir_id(&self) -> PathBuf {
        self.state.join("local-dirs").join(short_hash(&self.local.to_string_lossy()))
    }

    /// Held by the one daemon that serves at this socket. Nothing is written beside a socket, whose directory
    /// may be an orchestrator's.
    pub fn socket_lock(&self, socket: &Path) -> PathBuf {
        self.runtime.join("sockets").join(short_hash(&socket.to_string_lossy()))
    }

    /// Where the device of the volume with this key is really mounted.
    pub fn mount_point(&self, key: &str) -> PathBuf {
        self.runtime.join("mounts").join(short_hash(key))
    }

    /// Held by commands that map images, whose daemon may have been killed.
    pub fn map_locks(&self) -> PathBuf {
        self.runtime.join("map-locks")
    }

    /// Locks of the promotions by force that are under way: they outlive the daemon.
    pub fn promotions(&self) -> PathBuf {
        self.runtime.join("promotions")
    }

    /// Held by commands that format volumes, whose daemon may have been killed.
    pub fn formatting_locks(&self) -> PathBuf {
        self.runtime.join("formatting-locks")
    }
}

/// A file name for a text of any length: 32 hexadecimal digits of its SHA-256.
fn short_hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
