//! Where clusters are set up: the host's own ceph.conf, or cephlet's own file with several clusters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::conf::Conf;
use super::keys::{KeyFile, Search, search};
use super::{Cluster, HOST_CLUSTER, domain_pools, monitors};
use crate::config::{self, BackendName, Config, HostCluster};
use crate::files::Files;
use crate::ids::{self, Place};
use crate::spelling;
use crate::topology::Takeover;

/// The settings of a cluster in the file.
const SETTINGS: [&str; 15] = [
    "monitors",
    "conf",
    "user",
    "key_file",
    "keyring",
    "credential",
    "pools",
    "namespaces",
    "removed_pools",
    "pool",
    "registry",
    "fsid",
    "serves",
    "peer",
    "readAffinity",
];

/// The form of a setting that has several values.
const LIST: &str = "a list of texts: [\"a\", \"b\"]";
const PEERS: &str = "a table [cluster.NAME.peer] with lines \"SITE\" = \"CLUSTER\"";

/// The longest name of a cluster, in bytes: it is a field of every ID.
const MAX_NAME: usize = 24;

/// Where clusters are set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSource {
    /// The file with clusters, if there is one.
    pub file: Option<PathBuf>,
    /// Where systemd puts a service's credentials.
    pub credentials: Option<PathBuf>,
    /// The host's cluster, which counts without such a file, or if the file has only a takeover map.
    pub host: HostCluster,
}

/// The clusters, by their names.
pub(super) type Entries = BTreeMap<String, Entry>;

/// The configuration of a cluster.
#[derive(Debug)]
pub(super) struct Entry {
    /// The cluster, or why it cannot be used.
    pub cluster: Result<Cluster, String>,
    /// The names of other clusters that it serves, even if it cannot be used.
    pub serves: Vec<String>,
}

/// The result of a reading.
#[derive(Debug)]
pub(super) struct Loaded {
    pub clusters: Entries,
    /// The takeover map, or what is wrong with it.
    pub takeover: Result<Takeover, String>,
}

impl ClusterSource {
    /// The source that this configuration names.
    pub fn new(config: &Config) -> Self {
        let wanted = config.ceph.wanted || config.wants(BackendName::Rbd) == Some(true);
        let host = HostCluster { wanted, ..config.ceph.clone() };
        Self { file: config.clusters.clone(), credentials: config.credentials_dir.clone(), host }
    }

    /// The file for an operator to look at.
    pub fn path(&self) -> &Path {
        self.file.as_ref().unwrap_or(&self.host.conf)
    }

    /// The message for the case that no cluster is set up.
    pub(super) fn absence(&self) -> String {
        let conf = self.host.conf.display();
        match &self.file {
            None => format!("no Ceph cluster is set up: there is no {conf}, and CEPHLET_CLUSTERS is not set"),
            Some(path) => format!(
                "no Ceph cluster is set up: {} has no table [cluster.NAME], and there is no {conf}",
                path.display()
            ),
        }
    }

    /// Reads everything, and records which files it read. An error means that nothing could be read.
    pub(super) fn load(&self) -> (Result<Loaded, String>, Files) {
        let mut files = Files::default();
        let loaded = match &self.file {
            None => {
                Ok(Loaded { clusters: from_host(&mut files, &self.host), takeover: Ok(Takeover::default()) })
            }
            Some(path) => from_file(&mut files, path, self),
        };
        (loaded, files)
    }
}

fn from_host(files: &mut Files, host: &HostCluster) -> Entries {
    if !host.wanted && !files.exists(&host.conf) {
        return BTreeMap::new();
    }
    let key = host.keyring.clone().map(KeyFile::Keyring);
    let cluster = from_conf(files, HOST_CLUSTER, &host.conf, Some(&host.user), key);
    BTreeMap::from([(HOST_CLUSTER.to_string(), Entry { cluster, serves: Vec::new() })])
}

/// A cluster that a ceph.conf describes. Without a key it is one in reduced mode.
fn from_conf(
    files: &mut Files,
    name: &str,
    path: &Path,
    user: Option<&str>,
    key: Option<KeyFile>,
) -> Result<Cluster, String> {
    let conf = Conf::parse(&files.read(path)?).map_err(|what| format!("{}: {what}", path.display()))?;
    let list = conf.in_section("global", "mon_host").unwrap_or_default();
    let mut cluster = Cluster::named(name);
    if !list.is_empty() {
        cluster.monitors =
            monitors::parse(list).map_err(|what| format!("{}: mon host: {what}", path.display()))?;
    }
    cluster.fsid = conf.in_section("global", "fsid").map(str::to_string);
    cluster.conf = Some(path.to_path_buf());
    let Some(user) = user else { return Ok(cluster) };
    match key {
        Some(key) => cluster.own(user, Some(key.read(files, user)?), key.path().display().to_string()),
        None => match search(files, &conf, path, user)? {
            Search::Found(key, at) => cluster.own(user, Some(key), at.display().to_string()),
            Search::ByTools(how) => cluster.own(user, None, how.to_string()),
            Search::Nowhere(places) => {
                let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                cluster.lacks_key = true;
                cluster.key_from = format!("no key for client.{user} in {}", places.join(", "));
            }
        },
    }
    Ok(cluster)
}

