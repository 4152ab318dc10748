//! The daemon from the outside, on this machine alone: the socket, the local backend, the command line, the
//! start and the end. Also the texts of the checkout about itself.
//!
//!     packaging/cargo test --test host volumes::

#![allow(clippy::disallowed_methods, reason = "the rules are the product's")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod broken;
mod cli;
mod clusters;
mod completion;
mod concurrency;
mod copies;
mod csi_v0;
mod csi_v0_beside_v1;
mod csi_v0_mesos;
mod csi_v0_node;
mod devices;
mod doctor;
mod door;
mod formats;
mod full_disk;
mod growth;
mod health;
mod impossible;
mod journals;
mod life;
mod lists;
mod manual;
mod metrics;
mod mount_flags;
mod mounts;
mod names;
mod node_name;
mod noise;
mod operator;
mod owners;
mod packages;
mod paths;
mod preallocated;
mod progress;
mod restarts;
mod safety;
mod secrecy;
mod systemd;
mod targets;
mod topology;
mod unstaged;
mod volumes;
mod wire;
