//! csi-addons: what orchestrators may ask beyond CSI, on the same socket.

pub mod fence;
pub mod identity;
pub mod replication;
