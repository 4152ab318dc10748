//! cephlet: a small synchronous CSI plugin daemon.
//!
//! Layers, each knowing only what stands to its right: `grpc → volume → { backend, journal, locks } → { exec,
//! sys }`.

pub mod backend;
pub mod call;
pub mod cli;
pub mod clock;
pub mod clusters;
pub mod config;
pub mod csi;
pub mod daemon;
pub mod error;
pub mod exec;
pub mod grpc;
pub mod ids;
pub mod jobs;
pub mod journal;
pub mod kernel;
pub mod layout;
pub mod locks;
pub mod logging;
pub mod notify;
pub mod secrets;
pub mod signals;
pub mod spelling;
pub mod sys;
pub mod volume;
pub mod workers;
