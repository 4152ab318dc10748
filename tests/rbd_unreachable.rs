//! A cluster that is not there is told as such.

mod support;

#[path = "ceph/unreachable.rs"]
mod unreachable;
