//! The options of a pool that are in force there.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::PoolCommands;
use super::answer::lacks_pool;
use super::output::read;
use crate::backend::ceph::objects::Rados;
use crate::backend::rbd::tool::PoolOptions;
use crate::error::Result;
use crate::exec::{Class, Tool};

/// Features that a new image can be asked for, each with its bit (`RBD_FEATURE_…`, librbd/features.h). The
/// others follow from the layout.
const FEATURES: [(&str, u64); 6] = [
    ("layering", 1 << 0),
    ("exclusive-lock", 1 << 2),
    ("object-map", 1 << 3),
    ("fast-diff", 1 << 4),
    ("deep-flatten", 1 << 5),
    ("journaling", 1 << 6),
];

/// A row of `rbd config pool ls --format=json`
#[derive(Deserialize)]
struct OptionRow {
    name: String,
    value: String,
    #[serde(default)]
    source: String,
}

/// `rbd config pool ls`, which shows the value that holds in the pool and where it comes from. A namespace
/// has the options of its pool.
pub(super) fn pool_options(cli: &PoolCommands<'_>) -> Result<Option<PoolOptions>> {
    let pool = &cli.at.pool;
    let words = ["config", "pool", "ls", "--format=json", pool];
    match cli.run(cli.at.access.osd_command(Tool::Rbd, Class::Question).args(words)) {
        Ok(output) => Ok(Some(options(read("rbd config pool ls", &output.stdout)?))),
        Err(failure) if lacks_pool(&failure) => Ok(None),
        Err(failure) => Err(cli.error(failure, &format!("read the options of pool {pool}"))),
    }
}

fn options(rows: Vec<OptionRow>) -> PoolOptions {
    let mut options = PoolOptions::default();
    for OptionRow { name, value, source } in rows {
        match name.as_str() {
            "rbd_default_features" => options.features = features(&value),
            "rbd_default_data_pool" => options.data_pool = Some(value).filter(|pool| !pool.is_empty()),
            // The command line overrides the cluster's option, but not the pool's.
            "rbd_move_to_trash_on_remove" => options.trashes_removed = source == "pool" && value == "true",
            _ => {}
        }
    }
    options
}

/// The features in a number, as Ceph prints the cluster's, or in names, as an operator may set the pool's.
fn features(value: &str) -> BTreeSet<String> {
    let names: Vec<&str> = value.split(',').map(str::trim).collect();
    let bits = value.trim().parse::<u64>().ok();
    let has = |(name, bit): &&(&str, u64)| bits.map_or_else(|| names.contains(name), |bits| bits & bit != 0);
    FEATURES.iter().filter(has).map(|(name, _)| (*name).to_string()).collect()
}
