//! Where things lie on disk. Only names: whoever uses a path makes it.
//!
//! ```text
//! STATE_DIR/lock                     flock: one daemon for each state directory
//! STATE_DIR/journal/                 segments and snapshots
//! RUNTIME_DIR/mounts/<hash>          the one real mount of each staged volume
//! RUNTIME_DIR/staging/<hash>         staging paths of volumes that an operator publishes by hand
//! LOCAL_DIR/lock                     flock: one daemon for each local store
//! LOCAL_DIR/volumes/                 volumes of the local backend
//! LOCAL_DIR/snapshots/               snapshots of the local backend
//! LOCAL_DIR/pending/                 what is not finished yet, swept at start
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes of a hash that make a file name: 128 bits, no two volumes meet.
const HASH_BYTES: usize = 16;

/// The paths under the state and the runtime directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    state: PathBuf,
    runtime: PathBuf,
}

impl Layout {
    /// The layout of a daemon with these directories.
    pub fn new(state: impl Into<PathBuf>, runtime: impl Into<PathBuf>) -> Self {
        Self { state: state.into(), runtime: runtime.into() }
    }

    /// The state directory: outlives reboots.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The runtime directory: gone with the boot.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The file whose lock makes this daemon the only one of its state directory.
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// The journal's directory.
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal")
    }

    /// The directory of the real mounts.
    pub fn mounts(&self) -> PathBuf {
        self.runtime.join("mounts")
    }

    /// Where the volume with this key ([`crate::locks::Key::as_str`]) is really mounted.
    pub fn mount(&self, key: &str) -> PathBuf {
        self.mounts().join(hash(key))
    }

    /// The directory of the staging paths that the daemon's own command line uses.
    pub fn staging(&self) -> PathBuf {
        self.runtime.join("staging")
    }

    /// The staging path of a volume that an operator publishes by hand.
    pub fn staging_of(&self, volume_id: &str) -> PathBuf {
        self.staging().join(hash(volume_id))
    }
}

/// The paths of the local backend's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLayout {
    root: PathBuf,
}

impl LocalLayout {
    /// The layout of a store in this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file whose lock makes a daemon the only one of this store.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The directory of finished volumes.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// The directory of finished snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// The directory of what is not finished: on the same file system, so that a rename finishes it.
    pub fn pending(&self) -> PathBuf {
        self.root.join("pending")
    }
}

/// A short file name for a text of any length and any characters; the same in every run.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(HASH_BYTES).fold(String::new(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_are_what_operators_find_documented() {
        let layout = Layout::new("/var/lib/cephlet", "/run/cephlet");
        assert_eq!(layout.lock(), Path::new("/var/lib/cephlet/lock"));
        assert_eq!(layout.journal(), Path::new("/var/lib/cephlet/journal"));
        assert_eq!(layout.mounts(), Path::new("/run/cephlet/mounts"));
        let local = LocalLayout::new("/srv/volumes");
        assert_eq!(local.volumes(), Path::new("/srv/volumes/volumes"));
        assert_eq!(local.pending(), Path::new("/srv/volumes/pending"));
    }

    /// A daemon after an upgrade must find the mounts of the one before.
    #[test]
    fn hashes_never_change() {
        let layout = Layout::new("/s", "/r");
        assert_eq!(layout.mount("local\0node\0\0\0web"), Path::new("/r/mounts/bc3d3ef4bcbc2dfae68ff58ece12f1d4"));
        assert_eq!(layout.staging_of("abc"), Path::new("/r/staging/ba7816bf8f01cfea414140de5dae2223"));
    }

    #[test]
    fn any_text_becomes_one_file_name() {
        let name = hash("../../etc/passwd\0\u{e4}");
        assert_eq!(name.len(), 32);
        assert!(name.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
