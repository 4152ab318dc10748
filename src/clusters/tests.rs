#![allow(clippy::unwrap_used)]

use super::keys::tests::KEY;
use super::*;
use crate::config::HostCluster;
use crate::error::Kind;
use crate::secrets::{Secret, Secrets};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with a clusters file and a key.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new(text: &str) -> (Self, Clusters) {
        let scene = Self(tempfile::tempdir().unwrap());
        scene.write("key", KEY);
        scene.write("clusters.toml", text);
        let clusters = Clusters::load(file(&scene.path("clusters.toml")));
        (scene, clusters)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces a file as editors do.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text.replace("KEY", &self.path("key").display().to_string())).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }
}

/// A file on a host without a ceph.conf.
fn file(path: &Path) -> ClusterSource {
    let host = HostCluster { conf: "/nonexistent/ceph.conf".into(), ..HostCluster::default() };
    ClusterSource { file: Some(path.to_path_buf()), credentials: None, host }
}

const ONE: &str = "[cluster.main]\nmonitors = '10.0.0.1'\nuser = 'web'\nkey_file = 'KEY'\n";

fn monitors(clusters: &Clusters, name: &str) -> String {
    clusters.find(name).unwrap().unwrap().monitors_text()
}

#[test]
fn a_broken_file_leaves_what_is_in_force() {
    let (scene, clusters) = Scene::new(ONE);
    assert_eq!(clusters.trouble(), None);
    for broken in ["[cluster.main\n", "", "monitors = 'x'\n", "[other]\n"] {
        scene.write("clusters.toml", broken);
        clusters.reload();
        assert_eq!(monitors(&clusters, "main"), "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]", "{broken:?}");
        assert!(clusters.file_trouble().unwrap().contains("clusters.toml: "), "{broken:?}");
        assert_eq!(clusters.trouble(), None, "a cluster still works");
    }
    scene.write("clusters.toml", &ONE.replace("10.0.0.1", "10.0.0.2:6789"));
    clusters.reload_if_changed();
    assert_eq!((monitors(&clusters, "main").as_str(), clusters.file_trouble()), ("v1:10.0.0.2:6789", None));
}

#[test]
fn a_bad_entry_leaves_the_others_and_its_own_former_self() {
    let (scene, clusters) = Scene::new(&format!("{ONE}[cluster.bad]\nuser = 'x'\n"));
    let error = clusters.find("bad").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(
        error.message().contains("\"bad\" is disabled") && error.message().contains("'monitors'"),
        "{error}"
    );
    assert_eq!(clusters.all().len(), 1);
    assert!(clusters.find("unknown").unwrap().is_none());
    scene.write(
        "clusters.toml",
        &format!("{}pool = ['x']\n[cluster.new]\nmonitors = 'a'\n", ONE.replace("10.0.0.1", "10.0.0.9")),
    );
    clusters.reload();
    assert!(monitors(&clusters, "main").contains("10.0.0.1"), "it stays as it was");
    assert!(clusters.entries()[0].1.trouble.as_ref().unwrap().contains("a list of names is 'pools'"));
    assert!(clusters.find("new").unwrap().is_some() && clusters.find("bad").unwrap().is_none());
}

#[test]
fn a_rotated_key_is_taken_and_a_broken_one_is_not() {
    let (scene, clusters) = Scene::new(ONE);
    let key = || clusters.find("main").unwrap().unwrap().credentials.clone().unwrap().key.unwrap();
    let other = KEY.replace("AAAA==", "AAAB==");
    let other = if keys::check(&other).is_ok() { other } else { KEY.replacen("EAAA", "EAAB", 1) };
    scene.write("key", &other);
    clusters.reload_if_changed();
    assert_eq!(key().reveal(), other);
    scene.write("key", "AQDbroken");
    clusters.reload_if_changed();
    assert_eq!(key().reveal(), other);
    let trouble = clusters.entries()[0].1.trouble.clone().unwrap();
    assert!(trouble.contains("not valid base64") && !trouble.contains("AQD"), "{trouble}");
}

#[test]
fn a_file_that_never_was_readable_is_told_to_every_request() {
    let clusters = Clusters::load(file(Path::new("/nonexistent/clusters.toml")));
    let error = clusters.find("main").unwrap_err();
    assert!(
        error.kind() == Kind::Unavailable
            && error.message().contains("/nonexistent/clusters.toml: No such file"),
        "{error}"
    );
    assert!(clusters.are_set_up() && clusters.trouble().unwrap().contains("No such file"));
}

fn host(conf: &Path, keyring: Option<&Path>, wanted: bool) -> Clusters {
    let keyring = keyring.map(Path::to_path_buf);
    let conf = conf.to_path_buf();
    let host = HostCluster { conf, user: "admin".into(), keyring, wanted };
    Clusters::load(ClusterSource { host, ..ClusterSource::default() })
}

