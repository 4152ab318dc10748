//! Which pools are in which domains, and in which pool a volume is made.
//!
//! Domains come from the first of three sources that names any: the volume's parameter, the clusters file,
//! the labels on the pools themselves (`ceph osd pool application set POOL rbd cephlet.zone eu-1`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::backend::ceph::FreeSpace;
use crate::backend::ceph::cache::Cache;
use crate::backend::ceph::monitor::MonitorClient;
use crate::backend::ceph::monitor::pools::ListedPool;
use crate::backend::creation_record::Placed;
use crate::clusters::DomainPool;
use crate::csi::TopologyRequirement;
use crate::error::{Error, Result};
use crate::sys::random;
use crate::topology::Domains;

/// How long the labels of a cluster's pools are remembered, unless no pool fits.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long the free space is remembered: it only weighs the pools against each other.
const SPACE_REMEMBERED: Duration = Duration::from_secs(10);
/// How the keys of labels on pools begin.
const LABEL: &str = "cephlet.";

/// The domains from which a volume is to be reachable, as far as labels express them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// In the order of preference.
    preferred: Vec<Domains>,
    /// The volume must be reachable from at least one of these.
    requisite: Vec<Domains>,
}

/// From where a volume says that it is reachable (parameter `topologyAccess`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopologyAccess {
    /// From its domain, if that was asked for, and from everywhere, if it was drawn from several.
    #[default]
    Usual,
    /// From its domain.
    Strict,
    /// From everywhere.
    Any,
}

/// The choice for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub pool: String,
    pub placed: Placed,
}

/// Pools that are equally good.
struct Round<'a> {
    /// Each with the domains that it has in common with the request.
    pools: Vec<(&'a DomainPool, Domains)>,
    /// Whether the volume states its domain.
    is_told: bool,
}

impl Wishes {
    /// The wishes of a requirement, as far as it is written in labels of ours.
    pub fn new(plugin: &str, requirement: &TopologyRequirement) -> Self {
        // Nodes that differ only in other labels are in the same domains.
        let read = |topologies: &[BTreeMap<String, String>]| -> Vec<Domains> {
            let mut all: Vec<Domains> = Vec::new();
            for domains in topologies.iter().map(|segments| Domains::of_segments(plugin, segments)) {
                if !domains.is_empty() && !all.contains(&domains) {
                    all.push(domains);
                }
            }
            all
        };
        Self { preferred: read(&requirement.preferred), requisite: read(&requirement.requisite) }
    }

    /// The pools that can be reached from these segments.
    pub fn within(plugin: &str, segments: &BTreeMap<String, String>) -> Self {
        let requisite = vec![segments.clone()];
        Self::new(plugin, &TopologyRequirement { requisite, preferred: Vec::new() })
    }

    /// Whether the wishes contain no label of ours.
    pub fn is_empty(&self) -> bool {
        self.preferred.is_empty() && self.requisite.is_empty()
    }

    /// The pools that fit, the better ones first: those of each preferred topology, then those of all
    /// requisite ones, or all pools if none is requisite. A preferred pool that fits no requisite topology is
    /// left out. A pool fits a topology that contradicts none of its domains and has one of them; a pool
    /// without domains is reachable from everywhere.
    fn rounds<'a>(&self, pools: &'a [DomainPool]) -> Vec<Round<'a>> {
        let fitting = |asked: &[Domains]| -> Vec<(&'a DomainPool, Domains)> {
            let fit = |pool: &'a DomainPool| match pool.domains.is_empty() {
                true => (!asked.is_empty()).then(|| (pool, Domains::default())),
                false => Some((pool, asked.iter().find_map(|asked| pool.domains.in_common(asked))?)),
            };
            pools.iter().filter_map(fit).collect()
        };
        let last: Vec<_> = match self.requisite.as_slice() {
            [] => pools.iter().map(|pool| (pool, pool.domains.clone())).collect(),
            requisite => fitting(requisite),
        };
        let preferred = self.preferred.iter().map(|it| {
            let mut pools = fitting(std::slice::from_ref(it));
            pools.retain(|(pool, _)| last.iter().any(|(allowed, _)| allowed.name == pool.name));
            Round { pools, is_told: true }
        });
        let mut rounds: Vec<_> = preferred.collect();
        rounds.push(Round { pools: last, is_told: self.requisite.len() == 1 });
        rounds
    }
}

