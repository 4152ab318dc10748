//! The locks by which a volume is published: to which node, and how it will be used there. They are on the
//! object that a volume has in its cluster: the header of its image, or an object named after its subvolume.
//!
//! The cluster grants the lock only to holders with the same tag. The tag is the mode; for a single node, it
//! also names the node and the use. So a single-node volume is held by one node and in one way, but every
//! controller with that same request can hold it, and a repeated request always succeeds.
//!
//! A description reads `{"publication":{"access":"mount:ext4","by":"controller","mode":"SingleNodeWriter",
//! "nonce":"0123456789abcdef","read_only":false,"stage":"given"},"version":1}`. Its words are defined here
//! and, for `by`, with [`PublishedBy`]; they never change.

pub(crate) mod deletion;
pub(crate) mod request;

use serde::{Deserialize, Serialize};

use super::locks::{LockHolder, LockRequest, describe};
use crate::backend::{self, PublishedBy};
use crate::csi::{Access, Mode};
use crate::error::{Error, Result};
use crate::ids;

/// The kind of these locks.
const KIND: &str = "publication";

/// How many seconds a lock lasts that is held only while its publication is checked: longer than the check
/// takes, and no longer than others can wait for a lock holder that died.
pub(crate) const WHILE_ASKING: u64 = 60;

/// The words of the modes.
mod words {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::csi::Mode;

    pub(super) fn of(mode: Mode) -> &'static str {
        match mode {
            Mode::SingleNodeWriter => "SingleNodeWriter",
            Mode::SingleNodeReaderOnly => "SingleNodeReaderOnly",
            Mode::MultiNodeReaderOnly => "MultiNodeReaderOnly",
            Mode::MultiNodeSingleWriter => "MultiNodeSingleWriter",
            Mode::MultiNodeMultiWriter => "MultiNodeMultiWriter",
            Mode::SingleNodeSingleWriter => "SingleNodeSingleWriter",
            Mode::SingleNodeMultiWriter => "SingleNodeMultiWriter",
        }
    }

    pub(super) fn serialize<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(of(*mode))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
        let word = String::deserialize(from)?;
        let found = (1..).map_while(Mode::from_number).find(|mode| of(*mode) == word);
        found.ok_or_else(|| D::Error::custom("it is no mode"))
    }
}

/// How far a publication is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The lock keeps others away while its holder checks whether the volume can be published.
    Asking,
    /// The volume is published.
    Given,
}

/// A volume published to a node, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodePublication {
    /// The cookie of the lock.
    #[serde(skip)]
    pub node: String,
    #[serde(with = "words")]
    pub mode: Mode,
    pub read_only: bool,
    /// `block`, or `mount:` with the file system.
    #[serde(default)]
    access: String,
    pub by: PublishedBy,
    /// Tells it from earlier and later publications of the same volume to the same node.
    #[serde(default)]
    pub nonce: String,
}

/// A lock that stands for a publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublicationLock {
    #[serde(flatten)]
    pub publication: NodePublication,
    pub stage: Stage,
}

impl NodePublication {
    /// The requested publication. Mount flags are no part of it: the specification counts them as sensitive,
    /// and they do not matter to other nodes.
    pub fn new(publication: &backend::Publication, by: PublishedBy) -> Self {
        let backend::Publication { node, capability, read_only } = publication;
        let access = match &capability.access {
            Access::Block => "block".to_string(),
            Access::Mount { fs_type, .. } => format!("mount:{}", ids::encode(fs_type)),
        };
        let read_only = *read_only || capability.mode.is_read_only();
        Self { node: node.clone(), mode: capability.mode, read_only, access, by, nonce: String::new() }
    }

    /// Whether this node writes and relies on being the only writer.
    pub fn is_single_writer(&self) -> bool {
        !self.read_only && (!self.mode.is_multi_node() || self.mode == Mode::MultiNodeSingleWriter)
    }

