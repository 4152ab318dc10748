//! The types that describe volumes: size, access, access mode, source, topology. The operations, the backends
//! behind them, and the protocols and commands in front of them use these types. Their names in records are
//! defined here, too.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The key of a volume's context that says which file system it was made for.
pub const CONTEXT_KEY: &str = "fsType";

/// The key of a volume's context for the role of a replicated volume. The role changes, so nodes do not
/// receive it, and no request is compared with it.
pub const ROLE_KEY: &str = "replicationRole";

/// The parameter for the file system of a volume, by the name ceph-csi and the Kubernetes sidecars use.
pub const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// Sidecars put metadata under this prefix (names of claims, of secrets): it is not meant for the plugin.
pub const METADATA: &str = "csi.storage.k8s.io/";

/// File systems the node can make and grow.
pub const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// File systems that the node mounts and grows on volumes that already have them, but never makes.
pub const OLD_FILE_SYSTEMS: [&str; 2] = ["ext2", "ext3"];

/// Whether a volume can have a file system of this name.
pub fn is_file_system(name: &str) -> bool {
    FILE_SYSTEMS.contains(&name) || OLD_FILE_SYSTEMS.contains(&name)
}

/// The file system for a mount that names none.
pub const DEFAULT_FILE_SYSTEM: &str = "ext4";

/// How messages begin that send the caller to another node. On exactly these words Nomad asks its plugin's
/// next controller (nomad/client_csi_endpoint.go, isRetryable); no gRPC code makes Nomad do so.
pub const ANOTHER_NODE: &str = "Unknown node";

/// A part of the errors of a promotion or demotion that can succeed when it is retried: an update from the
/// other side has not arrived yet.
pub const NOT_YET: &str = "not yet";

/// Opaque string pairs: parameters, contexts, topology segments.
pub type Map = BTreeMap<String, String>;

/// The limits of a volume's size. Zero means "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeRange {
    /// The least number of bytes.
    pub required: u64,
    /// The greatest number of bytes; zero is no limit.
    pub limit: u64,
}

impl SizeRange {
    /// Whether a volume of `size` bytes satisfies the range.
    pub fn admits(&self, size: u64) -> bool {
        size >= self.required && (self.limit == 0 || size <= self.limit)
    }
}

/// How a volume is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// As a block device.
    #[serde(rename = "block")]
    Block,
    /// As a mounted file system.
    #[serde(rename = "mount")]
    Mount {
        /// The file system asked for; empty for the default.
        #[serde(rename = "fs_type")]
        fs_type: String,
        /// Mount options asked for.
        #[serde(rename = "flags", default, skip_serializing_if = "Vec::is_empty")]
        flags: Vec<String>,
    },
}

impl Access {
    /// As a file system with these mount options. Each item has one option or several, as after `mount -o`.
    pub fn mount(fs_type: String, items: &[String]) -> Self {
        Self::Mount { fs_type, flags: items.iter().flat_map(|item| split_options(item)).collect() }
    }
}

/// The mount options in one item: mount(8) splits at commas outside double quotes and ignores empty options.
/// An empty item stays, to be refused.
pub fn split_options(item: &str) -> Vec<String> {
    if item.is_empty() {
        return vec![String::new()];
    }
    let mut is_quoted = false;
    let options = item.split(|character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    });
    options.map(str::trim).filter(|option| !option.is_empty()).map(String::from).collect()
}

/// How many nodes may use a volume at once, and how (CSI "AccessMode").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&str")]
pub enum Mode {
    SingleNodeWriter = 1,
    SingleNodeReaderOnly = 2,
    MultiNodeReaderOnly = 3,
    MultiNodeSingleWriter = 4,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

impl Mode {
    /// Every mode, and its word on the command line and in records.
    pub const WORDS: [(Self, &'static str); 7] = [
        (Self::SingleNodeWriter, "single-node-writer"),
        (Self::SingleNodeReaderOnly, "single-node-reader-only"),
        (Self::MultiNodeReaderOnly, "multi-node-reader-only"),
        (Self::MultiNodeSingleWriter, "multi-node-single-writer"),
        (Self::MultiNodeMultiWriter, "multi-node-multi-writer"),
        (Self::SingleNodeSingleWriter, "single-node-single-writer"),
        (Self::SingleNodeMultiWriter, "single-node-multi-writer"),
    ];

    /// The mode for a number of the specification; None for UNKNOWN and for numbers that are not known here.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::WORDS.into_iter().map(|(mode, _)| mode).find(|mode| mode.number() == number)
    }

