//! csi-addons: rpcs for orchestrators beyond CSI, on the same socket.

mod fence;
mod identity;
mod replication;
