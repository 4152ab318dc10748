#![allow(clippy::unwrap_used)]

use std::os::unix::ffi::OsStringExt;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// A configuration with the endpoint and these variables.
fn config(variables: &[(&str, &str)]) -> Result<Config, Vec<Mistake>> {
    let endpoint = ("CSI_ENDPOINT", "unix:///csi/csi.sock");
    Config::from_env(environment(&[&[endpoint], variables].concat()), "node-1")
}

#[track_caller]
fn only_mistake(variables: &[(&str, &str)]) -> String {
    let mistakes = config(variables).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    mistakes[0].to_string()
}

#[test]
fn the_endpoint_is_enough() {
    let config = config(&[("PATH", "/bin"), ("NOMAD_TASK", "x")]).unwrap();
    assert_eq!(config.identity.node_id, "node-1");
    assert_eq!(config.identity.name, "org.cephlet.csi");
    assert_eq!(config.services, BTreeSet::from([Service::Controller, Service::Node]));
    assert_eq!(config.backends, BTreeSet::from([Backend::Local]));
    let directories = ["/var/lib/cephlet", "/run/cephlet", "/var/lib/cephlet/local"].map(PathBuf::from);
    let Directories { state, runtime, local } = config.directories;
    assert_eq!([state, runtime, local], directories);
    let Limits { workers, queue, lock_slots, lock_wait, tool_timeout, tools } = config.limits;
    assert_eq!((workers, queue, lock_slots, tools), (8, 256, 1024, 4));
    assert_eq!((lock_wait, tool_timeout), (Duration::from_secs(60), Duration::from_secs(120)));
    assert_eq!(config.single_node_targets, Targets::Lenient);
    assert_eq!((config.log.as_str(), config.notify_socket), ("info", None));
}

#[test]
fn without_an_endpoint_there_is_no_daemon() {
    let mistakes = Config::from_env([], "node-1").unwrap_err();
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].to_string().starts_with("CSI_ENDPOINT is not set"), "{}", mistakes[0]);
}

#[test]
fn all_mistakes_are_reported_together() {
    let mistakes = config(&[
        ("CEPHLET_WORKERS", "3"),
        ("CEPHLET_LOCK_WAIT", "60"),
        ("CEPHLET_NAME", "csi"),
        ("CEPHLET_STATE_DIR", "state"),
        ("CEPHLET_BACKENDS", "rbd"),
        ("CEPHLET_SINGLE_NODE_TARGETS", "loose"),
        ("CEPHLET_LOCKSLOTS", "12"),
    ])
    .unwrap_err();
    let names: Vec<_> = mistakes.iter().map(|mistake| mistake.variable.as_str()).collect();
    let order = ["NAME", "BACKENDS", "STATE_DIR", "WORKERS", "LOCK_WAIT", "SINGLE_NODE_TARGETS", "LOCKSLOTS"];
    assert_eq!(names, order.map(|name| format!("CEPHLET_{name}")));
    let workers = &mistakes[3];
    assert_eq!(workers.to_string(), "CEPHLET_WORKERS=\"3\" must be a whole number from 4 to 64");
}

#[test]
fn a_variable_nobody_knows_is_a_mistake_that_names_the_nearest() {
    assert!(only_mistake(&[("CEPHLET_NODEID", "n1")]).contains("did you mean CEPHLET_NODE_ID?"));
    assert!(only_mistake(&[("CEPHLET_FROBNICATE_ALL_THINGS", "1")]).contains("cephlet config"));
}

#[test]
fn an_empty_variable_is_a_mistake() {
    assert!(only_mistake(&[("CEPHLET_NODE_ID", "")]).contains("set but empty"));
}

#[test]
fn a_value_that_is_no_text_is_a_mistake() {
    let odd = (OsString::from("CEPHLET_NODE_ID"), OsString::from_vec(vec![0xff]));
    let endpoint = environment(&[("CSI_ENDPOINT", "/csi.sock")]);
    let mistakes = Config::from_env(endpoint.into_iter().chain([odd]), "node-1").unwrap_err();
    assert_eq!(mistakes[0].to_string(), "CEPHLET_NODE_ID is not valid UTF-8");
}

