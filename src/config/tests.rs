//! Tests of `config`.

#![allow(clippy::unwrap_used)]

use super::*;
use std::path::Path;

fn read(variables: &[(&str, &str)]) -> Result<Config, Vec<Mistake>> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::from_variables(Role::Daemon, variables.chain([("CEPHLET_NODE_ID".into(), "n1".into())]))
}

const ENDPOINT: (&str, &str) = ("CSI_ENDPOINT", "unix:///run/x/csi.sock");

#[test]
fn only_the_endpoint_must_be_set() {
    let config = read(&[ENDPOINT]).unwrap();
    assert_eq!(config.endpoint, Path::new("/run/x/csi.sock"));
    assert_eq!((config.workers, config.queue, config.lock_slots), (8, 256, 1024));
    assert_eq!(config.local_dir, Path::new("/var/lib/cephlet/local"));
    assert!(config.services.controller && config.services.node);
    let mistakes = read(&[]).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].name == "CSI_ENDPOINT" && mistakes[0].what.contains("unix:///"));
}

#[test]
fn every_variable_of_the_table_is_read_and_described() {
    let config = read(&[ENDPOINT]).unwrap();
    let mut described: Vec<_> = config.settings.iter().map(|setting| setting.variable.name).collect();
    let mut known: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
    described.sort_unstable();
    known.sort_unstable();
    assert_eq!(described, known);
}

#[test]
fn all_mistakes_are_reported_together() {
    let wrong = [
        ("CSI_ENDPOINT", "tcp://x"),
        ("CEPHLET_WORKERS", "3"),
        ("CEPHLET_LOCK_WAIT", "60"),
        ("CEPHLET_WORKRES", "8"),
    ];
    let mistakes = read(&wrong).unwrap_err();
    let names: Vec<_> = mistakes.iter().map(|mistake| mistake.name.as_str()).collect();
    assert_eq!(names.len(), 4, "{mistakes:?}");
    assert!(wrong.iter().all(|(name, _)| names.contains(name)), "{mistakes:?}");
    assert!(
        mistakes.iter().any(|mistake| mistake.what.contains("did you mean CEPHLET_WORKERS")),
        "{mistakes:?}"
    );
}

#[test]
fn the_service_managers_directories_are_taken() {
    let config =
        read(&[ENDPOINT, ("STATE_DIRECTORY", "/srv/a:/srv/b"), ("RUNTIME_DIRECTORY", "/run/r")]).unwrap();
    assert_eq!(
        (config.state_dir.as_path(), config.runtime_dir.as_path()),
        (Path::new("/srv/a"), Path::new("/run/r"))
    );
    let config = read(&[ENDPOINT, ("STATE_DIRECTORY", "/srv/a"), ("CEPHLET_STATE_DIR", "/mine")]).unwrap();
    assert_eq!(config.state_dir, Path::new("/mine"));
}

#[test]
fn the_command_line_finds_the_socket_of_the_unit_file() {
    let config = Config::from_variables(Role::Client, []).unwrap();
    assert_eq!(config.endpoint, Path::new("/run/cephlet/csi.sock"));
}
