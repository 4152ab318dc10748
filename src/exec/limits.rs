//! The limits of processes.

use std::time::Duration;

/// How many processes run at once, how long they may take and how much they may write.
#[derive(Clone, Debug)]
pub struct ProcessLimits {
    /// Tools at once in a bulkhead (CEPHLET_TOOLS).
    pub tools: usize,
    /// Helpers at once in a bulkhead.
    pub helpers: usize,
    /// How many processes of a bulkhead must hang in the kernel for it to start no other.
    pub stuck: usize,
    /// Deadline of [`Class::Question`](super::Class::Question).
    pub question: Duration,
    /// Deadline of [`Class::Listing`](super::Class::Listing).
    pub listing: Duration,
    /// Deadline of [`Class::Change`](super::Class::Change) (CEPHLET_TOOL_TIMEOUT).
    pub change: Duration,
    /// From TERM to KILL.
    pub grace: Duration,
    /// From KILL until the process is given to the reaper.
    pub last_wait: Duration,
    /// Bytes of stdout.
    pub stdout: usize,
}

impl ProcessLimits {
    /// The limits of a daemon that runs `tools` tools at once and gives a change `change`.
    pub fn new(tools: usize, change: Duration) -> Self {
        let seconds = Duration::from_secs;
        let (question, listing, grace, last_wait) = (seconds(30), seconds(600), seconds(2), seconds(2));
        Self { tools, helpers: 32, stuck: 256, question, listing, change, grace, last_wait, stdout: 16 << 20 }
    }
}