/// A file may have only the takeover map. An empty file is refused: it may be about to be written.
fn from_file(files: &mut Files, path: &Path, source: &ClusterSource) -> Result<Loaded, String> {
    let at = |what: String| format!("{}: {what}", path.display());
    let text = files.read(path)?;
    let mut file: Map<String, Value> = basic_toml::from_str(&text).map_err(|error| at(error.to_string()))?;
    let (clusters, takeover) = (file.remove("cluster"), file.remove("takeover"));
    if let Some(other) = file.keys().next() {
        return Err(at(format!("{other:?} is not known: there are tables [cluster.NAME] and [takeover]")));
    }
    let clusters = match (clusters, &takeover) {
        (Some(Value::Object(clusters)), _) if !clusters.is_empty() => {
            let entry = |(name, settings): (String, Value)| {
                let serves = settings.get("serves").and_then(|names| read("serves", LIST, names).ok());
                let cluster = Section::new(&name, settings)
                    .and_then(|it| it.cluster(files, source.credentials.as_deref()));
                let cluster = cluster.map_err(|what| at(format!("cluster {name:?}: {what}")));
                (name, Entry { cluster, serves: serves.unwrap_or_default() })
            };
            clusters.into_iter().map(entry).collect()
        }
        (None, Some(_)) => from_host(files, &source.host),
        _ => return Err(at(String::from("it has no table [cluster.NAME], nor [takeover] in their place"))),
    };
    let takeover = takeover.map_or_else(|| Ok(Takeover::default()), parse_takeover);
    Ok(Loaded { clusters, takeover: takeover.map_err(|what| at(format!("[takeover]: {what}"))) })
}

/// `"zone=eu-2" = ["zone=eu-1"]`
fn parse_takeover(table: Value) -> Result<Takeover, String> {
    let Value::Object(entries) = table else {
        return Err(String::from("write it as a table, with lines \"LABEL=VALUE\" = [\"LABEL=VALUE\"]"));
    };
    let entry = |(domain, takers): (String, Value)| {
        let takers = read(&domain, LIST, &takers)?;
        Ok((domain, takers))
    };
    Takeover::new(entries.into_iter().map(entry).collect::<Result<Vec<_>, String>>()?)
}

/// The value of a setting; `form` says what it must be.
fn read<T: DeserializeOwned>(key: &str, form: &str, value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|what| format!("{key:?} must be {form} ({what})"))
}

/// Refuses a text that is no valid name of a cluster.
fn check_name(name: &str) -> Result<(), String> {
    match name.len() <= MAX_NAME && config::is_name(name) {
        true => Ok(()),
        false => Err(format!(
            "the name {name:?} of a cluster may have up to {MAX_NAME} letters, digits, '-', '_' and '.'"
        )),
    }
}

/// Refuses names with which the IDs of volumes and snapshots would be too long.
fn check_length(cluster: &Cluster) -> Result<(), String> {
    let longest = cluster.namespaces.iter().max_by_key(|name| ids::encode(name).len());
    let fits = |pool: &String, registry: Option<&str>| {
        let namespace = longest.cloned().unwrap_or_default();
        let place =
            Place { backend: "rbd".into(), cluster: cluster.name.clone(), pool: pool.clone(), namespace };
        place.fits(registry, ids::MAX_RBD_PLACE).map_err(|error| error.message().to_string())
    };
    cluster.pools.iter().try_for_each(|pool| fits(pool, None))?;
    cluster.domain_pools.iter().try_for_each(|pool| fits(&pool.name, cluster.registry.as_deref()))
}

/// A cluster in the file.
struct Section<'a> {
    name: &'a str,
    settings: Map<String, Value>,
}

impl<'a> Section<'a> {
    fn new(name: &'a str, settings: Value) -> Result<Self, String> {
        check_name(name)?;
        let Value::Object(settings) = settings else {
            return Err(format!("write it as a table [cluster.{name}]"));
        };
        match settings.keys().find(|key| !SETTINGS.contains(&key.as_str())) {
            Some(wrong) => {
                Err(format!("{wrong:?} is not known; did you mean {:?}?", spelling::nearest(wrong, SETTINGS)))
            }
            None => Ok(Self { name, settings }),
        }
    }

