//! This node's record of a volume, and its format in the journal.
//!
//! A record names what is ours: it is written before anything is made and removed after everything is gone.
//! The present state always comes from the kernel, never from the record.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::creation_record::Unknown;
use crate::backend::{AttachedImage, PublishedBy};
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::journal::{Change, Table};
use crate::volume::Operations;
use crate::volume::request::{Access, Capability, Mode};

/// A volume on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The volume, with its incarnation.
    #[serde(rename = "volume")]
    pub volume_id: String,
    /// The boot in which it was staged.
    #[serde(rename = "boot")]
    pub boot_id: String,
    /// Block device or file system; the mount flags are sorted and without `ro` and `rw`.
    pub access: Access,
    /// Whether the device or the one real mount is read-only.
    pub read_only: bool,
    /// The paths where it is staged and published.
    pub uses: Vec<Use>,
    /// Who published it to this node, and has to unpublish it.
    #[serde(rename = "published_by")]
    pub published: PublishedBy,
    /// The image that was attached, or was to be.
    pub attached: AttachedImage,
    /// Work on its file system that was begun and is not known to have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<BegunWork>,
    /// The group that its root was given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_group: Option<u32>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A path where a volume is staged or published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The path.
    pub path: String,
    /// How it was asked for.
    pub kind: UseKind,
    /// How the volume is used there.
    pub mode: Mode,
    /// Whether nothing can be written there.
    pub read_only: bool,
    /// The files and directories that are removed with it.
    pub made: Made,
    /// The volume is no longer in use there. The file or directory that we made holds data, and is to be
    /// removed once it is empty. Only for targets.
    pub left_behind: bool,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// How a use was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseKind {
    /// A staging path.
    Staging,
    /// A target from a staging path: it has to be given up before the last staging path is.
    Target,
    /// A target without a stage. In a single-node mode it is the only target, in every configuration.
    Unstaged,
    /// A target of the operator, without a stage.
    Operator,
}

/// The files and directories that we made for a path and remove with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The file or directory itself.
    pub itself: bool,
    /// The directories above it, outermost first. They are removed if they are empty.
    pub parents: Vec<String>,
}

/// A kind of work on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsWork {
    /// The device was blank and is being formatted.
    Formatting,
    /// The file system is smaller than its device and grows once it is mounted.
    Growing,
}

/// Work that was begun, and the image that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunWork {
    /// The work.
    pub work: FsWork,
    /// The image, see [`AttachedImage::image`].
    pub image: String,
    /// The publication, see [`AttachedImage::publication`].
    pub publication: String,
}

impl Use {
    /// A use for which nothing was made.
    pub fn new(kind: UseKind, path: &str, mode: Mode, read_only: bool) -> Self {
        Self {
            path: path.to_string(),
            kind,
            mode,
            read_only,
            made: Made::default(),
            left_behind: false,
            unknown: Unknown::new(),
        }
    }

    /// Whether it is a staging path; else it is a target.
    pub fn is_staging(&self) -> bool {
        self.kind == UseKind::Staging
    }
}

impl NodeRecord {
    /// Every path where the volume is staged or published.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.uses.iter().map(|it| it.path.as_str())
    }

    /// The staging paths.
    pub fn stagings(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(|it| it.is_staging())
    }

    /// The targets.
    pub fn targets(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(|it| !it.is_staging())
    }

    /// The staging at this path.
    pub fn staging(&self, path: &str) -> Option<&Use> {
        self.stagings().find(|it| it.path == path)
    }

    /// Whether the record is for the volume that `id` means; an ID without incarnation means any.
    fn is_of(&self, id: &VolumeId) -> bool {
        let recorded = VolumeId::parse(&self.volume_id).and_then(|recorded| recorded.incarnation);
        recorded.is_none_or(|recorded| id.means(&recorded))
    }

    /// Whether the volume is no longer in use.
    pub fn is_unused(&self) -> bool {
        self.uses.iter().all(|it| it.left_behind)
    }

    /// Whether the record can be removed without a loss.
    pub(crate) fn says_nothing(&self) -> bool {
        self.uses.is_empty() && self.begun.is_none()
    }

    /// The entry of the journal for the record under this key.
    pub(crate) fn to_change(&self, key: impl Into<String>) -> Result<Change> {
        Ok(Change::put(Table::Volumes, key, self.encode()?))
    }

    fn encode(&self) -> Result<Value> {
        serde_json::to_value(self)
            .map_err(|error| Error::internal(format!("record of {}: {error}", self.volume_id)))
    }

    fn decode(value: Value) -> Option<Self> {
        serde_json::from_value(value).ok()
    }
}

/// The access as recorded: with sorted flags, without the flags that every path has for itself.
pub fn shared_access(capability: &Capability, fs_type: &str) -> Access {
    match &capability.access {
        Access::Block => Access::Block,
        Access::Mount { flags, .. } => shared(fs_type.to_string(), flags.clone()),
    }
}

fn shared(fs_type: String, mut flags: Vec<String>) -> Access {
    flags.retain(|flag| !matches!(flag.as_str(), "ro" | "rw"));
    flags.sort();
    Access::Mount { fs_type, flags }
}

/// Whether a use of the volume forbids writing: by its mode or by a mount flag.
pub fn is_read_only(capability: &Capability) -> bool {
    let by_flag =
        matches!(&capability.access, Access::Mount { flags, .. } if flags.iter().any(|flag| flag == "ro"));
    capability.mode.is_read_only() || by_flag
}

