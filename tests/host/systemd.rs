//! The unit and its environment file: systemd's own verdict on them, and what they must never contain.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use cephlet::{Config, Role, VARIABLES};

use crate::support::daemon::binary;

/// Directives that make a mount namespace (systemd.exec(5)): no other process would see the daemon's mounts.
const FORBIDDEN_PREFIXES: [&str; 3] = ["Private", "Protect", "Root"];
const FORBIDDEN: [&str; 20] = [
    "BindPaths",
    "BindReadOnlyPaths",
    "DynamicUser",
    "ExecPaths",
    "ExtensionDirectories",
    "ExtensionImages",
    "InaccessibleDirectories",
    "InaccessiblePaths",
    "LogNamespace",
    "MountAPIVFS",
    "MountFlags",
    "MountImages",
    "NetworkNamespacePath",
    "NoExecPaths",
    "ProcSubset",
    "ReadOnlyDirectories",
    "ReadOnlyPaths",
    "ReadWriteDirectories",
    "ReadWritePaths",
    "TemporaryFileSystem",
];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(file)).unwrap()
}

/// The directives of the unit with all their values.
fn directives() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for line in
        read("cephlet.service").lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty())
    {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line:?} is no directive"));
        found.entry(name.to_string()).or_default().push(value.to_string());
    }
    found
}

/// The variables of the environment file, set or commented out, in order, with their values.
fn variables() -> Vec<(String, String)> {
    let text = read("cephlet.env");
    let assignment = |line: &str| {
        let (name, value) = line.strip_prefix('#').unwrap_or(line).split_once('=')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_name.then(|| (name.to_string(), value.to_string()))
    };
    text.lines().filter_map(assignment).collect()
}

#[test]
fn systemd_accepts_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("cephlet.service");
    let text = read("cephlet.service");
    assert!(text.contains("ExecStart=/usr/bin/cephlet serve"));
    fs::write(&unit, text.replace("/usr/bin/cephlet", binary())).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let verified = verified.expect("systemd-analyze: install Debian's package systemd");
    // Warnings count, too: systemd ignores what it does not know with a warning only.
    let said = String::from_utf8_lossy(&verified.stderr)
        .lines()
        .filter(|line| line.contains("cephlet"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(verified.status.success() && said.is_empty(), "{said}");
}

#[test]
fn nothing_hides_the_daemons_mounts_from_the_host() {
    for name in directives().keys() {
        let hides = FORBIDDEN.contains(&name.as_str())
            || FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        assert!(!hides, "{name} makes a mount namespace");
    }
}

#[test]
fn volumes_outlive_the_daemon() {
    let directives = directives();
    let value = |name: &str| directives.get(name).map(|values| values.join(" ")).unwrap_or_default();
    assert_eq!(value("KillMode"), "process");
    assert_eq!(value("RuntimeDirectoryPreserve"), "yes");
    assert_eq!((value("Type").as_str(), value("NotifyAccess").as_str()), ("notify", "main"));
}

#[test]
fn the_daemon_keeps_the_rights_that_volumes_need() {
    let directives = directives();
    let granted = directives["CapabilityBoundingSet"].join(" ");
    // SYS_RESOURCE: without it a mounted ext4 does not grow. SYS_PTRACE: without it the daemon does not see
    // the processes that have a device open, and never unmaps what rbd-nbd has mapped.
    // CHOWN, FOWNER, FSETID: without them no volume gets an owner, a mode or a group.
    let others = ["CAP_SYS_RESOURCE", "CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE"];
    for needed in ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID"].into_iter().chain(others) {
        assert!(granted.split_whitespace().any(|capability| capability == needed), "{needed}");
    }
    for device in ["/dev/loop-control rw", "block-* rw", "/dev/fuse rw"] {
        assert!(directives["DeviceAllow"].iter().any(|allowed| allowed == device), "{device}");
    }
    // systemd ignores a device that is missing when the unit starts.
    for (order, module) in ["Wants", "After"]
        .iter()
        .flat_map(|order| ["loop", "rbd", "nbd", "ceph", "fuse"].map(|module| (*order, module)))
    {
        assert!(
            directives[order].join(" ").contains(&format!("modprobe@{module}.service")),
            "{order} {module}"
        );
    }
    assert!(!directives.contains_key("RestrictSUIDSGID"), "a mount group sets set-group-id");
    let calls = directives["SystemCallFilter"].join(" ");
    assert!(calls.contains("@mount") && calls.contains("@system-service"), "{calls}");
}

#[test]
fn the_environment_file_has_every_variable_once_and_no_other() {
    let names: Vec<_> = variables().into_iter().map(|(name, _)| name).collect();
    let known: Vec<_> =
        VARIABLES.iter().map(|variable| variable.name).filter(|name| *name != "CEPHLET_CRASH_AT").collect();
    assert_eq!(names, known, "in the order of `cephlet config`");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let set: Vec<_> = read("cephlet.env")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_string)
        .collect();
    assert!(set.is_empty(), "nothing is changed by installing the file: {set:?}");
}

#[test]
fn the_environment_file_shows_the_defaults() {
    let shown = variables();
    for variable in VARIABLES.iter().filter(|variable| !variable.default.is_empty()) {
        if let Some((name, value)) = shown.iter().find(|(name, _)| name == variable.name) {
            assert_eq!(value, variable.default, "{name}");
        }
    }
    // The values that the file shows are those that are in force without it.
    let unit = [
        ("STATE_DIRECTORY", "/var/lib/cephlet"),
        ("RUNTIME_DIRECTORY", "/run/cephlet"),
        ("CSI_ENDPOINT", "unix:///run/cephlet/csi.sock"),
    ];
    let unit = || unit.iter().map(|(name, value)| (name.into(), value.into()));
    let bare = Config::from_variables(Role::Daemon, unit()).unwrap();
    let set = Config::from_variables(
        Role::Daemon,
        unit().chain(shown.iter().map(|(name, value)| (name.into(), value.into()))),
    )
    .unwrap();
    let values = |config: &Config| {
        config
            .settings
            .iter()
            .map(|setting| (setting.variable.name, setting.value.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&set), values(&bare));
}

#[test]
fn the_binary_accepts_the_environment_of_the_unit() {
    let endpoint = &directives()["Environment"][0];
    let (name, value) = endpoint.split_once('=').unwrap();
    assert_eq!((name, value), ("CSI_ENDPOINT", "unix:///run/cephlet/csi.sock"));
    let shown =
        Command::new(binary()).args(["config", "--check"]).env_clear().env(name, value).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let text = String::from_utf8(shown.stdout).unwrap();
    for (name, _) in variables() {
        assert!(
            text.lines().any(|line| line.split_whitespace().next() == Some(&name)),
            "{name} is not shown by cephlet config"
        );
    }
    let refused = Command::new(binary()).args(["config", "--check"]).env_clear().output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "RestartPreventExitStatus= of the unit relies on it");
}