    /// The request for the lock of this publication.
    pub fn request(&self, stage: Stage) -> LockRequest {
        let Self { node, access, .. } = self;
        let mode = words::of(self.mode);
        let seconds = match stage {
            Stage::Asking => Some(WHILE_ASKING),
            Stage::Given => None,
        };
        let tag = match self.mode.is_multi_node() {
            true => mode.to_string(),
            false => format!("{node} {mode} {} {access}", if self.read_only { "ro" } else { "rw" }),
        };
        let description = describe(KIND, &PublicationLock { publication: self.clone(), stage });
        LockRequest { cookie: node.clone(), description, shared: Some(tag), seconds }
    }

    /// How `wanted`, for the same node, differs; None if it is the same. The publisher does not matter.
    fn difference(&self, wanted: &Self) -> Option<String> {
        let Self { mode, access, .. } = self;
        if *mode != wanted.mode {
            return Some(format!("for {mode:?}, not {:?}", wanted.mode));
        }
        if self.read_only != wanted.read_only {
            return Some(
                if self.read_only { "read-only" } else { "for reading and writing, not read-only" }
                    .to_string(),
            );
        }
        (*access != wanted.access).then(|| format!("as {access:?}, not as {:?}", wanted.access))
    }

    /// Why `wanted`, for another node, conflicts with this one, if it does.
    fn conflict(&self, wanted: &Self) -> Option<String> {
        if !self.mode.is_multi_node() || self.mode != wanted.mode {
            return Some(format!("for {:?}", self.mode));
        }
        (self.is_single_writer() && wanted.is_single_writer())
            .then(|| format!("for writing ({:?})", self.mode))
    }
}

impl PublicationLock {
    /// The publication that a lock describes; None for a lock of another kind.
    ///
    /// # Errors
    /// Precondition: a later cephlet has taken it.
    pub fn read(holder: &LockHolder) -> Result<Option<Self>> {
        let lock = holder.says::<Self>(KIND)?;
        Ok(lock.map(|Self { publication, stage }| {
            let node = holder.cookie.clone();
            Self { publication: NodePublication { node, ..publication }, stage }
        }))
    }

    /// The publications that the locks describe.
    ///
    /// # Errors
    /// As those of [`PublicationLock::read`].
    pub fn read_all(holders: &[LockHolder]) -> Result<Vec<Self>> {
        holders.iter().filter_map(|holder| Self::read(holder).transpose()).collect()
    }

