//! The RBD backend: volumes that are images of a Ceph cluster.

pub mod node;
pub mod tool;