impl std::fmt::Display for Wishes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.preferred.iter().chain(&self.requisite).map(Domains::to_string).collect();
        if all.is_empty() { f.write_str("any domain") } else { f.write_str(&all.join(" or ")) }
    }
}

impl TopologyAccess {
    /// Reads the parameter.
    pub fn parse(value: &str) -> Result<Self> {
        match value {
            "" => Ok(Self::Usual),
            "strict" => Ok(Self::Strict),
            "any" => Ok(Self::Any),
            _ => Err(Error::invalid(format!(
                "the parameter \"topologyAccess\" is {value:?}: allowed are strict (a volume always names its \
                 domain) and any (it never does)"
            ))),
        }
    }
}

/// Reads the parameter `topologyConstrainedPools`, as ceph-csi's users write it:
/// `[{"poolName": "a", "dataPool": "b", "domainSegments": [{"domainLabel": "zone", "value": "eu-1"}]}]`.
pub(crate) fn parse_constrained_pools(text: &str) -> Result<Vec<DomainPool>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Segment {
        domain_label: String,
        value: String,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Constrained {
        pool_name: String,
        data_pool: Option<String>,
        domain_segments: Vec<Segment>,
    }
    let wrong = |what: String| Error::invalid(format!("the parameter \"topologyConstrainedPools\": {what}"));
    let read = |pool: Constrained| {
        let pairs = pool.domain_segments.iter().map(|it| (it.domain_label.as_str(), it.value.as_str()));
        let domains =
            Domains::new(pairs).map_err(|what| wrong(format!("pool {:?}: {what}", pool.pool_name)))?;
        let data_pool = pool.data_pool.filter(|name| !name.is_empty());
        Ok(DomainPool { name: pool.pool_name, data_pool, domains })
    };
    let pools: Vec<Constrained> = serde_json::from_str(text).map_err(|error| {
        wrong(format!(
            "{error}: write [{{\"poolName\": \"POOL\", \"domainSegments\": [{{\"domainLabel\": \"zone\", \
             \"value\": \"eu-1\"}}]}}]"
        ))
    })?;
    match pools.is_empty() {
        true => Err(wrong("it names no pool".into())),
        false => pools.into_iter().map(read).collect(),
    }
}

/// What is remembered about the pools of clusters, by the clusters' names.
#[derive(Debug)]
pub(crate) struct DomainPools {
    labelled: Cache<String, Arc<Vec<DomainPool>>>,
    space: Cache<String, Arc<BTreeMap<String, FreeSpace>>>,
}

impl Default for DomainPools {
    fn default() -> Self {
        Self { labelled: Cache::for_at_most(REMEMBERED), space: Cache::for_at_most(SPACE_REMEMBERED) }
    }
}

/// A question for a pool.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub monitors: MonitorClient<'a>,
    /// The pools that the volume's own parameter names.
    pub constrained: &'a [DomainPool],
    /// The pool for the data, if the chosen pool has no data pool of its own.
    pub data_pool: Option<&'a str>,
    pub wishes: &'a Wishes,
    /// The pool if no source names the domain of any pool.
    pub otherwise: &'a str,
    /// The data pools of the file system that the volume is in; None for an image, which may be in any pool
    /// that the cluster's entry allows.
    pub among: Option<&'a [String]>,
}

impl Asked<'_> {
    /// The pool that would take the data.
    fn data_pool<'p>(&'p self, pool: &'p DomainPool) -> &'p str {
        pool.data_pool.as_deref().or(self.data_pool).unwrap_or(&pool.name)
    }

    /// The application of the pools, by which the cluster keeps their labels.
    fn application(&self) -> &'static str {
        if self.among.is_some() { "cephfs" } else { "rbd" }
    }

    fn admits(&self, pool: &DomainPool) -> bool {
        self.among.map_or_else(
            || self.monitors.access.cluster.allows_pool(&pool.name),
            |it| it.contains(&pool.name),
        )
    }
}

