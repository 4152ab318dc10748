//! Several domains at once: where a pool is, or from where something is to be reachable.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Domain, TAKEN, segment_key};

/// One domain for each of some labels, as `region=eu,zone=eu-1`; empty if the place does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Domains(BTreeMap<String, String>);

impl Domains {
    /// The domains of these labels and values.
    ///
    /// # Errors
    /// What is wrong with one of them, for its author.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for (label, value) in pairs {
            let domain = Domain::new(label, value)?;
            if all.insert(domain.label().to_string(), domain.value().to_string()).is_some() {
                return Err(format!("the label {label:?} is there twice"));
            }
        }
        Ok(Self(all))
    }

    /// The domains in a map of segments. Segments of other plugins, of a node and of takeovers are skipped.
    pub fn of_segments(plugin: &str, segments: &BTreeMap<String, String>) -> Self {
        let label = |(key, value): (&String, &String)| {
            let domain = Domain::new(key.strip_prefix(&segment_key(plugin, ""))?, value).ok()?;
            Some((domain.label().to_string(), domain.value().to_string()))
        };
        Self(segments.iter().filter_map(label).collect())
    }

    /// Whether there are no domains.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The domains that both sets have; None if a label has two values, or if they share no domain.
    pub fn in_common(&self, others: &Self) -> Option<Self> {
        let shared = || self.0.iter().filter_map(|(label, value)| Some((label, value, others.0.get(label)?)));
        if shared().any(|(_, value, other)| value != other) {
            return None;
        }
        let common: BTreeMap<_, _> =
            shared().map(|(label, value, _)| (label.clone(), value.clone())).collect();
        (!common.is_empty()).then_some(Self(common))
    }

    fn each(&self) -> impl Iterator<Item = Domain> + '_ {
        self.0.iter().filter_map(|(label, value)| Domain::new(label, value).ok())
    }

    /// The segments by which an orchestrator knows them.
    pub fn segments(&self, plugin: &str) -> BTreeMap<String, String> {
        self.each().map(|domain| (domain.key(plugin), domain.value().to_string())).collect()
    }

    /// The nodes that reach something in these domains: those in all the domains, and those that have taken
    /// one of them over. Such a node has all segments of one of these maps. Without a map, all nodes reach
    /// it.
    pub fn accessible(&self, plugin: &str) -> Vec<BTreeMap<String, String>> {
        let own = [self.segments(plugin)].into_iter().filter(|own| !own.is_empty());
        own.chain(self.each().map(|it| BTreeMap::from([(it.takeover_key(plugin), TAKEN.to_string())])))
            .collect()
    }

    /// Whether something in these domains can be reached from at least one of the requisite topologies. A
    /// topology without a label of this plugin does not count; if none counts, the answer is yes.
    pub fn is_reachable_from(&self, plugin: &str, requisite: &[BTreeMap<String, String>]) -> bool {
        let ways = self.accessible(plugin);
        let reaches = |from: &BTreeMap<String, String>| {
            let has_all =
                |way: &BTreeMap<String, String>| way.iter().all(|(key, value)| from.get(key) == Some(value));
            Self::of_segments(plugin, from).in_common(self).is_some() || ways.iter().any(has_all)
        };
        let says_nothing = |from: &BTreeMap<String, String>| Self::of_segments(plugin, from).is_empty();
        self.is_empty() || requisite.iter().all(says_nothing) || requisite.iter().any(reaches)
    }
}

impl FromStr for Domains {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let domains: Vec<Domain> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Self::new(domains.iter().map(|domain| (domain.label(), domain.value())))
    }
}

impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(label, value)| format!("{label}={value}")).collect();
        f.write_str(&pairs.join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn domains(pairs: &[(&str, &str)]) -> Domains {
        Domains::new(pairs.iter().copied()).unwrap()
    }

    #[test]
    fn only_segments_of_ours_that_are_labels_count() {
        let segments = map(&[
            ("org.x/zone", "a"),
            ("org.x/node", "n1"),
            ("org.x/takes.zone.b", "true"),
            ("org.y/rack", "r"),
        ]);
        assert_eq!(Domains::of_segments("org.x", &segments), domains(&[("zone", "a")]));
        assert!(Domains::of_segments("org.z", &segments).is_empty());
    }

    #[test]
    fn what_is_in_common_contradicts_nothing() {
        let (zone, both) = (domains(&[("zone", "a")]), domains(&[("region", "eu"), ("zone", "a")]));
        assert_eq!(zone.in_common(&both), Some(zone.clone()));
        assert_eq!(both.in_common(&zone), Some(zone.clone()));
        assert_eq!(both.in_common(&domains(&[("region", "eu"), ("zone", "b")])), None);
        assert_eq!(zone.in_common(&domains(&[("rack", "r")])), None);
    }

    #[test]
    fn whoever_takes_one_of_the_domains_over_reaches_what_is_in_them() {
        let both = domains(&[("region", "eu"), ("zone", "a")]);
        let expected = [
            map(&[("org.x/region", "eu"), ("org.x/zone", "a")]),
            map(&[("org.x/takes.region.eu", "true")]),
            map(&[("org.x/takes.zone.a", "true")]),
        ];
        assert_eq!(both.accessible("org.x"), expected);
        assert!(Domains::default().accessible("org.x").is_empty());
        assert_eq!((both.to_string().as_str(), "zone=a,region=eu".parse()), ("region=eu,zone=a", Ok(both)));
        for (wrong, what) in [("zone", "no domain"), ("zone=a,zone=b", "twice"), ("node=n", "taken")] {
            assert!(wrong.parse::<Domains>().unwrap_err().contains(what), "{wrong}");
        }
    }
}