#[test]
fn a_host_without_a_conf_has_no_cluster_unless_one_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("ceph.conf");
    let clusters = host(&conf, None, false);
    assert!(!clusters.are_set_up() && clusters.find("ceph").unwrap().is_none());
    assert!(clusters.trouble().unwrap().contains("no Ceph cluster is set up"));
    let wanted = host(&conf, None, true);
    assert!(
        wanted.are_set_up() && wanted.find("ceph").unwrap_err().message().contains("ceph.conf: No such file")
    );
    fs::write(&conf, "[global]\nmon host = 10.0.0.1\nfsid = f\n").unwrap();
    clusters.reload_if_changed();
    assert_eq!(clusters.find("ceph").unwrap().unwrap().fsid.as_deref(), Some("f"), "it came later");
}

#[test]
fn a_host_whose_conf_or_keyring_is_gone_for_a_moment_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (conf, keyring) = (dir.path().join("ceph.conf"), dir.path().join("keyring"));
    let write = || {
        fs::write(&keyring, format!("[client.admin]\n\tkey = {KEY}\n")).unwrap();
        let text = format!("[global]\nmon_host = 10.0.0.1\nkeyring = {}\n", keyring.display());
        fs::write(&conf, text).unwrap();
    };
    write();
    let clusters = host(&conf, None, false);
    let user = || clusters.find("ceph").unwrap().unwrap().credentials.clone().unwrap().user;
    for gone in [&conf, &keyring] {
        fs::remove_file(gone).unwrap();
        clusters.reload_if_changed();
        assert_eq!(user(), "admin", "{}", gone.display());
        let entry = clusters.entries().remove(0).1;
        let trouble = clusters.file_trouble().or(entry.trouble).unwrap();
        assert!(trouble.contains(gone.to_str().unwrap()), "{trouble}");
        write();
        clusters.reload_if_changed();
        let trouble = (clusters.file_trouble(), clusters.entries().remove(0).1.trouble);
        assert_eq!((user().as_str(), trouble), ("admin", (None, None)));
    }
}

#[test]
fn a_host_is_served_as_ceph_would() {
    let dir = tempfile::tempdir().unwrap();
    let (conf, keyring) = (dir.path().join("ceph.conf"), dir.path().join("keyring"));
    fs::write(&keyring, format!("[client.admin]\n\tkey = {KEY}\n")).unwrap();
    fs::write(&conf, format!("[global]\nmon_host = [v2:10.0.0.1:3300/0]\nkeyring = {}\n", keyring.display()))
        .unwrap();
    let cluster = host(&conf, None, false).find("ceph").unwrap().unwrap();
    let credentials = cluster.credentials(&Secrets::default()).unwrap();
    assert_eq!((credentials.user.as_str(), credentials.key.unwrap().reveal()), ("admin", KEY));
    assert_eq!(cluster.kernel_monitors().unwrap(), ("10.0.0.1:3300".into(), true));
    assert_eq!(
        (cluster.key_from.as_str(), cluster.conf.as_deref()),
        (keyring.to_str().unwrap(), Some(conf.as_path()))
    );
    let missing = host(&conf, Some(Path::new("/nonexistent/keyring")), false);
    assert!(missing.find("ceph").unwrap_err().message().contains("/nonexistent/keyring"));
    fs::remove_file(&keyring).unwrap();
    let reduced = host(&conf, None, false).find("ceph").unwrap().unwrap();
    let error = reduced.credentials(&Secrets::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthenticated);
    assert!(
        error.message().contains("no key for client.admin in ") && error.message().contains("userKey"),
        "{error}"
    );
}

fn with_secrets(pairs: &[(&str, &str)]) -> Result<Credentials> {
    let mut cluster = Cluster::named("main");
    cluster.own("own", Some(Secret::new(KEY)), String::from("here"));
    cluster.credentials(&pairs.iter().copied().collect())
}

#[test]
fn secrets_of_a_request_win_and_come_in_pairs() {
    assert_eq!(with_secrets(&[]).unwrap().user, "own");
    assert_eq!(with_secrets(&[("adminID", "x"), ("other", "y")]).unwrap().user, "own");
    assert_eq!(
        with_secrets(&[("userID", "client.tenant"), ("userKey", &format!("{KEY}\n"))]).unwrap().user,
        "tenant"
    );
    for (there, missing) in [("userID", "userKey"), ("userKey", "userID")] {
        let error = with_secrets(&[(there, KEY)]).unwrap_err();
        assert!(
            error.kind() == Kind::InvalidArgument
                && error.message().contains(&format!("without \"{missing}\"")),
            "{error}"
        );
    }
    for (user, key) in [("tenant", "AQDwrong"), ("--help", KEY), ("", KEY)] {
        let error = with_secrets(&[("userID", user), ("userKey", key)]).unwrap_err();
        assert!(error.kind() == Kind::InvalidArgument && !error.message().contains("AQ"), "{error}");
    }
}