impl DomainPools {
    /// Chooses a pool: the pool of the volume's `source`, if it fits.
    ///
    /// # Errors
    /// No space: no pool fits, or the fitting pools are full.
    pub fn choose(&self, asked: &Asked<'_>, access: TopologyAccess, source: Option<&str>) -> Result<Choice> {
        let pools = self.fitting(asked)?;
        let rounds = asked.wishes.rounds(&pools);
        let of_source =
            |round: &Round<'_>| round.pools.iter().position(|(pool, _)| Some(&*pool.name) == source);
        let stays = rounds.iter().find_map(|round| Some((round, of_source(round)?)));
        let drawn = || {
            let is_alone = all_pools(asked, &rounds).len() == 1;
            let draw =
                |round| Some(self.draw(asked, round, is_alone).transpose()?.map(|index| (round, index)));
            rounds.iter().find_map(draw).transpose()
        };
        let chosen = if stays.is_some() { stays } else { drawn()? };
        let Some((round, index)) = chosen else { return Err(full(asked, &rounds)) };
        let (pool, domains) = &round.pools[index];
        let is_told = match access {
            TopologyAccess::Usual => round.is_told,
            TopologyAccess::Strict => true,
            TopologyAccess::Any => false,
        };
        let domains = if is_told { domains.clone() } else { Domains::default() };
        Ok(Choice { pool: pool.name.clone(), placed: Placed { domains, data_pool: pool.data_pool.clone() } })
    }

    /// The largest room of a fitting pool, not the sum, as pools may share disks. Zero if no pool fits.
    pub fn room(&self, asked: &Asked<'_>) -> Result<FreeSpace> {
        let pools = self.all(asked)?;
        let rounds = asked.wishes.rounds(&pools);
        let spaces = asked.monitors.free_spaces()?;
        let found = rounds.iter().flat_map(|round| &round.pools);
        let rooms = found.filter_map(|(pool, _)| spaces.get(asked.data_pool(pool)).copied());
        let none = FreeSpace { available: 0, full: true };
        Ok(rooms.filter(|room| !room.full).max_by_key(|room| room.available).unwrap_or(none))
    }

    /// The pools, of which some fit. If none does, the labels are read again: one may be new.
    fn fitting(&self, asked: &Asked<'_>) -> Result<Vec<DomainPool>> {
        let fits = |pools: &[DomainPool]| asked.wishes.rounds(pools).iter().any(|it| !it.pools.is_empty());
        let pools = self.all(asked)?;
        if fits(&pools) {
            return Ok(pools);
        }
        self.labelled.forget(&asked.monitors.access.cluster.name);
        let pools = self.all(asked)?;
        if fits(&pools) { Ok(pools) } else { Err(unfit(asked, &pools)) }
    }

    /// The pools of the first source that names any. If none does, the usual pool, reachable from everywhere.
    fn all(&self, asked: &Asked<'_>) -> Result<Vec<DomainPool>> {
        let cluster = &asked.monitors.access.cluster;
        for told in [asked.constrained, &cluster.domain_pools] {
            // The entry of the cluster names pools of images and of file systems.
            let told: Vec<_> = told.iter().filter(|pool| asked.admits(pool)).cloned().collect();
            if !told.is_empty() {
                return Ok(told);
            }
        }
        let ask = || {
            let pools = asked.monitors.pools(asked.application())?;
            Ok(Arc::new(pools.iter().filter_map(labelled).collect()))
        };
        let labelled = self.labelled.get_or_ask(cluster.name.clone(), ask)?;
        let (admitted, others): (Vec<_>, Vec<_>) = labelled.iter().cloned().partition(|it| asked.admits(it));
        let usual =
            || DomainPool { name: asked.otherwise.into(), data_pool: None, domains: Domains::default() };
        match (admitted.is_empty(), others.is_empty() || asked.among.is_some()) {
            (false, _) => Ok(admitted),
            (true, true) => Ok(vec![usual()]),
            (true, false) => Err(not_allowed(&cluster.name, &others)),
        }
    }

