//! `config`: the settings of the daemon, or of this environment.

use serde_json::json;

use crate::cli::failure::{CliError, CliResult};
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, table};
use crate::cli::syntax::{Action, Command, Given, flag};
use crate::config::{Config, Mistake, Role};
use crate::daemon;
use crate::grpc::proto::cephlet_operator_v1 as wire;

/// `cephlet config`.
pub const CONFIG: Command = Command {
    name: "config",
    about: "show the settings that the daemon runs with, and where each comes from",
    words: &[],
    options: &[flag("check", "ask no daemon: check the settings in this environment")],
    notes: &[
        "Domains and clusters are shown as they are in force, with what is wrong with their files now.
Keys are not shown.",
        "Run --check with the daemon's environment. It reports every mistake, with exit status 2.",
    ],
    json: "settings [{name, value, from, meaning}], domains [], removed_pools [{cluster, pool, state}],
clusters [{name, monitors, user, key_from, pools [], namespaces [], state}], remarks []",
    action: Action::Ask(show),
};

/// The settings in the environment, or all mistakes in them.
pub fn load(role: Role) -> CliResult<Config> {
    Config::load(role).map_err(|mistakes| refused(&mistakes))
}

fn refused(mistakes: &[Mistake]) -> CliError {
    match mistakes {
        [one] => CliError::usage(one),
        several => {
            let lines = several.iter().map(|mistake| format!("\n  {mistake}")).collect::<String>();
            CliError::usage(format!("the environment has {} mistakes:{lines}", several.len()))
        }
    }
}

/// The settings that the daemon runs with.
fn show(plugin: &dyn Plugin, _: &Given) -> CliResult<Report> {
    Ok(report(&plugin.ask(&wire::ConfigRequest::default())?))
}

/// The settings that a daemon would run with in this environment.
pub fn check() -> CliResult<Report> {
    Ok(report(&daemon::check(&load(Role::Daemon)?)?))
}

fn report(found: &wire::ConfigResponse) -> Report {
    let lines = |lines: &[String]| lines.iter().map(|line| [line.clone()]).collect::<Vec<_>>();
    let settings: Vec<_> = found.settings.iter().map(setting).collect();
    let removed = found.removed_pools.iter();
    let removed: Vec<_> = removed.map(|it| [it.cluster.clone(), it.pool.clone(), it.state.clone()]).collect();
    let clusters: Vec<_> = found.clusters.iter().map(cluster).collect();
    let mut sections = vec![
        table(["VARIABLE", "VALUE", "FROM", "MEANING"], &settings),
        table(["DOMAINS OF THIS NODE"], &lines(&found.domains)),
        table(["CLUSTER", "REMOVED POOL", "STATE"], &removed),
        table(["CLUSTER", "MONITORS", "USER", "KEY", "POOLS", "NAMESPACES", "STATE"], &clusters),
        table(["REMARKS"], &lines(&found.remarks)),
    ];
    sections.retain(|section| !section.is_empty());
    Report::new(sections.join("\n\n"), &to_json(found))
}

fn setting(setting: &wire::Setting) -> [String; 4] {
    [setting.name.clone(), setting.value.clone(), origin(setting).to_string(), setting.meaning.clone()]
}

fn origin(setting: &wire::Setting) -> &'static str {
    if setting.is_from_environment { "environment" } else { "default" }
}

fn cluster(cluster: &wire::Cluster) -> [String; 7] {
    // Of a cluster that is disabled nothing else is known.
    let is_known = !cluster.key_from.is_empty();
    let or = |text: String, otherwise: &str| match (text.is_empty(), is_known) {
        (false, _) => text,
        (true, true) => otherwise.to_string(),
        (true, false) => "-".to_string(),
    };
    [
        cluster.name.clone(),
        or(cluster.monitors.clone(), "by its ceph.conf"),
        or(cluster.user.clone(), "-"),
        or(cluster.key_from.clone(), "-"),
        or(cluster.pools.join(","), "all"),
        or(cluster.namespaces.join(","), "all"),
        cluster.state.clone(),
    ]
}

fn to_json(found: &wire::ConfigResponse) -> serde_json::Value {
    let settings = found
        .settings
        .iter()
        .map(|it| json!({"name": it.name, "value": it.value, "from": origin(it), "meaning": it.meaning}));
    let removed = found.removed_pools.iter();
    let removed = removed.map(|it| json!({"cluster": it.cluster, "pool": it.pool, "state": it.state}));
    let clusters = found.clusters.iter().map(|it| {
        json!({
            "name": it.name, "monitors": it.monitors, "user": it.user, "key_from": it.key_from,
            "pools": it.pools, "namespaces": it.namespaces, "state": it.state,
        })
    });
    json!({
        "settings": settings.collect::<Vec<_>>(),
        "domains": found.domains,
        "removed_pools": removed.collect::<Vec<_>>(),
        "clusters": clusters.collect::<Vec<_>>(),
        "remarks": found.remarks,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};

    #[test]
    fn settings_are_shown_as_the_daemon_runs_with_them() {
        let setting = |name: &str, value: &str, is_from_environment| wire::Setting {
            name: name.into(),
            value: value.into(),
            is_from_environment,
            meaning: "what".into(),
            ..Default::default()
        };
        let cluster = |name: &str, key_from: &str, state: &str| wire::Cluster {
            name: name.into(),
            key_from: key_from.into(),
            state: state.into(),
            ..Default::default()
        };
        let found = wire::ConfigResponse {
            settings: vec![setting("CEPHLET_WORKERS", "9", true), setting("CEPHLET_TOOLS", "4", false)],
            domains: vec!["zone=eu-1".into()],
            clusters: vec![cluster("main", "main.key", "ready"), cluster("wrong", "", "disabled: why")],
            remarks: vec!["clusters.toml: broken".into()],
            ..Default::default()
        };
        let fake = Fake::default().replies::<wire::ConfigRequest>(&found);
        let report = run(&fake, "config").unwrap();
        assert_eq!(
            report.text,
            "VARIABLE         VALUE  FROM         MEANING\n\
             CEPHLET_WORKERS  9      environment  what\n\
             CEPHLET_TOOLS    4      default      what\n\n\
             DOMAINS OF THIS NODE\n\
             zone=eu-1\n\n\
             CLUSTER  MONITORS          USER  KEY       POOLS  NAMESPACES  STATE\n\
             main     by its ceph.conf  -     main.key  all    all         ready\n\
             wrong    -                 -     -         -      -           disabled: why\n\n\
             REMARKS\n\
             clusters.toml: broken"
        );
        assert_eq!(
            (&report.json["settings"][1]["from"], &report.json["clusters"][1]["name"]),
            (&json!("default"), &json!("wrong"))
        );
    }

    #[test]
    fn every_mistake_is_reported() {
        let variables =
            [("CSI_ENDPOINT".into(), "tcp://x".into()), ("CEPHLET_WORKERS".into(), "many".into())];
        let failure = refused(&Config::from_variables(Role::Daemon, variables).unwrap_err());
        assert_eq!(failure.exit_code(), 2);
        let text = failure.to_string();
        assert!(text.starts_with("the environment has 2 mistakes:\n  CSI_ENDPOINT: "), "{text}");
        assert!(text.contains("\n  CEPHLET_WORKERS: "), "{text}");
        let one = refused(&Config::from_variables(Role::Daemon, []).unwrap_err()).to_string();
        assert!(one.starts_with("CSI_ENDPOINT: "), "{one}");
    }
}