#[test]
fn pools_and_namespaces_are_allowed_by_name() {
    let mut cluster = Cluster::named("main");
    assert!(cluster.allows("any", "any"));
    (cluster.pools, cluster.namespaces) = (vec!["vms".into()], vec![String::new()]);
    assert!(cluster.allows("vms", "") && !cluster.allows("vms", "blue") && !cluster.allows("rbd", ""));
}

#[test]
fn a_cluster_is_found_under_the_names_that_it_serves() {
    let serving = |name: &str, serves: &[&str]| Cluster {
        serves: serves.iter().map(ToString::to_string).collect(),
        ..Cluster::named(name)
    };
    let clusters = Clusters::of([serving("backup", &["main", "lab"]), serving("lab", &[])]);
    let found = |name: &str| clusters.find(name).unwrap().map(|cluster| cluster.name.clone());
    assert_eq!(found("main").as_deref(), Some("backup"));
    assert_eq!(found("lab").as_deref(), Some("lab"), "its own name comes first");
    assert_eq!(found("other"), None);
    assert_eq!(clusters.canonical("main"), "backup");
    assert_eq!(clusters.canonical("other"), "other");
}

/// A cluster that cannot be used is not absent.
#[test]
fn a_cluster_that_cannot_be_used_still_serves_its_names() {
    let (_scene, clusters) = Scene::new("[cluster.backup]\nconf = '/nonexistent'\nserves = ['main']\n");
    let error = clusters.find("main").unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.message().contains("disabled"), "{error}");
    assert!(clusters.find("other").unwrap().is_none());
}

/// The takeovers that a node in `zone=a` reports.
fn taken(clusters: &Clusters) -> Vec<String> {
    let labels = crate::topology::Labels::given("zone=a").unwrap();
    let node = crate::topology::NodeTopology::load("p.q", &labels, None, clusters.takeover()).unwrap();
    node.domains().split_off(1)
}

#[test]
fn takeovers_and_clusters_do_not_depend_on_each_other() {
    let map = "[takeover]\n'zone=b' = ['zone=a', 'zone=c']\n";
    let (scene, clusters) = Scene::new(&format!("{ONE}{map}"));
    let took = ["zone=b (taken over by zone=a)"];
    assert_eq!((taken(&clusters), clusters.takeover_trouble()), (took.map(String::from).to_vec(), None));
    for (broken, what) in [
        ("[takeover]\n'b' = ['all']\n", "\"b\" is no domain"),
        ("[takeover]\n'zone=b' = 'all'\n", "\"zone=b\" must be a list"),
        ("[[takeover]]\n", "write it as a table"),
    ] {
        scene.write("clusters.toml", &format!("{}{broken}", ONE.replace("10.0.0.1", "10.0.0.2:6789")));
        clusters.reload_if_changed();
        assert_eq!(taken(&clusters), took, "{broken}");
        assert_eq!(monitors(&clusters, "main"), "v1:10.0.0.2:6789");
        let trouble = clusters.takeover_trouble().unwrap();
        assert!(trouble.contains("clusters.toml: [takeover]: ") && trouble.contains(what), "{trouble}");
    }
    scene.write("clusters.toml", &format!("{}{map}", ONE.replace("monitors", "monitor")));
    clusters.reload_if_changed();
    assert_eq!((taken(&clusters), clusters.takeover_trouble()), (took.map(String::from).to_vec(), None));
    for nothing in ["", "[cluster.main\n"] {
        scene.write("clusters.toml", nothing);
        clusters.reload_if_changed();
        assert_eq!(taken(&clusters), took, "a file that is being written gives nothing back");
    }
    scene.write("clusters.toml", ONE);
    clusters.reload_if_changed();
    assert!(taken(&clusters).is_empty() && clusters.file_trouble().is_none());
}

#[test]
fn a_file_without_clusters_leaves_the_hosts_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, conf) = (dir.path().join("clusters.toml"), dir.path().join("ceph.conf"));
    fs::write(&path, "[takeover]\n'zone=b' = ['all']\n").unwrap();
    let host = HostCluster { conf: conf.clone(), user: "admin".into(), ..HostCluster::default() };
    let clusters = Clusters::load(ClusterSource { file: Some(path.clone()), credentials: None, host });
    assert!(!clusters.are_set_up() && clusters.trouble().unwrap().contains("there is no "));
    fs::write(&conf, "[global]\nmon host = 10.0.0.1\n").unwrap();
    clusters.reload_if_changed();
    assert!(clusters.find("ceph").unwrap().is_some());
    fs::remove_file(&conf).unwrap();
    fs::write(&path, "[takeover]\n").unwrap();
    clusters.reload_if_changed();
    assert!(clusters.find("ceph").unwrap().is_some() && clusters.file_trouble().is_some());
    assert!(taken(&clusters).is_empty(), "given back all the same");
}
