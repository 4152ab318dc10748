//! Every pause and grace of this backend, and the reason for its length.

use std::time::Duration;

/// How long to wait for each thing in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// The pause between two looks at something that another process ends soon.
    pub poll: Duration,
    /// For this long, a name without an image, or an image's second name, belongs to a controller that may be
    /// making or renaming the image. Both take far less. Afterwards the name is what a killed command left.
    pub orphan_name_grace: Duration,
    /// The maker of an image that is older than this and has no record never writes one: cephlet's images
    /// have it from the start.
    pub record_grace: Duration,
    /// How long another controller's claim of a volume's name is watched before it counts as dead. From a
    /// claim to the volume takes far less.
    pub claim_grace: Duration,
    /// The same for a snapshot, which may have to wait half a minute for a client that died.
    pub snapshot_claim_grace: Duration,
    /// A client that was killed counts as a watcher for up to 30 s.
    pub dead_client: Duration,
    /// The pause between two looks whether the cluster has forgotten such a client.
    pub dead_client_poll: Duration,
    /// A client that was cut off registers its watch again within a minute, if the cluster lets it. A client
    /// without a watch for this long never does.
    pub lost_watch: Duration,
    /// Without Ceph's tools a node cannot check that a volume is still published. It begins a map only this
    /// soon after the request, so the volume was hardly published to another node meanwhile.
    pub blind_map: Duration,
    /// A command that reads or changes an image has it open for less than this; a client that is seen for
    /// longer is a user.
    pub command_watches: Duration,
    /// How long to wait for a deletion by another controller.
    pub deletion_wait: Duration,
    /// The longest time between taking the deletion lock and starting the removal.
    pub deletion_decision: Duration,
    /// How long to repeat the removal of an image that clients have open. They may be dead, and the cluster
    /// forgets one after the other.
    pub removal_repeats: Duration,
    /// The pause between two such attempts.
    pub removal_pause: Duration,
    /// From the removal of a clone to the look at its parent: other clones may be removed meanwhile.
    pub parent_check: Duration,
    /// The pause between two searches for leftovers.
    pub sweep_interval: Duration,
    /// Another controller's copy that is older than this counts as abandoned.
    pub abandoned_copy: Duration,
    /// How long to wait for a mirrored copy in progress that does not advance, while the other site is up.
    pub copy_goes_on: Duration,
    /// The same while the other site gives no sign of life. Its status is up to half a minute old.
    pub copy_stands_still: Duration,
    /// The pause between two looks at such a copy.
    pub copy_look: Duration,
    /// Within this time a command that changes an image's role has ended, or, if it was killed, its watch.
    pub role_change: Duration,
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
    /// For an earlier daemon's command that is mapping an image: it ends soon if its cluster answers.
    pub earlier_map: Duration,
    /// For rbd-nbd to hear of a new size from the cluster, to ask for it and to pass it to the kernel.
    pub growth: Duration,
    /// The pause between two looks at either: no event announces them.
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
