//! The options of a pool that are in force there.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::output::read;
use crate::backend::rbd::tool::{FEATURES, PoolOptions};
use crate::error::Result;

/// A row of `rbd config pool ls --format=json`
#[derive(Deserialize)]
struct OptionRow {
    name: String,
    value: String,
    #[serde(default)]
    source: String,
}

/// The options in the output of `rbd config pool ls`, which shows the value that holds in the pool and where
/// it comes from.
pub(super) fn parse(printed: &[u8]) -> Result<PoolOptions> {
    let rows: Vec<OptionRow> = read("rbd config pool ls", printed)?;
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
    Ok(options)
}

/// The features in a number, as Ceph prints the cluster's, or in names, as an operator may set the pool's.
fn features(value: &str) -> BTreeSet<String> {
    let names: Vec<&str> = value.split(',').map(str::trim).collect();
    let bits = value.trim().parse::<u64>().ok();
    let has = |(name, bit): &&(&str, u64)| bits.map_or_else(|| names.contains(name), |bits| bits & bit != 0);
    FEATURES.iter().filter(has).map(|(name, _)| (*name).to_string()).collect()
}
