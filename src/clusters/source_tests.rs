#![allow(clippy::unwrap_used)]

use super::super::keys::tests::KEY;
use super::*;
use crate::clusters::DomainPool;
use crate::topology::Domains;
use std::fs;

/// Reads one cluster with these settings, from a file beside a key, a keyring, a conf and a credential.
fn read(settings: &str) -> Result<Cluster, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("key"), KEY).unwrap();
    fs::write(path("keyring"), format!("[client.web]\nkey = {KEY}\n")).unwrap();
    fs::write(
        path("x.conf"),
        "[global]\nfsid = of-conf\nmon host = 10.0.0.7:6789\nkeyring = /nonexistent/keyring\n",
    )
    .unwrap();
    let text = format!("[cluster.main]\n{}\n", settings.replace("DIR", &dir.path().display().to_string()));
    fs::write(path("clusters.toml"), text).unwrap();
    let (file, credentials) = (Some(path("clusters.toml")), Some(dir.path().to_path_buf()));
    let source = ClusterSource { file, credentials, host: HostCluster::default() };
    source.load().0.unwrap().clusters.remove("main").unwrap().cluster
}

#[test]
fn a_cluster_is_described_by_monitors() {
    let settings = "monitors = ['10.0.0.1', 'v1:10.0.0.2:6789']\nuser = 'web'\nkey_file = 'DIR/key'\npools = \
                    ['a', 'b']\n\
                    namespaces = ['', 'n']\nfsid = 'f'";
    let cluster = read(settings).unwrap();
    assert_eq!(cluster.monitors_text(), "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],v1:10.0.0.2:6789");
    assert_eq!(
        (cluster.pools, cluster.namespaces),
        (vec!["a".into(), "b".into()], vec![String::new(), "n".into()])
    );
    assert_eq!((cluster.fsid.as_deref(), cluster.conf), (Some("f"), None));
    assert!(!cluster.read_affinity && read("monitors = 'a'\nreadAffinity = true").unwrap().read_affinity);
    assert_eq!(cluster.credentials.unwrap().key.unwrap().reveal(), KEY);
}

#[test]
fn a_cluster_is_described_by_a_conf() {
    let cluster = read("conf = 'DIR/x.conf'\nuser = 'web'\nkeyring = 'DIR/keyring'").unwrap();
    assert_eq!(
        (cluster.monitors_text().as_str(), cluster.fsid.as_deref()),
        ("v1:10.0.0.7:6789", Some("of-conf"))
    );
    assert!(cluster.conf.is_some() && cluster.credentials.unwrap().key.is_some());
    let reduced = read("conf = 'DIR/x.conf'\nuser = 'web'").unwrap();
    assert_eq!(
        (reduced.credentials, reduced.key_from.as_str()),
        (None, "no key for client.web in /nonexistent/keyring")
    );
    assert!(read("conf = 'DIR/x.conf'").unwrap().credentials.is_none());
}

#[test]
fn a_key_may_be_a_credential_of_the_service() {
    let cluster = read("monitors = 'a'\nuser = 'web'\ncredential = 'key'").unwrap();
    assert_eq!(cluster.credentials.unwrap().key.unwrap().reveal(), KEY);
    assert!(read("monitors = 'a'\nuser = 'web'\ncredential = '../key'").unwrap_err().contains("is a name"));
}

#[test]
fn every_mistake_is_named() {
    let cases = [
        ("monitor = 'a'", "\"monitor\" is not known; did you mean \"monitors\"?"),
        ("user = 'x'", "set one of 'monitors' and 'conf'"),
        ("monitors = 'a'\nconf = '/x'", "set one of 'monitors' and 'conf'"),
        ("monitors = 'a!'", "\"a!\" is not the address of a monitor"),
        ("monitors = []", "no monitor is named"),
        ("monitors = 'a'\nuser = 'x'", "user \"x\" needs one of 'key_file'"),
        ("monitors = 'a'\nkey_file = '/x'", "it has a key but no 'user'"),
        ("monitors = 'a'\nuser = 'client.x'\nkey_file = '/x'", "user: allowed is the name of a Ceph user"),
        ("monitors = 'a'\nuser = 'web'\nkey_file = 'DIR/key'\nkeyring = '/x'", "set only one of 'key_file'"),
        ("monitors = 'a'\nuser = 'web'\nkey_file = 'key'", "\"key_file\" must be an absolute path"),
        ("monitors = 'a'\nuser = 'web'\nkey_file = 'DIR/keyring'", "keyring: the key is not valid base64"),
        ("monitors = 'a'\nuser = 'other'\nkeyring = 'DIR/keyring'", "has no key for client.other"),
        ("monitors = 'a'\npools = 'x'", "\"pools\" must be a list of texts"),
        ("monitors = 'a'\nreadAffinity = 1", "\"readAffinity\" must be true or false"),
        ("monitors = 'a'\nuser = 5", "\"user\" must be a text"),
        ("conf = '/nonexistent/c'", "/nonexistent/c: No such file"),
    ];
    for (settings, what) in cases {
        let error = read(settings).unwrap_err();
        assert!(
            error.contains("clusters.toml: cluster \"main\": ") && error.contains(what),
            "{settings}: {error}"
        );
        assert!(!error.contains(KEY), "{error}");
    }
}

