//! cephlet: a small synchronous CSI plugin daemon.
//!
//! Layers, each knowing only what stands to its right:
//! `grpc → volume → { backend, journal } → { kernel, exec, sys }`. All but `journal` and `sys` know
//! `dispatch`.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start tools and sync what they make"))]

mod at_boot;
mod backend;
mod base64;
mod cli;
mod clock;
mod clusters;
mod config;
mod csi;
mod daemon;
mod dispatch;
mod error;
mod exec;
mod files;
mod grpc;
mod ids;
mod jobs;
mod journal;
mod kernel;
mod layout;
mod logging;
mod metrics;
mod node_name;
mod notify;
mod secrets;
mod signals;
mod spelling;
mod sys;
mod topology;
mod volume;

#[cfg(test)]
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

// The program.
pub use cli::run;
pub use exec::{GUARD_ARGUMENT, HELPER_ARGUMENT, become_tool, serve};
pub use kernel::{admit, handle};

// For tests, beside the socket. Nothing else is public, so that the compiler finds unused code.
pub use backend::cephfs::PARAMETERS as CEPHFS_PARAMETERS;
pub use backend::rbd::{LIMITS, PARAMETERS};
pub use config::{Config, Role, VARIABLES};
pub use grpc::proto;
pub use ids::MAX_NODE;
pub use journal::{Change, Journal, RealDisk, Table};
