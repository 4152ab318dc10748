//! Which Ceph clusters there are, how they are reached and with which key; and which domains are taken over.
//!
//! Everything is read at start, at SIGHUP and soon after one of the files has changed, keys included: a key
//! that was rotated is used from then on. An unreadable file never disables a cluster that works: the cluster
//! stays as it was, and the error is logged and shown by `cephlet config`.

mod cluster;
mod conf;
mod domain_pools;
mod keys;
mod monitors;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::files::Files;
use crate::topology::Takeover;

pub use cluster::{Cluster, Credentials};
pub use domain_pools::DomainPool;
pub use monitors::Monitor;
#[cfg(test)]
pub use monitors::parse as parse_monitors;
pub use source::ClusterSource;

use source::{Entries, Entry, Loaded};

/// The name of the one cluster of a host that has a ceph.conf.
pub const HOST_CLUSTER: &str = "ceph";

/// The clusters in force.
#[derive(Debug)]
pub struct Clusters {
    source: ClusterSource,
    current: RwLock<Set>,
    files: Mutex<Files>,
}

/// A cluster that was set up, as it is in force, and what is wrong with its configuration now.
#[derive(Clone, Debug)]
pub struct ClusterEntry {
    /// None if the cluster cannot be used.
    pub cluster: Option<Arc<Cluster>>,
    /// None if all is well.
    pub trouble: Option<String>,
    /// The names of other clusters that it serves.
    serves: Vec<String>,
}

#[derive(Debug, Default)]
struct Set {
    entries: BTreeMap<String, ClusterEntry>,
    /// Why the last reading failed.
    trouble: Option<String>,
    takeover: Arc<Takeover>,
    /// What is wrong with the configured takeovers now.
    takeover_trouble: Option<String>,
}

impl Clusters {
    /// Reads the clusters. Errors are logged and disable clusters; the call never fails.
    pub fn load(source: ClusterSource) -> Self {
        let clusters = Self { source, current: RwLock::default(), files: Mutex::default() };
        clusters.reload();
        clusters
    }

    /// Reads the clusters again. A cluster that cannot be read stays in force as it was.
    pub fn reload(&self) {
        let (loaded, files) = self.source.load();
        *self.files.lock() = files;
        let mut current = self.current.write();
        current.replace(loaded, &self.source);
        current.log(&self.source);
    }

    /// Reads the clusters again if one of the files has changed.
    pub fn reload_if_changed(&self) {
        let changed = self.files.lock().have_changed();
        if changed {
            log::info!("the clusters file, or a file it names, has changed: it is read again");
            self.reload();
        }
    }

    /// The cluster of this name; None if no such cluster is set up.
    ///
    /// # Errors
    /// Unavailable, with the reason, for a cluster that is set up but cannot be used, and for all while
    /// nothing could be read.
    pub fn find(&self, name: &str) -> Result<Option<Arc<Cluster>>> {
        let current = self.current.read();
        match (current.entries.get(&current.canonical(name)), &current.trouble) {
            (Some(ClusterEntry { cluster: Some(cluster), .. }), _) => Ok(Some(Arc::clone(cluster))),
            (Some(ClusterEntry { trouble, .. }), _) => {
                let why = trouble.as_deref().unwrap_or("it cannot be read");
                Err(Error::unavailable(format!("cluster {name:?} is disabled: {why}")))
            }
            (None, Some(why)) if current.entries.is_empty() => Err(Error::unavailable(format!(
                "cluster {name:?} is not known, because no cluster could be read: {why}"
            ))),
            (None, _) => Ok(None),
        }
    }

    /// The name of the cluster here that serves `name`, or `name` itself.
    pub fn canonical(&self, name: &str) -> String {
        self.current.read().canonical(name)
    }

    /// All clusters that can be used, in the order of their names.
    pub fn all(&self) -> Vec<Arc<Cluster>> {
        self.current.read().entries.values().filter_map(|entry| entry.cluster.clone()).collect()
    }

