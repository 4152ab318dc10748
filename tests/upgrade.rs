//! What earlier versions left is understood, on the disk and in a cluster.

mod support;

#[path = "ceph/upgrade.rs"]
mod of_cluster;
#[path = "host/upgrade.rs"]
mod of_disk;
