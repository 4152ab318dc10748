//! Deleted volumes that clones still read from.

mod support;

#[path = "ceph/parents.rs"]
mod parents;
