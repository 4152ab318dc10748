//! Daemons on the shared cluster outside of a corner. A daemon sweeps all that it may use, so these may use
//! no namespace that is another test's.

use std::fs;
use std::sync::Arc;

use crate::support::corner::entry;
use crate::support::{Scratch, Setup, cluster};

/// The setup of a daemon that is this user, of cluster `ceph`, with these pools and namespaces.
pub fn setup(user: &str, pools: &[&str], namespaces: &[&str]) -> Setup {
    let scratch = Arc::new(Scratch::new());
    let file = scratch.path("clusters.toml");
    let entry = entry("ceph", cluster(), user);
    fs::write(&file, format!("{entry}pools = {pools:?}\nnamespaces = {namespaces:?}\n"))
        .expect("write the file");
    Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "rbd")
}
