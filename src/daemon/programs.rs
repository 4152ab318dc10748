//! How a daemon asks Ceph clusters.

use std::sync::Arc;

use crate::backend::ceph::{Programs, Session, session};
use crate::backend::rbd::tool::cli::CommandTool;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::exec::{Processes, Tool};
use crate::layout::Layout;

/// The programs, and the session that stands in for them where it is wanted.
///
/// # Errors
/// The lock of the session cannot be opened.
pub(super) fn programs(config: &Config, layout: &Layout, processes: &Arc<Processes>) -> Result<Programs> {
    let interpreter = session::interpreter(processes.path(Tool::Ceph));
    let times = (config.tool_timeout, config.session.then_some(config.session_idle));
    let session = Session::new((Arc::clone(processes), interpreter), &layout.session_lock(), times);
    let session =
        session.map_err(|error| Error::io("open the lock of the session with Ceph clusters", &error))?;
    Ok(Programs::new(Arc::clone(processes) as _, Some(Arc::new(session))))
}

/// RBD, asked by these programs.
pub(super) fn command_tool(config: &Config, layout: &Layout, programs: Programs) -> CommandTool {
    CommandTool::new(programs, config.tool_timeout, layout.promotions())
}
