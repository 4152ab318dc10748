//! What a command works with.

use crate::cli::plugin::Plugin;
use crate::cli::publications::Publications;

/// The daemon, and what this command line has published.
pub struct Session<'a> {
    /// The daemon.
    pub plugin: &'a dyn Plugin,
    /// What this command line has published on this node.
    pub publications: Publications,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session with {:?}", self.publications)
    }
}