    /// All clusters that are set up, with their names, in order: what `cephlet config` shows.
    pub fn entries(&self) -> Vec<(String, ClusterEntry)> {
        self.current.read().entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Which domains are taken over.
    pub fn takeover(&self) -> Arc<Takeover> {
        Arc::clone(&self.current.read().takeover)
    }

    /// What is wrong with the configured takeovers now.
    pub fn takeover_trouble(&self) -> Option<String> {
        self.current.read().takeover_trouble.clone()
    }

    /// Whether a cluster is set up, even one that cannot be used.
    pub fn are_set_up(&self) -> bool {
        let current = self.current.read();
        !current.entries.is_empty() || current.trouble.is_some()
    }

    /// What is wrong with the file as a whole, now.
    pub fn file_trouble(&self) -> Option<String> {
        self.current.read().trouble.clone()
    }

    /// Why no cluster can be used at all; None if one can.
    pub fn trouble(&self) -> Option<String> {
        let current = self.current.read();
        if current.entries.values().any(|entry| entry.cluster.is_some()) {
            return None;
        }
        let troubles = current
            .entries
            .values()
            .filter_map(|entry| entry.trouble.as_deref())
            .chain(current.trouble.as_deref());
        let troubles = troubles.collect::<Vec<_>>().join("; ");
        Some(if troubles.is_empty() { self.source.absence() } else { troubles })
    }

    /// These clusters, which never change.
    #[cfg(test)]
    pub fn of(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        let entry = |cluster: Cluster| {
            let (name, serves) = (cluster.name.clone(), cluster.serves.clone());
            (name, ClusterEntry::new(None, Entry { cluster: Ok(cluster), serves }))
        };
        let set = Set { entries: clusters.into_iter().map(entry).collect(), ..Set::default() };
        Self { source: ClusterSource::default(), current: RwLock::new(set), files: Mutex::default() }
    }
}

impl ClusterEntry {
    /// The entry in force from now on. A missing key may be about to be written, as a missing conf may.
    fn new(former: Option<Arc<Cluster>>, read: Entry) -> Self {
        let Entry { cluster, mut serves } = read;
        let lost_key = |now: &Cluster| {
            now.lacks_key && former.as_ref().is_some_and(|former| former.credentials.is_some())
        };
        let (cluster, trouble) = match cluster {
            Ok(cluster) if lost_key(&cluster) => (former, Some(cluster.key_from)),
            Ok(cluster) => (Some(Arc::new(cluster)), None),
            Err(why) => (former, Some(why)),
        };
        if let Some(cluster) = &cluster {
            serves.clone_from(&cluster.serves);
        }
        Self { cluster, trouble, serves }
    }
}

impl Set {
    /// A cluster's own name takes precedence over the names that others serve.
    fn canonical(&self, name: &str) -> String {
        let serves = |entry: &ClusterEntry| entry.serves.iter().any(|it| it == name);
        let serving = self.entries.iter().find(|(_, entry)| serves(entry));
        let serving = serving.filter(|_| !self.entries.contains_key(name));
        serving.map_or(name, |(other, _)| other).to_string()
    }

    fn replace(&mut self, loaded: Result<Loaded, String>, source: &ClusterSource) {
        self.trouble = match loaded {
            Err(why) => Some(why),
            Ok(Loaded { clusters, takeover }) => {
                self.takeover_trouble = takeover.map(|takeover| self.takeover = Arc::new(takeover)).err();
                let are_gone = clusters.is_empty() && !self.entries.is_empty();
                if !are_gone {
                    self.replace_clusters(clusters);
                }
                are_gone.then(|| source.absence())
            }
        };
    }

    fn replace_clusters(&mut self, clusters: Entries) {
        let mut former = std::mem::take(&mut self.entries);
        let mut former = |name: &str| former.remove(name).and_then(|entry| entry.cluster);
        let entry = |(name, read): (String, Entry)| {
            let entry = ClusterEntry::new(former(&name), read);
            (name, entry)
        };
        self.entries = clusters.into_iter().map(entry).collect();
    }

    fn log(&self, source: &ClusterSource) {
        if let Some(why) = &self.takeover_trouble {
            log::error!("{why}; the takeover map stays as it was");
        }
        if let Some(why) = &self.trouble {
            let kept = if self.entries.is_empty() {
                "no cluster can be used"
            } else {
                "the clusters stay as they were"
            };
            log::error!("{why}; {kept}");
            return;
        }
        for (name, entry) in &self.entries {
            match (&entry.cluster, &entry.trouble) {
                (None, Some(why)) => log::error!("cluster {name:?} is disabled: {why}"),
                (Some(_), Some(why)) => log::error!("cluster {name:?} stays as it was: {why}"),
                (Some(cluster), None) => {
                    let path = cluster.conf.as_deref().unwrap_or(source.path());
                    log::info!("cluster {name:?} of {}: {cluster}", path.display())
                }
                (None, None) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
