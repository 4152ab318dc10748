//! RBD and CephFS under failures: commands are killed at random moments, the cluster stands still, its
//! manager dies, the daemon's disk is full. Requests are refused in time and with a clear reason. When they
//! are repeated, they succeed and leave nothing over.

pub mod chain;
pub mod killer;

mod cephfs;
mod drills;
mod kills;
mod managers;
mod pauses;
mod replication;
mod sessions;
mod small_disk;
