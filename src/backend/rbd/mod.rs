//! The RBD backend: volumes that are images of a Ceph cluster.

pub mod cli;
pub mod tool;
