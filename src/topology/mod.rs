//! Where nodes and pools are: domains, and the segments by which an orchestrator knows them.
//!
//! A domain is a label with a value: `zone=eu-1`. The orchestrator sees it as a segment of a topology, whose
//! key begins with the plugin's name: `org.cephlet.csi/zone` = `eu-1`. A node that takes over another domain
//! has a separate key for it, `org.cephlet.csi/takes.zone.eu-2` = `true`: a map of segments has one value for
//! each key, and the node stays in its own domain.

mod domain;
mod domains;
mod labels;
mod node;
mod takeover;

pub use self::domain::{Domain, NODE_LABEL, TAKEN, segment_key};
pub use self::domains::Domains;
pub use self::labels::Labels;
pub use self::node::NodeTopology;
pub use self::takeover::Takeover;
