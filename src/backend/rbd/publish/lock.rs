//! What a lock on the header of an image says: which node the volume is given to, and how it will be used
//! there.
//!
//! | | of the lock |
//! |---|---|
//! | node | cookie |
//! | mode, read-only, block device or file system, taken by whom, firm or for the time being | description |
//! | what others must say as well to hold it too | tag: the mode, or for one node alone the node and everything else |
//!
//! The cluster lets in only who says the same tag. So a volume for one node alone is held by one node and in
//! one way, but by every controller that is asked for just that; and what is asked for twice needs no luck to
//! be given twice.

use crate::backend::Publication;
use crate::csi::{Access, Mode};
use crate::error::{Error, Result};
use crate::ids;

use crate::backend::rbd::tool::{Hold, Holder};

/// So long a lock is held for the time being, in seconds: longer than the questions that are asked meanwhile
/// take, and no longer than others can wait for one who died.
const WHILE_ASKING: u64 = 60;

/// Who gave the volume to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A controller.
    Controller,
    /// The node itself, staged by an orchestrator that skips the controller.
    Node,
}

/// Whether it was given for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody keeps others away while he asks whether it can be given.
    Asking,
    /// It is given.
    Given,
}

/// A volume given to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub node: String,
    pub mode: Mode,
    pub read_only: bool,
    /// `block`, or `mount:` with the file system.
    access: String,
    pub by: By,
    pub stage: Stage,
}

/// Every mode there is.
fn modes() -> impl Iterator<Item = Mode> {
    (1..=7).filter_map(Mode::from_number)
}

impl Grant {
    /// What is asked for. Mount flags are no part of it: the specification counts them as sensitive, and they
    /// do not matter to others.
    pub fn new(publication: &Publication, by: By) -> Self {
        let Publication { node, capability, read_only } = publication;
        let access = match &capability.access {
            Access::Block => "block".to_string(),
            Access::Mount { fs_type, .. } => format!("mount:{}", ids::encode(fs_type)),
        };
        let read_only = *read_only || capability.mode.is_read_only();
        Self { node: node.clone(), mode: capability.mode, read_only, access, by, stage: Stage::Given }
    }

    /// Whether no other node may have the volume at the same time.
    fn is_alone(&self) -> bool {
        !self.mode.is_multi_node()
    }

    /// Whether this one writes and relies on nobody else doing so.
    pub fn is_single_writer(&self) -> bool {
        !self.read_only && (self.is_alone() || self.mode == Mode::MultiNodeSingleWriter)
    }

    fn writing(&self) -> &'static str {
        if self.read_only { "ro" } else { "rw" }
    }

    /// The lock that says it.
    pub fn hold(&self, stage: Stage) -> Hold {
        let Self { node, mode, access, .. } = self;
        let (word, seconds) = match stage {
            Stage::Asking => ("asking", Some(WHILE_ASKING)),
            Stage::Given => ("given", None),
        };
        let by = match self.by {
            By::Controller => "controller",
            By::Node => "node",
        };
        let tag = if self.is_alone() {
            format!("{node} {mode:?} {} {access}", self.writing())
        } else {
            format!("{mode:?}")
        };
        let description = format!("{word} {mode:?} {} {access} by {by}", self.writing());
        Hold { cookie: node.clone(), description, shared: Some(tag), seconds }
    }

    /// What a lock says; None for one that is not about a node.
    pub fn of(holder: &Holder) -> Option<Self> {
        let fields: Vec<&str> = holder.description.split(' ').collect();
        let [word, mode, writing, access, "by", by] = fields.as_slice() else { return None };
        let stage = match *word {
            "asking" => Stage::Asking,
            "given" => Stage::Given,
            _ => return None,
        };
        let mode = modes().find(|it| format!("{it:?}") == *mode)?;
        let by = if *by == "node" { By::Node } else { By::Controller };
        let (node, access) = (holder.cookie.clone(), (*access).to_string());
        Some(Self { node, mode, read_only: *writing == "ro", access, by, stage })
    }

    /// What `wanted` for the same node asks otherwise; None if it is the same, whoever gave it.
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

    /// Why `wanted` cannot be had beside this one on another node, if so.
    fn conflict(&self, wanted: &Self) -> Option<String> {
        if self.is_alone() || self.mode != wanted.mode {
            return Some(format!("for {:?}", self.mode));
        }
        (self.is_single_writer() && wanted.is_single_writer())
            .then(|| format!("for writing ({:?})", self.mode))
    }

    /// Whether this grant lets `wanted` be given as well.
    ///
    /// # Errors
    /// What the caller of ControllerPublishVolume is to hear, after the volume's name.
    pub fn admit(&self, wanted: &Self) -> Result<()> {
        let same_node = self.node == wanted.node;
        let objection = if same_node { self.difference(wanted) } else { self.conflict(wanted) };
        let (node, Some(objection)) = (&self.node, objection) else { return Ok(()) };
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
