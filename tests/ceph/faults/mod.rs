//! RBD where everything fails: its commands are killed at random moments, its cluster stands still, the
//! daemon's disk is full. Requests are refused in time and clearly, and when they are repeated everything is
//! as it should be and nothing is left over.

pub mod chain;
pub mod killer;

mod kills;
mod pauses;
mod replication;
mod small_disk;