#[test]
fn names_must_fit_into_ids() {
    let new = |name: &str| Section::new(name, Value::Object(Map::new())).is_ok();
    assert!(new("main-1.a_b") && new(&"x".repeat(MAX_NAME)));
    assert!(!new("") && !new("a:b") && !new("a b") && !new(&"x".repeat(MAX_NAME + 1)));
    assert!(Section::new("a", Value::Null).is_err());
}

#[test]
fn a_cluster_says_what_its_peers_are_called_and_for_whom_it_stands() {
    let plain = "monitors = 'a'\n";
    let cluster = read(&format!("{plain}serves = ['b', 'c']\n[cluster.main.peer]\n'site-b' = 'b'")).unwrap();
    assert_eq!(cluster.serves, ["b", "c"]);
    assert_eq!(cluster.peers, [("site-b".to_string(), "b".to_string())].into());
    for (wrong, named) in [
        ("serves = 'b'", "\"serves\""),
        ("serves = ['a b']", "\"a b\""),
        ("peer = 'b'", "\"peer\""),
        ("[cluster.main.peer]\n'site-b' = 1", "\"peer\""),
        ("[cluster.main.peer]\n'site-b' = ''", "\"\""),
    ] {
        let why = read(&format!("{plain}{wrong}")).unwrap_err();
        assert!(why.contains(named), "{wrong}: {why}");
    }
}

#[test]
fn pools_may_have_domains() {
    let pool = |rest: &str| format!("monitors = 'a'\npools = ['names']\n[[cluster.main.pool]]\n{rest}\n");
    let cluster = read(&pool("name = 'eu1'\ndataPool = 'ec'\ndomain = { zone = 'eu-1' }")).unwrap();
    let expected = DomainPool {
        name: "eu1".into(),
        data_pool: Some("ec".into()),
        domains: Domains::new([("zone", "eu-1")]).unwrap(),
    };
    assert_eq!(cluster.domain_pools, [expected]);
    assert!(cluster.allows("eu1", "") && cluster.allows("names", "") && !cluster.allows("ec", ""));
    for (wrong, what) in [
        ("name = 'eu1'", "domain"),
        ("name = 'eu1'\ndomain = {}", "needs a name and a domain"),
        ("name = 'eu1'\ndomain = { node = 'n' }", "\"eu1\": the label \"node\" is taken"),
        ("name = 'eu1'\ndomain = { zone = 'a' }\ndatapool = 'x'", "datapool"),
    ] {
        let error = read(&pool(wrong)).unwrap_err();
        assert!(error.contains(what), "{wrong}: {error}");
    }
    assert!(read("monitors = 'a'\npool = 'eu1'").unwrap_err().contains("[[cluster.NAME.pool]]"));
    assert_eq!(read("monitors = 'a'\nregistry = 'names'").unwrap().registry.as_deref(), Some("names"));
}

/// CSI allows 128 bytes for an ID: the room for these names is checked before any volume is made.
#[test]
fn pools_and_namespaces_with_which_ids_would_be_too_long_are_refused() {
    let fits = |pools: &str, namespaces: &str, rest: &str| {
        read(&format!("monitors = 'a'\npools = ['{pools}']\nnamespaces = ['{namespaces}']\n{rest}"))
    };
    let most = crate::ids::MAX_RBD_PLACE - "main".len();
    let (pool, namespace) = ("p".repeat(most - 10), "n".repeat(10));
    assert!(fits(&pool, &namespace, "").is_ok());
    let refused = |outcome: Result<Cluster, String>, what: &str| {
        let refusal = outcome.unwrap_err();
        assert!(refusal.contains(what) && refusal.contains("at most 39 are allowed"), "{refusal}");
    };
    refused(fits(&pool, &(namespace.clone() + "n"), ""), "take 40 bytes");
    refused(fits("p q r", &"n".repeat(most - 8), ""), "take 40 bytes");
    let registered = |pool: &str| {
        format!("registry = 'names'\n[[cluster.main.pool]]\nname = '{pool}'\ndomain = {{ zone = 'a' }}")
    };
    assert!(fits("p", &namespace, &registered(&pool[..pool.len() - 6])).is_ok());
    refused(fits("p", &namespace, &registered(&pool[..pool.len() - 5])), "with the registry \"names\"");
}
