//! The daemon is killed at every step that changes the disk or the kernel, one after the other, and at random
//! moments. Afterwards the same request gets the same answer, there is one object, and nothing is left over.
//!
//! Needs the feature `crash-points`: `packaging/cargo test --features crash-points --test crash`.

#![allow(clippy::disallowed_methods, reason = "the rules are the product's")]

#[path = "../support/mod.rs"]
mod support;

mod acts;
mod remote;
mod scene;
mod trial;

mod cephfs_controller;
mod controller;
mod node;
mod rbd_controller;
mod rbd_node;
mod rename;
mod start;
mod storm;
mod unstaged;