    /// Draws one of the pools, weighted by their free space; None if all are full, or there are none. If
    /// there is only one pool in all rounds, its space is not asked for.
    fn draw(&self, asked: &Asked<'_>, round: &Round<'_>, is_alone: bool) -> Result<Option<usize>> {
        if is_alone || round.pools.is_empty() {
            return Ok((!round.pools.is_empty()).then_some(0));
        }
        let cluster = &asked.monitors.access.cluster.name;
        let ask = || asked.monitors.free_spaces().map(Arc::new);
        let mut spaces = self.space.get_or_ask(cluster.clone(), ask)?;
        if round.pools.iter().any(|(pool, _)| !spaces.contains_key(asked.data_pool(pool))) {
            // The pool may have been made, or renamed, a moment ago.
            self.space.forget(cluster);
            spaces = self.space.get_or_ask(cluster.clone(), ask)?;
        }
        let weight = |(pool, _): &(&DomainPool, Domains)| {
            spaces.get(asked.data_pool(pool)).filter(|space| !space.full).map_or(0, |space| space.available)
        };
        let weights: Vec<u64> = round.pools.iter().map(weight).collect();
        let digits = random::hex(8).map_err(|error| Error::io("draw a pool", &error))?;
        Ok(pick(&weights, u64::from_str_radix(&digits, 16).unwrap_or_default()))
    }

    /// Called if the labels of a cluster's pools may be out of date: they are read again.
    pub fn forget(&self, cluster: &str) {
        self.labelled.forget(&cluster.to_string());
    }
}

/// A pool with its domains; None if its labels name no domain, or are wrong.
fn labelled(pool: &ListedPool) -> Option<DomainPool> {
    let labels =
        pool.labels.iter().filter_map(|(key, value)| Some((key.strip_prefix(LABEL)?, value.as_str())));
    match Domains::new(labels) {
        Ok(domains) if domains.is_empty() => None,
        Ok(domains) => Some(DomainPool { name: pool.name.clone(), data_pool: None, domains }),
        Err(what) => {
            log::warn!("pool {:?} is in no domain, as one of its labels is none: {what}", pool.name);
            None
        }
    }
}

/// Which of the weights a random number falls on; None if there is no weight.
fn pick(weights: &[u64], number: u64) -> Option<usize> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut left = u128::from(number).checked_rem(total)?;
    weights.iter().position(|weight| match left.checked_sub(u128::from(*weight)) {
        None => true,
        Some(rest) => {
            left = rest;
            false
        }
    })
}

fn unfit(asked: &Asked<'_>, pools: &[DomainPool]) -> Error {
    let there: Vec<String> =
        pools.iter().map(|pool| format!("{} (pool {})", pool.domains, pool.name)).collect();
    Error::no_space(format!(
        "no pool of cluster {:?} is where the volume is to be reachable from, which is {}: there are {}",
        asked.monitors.access.cluster.name,
        asked.wishes,
        there.join(", ")
    ))
}

fn not_allowed(cluster: &str, labelled: &[DomainPool]) -> Error {
    let names: Vec<&str> = labelled.iter().map(|pool| pool.name.as_str()).collect();
    Error::no_space(format!(
        "the pools of cluster {cluster:?} that have labels are not among its `pools`: add {} there",
        names.join(", ")
    ))
}

/// The pools that would take the data.
fn all_pools<'a>(asked: &'a Asked<'_>, rounds: &'a [Round<'_>]) -> BTreeSet<&'a str> {
    rounds.iter().flat_map(|round| &round.pools).map(|(pool, _)| asked.data_pool(pool)).collect()
}

fn full(asked: &Asked<'_>, rounds: &[Round<'_>]) -> Error {
    let pools: Vec<&str> = all_pools(asked, rounds).into_iter().collect();
    Error::no_space(format!(
        "of the pools in {} none has room ({}): add storage, raise their quotas, or allow other domains",
        asked.wishes,
        pools.join(", ")
    ))
}

#[cfg(test)]
#[path = "domains_tests.rs"]
mod tests;
