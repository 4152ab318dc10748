//! `config`: the settings of the daemon, or of this environment.

use std::path::PathBuf;

use serde_json::{Map, Value};

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
    json: "settings [{variable, value, from, meaning}], domains [{domain}],
removed_pools [{cluster, removed_pool, state}],
clusters [{cluster, monitors, user, key, pools, namespaces, state}], remarks [{remark}]",
    action: Action::Ask(show),
};

/// The settings in the environment, or all mistakes in them.
pub fn load(role: Role) -> CliResult<Config> {
    Config::load(role).map_err(|mistakes| refused(&mistakes))
}

/// The daemon's socket: as given, else as in the environment.
pub fn socket(given: &Given) -> CliResult<PathBuf> {
    let endpoint = load(Role::Client)?.endpoint;
    Ok(given.value("socket").map_or(endpoint, PathBuf::from))
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
    let texts = found.tables.iter().map(text).filter(|text| !text.is_empty());
    let json = found.tables.iter().map(|table| (table.name.clone(), objects(table)));
    Report::new(texts.collect::<Vec<_>>().join("\n\n"), &json.collect::<Map<_, _>>())
}

fn text(found: &wire::Table) -> String {
    let header: Vec<_> = found.columns.iter().map(|column| column.replace('_', " ").to_uppercase()).collect();
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    table(&header, &found.rows.iter().map(|row| row.cells.as_slice()).collect::<Vec<_>>())
}

fn objects(table: &wire::Table) -> Value {
    let object = |row: &wire::Row| -> Value {
        table.columns.iter().cloned().zip(row.cells.iter().cloned().map(Value::from)).collect()
    };
    table.rows.iter().map(object).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use serde_json::json;

    #[test]
    fn settings_are_shown_as_the_daemon_runs_with_them() {
        let row = |cells: &[&str]| wire::Row {
            cells: cells.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        let table = |name: &str, columns: &[&str], rows: Vec<wire::Row>| wire::Table {
            name: name.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows,
            ..Default::default()
        };
        let workers = ["CEPHLET_WORKERS", "9", "environment", "threads"];
        let tables = vec![
            table("settings", &["variable", "value", "from", "meaning"], vec![row(&workers)]),
            table("domains", &["domain"], Vec::new()),
            table("removed_pools", &["cluster", "removed_pool"], vec![row(&["main", "old"])]),
        ];
        let found = wire::ConfigResponse { tables, ..Default::default() };
        let fake = Fake::default().replies::<wire::ConfigRequest>(&found);
        let report = run(&fake, "config").unwrap();
        assert_eq!(
            report.text,
            "VARIABLE         VALUE  FROM         MEANING\n\
             CEPHLET_WORKERS  9      environment  threads\n\n\
             CLUSTER  REMOVED POOL\n\
             main     old"
        );
        let json = json!({
            "settings": [{
                "variable": "CEPHLET_WORKERS", "value": "9", "from": "environment", "meaning": "threads",
            }],
            "domains": [],
            "removed_pools": [{"cluster": "main", "removed_pool": "old"}],
        });
        assert_eq!(report.json, json);
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