impl Operations {
    /// The record of a volume on this node, if it is in use here. A late call for an earlier volume of the
    /// same name finds none.
    pub fn node_record(&self, id: &VolumeId) -> Result<Option<NodeRecord>> {
        Ok(self.records_under_name(id)?.0)
    }

    /// A record without any path, for a volume that has no record.
    pub(crate) fn unrecorded(&self, id: &VolumeId) -> NodeRecord {
        NodeRecord {
            volume_id: id.to_string(),
            boot_id: self.boot_id.clone(),
            access: Access::Block,
            read_only: false,
            uses: Vec::new(),
            published: PublishedBy::Controller,
            attached: AttachedImage::default(),
            begun: None,
            mount_group: None,
            unknown: Unknown::new(),
        }
    }

    /// The record of the volume, or that of an earlier volume of the same name.
    pub(crate) fn records_under_name(
        &self,
        id: &VolumeId,
    ) -> Result<(Option<NodeRecord>, Option<NodeRecord>)> {
        let Some(value) = self.journal.get(Table::Volumes, &self.record_key(id)) else {
            return Ok((None, None));
        };
        let damaged = || {
            Error::internal(format!(
                "the journal's record of volume {id} cannot be read; was it written by a newer cephlet?"
            ))
        };
        let record = NodeRecord::decode(value).ok_or_else(damaged)?;
        Ok(if record.is_of(id) { (Some(record), None) } else { (None, Some(record)) })
    }

    /// Every volume in use on this node, by its key.
    pub fn node_records(&self) -> Vec<(String, NodeRecord)> {
        let decode = |(key, value): (String, Value)| NodeRecord::decode(value).map(|record| (key, record));
        self.journal.entries(Table::Volumes).into_iter().filter_map(decode).collect()
    }

    /// Writes a record; durable when Ok.
    pub(crate) fn remember(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        self.journal.write(&[record.to_change(self.record_key(id))?])
    }

    /// Writes a reduced record, or removes a record with nothing left in it; durable when Ok. This works even
    /// if the journal's disk is full.
    pub(crate) fn remember_less(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        let change = match record.says_nothing() {
            true => {
                self.looks.forget(&self.record_key(id));
                Change::remove(Table::Volumes, self.record_key(id))
            }
            false => record.to_change(self.record_key(id))?,
        };
        self.journal.write_for_removal(&[change])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_this_form() {
        let made = Made { itself: true, parents: vec!["/a".into()] };
        let staging = Use::new(UseKind::Staging, "/a/s", Mode::SingleNodeWriter, false);
        let target = Use::new(UseKind::Operator, "/t", Mode::SingleNodeReaderOnly, true);
        let record = NodeRecord {
            volume_id: "local:n:::o:1".into(),
            boot_id: "b".into(),
            access: Access::Mount { fs_type: "xfs".into(), flags: vec!["noatime".into()] },
            read_only: true,
            uses: vec![Use { made, ..staging }, Use { left_behind: true, ..target }],
            published: PublishedBy::Node,
            attached: AttachedImage { image: "10ab".into(), publication: "0123".into() },
            begun: None,
            mount_group: Some(100),
            unknown: Unknown::new(),
        };
        let uses = serde_json::json!([
            {
                "path": "/a/s", "kind": "staging", "mode": record.uses[0].mode, "read_only": false,
                "made": {"itself": true, "parents": ["/a"]}, "left_behind": false,
            },
            {
                "path": "/t", "kind": "operator", "mode": record.uses[1].mode, "read_only": true,
                "made": {"itself": false, "parents": []}, "left_behind": true,
            },
        ]);
        for access in [Access::Block, record.access.clone()] {
            let record = NodeRecord { access, ..record.clone() };
            let value = record.encode().expect("encodes");
            assert_eq!((&value["uses"], &value["mount_group"]), (&uses, &100.into()));
            assert_eq!(NodeRecord::decode(value), Some(record));
        }
    }

    #[test]
    fn fields_of_a_later_release_survive() {
        let value = serde_json::json!({
            "volume": "local:n:::o:1", "boot": "b", "access": Access::Block, "read_only": false,
            "uses": [{
                "path": "/s", "kind": "staging", "mode": Mode::SingleNodeWriter, "read_only": false,
                "made": {"itself": false, "parents": []}, "left_behind": false, "later": 1,
            }],
            "published_by": "node", "attached": {"image": "", "publication": ""}, "later": {"a": [2]},
            "begun": {"work": "growing", "image": "10ab", "publication": "0123"},
        });
        let record = NodeRecord::decode(value.clone()).expect("it is known enough");
        assert_eq!(record.encode().expect("encodes"), value);
    }

    #[test]
    fn flags_of_single_paths_are_not_shared() {
        let flags = ["rw", "noatime", "ro", "discard"].map(String::from).to_vec();
        let capability = Capability {
            access: Access::Mount { fs_type: String::new(), flags },
            mode: Mode::SingleNodeWriter,
        };
        let shared =
            Access::Mount { fs_type: "ext4".into(), flags: vec!["discard".into(), "noatime".into()] };
        assert_eq!(shared_access(&capability, "ext4"), shared);
        assert!(is_read_only(&capability));
    }
}
