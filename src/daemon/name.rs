//! The name of this node: remembered at a start, changed while no daemon runs.
//!
//! The two files of a renaming are written one after the other. A daemon does not start while they differ,
//! and the same command finishes what a crash interrupted.

use std::sync::Arc;

use super::try_lock_state;
use crate::backend::local;
use crate::config::{BackendName, Config};
use crate::error::{Error, Result};
use crate::ids::{self, VolumeId};
use crate::journal::{Journal, RealDisk, Table};
use crate::layout::Layout;
use crate::node_name::{LOCAL, NodeName};

/// Whether the state belongs to a node: local volumes and mounts do. A controller without the local backend
/// has neither, and may have another name at each start.
fn belongs_to_node(config: &Config) -> bool {
    config.services.node || config.wants(BackendName::Local).unwrap_or(true)
}

/// The name of this node, with the earlier ones.
pub(super) fn own_name(config: &Config, layout: &Layout) -> Result<NodeName> {
    let known = match belongs_to_node(config) {
        true => NodeName::recall(&layout.node_name(), &config.node_id)?,
        false => None,
    };
    Ok(known.unwrap_or_else(|| NodeName::new(&config.node_id)))
}

/// Makes the state directory remember the name. A start that is refused ends before this.
pub(super) fn remember_name(config: &Config, layout: &Layout, node: &NodeName) -> Result<()> {
    let path = layout.node_name();
    match belongs_to_node(config) && NodeName::read(&path)?.is_none() {
        true => node.write_if_room(&path),
        false => Ok(()),
    }
}

/// Makes the directories of this configuration remember a new name of this node; returns the former name.
///
/// # Errors
/// FAILED_PRECONDITION while a daemon runs, while volumes of Ceph clusters are in use here, and where no
/// directory remembers a name.
pub fn rename_node(config: &Config, new: &str) -> Result<String> {
    #[cfg(feature = "crash-points")]
    crate::sys::crash::arm(config.crash_at, &config.runtime_dir);
    ids::refuse_node(new).map_err(|wrong| Error::invalid(format!("node name {new:?}: {wrong}")))?;
    let layout = Layout::new(config);
    let Some(_lock) = try_lock_state(&layout)? else {
        return Err(Error::precondition(format!(
            "cephlet is running with the state directory {}: stop it, and rename the node then",
            layout.state_dir().display()
        )));
    };
    let has_local = config.wants(BackendName::Local).unwrap_or(true) && local::is_known(layout.local_dir());
    let in_local = if has_local { local::name_of_node(layout.local_dir())? } else { None };
    let in_state = NodeName::read(&layout.node_name())?;
    let Some(known) = in_state.as_ref().or(in_local.as_ref()) else {
        return Err(Error::precondition(format!(
            "{} does not exist, so there is no name to change: set CEPHLET_NODE_ID={new} and start cephlet; if \
             volumes were used here under another name, start it under that one first, stop it, and rename the \
             node then",
            layout.node_name().display()
        )));
    };
    refuse_remote_volumes(&layout, known.current(), new)?;
    if has_local {
        let names = in_local.as_ref().unwrap_or(known).renamed(new);
        local::write_name_of_node(layout.local_dir(), &names)?;
    }
    known.renamed(new).write(&layout.node_name())?;
    let old = [&in_state, &in_local].into_iter().flatten().map(NodeName::current).find(|name| *name != new);
    Ok(old.unwrap_or(new).to_string())
}

/// Refuses another name while volumes of Ceph clusters are in use here. The node must give them back under
/// the name under which it published them to itself or recorded itself on their images.
fn refuse_remote_volumes(layout: &Layout, known: &str, new: &str) -> Result<()> {
    if known == new || !layout.state_dir().is_dir() {
        return Ok(());
    }
    let disk = RealDisk::open(layout.state_dir())?;
    let journal = Journal::open(Arc::new(disk), |error| log::error!("{error}"))?;
    let is_remote = |key: &String| VolumeId::parse(key).is_none_or(|id| id.place.backend != LOCAL);
    let keys = journal.entries(Table::Volumes).into_iter().map(|(key, _)| key);
    let remote: Vec<String> = keys.filter(is_remote).collect();
    if remote.is_empty() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "volumes of Ceph clusters are in use on this node, and are known there as published to {known:?}: {}; \
         start cephlet as {known:?}, unpublish and unstage them, stop it, and rename the node then",
        remote.join(", ")
    )))
}
