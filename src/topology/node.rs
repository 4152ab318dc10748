//! The topology of this node for the orchestrator: its own domains, and those it has taken over.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::domain::{Domain, TAKEN};
use super::labels::Labels;
use super::takeover::Takeover;
use crate::csi::Map;
use crate::files::Files;

/// Where this node is, as its operator has it configured now.
#[derive(Debug, Default)]
pub struct NodeTopology {
    plugin: String,
    labels: Labels,
    crush_location: Option<String>,
    current: RwLock<Current>,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Current {
    own: Vec<Domain>,
    /// What is wrong with the labels as they are written now.
    trouble: Option<String>,
    takeover: Arc<Takeover>,
}

impl NodeTopology {
    /// Reads the labels. The keys of segments begin with `plugin`. `crush_location` replaces the labels as
    /// the place that reads are to be near.
    ///
    /// # Errors
    /// What is wrong with the labels: a node that reported no topology without them would not be asked again.
    pub fn load(
        plugin: &str,
        labels: &Labels,
        crush_location: Option<String>,
        takeover: Arc<Takeover>,
    ) -> Result<Self, String> {
        let mut files = Files::default();
        let own = labels.read(&mut files).map_err(|what| format!("CEPHLET_TOPOLOGY: {what}"))?;
        Ok(Self {
            plugin: plugin.to_string(),
            labels: labels.clone(),
            crush_location,
            current: RwLock::new(Current { own, trouble: None, takeover }),
            files: Mutex::new(files),
        })
    }

    /// The segments of this node.
    pub fn segments(&self) -> Map {
        self.current.read().segments(&self.plugin)
    }

    /// For people: the domains of this node. One that was taken over has the reason with it.
    pub fn domains(&self) -> Vec<String> {
        self.current.read().domains()
    }

    /// What is wrong with the labels as they are written now; those in force stay as they were.
    pub fn trouble(&self) -> Option<String> {
        self.current.read().trouble.clone()
    }

    /// The place of this node in the CRUSH map, as the kernel takes it: `zone:eu-1|rack:r7`.
    pub fn crush_location(&self) -> Option<String> {
        let current = self.current.read();
        let labels = || {
            let pairs = current.own.iter().map(|domain| format!("{}:{}", domain.label(), domain.value()));
            pairs.collect::<Vec<_>>().join("|")
        };
        self.crush_location.clone().or_else(|| Some(labels()).filter(|labels| !labels.is_empty()))
    }

    /// Adopts the takeover map, and reads the file with the labels if it has changed or `again` is set.
    /// Returns whether the segments of this node have changed.
    pub fn follow(&self, takeover: Arc<Takeover>, again: bool) -> bool {
        let read = (again || self.files.lock().have_changed()).then(|| self.read_again());
        let mut current = self.current.write();
        let (own, trouble) = match read {
            Some(Ok(own)) => (own, None),
            Some(Err(why)) => {
                log::error!("{why}; this node's labels stay as they were");
                (current.own.clone(), Some(why))
            }
            None => (current.own.clone(), current.trouble.clone()),
        };
        let former = std::mem::replace(&mut *current, Current { own, trouble, takeover });
        let changed = current.segments(&self.plugin) != former.segments(&self.plugin);
        if changed {
            log::warn!("this node's topology is now {current}; it was {former}");
        }
        changed
    }

    fn read_again(&self) -> Result<Vec<Domain>, String> {
        let mut files = Files::default();
        let own = self.labels.read(&mut files).map_err(|what| format!("CEPHLET_TOPOLOGY: {what}"));
        *self.files.lock() = files;
        own
    }
}

impl Current {
    fn segments(&self, plugin: &str) -> Map {
        let own = self.own.iter().map(|domain| (domain.key(plugin), domain.value().to_string()));
        let taken = self.takeover.by(&self.own);
        let taken = taken.map(|taken| (taken.domain.takeover_key(plugin), TAKEN.to_string()));
        own.chain(taken).collect()
    }

    fn domains(&self) -> Vec<String> {
        let own = self.own.iter().map(ToString::to_string);
        own.chain(self.takeover.by(&self.own).map(|taken| taken.to_string())).collect()
    }
}

impl fmt::Display for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.domains().join(", ") {
            none if none.is_empty() => f.write_str("none"),
            domains => f.write_str(&domains),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn takeover(domain: &str, taker: &str) -> Arc<Takeover> {
        Arc::new(Takeover::new([(domain.to_string(), vec![taker.to_string()])]).unwrap())
    }

    fn segments(topology: &NodeTopology) -> Vec<String> {
        topology.segments().iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn a_node_follows_the_takeover_map() {
        let labels = Labels::given("region=eu,zone=eu-1").unwrap();
        let node = NodeTopology::load("p.q", &labels, None, Arc::default()).unwrap();
        let own = ["p.q/region=eu", "p.q/zone=eu-1"];
        assert_eq!(segments(&node), own);
        assert!(!node.follow(takeover("zone=eu-2", "zone=eu-3"), false), "the matter of others");
        assert!(node.follow(takeover("zone=eu-2", "zone=eu-1"), false));
        assert_eq!(segments(&node), [own[0], "p.q/takes.zone.eu-2=true", own[1]]);
        assert_eq!(node.domains()[2], "zone=eu-2 (taken over by zone=eu-1)");
        assert!(!node.follow(takeover("zone=eu-2", "all"), false), "only the reason is another");
        assert!(node.follow(Arc::default(), false));
        assert_eq!(segments(&node), own);
    }

    #[test]
    fn a_file_is_followed_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("labels");
        let labels = Labels::In(path.clone());
        let load = || NodeTopology::load("p.q", &labels, None, Arc::default());
        assert!(load().unwrap_err().contains("CEPHLET_TOPOLOGY: /"), "{:?}", load());
        fs::write(&path, "zone=a\n").unwrap();
        let node = load().unwrap();
        for broken in ["", "zone\n", "zone=a\nzone=b\n"] {
            fs::write(&path, broken).unwrap();
            assert!(!node.follow(Arc::default(), false), "{broken:?}");
            assert!(node.trouble().unwrap().starts_with("CEPHLET_TOPOLOGY: /"), "{broken:?}");
        }
        fs::write(&path, "zone=b\n").unwrap();
        assert!(node.follow(Arc::default(), false));
        assert_eq!(node.trouble(), None);
        assert_eq!(segments(&node), ["p.q/zone=b"]);
        assert!(!node.follow(Arc::default(), true));
    }

    #[test]
    fn reads_are_near_the_labels_unless_somebody_says_otherwise() {
        let labels = Labels::given("zone=eu-1,rack=r7").unwrap();
        let location = |labels: &Labels, given: Option<&str>| {
            let node = NodeTopology::load("p.q", labels, given.map(str::to_string), Arc::default());
            node.unwrap().crush_location()
        };
        assert_eq!(location(&labels, None).as_deref(), Some("zone:eu-1|rack:r7"));
        assert_eq!(location(&labels, Some("host:h")).as_deref(), Some("host:h"));
        assert_eq!(location(&Labels::default(), None), None);
    }
}