    fn cluster(&self, files: &mut Files, credentials: Option<&Path>) -> Result<Cluster, String> {
        let user = self.text("user")?;
        if let Some(user) = &user {
            config::check_user(user).map_err(|what| format!("user: {what}"))?;
        }
        let key = self.key(credentials)?;
        if key.is_some() && user.is_none() {
            return Err(String::from("it has a key but no 'user' (without 'client.')"));
        }
        let mut cluster = match (self.path("conf")?, self.monitors()?) {
            (Some(conf), None) => from_conf(files, self.name, &conf, user.as_deref(), key)?,
            (None, Some(monitors)) => self.by_monitors(files, monitors, user, key)?,
            _ => return Err(String::from("set one of 'monitors' and 'conf' (the path of a ceph.conf)")),
        };
        (cluster.pools, cluster.namespaces) = (self.get("pools", LIST)?, self.get("namespaces", LIST)?);
        let domain_pools: Vec<domain_pools::Section> = self.get("pool", domain_pools::FORM)?;
        cluster.domain_pools =
            domain_pools.into_iter().map(domain_pools::Section::read).collect::<Result<_, _>>()?;
        (cluster.removed_pools, cluster.registry) =
            (self.get("removed_pools", LIST)?, self.text("registry")?);
        (cluster.serves, cluster.peers) = (self.get("serves", LIST)?, self.get("peer", PEERS)?);
        cluster.serves.iter().chain(cluster.peers.values()).try_for_each(|name| check_name(name))?;
        cluster.fsid = self.text("fsid")?.or(cluster.fsid);
        cluster.read_affinity = self.get("readAffinity", "true or false")?;
        check_length(&cluster)?;
        Ok(cluster)
    }

    fn by_monitors(
        &self,
        files: &mut Files,
        list: String,
        user: Option<String>,
        key: Option<KeyFile>,
    ) -> Result<Cluster, String> {
        let mut cluster = Cluster::named(self.name);
        cluster.monitors = monitors::parse(&list).map_err(|what| format!("monitors: {what}"))?;
        match (user, key) {
            (Some(user), Some(key)) => {
                cluster.own(&user, Some(key.read(files, &user)?), key.path().display().to_string())
            }
            (Some(user), None) => {
                return Err(format!("user {user:?} needs one of 'key_file', 'keyring' and 'credential'"));
            }
            (None, _) => {}
        }
        Ok(cluster)
    }

    /// A text, or a list of texts.
    fn monitors(&self) -> Result<Option<String>, String> {
        match self.settings.get("monitors") {
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(list) => Ok(Some(read::<Vec<String>>("monitors", LIST, list)?.join(" "))),
            None => Ok(None),
        }
    }

    fn key(&self, credentials: Option<&Path>) -> Result<Option<KeyFile>, String> {
        match (self.path("key_file")?, self.path("keyring")?, self.text("credential")?) {
            (None, None, None) => Ok(None),
            (Some(path), None, None) => Ok(Some(KeyFile::Bare(path))),
            (None, Some(path), None) => Ok(Some(KeyFile::Keyring(path))),
            (None, None, Some(name)) if name.contains('/') || name.starts_with('.') => {
                Err(String::from("'credential' is a name, as in LoadCredential=NAME:PATH of the unit"))
            }
            (None, None, Some(name)) => match credentials {
                Some(directory) => Ok(Some(KeyFile::Bare(directory.join(name)))),
                None => Err(format!(
                    "the credential {name:?} can only be read by the service: systemd sets \
                     CREDENTIALS_DIRECTORY for a unit with \
                     LoadCredential={name}:PATH"
                )),
            },
            _ => Err(String::from("set only one of 'key_file', 'keyring' and 'credential'")),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.settings.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(format!("{key:?} must be a text in quotes, and not empty")),
        }
    }

    fn path(&self, key: &str) -> Result<Option<PathBuf>, String> {
        match self.text(key)?.map(PathBuf::from) {
            Some(path) if !path.is_absolute() => Err(format!("{key:?} must be an absolute path")),
            path => Ok(path),
        }
    }

    /// A setting, or the default of its type; `form` says what it must be.
    fn get<T: DeserializeOwned + Default>(&self, key: &str, form: &str) -> Result<T, String> {
        self.settings.get(key).map_or(Ok(T::default()), |value| read(key, form, value))
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
