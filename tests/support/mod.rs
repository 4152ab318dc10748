//! The common parts of the black-box tests: a daemon of their own, clients for its socket, requests with
//! sensible defaults, and file systems on loop files. Every test has its own daemon and directory, so that
//! tests run side by side.

#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of this")]

use std::time::Duration;

pub mod addons;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod corner;
pub mod daemon;
pub mod dice;
pub mod group;
pub mod log;
pub mod machine;
pub mod manual;
pub mod notify;
pub mod place;
pub mod raw;
pub mod requests;
pub mod scratch;
pub mod session;
pub mod shape;
pub mod sites;
pub mod stub;
pub mod v0;
pub mod v0_controller;
pub mod volume;

pub use client::{Client, Failure, refused};
pub use cluster::{Cluster, cluster};
pub use corner::{Corner, await_that, object_of};
pub use daemon::{Daemon, Setup, binary};
pub use group::Group;
pub use grpcio::RpcStatusCode as Code;
pub use place::Place;
pub use scratch::Scratch;
pub use volume::TestVolume;

/// One mebibyte, in bytes.
pub const MIB: i64 = 1 << 20;

/// Whether everything is tried (TESTS=full), not only a sample of the long tests.
pub fn is_full() -> bool {
    std::env::var("TESTS").is_ok_and(|which| which == "full")
}

/// The deadline of a call, which only a hang reaches: machines differ, and have other things to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The same for background work, in which a failed job may be tried again a minute later.
pub const LONG_PATIENCE: Duration = Duration::from_secs(600);
