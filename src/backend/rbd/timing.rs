//! Every pause and grace of this backend, and why it is as long as it is.

use std::time::Duration;

/// How long to wait for each thing in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// Between two looks at something that another process ends soon.
    pub poll: Duration,
    /// A name without an image, or a second name of one, belongs for so long to whoever may be making or
    /// renaming it. Far longer than that takes; then it is what a killed command left.
    pub orphan_name_grace: Duration,
    /// An image that is older than this and has no record never gets one from whoever made it: a new one has
    /// it from birth.
    pub record_grace: Duration,
    /// So long another controller's claim of a volume's name is watched before it counts as dead. Far longer
    /// than it takes until a volume is there once its name is claimed.
    pub claim_grace: Duration,
    /// The same for a snapshot, which may have to wait half a minute for a client that died.
    pub snapshot_claim_grace: Duration,
    /// A client that was killed counts as a watcher for up to 30 s.
    pub dead_client: Duration,
    /// Between two looks whether such a client is forgotten.
    pub dead_client_poll: Duration,
    /// A client that was cut off registers its watch again within a minute, where it may. One that has not
    /// for so long never will.
    pub lost_watch: Duration,
    /// Without the tools nobody can be asked whether a volume is still published: a map is begun only so soon
    /// after it was asked for that the volume was hardly given to another node meanwhile.
    pub blind_map: Duration,
    /// A command that reads or changes an image has it open for less than this; a client that is seen for
    /// longer uses it.
    pub command_watches: Duration,
    /// So long a deletion by another controller is waited for.
    pub deletion_wait: Duration,
    /// What may pass between taking the deletion lock and asking for the removal.
    pub deletion_decision: Duration,
    /// So long a removal is asked for again of an image that clients have open: they may be dead, and be
    /// forgotten one after the other.
    pub removal_repeats: Duration,
    /// Between two of these.
    pub removal_pause: Duration,
    /// From the removal of a clone to the look at its parent: other clones may go meanwhile.
    pub parent_check: Duration,
    /// Between two looks for what was left over.
    pub sweep_interval: Duration,
    /// A copy of another controller that is older than this is not being made any more.
    pub abandoned_copy: Duration,
    /// So long a mirrored copy is waited for that is being made and goes on no further, while the other site
    /// is up.
    pub copy_goes_on: Duration,
    /// The same while the other site gives no sign of life: what is known of it is up to half a minute old.
    pub copy_stands_still: Duration,
    /// Between two looks at such a copy.
    pub copy_look: Duration,
    /// A command that changes the role of an image has ended within this, and its watch if it was killed.
    pub role_change: Duration,
    /// So long a count of parents is believed: it gets less when somebody flattens one of them.
    pub parent_count_valid: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        Self {
            poll: millis(500),
            orphan_name_grace: seconds(3),
            record_grace: seconds(10),
            claim_grace: seconds(10),
            snapshot_claim_grace: seconds(60),
            dead_client: seconds(35),
            dead_client_poll: seconds(2),
            lost_watch: seconds(5 * 60),
            blind_map: seconds(30),
            command_watches: millis(1400),
            deletion_wait: seconds(5),
            deletion_decision: seconds(60),
            removal_repeats: seconds(40),
            removal_pause: seconds(5),
            parent_check: seconds(5),
            sweep_interval: seconds(60 * 60),
            abandoned_copy: seconds(24 * 60 * 60),
            parent_count_valid: seconds(60 * 60),
            copy_goes_on: seconds(60),
            copy_stands_still: seconds(40),
            copy_look: seconds(2),
            role_change: seconds(40),
        }
    }
}

/// How long to wait for each thing on this node.
#[derive(Clone, Debug)]
pub(crate) struct NodeTiming {
    /// A command of an earlier daemon that is mapping an image ends soon where its cluster answers.
    pub earlier_map: Duration,
    /// rbd-nbd hears of a new size from the cluster, asks for it and passes it to the kernel.
    pub growth: Duration,
    /// Between two looks at one of these: neither can be waited for.
    pub poll: Duration,
}

impl Default for NodeTiming {
    fn default() -> Self {
        Self {
            earlier_map: Duration::from_secs(10),
            growth: Duration::from_secs(10),
            poll: Duration::from_millis(200),
        }
    }
}