    /// Refuses `wanted` if it differs from this publication or conflicts with it.
    ///
    /// # Errors
    /// The answer to ControllerPublishVolume, without the volume's name in front.
    pub fn admit(&self, wanted: &NodePublication) -> Result<()> {
        let mine = &self.publication;
        let same_node = mine.node == wanted.node;
        let objection = if same_node { mine.difference(wanted) } else { mine.conflict(wanted) };
        let (node, Some(objection)) = (&mine.node, objection) else { return Ok(()) };
        Err(match (self.stage, same_node) {
            (Stage::Asking, _) => Error::unavailable(format!(
                "is being published to node {node:?} {objection} at this moment: try again"
            )),
            (Stage::Given, true) => Error::already_exists(format!(
                "is published to node {node:?} already, {objection}: unpublish it there first"
            )),
            (Stage::Given, false) => Error::precondition(format!(
                "is published to node {node:?} {objection}: unpublish it there first"
            )),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::csi::Capability;

    fn publication(mode: Mode, read_only: bool, access: Access, by: PublishedBy) -> NodePublication {
        let capability = Capability { access, mode };
        NodePublication::new(&backend::Publication { node: "node-1".into(), capability, read_only }, by)
    }

    fn holder(request: LockRequest) -> LockHolder {
        let LockRequest { cookie, description, shared, .. } = request;
        LockHolder { cookie, description, shared, client: "client.7".into(), address: "10.0.0.7:0/7".into() }
    }

    fn described(stage: &str, mode: &str, read_only: bool, rest: [&str; 3]) -> String {
        let [access, by, nonce] = rest;
        format!(
            r#"{{"publication":{{"access":"{access}","by":"{by}","mode":"{mode}","nonce":"{nonce}","read_only":{read_only},"stage":"{stage}"}},"version":1}}"#
        )
    }

    #[test]
    fn the_words_of_the_modes_never_change() {
        let words = [
            (1, "SingleNodeWriter", "rw", "node-1 SingleNodeWriter rw block"),
            (2, "SingleNodeReaderOnly", "ro", "node-1 SingleNodeReaderOnly ro block"),
            (3, "MultiNodeReaderOnly", "ro", "MultiNodeReaderOnly"),
            (4, "MultiNodeSingleWriter", "rw", "MultiNodeSingleWriter"),
            (5, "MultiNodeMultiWriter", "rw", "MultiNodeMultiWriter"),
            (6, "SingleNodeSingleWriter", "rw", "node-1 SingleNodeSingleWriter rw block"),
            (7, "SingleNodeMultiWriter", "rw", "node-1 SingleNodeMultiWriter rw block"),
        ];
        for (number, word, writing, tag) in words {
            let mode = Mode::from_number(number).unwrap();
            let wanted = publication(mode, false, Access::Block, PublishedBy::Controller);
            let request = wanted.request(Stage::Given);
            assert_eq!(request.cookie, "node-1");
            let rest = ["block", "controller", ""];
            assert_eq!(request.description, described("given", word, writing == "ro", rest));
            assert_eq!(request.shared.as_deref(), Some(tag));
            let expected = PublicationLock { publication: wanted, stage: Stage::Given };
            assert_eq!(PublicationLock::read(&holder(request)).unwrap(), Some(expected));
        }
        assert_eq!(Mode::from_number(8), None, "a mode of its own needs a word of its own");
    }

    #[test]
    fn publications_to_the_same_node_are_told_apart() {
        let wanted = NodePublication {
            nonce: "0123456789abcdef".into(),
            ..publication(Mode::SingleNodeWriter, false, Access::Block, PublishedBy::Controller)
        };
        let request = wanted.request(Stage::Given);
        let rest = ["block", "controller", "0123456789abcdef"];
        assert_eq!(request.description, described("given", "SingleNodeWriter", false, rest));
        assert_eq!(
            request.shared.as_deref(),
            Some("node-1 SingleNodeWriter rw block"),
            "it keeps nobody out"
        );
        let expected = PublicationLock { publication: wanted, stage: Stage::Given };
        assert_eq!(PublicationLock::read(&holder(request)).unwrap(), Some(expected));
    }

    #[test]
    fn all_that_is_said_is_read_again() {
        let access = Access::Mount { fs_type: "ext4".into(), flags: Vec::new() };
        let wanted = publication(Mode::SingleNodeWriter, true, access, PublishedBy::Node);
        let request = wanted.request(Stage::Asking);
        let rest = ["mount:ext4", "node", ""];
        assert_eq!(request.description, described("asking", "SingleNodeWriter", true, rest));
        assert_eq!(request.seconds, Some(60));
        let expected = PublicationLock { publication: wanted, stage: Stage::Asking };
        assert_eq!(PublicationLock::read(&holder(request)).unwrap(), Some(expected));
    }

    #[test]
    fn other_locks_say_nothing_of_a_node() {
        let unknown = described("given", "Some", false, ["block", "node", ""]);
        let deletion = describe("deletion", &serde_json::json!({ "controller": "0000aaaa" }));
        for description in ["", &deletion, &unknown, "x"] {
            let request = publication(Mode::SingleNodeWriter, false, Access::Block, PublishedBy::Node)
                .request(Stage::Given);
            let other = LockHolder { description: description.into(), ..holder(request) };
            assert_eq!(PublicationLock::read(&other).unwrap(), None, "{description:?}");
        }
    }
}