    /// The specification's number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The mode of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|row| row.1 == word).map(|(mode, _)| mode)
    }

    /// Whether no node may write.
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// Whether more than one node may have the volume at once.
    pub fn is_multi_node(self) -> bool {
        matches!(self, Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }
}

impl From<Mode> for &str {
    fn from(mode: Mode) -> Self {
        Mode::WORDS.into_iter().find(|row| row.0 == mode).map_or("", |(_, word)| word)
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::from_word(&word).ok_or_else(|| format!("{word:?} is no access mode"))
    }
}

/// One way a volume is to be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Block device or file system.
    #[serde(rename = "access")]
    pub access: Access,
    /// Who may use the volume.
    #[serde(rename = "mode")]
    pub mode: Mode,
}

impl fmt::Display for Capability {
    /// Omits the flags themselves, which the specification counts as sensitive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.access {
            Access::Block => write!(f, "a block device for {:?}", self.mode),
            Access::Mount { fs_type, flags } => {
                write!(f, "a file system (type {fs_type:?}, {} mount flags) for {:?}", flags.len(), self.mode)
            }
        }
    }
}

impl Capability {
    /// The same without its flags, for a record. Every client that can read the volume's metadata can read
    /// the record, and flags may be sensitive (CSI, "MountVolume.mount_flags").
    #[must_use]
    pub fn without_flags(&self) -> Self {
        let access = match &self.access {
            Access::Block => Access::Block,
            Access::Mount { fs_type, .. } => Access::Mount { fs_type: fs_type.clone(), flags: Vec::new() },
        };
        Self { access, mode: self.mode }
    }

    /// The file system that the capability names, if any.
    pub fn fs_type(&self) -> Option<&str> {
        match &self.access {
            Access::Mount { fs_type, .. } if !fs_type.is_empty() => Some(fs_type),
            _ => None,
        }
    }

    /// The file system that the capability names, if the volume was made for a different one. If one of the
    /// two is unknown, there is no difference.
    pub fn other_file_system(&self, made_for: Option<&str>) -> Option<&str> {
        self.fs_type().filter(|fs_type| made_for.is_some_and(|made_for| made_for != *fs_type))
    }
}

/// The source of which a new volume is a copy. The ID keeps the caller's spelling, for look-up and response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A snapshot's ID.
    #[serde(rename = "snapshot")]
    Snapshot(String),
    /// A volume's ID.
    #[serde(rename = "volume")]
    Volume(String),
}

/// Where a volume must and should be reachable (CSI "TopologyRequirement").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRequirement {
    /// At least one of these must reach the volume; an empty list demands nothing.
    pub requisite: Vec<Map>,
    /// In order of preference.
    pub preferred: Vec<Map>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_split_at_commas_outside_quotes() {
        let flags = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            match Access::mount(String::new(), &items) {
                Access::Mount { flags, .. } => flags,
                Access::Block => Vec::new(),
            }
        };
        assert_eq!(flags(&["noatime,ro", "sync"]), ["noatime", "ro", "sync"]);
        assert_eq!(flags(&["noatime,, ro ,"]), ["noatime", "ro"]);
        let context = "context=\"system_u:object_r:tmp_t:s0:c1,c2\"";
        assert_eq!(flags(&[&format!("{context},ro")]), [context, "ro"]);
        assert_eq!(flags(&["a=\"open,ro"]), ["a=\"open,ro"]);
        assert_eq!(flags(&["", ","]), [""]);
    }
}
