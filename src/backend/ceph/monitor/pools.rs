//! The pools of a cluster.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{MonitorClient, question};
use crate::backend::ceph::read;
use crate::error::Result;
use crate::exec::Class;

/// A pool as the cluster lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPool {
    /// Its name.
    pub name: String,
    /// Its labels for an application (`ceph osd pool application set`).
    pub labels: BTreeMap<String, String>,
}

/// A row of `ceph osd pool ls detail --format=json`
#[derive(Deserialize)]
struct Row {
    pool_name: String,
    #[serde(default)]
    application_metadata: BTreeMap<String, BTreeMap<String, String>>,
}

impl MonitorClient<'_> {
    /// The pools for an application, as marked by `rbd pool init` and `ceph fs new`.
    pub fn pools(&self, application: &str) -> Result<Vec<ListedPool>> {
        let output = self.ask(Class::Question, &[question("osd pool ls", Some("detail"))]);
        let output = output.map_err(|failure| failure.into_error("list the pools"))?;
        let rows = read::<Vec<Row>>("ceph osd pool ls detail", &output.stdout)?;
        let listed = |Row { pool_name: name, mut application_metadata }| {
            application_metadata.remove(application).map(|labels| ListedPool { name, labels })
        };
        Ok(rows.into_iter().filter_map(listed).collect())
    }
}
