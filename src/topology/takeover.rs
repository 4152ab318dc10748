//! Which domains are taken over, and by which nodes. The operator sets this while a domain is down.

use std::fmt;

use super::domain::{Domain, repeated};

/// The word for all nodes except those of the domain itself.
const ALL: &str = "all";

/// The domains that are taken over, each with the domains whose nodes take it over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover(Vec<(Domain, Vec<Taker>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Taker {
    All,
    In(Domain),
}

/// A domain that a node has taken over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'a> {
    /// The domain.
    pub domain: &'a Domain,
    by: &'a Taker,
}

impl Takeover {
    /// The map with these entries: `"zone=eu-2" = ["zone=eu-1"]`, or `["all"]`.
    ///
    /// # Errors
    /// What is wrong with an entry.
    pub fn new(entries: impl IntoIterator<Item = (String, Vec<String>)>) -> Result<Self, String> {
        let entry = |(domain, takers): (String, Vec<String>)| {
            let takers = takers.iter().map(|taker| Taker::parse(taker)).collect::<Result<_, _>>();
            Ok((domain.parse()?, takers.map_err(|what| format!("{domain:?}: {what}"))?))
        };
        let entries = entries.into_iter().map(entry).collect::<Result<Vec<(Domain, _)>, String>>()?;
        let keys: Vec<_> = entries.iter().map(|(domain, _)| domain.to_string()).collect();
        match repeated(&keys) {
            None => Ok(Self(entries)),
            Some(twice) => Err(format!("{twice:?} is there twice: upper and lower case are the same")),
        }
    }

    /// The domains that a node in `own` has taken over. A node does not take over its own domain.
    pub(super) fn by<'a>(&'a self, own: &'a [Domain]) -> impl Iterator<Item = Taken<'a>> {
        let others = self.0.iter().filter(|(domain, _)| !own.contains(domain));
        others.filter_map(|(domain, takers)| {
            let by = takers.iter().find(|taker| taker.includes(own))?;
            Some(Taken { domain, by })
        })
    }
}

impl Taker {
    fn parse(text: &str) -> Result<Self, String> {
        if text == ALL { Ok(Self::All) } else { text.parse().map(Self::In) }
    }

    fn includes(&self, own: &[Domain]) -> bool {
        match self {
            Self::All => true,
            Self::In(domain) => own.contains(domain),
        }
    }
}

/// The domain, with the reason.
impl fmt::Display for Taken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (taken over by ", self.domain)?;
        match self.by {
            Taker::All => f.write_str("all)"),
            Taker::In(domain) => write!(f, "{domain})"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &[&str])]) -> Result<Takeover, String> {
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Takeover::new(entries.iter().map(|(domain, takers)| (domain.to_string(), texts(takers))))
    }

    fn taken(map: &Takeover, own: &[&str]) -> Vec<String> {
        let own: Vec<Domain> = own.iter().map(|domain| domain.parse().unwrap()).collect();
        map.by(&own).map(|taken| taken.to_string()).collect()
    }

    #[test]
    fn the_nodes_of_the_targets_take_over() {
        let map =
            map(&[("zone=eu-2", &["zone=eu-1", "rack=r9"]), ("zone=eu-3", &["all"]), ("zone=eu-4", &[])])
                .unwrap();
        assert_eq!(
            taken(&map, &["region=eu", "zone=eu-1"]),
            ["zone=eu-2 (taken over by zone=eu-1)", "zone=eu-3 (taken over by all)"]
        );
        assert_eq!(taken(&map, &["zone=eu-3", "rack=r9"]), ["zone=eu-2 (taken over by rack=r9)"]);
        assert_eq!(taken(&map, &["zone=eu-2", "rack=r9"]), ["zone=eu-3 (taken over by all)"], "not its own");
        assert_eq!(taken(&map, &[]), ["zone=eu-3 (taken over by all)"]);
        assert_eq!(taken(&Takeover::default(), &["zone=eu-1"]), [""; 0]);
    }

    #[test]
    fn mistakes_are_named() {
        for (entries, what) in [
            (&[("eu-2", &["all"][..])][..], "\"eu-2\" is no domain"),
            (&[("zone=a", &["b"])], "\"zone=a\": \"b\" is no domain"),
            (&[("zone=a", &["ALL"])], "\"ALL\" is no domain"),
            (&[("zone=a", &[]), (" zone = A", &[])], "\"zone=A\" is there twice"),
        ] {
            let error = map(entries).unwrap_err();
            assert!(error.contains(what), "{entries:?}: {error}");
        }
    }
}
