//! The RBD backend: volumes that are images of a Ceph cluster.

#[cfg(test)]
pub mod fake;
pub mod tool;
