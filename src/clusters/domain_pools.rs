//! Pools with their domains, as written in the clusters file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::topology::Domains;

/// What the setting `pool` of a cluster must be.
pub(super) const FORM: &str =
    "tables [[cluster.NAME.pool]], with name, domain and perhaps dataPool; a list of names is 'pools'";

/// A pool, and the domains it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPool {
    /// Its name.
    pub name: String,
    /// The pool that takes the data of its volumes, if that is another.
    pub data_pool: Option<String>,
    /// The domains it is in.
    pub domains: Domains,
}

/// `[[cluster.main.pool]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Section {
    name: String,
    data_pool: Option<String>,
    domain: BTreeMap<String, String>,
}

impl Section {
    pub(super) fn read(self) -> Result<DomainPool, String> {
        let Self { name, data_pool, domain } = self;
        let pairs = domain.iter().map(|(label, value)| (label.as_str(), value.as_str()));
        let domains = Domains::new(pairs).map_err(|what| format!("the domain of pool {name:?}: {what}"))?;
        match name.is_empty() || domains.is_empty() {
            true => Err(format!("pool {name:?} needs a name and a domain: domain = {{ zone = \"eu-1\" }}")),
            false => Ok(DomainPool { name, data_pool, domains }),
        }
    }
}