#[test]
fn systemd_names_the_directories() {
    let config =
        config(&[("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"), ("RUNTIME_DIRECTORY", "/run/a"), ("NOTIFY_SOCKET", "@n")])
            .unwrap();
    assert_eq!(config.directories.state, PathBuf::from("/var/lib/a"));
    assert_eq!(config.directories.runtime, PathBuf::from("/run/a"));
    assert_eq!(config.directories.local, PathBuf::from("/var/lib/a/local"));
    assert_eq!(config.notify_socket.as_deref(), Some("@n"));
    let state = config.describe().iter().find(|setting| setting.name == "CEPHLET_STATE_DIR").unwrap();
    assert_eq!((state.value.as_str(), state.origin.to_string()), ("/var/lib/a", "$STATE_DIRECTORY".to_owned()));
}

#[test]
fn the_variable_goes_before_systemd() {
    let config = config(&[("STATE_DIRECTORY", "/var/lib/a"), ("CEPHLET_STATE_DIR", "/srv/state")]).unwrap();
    assert_eq!(config.directories.state, PathBuf::from("/srv/state"));
}

#[test]
fn nothing_that_must_last_lies_where_a_boot_sweeps() {
    assert!(only_mistake(&[("CEPHLET_STATE_DIR", "/run/cephlet/state"), ("CEPHLET_LOCAL_DIR", "/srv")]).contains("every boot"));
    assert!(only_mistake(&[("CEPHLET_LOCAL_DIR", "/run/cephlet/volumes")]).starts_with("CEPHLET_LOCAL_DIR="));
    assert!(only_mistake(&[("CEPHLET_LOCAL_DIR", "/var/lib/cephlet/")]).contains("of its own"));
}

#[test]
fn a_node_id_must_leave_room_in_the_ids_of_local_volumes() {
    let long = "n".repeat(58);
    assert_eq!(config(&[("CEPHLET_NODE_ID", &long)]).unwrap().identity.node_id, long);
    let problem = only_mistake(&[("CEPHLET_NODE_ID", &"n".repeat(59))]);
    assert!(problem.contains("takes 59 bytes") && problem.contains("room for 58"), "{problem}");
    assert!(only_mistake(&[("CEPHLET_NODE_ID", &":".repeat(20))]).contains("takes 60 bytes"));
    assert!(only_mistake(&[("CEPHLET_NODE_ID", &"n".repeat(129))]).contains("1 to 128 bytes"));
}

#[test]
fn every_variable_is_described() {
    let config = config(&[("CEPHLET_TOOLS", "2")]).unwrap();
    let names: BTreeSet<_> = config.describe().iter().map(|setting| setting.name).collect();
    assert_eq!(names, VARIABLES.iter().map(|variable| variable.name).collect());
    let tools = config.describe().iter().find(|setting| setting.name == "CEPHLET_TOOLS").unwrap();
    assert_eq!((tools.value.as_str(), tools.origin), ("2", Origin::Environment));
    assert!(config.describe().iter().all(|setting| !setting.meaning.is_empty()));
}

#[test]
fn a_client_needs_nothing() {
    let client = ClientConfig::from_env([]).unwrap();
    assert_eq!(client.endpoint.path(), PathBuf::from("/run/cephlet/csi.sock"));
    assert_eq!(client.runtime, PathBuf::from("/run/cephlet"));
    let other = [("CSI_ENDPOINT", "/tmp/x.sock"), ("CEPHLET_WORKERS", "none"), ("CEPHLET_TYPO", "x")];
    assert_eq!(ClientConfig::from_env(environment(&other)).unwrap().endpoint.path(), PathBuf::from("/tmp/x.sock"));
    assert!(ClientConfig::from_env(environment(&[("CSI_ENDPOINT", "tcp://x")])).is_err());
}
