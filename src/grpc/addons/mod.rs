//! csi-addons: rpcs for orchestrators beyond CSI, on the same socket.

pub mod fence;
pub mod identity;
pub mod replication;
