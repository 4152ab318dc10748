//! The node itself, without a daemon.

use crate::cli::failure::CliResult;
use crate::cli::settings;
use crate::cli::syntax::{Action, Command, Given};
use crate::config::Role;
use crate::daemon;

/// `cephlet node rename`.
pub const RENAME: Command = Command {
    name: "node rename",
    about: "give this node another name, while the daemon is stopped",
    words: &["NAME"],
    options: &[],
    notes: &["Run it with the daemon's environment. It changes the file `node` in CEPHLET_STATE_DIR and in
CEPHLET_LOCAL_DIR; start the daemon with CEPHLET_NODE_ID=NAME then. IDs with an earlier name mean the
same volumes. It may be repeated. It is refused while volumes of Ceph clusters are in use on this node."],
    json: "",
    action: Action::Do(rename),
};

/// Gives this node another name; returns the text to print.
fn rename(given: &Given) -> CliResult<String> {
    let new = given.word(0);
    let old = daemon::rename_node(&settings::load(Role::Client)?, new)?;
    Ok(format!("renamed from {old:?} to {new:?}; set CEPHLET_NODE_ID={new} and start cephlet\n"))
}
