//! Where clusters are set up: the host's own ceph.conf, or a file of ours with several.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::conf::Conf;
use super::keys::{KeyFile, Search, search};
use super::{Cluster, HOST_CLUSTER, monitors};
use crate::config::{self, BackendName, Config};
use crate::files::Files;
use crate::spelling;

/// The settings of a cluster in the file.
const SETTINGS: [&str; 11] = [
    "monitors",
    "conf",
    "user",
    "key_file",
    "keyring",
    "credential",
    "pools",
    "namespaces",
    "fsid",
    "serves",
    "peer",
];

/// The longest name of a cluster, in bytes: it is a field of every ID.
const MAX_NAME: usize = 24;

/// Where clusters are set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// The one cluster that a host with a ceph.conf uses anyway.
    Host {
        /// Its ceph.conf.
        conf: PathBuf,
        /// The user, without `client.`.
        user: String,
        /// Where the user's key is, if not where Ceph looks.
        keyring: Option<PathBuf>,
        /// Whether anybody has said that there is one; if not, a missing conf means that there is none.
        wanted: bool,
    },
    /// A file with several.
    File {
        /// Its path.
        path: PathBuf,
        /// Where systemd puts a service's credentials.
        credentials: Option<PathBuf>,
    },
}

/// What was read: the clusters or why each of them cannot be used, or why nothing could be read.
pub(super) type Loaded = Result<BTreeMap<String, Result<Cluster, String>>, String>;

impl ClusterSource {
    /// Where this configuration has them.
    pub fn new(config: &Config) -> Self {
        match &config.clusters {
            Some(path) => Self::File { path: path.clone(), credentials: config.credentials_dir.clone() },
            None => Self::Host {
                conf: config.ceph.conf.clone(),
                user: config.ceph.user.clone(),
                keyring: config.ceph.keyring.clone(),
                wanted: config.ceph.named || config.wants(BackendName::Rbd) == Some(true),
            },
        }
    }

    /// The file that a person would look at.
    pub fn path(&self) -> &Path {
        let (Self::Host { conf: path, .. } | Self::File { path, .. }) = self;
        path
    }

    /// Reads everything, and notes which files it read.
    pub(super) fn load(&self) -> (Loaded, Files) {
        let mut files = Files::default();
        let loaded = match self {
            Self::Host { conf, wanted: false, .. } if !files.exists(conf) => Ok(BTreeMap::new()),
            Self::Host { conf, user, keyring, .. } => {
                let key = keyring.clone().map(KeyFile::Keyring);
                Ok(BTreeMap::from([(
                    HOST_CLUSTER.to_string(),
                    from_conf(&mut files, HOST_CLUSTER, conf, Some(user), key),
                )]))
            }
            Self::File { path, credentials } => from_file(&mut files, path, credentials.as_deref()),
        };
        (loaded, files)
    }
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

fn from_file(files: &mut Files, path: &Path, credentials: Option<&Path>) -> Loaded {
    let at = |what: String| format!("{}: {what}", path.display());
    let text = files.read(path)?;
    let mut file: Map<String, Value> = basic_toml::from_str(&text).map_err(|error| at(error.to_string()))?;
    let clusters = match file.remove("cluster") {
        Some(Value::Object(clusters)) if !clusters.is_empty() => clusters,
        _ => return Err(at(String::from("it has no table [cluster.NAME]"))),
    };
    if let Some(other) = file.keys().next() {
        return Err(at(format!("{other:?} is not known: clusters stand in tables [cluster.NAME]")));
    }
    let entry = |(name, settings): (String, Value)| {
        let cluster = Section::new(&name, settings).and_then(|entry| entry.cluster(files, credentials));
        let cluster = cluster.map_err(|what| at(format!("cluster {name:?}: {what}")));
        (name, cluster)
    };
    Ok(clusters.into_iter().map(entry).collect())
}

/// Refuses what is no cluster's name.
fn check_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        true => Err(format!(
            "the name {name:?} of a cluster may have up to {MAX_NAME} letters, digits, '-', '_' and '.'"
        )),
        false => Ok(()),
    }
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
        (cluster.pools, cluster.namespaces) = (self.list("pools")?, self.list("namespaces")?);
        (cluster.serves, cluster.peers) = (self.list("serves")?, self.peers()?);
        cluster.serves.iter().chain(cluster.peers.values()).try_for_each(|name| check_name(name))?;
        cluster.fsid = self.text("fsid")?.or(cluster.fsid);
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
            Some(_) => self.list("monitors").map(|list| Some(list.join(" "))),
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

    /// `[cluster.main.peer]`: names of clusters by those of sites.
    fn peers(&self) -> Result<BTreeMap<String, String>, String> {
        let wrong =
            || String::from("'peer' is a table: [cluster.NAME.peer], with lines \"SITE\" = \"CLUSTER\"");
        match self.settings.get("peer") {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(peers)) => {
                let pair = |(site, name): (&String, &Value)| Some((site.clone(), name.as_str()?.to_string()));
                peers.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)
            }
            Some(_) => Err(wrong()),
        }
    }

    fn list(&self, key: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("{key:?} must be a list of texts: [\"a\", \"b\"]");
        match self.settings.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => {
                values.iter().map(|value| value.as_str().map(str::to_string).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
