//! The daemon on a real Ceph cluster: the one in CLUSTER_DIR, or one that is started for these tests.
//!
//!     packaging/cargo test --test ceph -- --skip node:: --skip bare:: --skip systemd:: --skip containers::
//!
//! `node`, `bare`, `systemd` and `containers` use the kernel's drivers and run in the VM of `tests/vm/run`;
//! elsewhere each of their tests fails.

#![allow(clippy::disallowed_methods, reason = "the rules are the product's")]

#[path = "../support/mod.rs"]
mod support;

mod bare;
mod cephfs;
mod cephfs_clients;
mod cephfs_refusals;
mod cephfs_shares;
mod cephfs_v0;
mod cluster;
mod clusters;
mod containers;
mod controllers;
mod copies;
mod dead_daemon;
mod doctor;
mod faults;
mod fences;
mod half_made;
mod impossible;
mod lists;
mod manual;
mod names;
mod node;
mod options;
mod parents;
mod processes;
mod progress;
mod publish;
mod refusals;
mod removed_pools;
mod replication;
mod secrecy;
mod session;
mod shared;
mod systemd;
mod topology;
mod trash;
mod unreachable;
mod v0;
mod volumes;
