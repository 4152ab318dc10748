//! The settings in the environment, as the command line shows them.

use crate::cli::failure::{CliError, CliResult};
use crate::cli::report::table;
use crate::clusters::{ClusterEntry, ClusterSource, Clusters};
use crate::config::{Config, Mistake, Role, Setting};
use crate::daemon;
use crate::topology::NodeTopology;

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

/// Every variable: what is in force, where it comes from, what it means. Then where this node is and the
/// clusters, as their files are now.
pub fn describe(config: &Config) -> String {
    let rows: Vec<_> = config.describe().iter().map(row).collect();
    let variables = table(["VARIABLE", "VALUE", "FROM", "MEANING"], &rows);
    let set_up = Clusters::load(ClusterSource::new(config));
    let removed = removed_pools(config, &set_up);
    let mut sections = vec![variables, topology(config, &set_up), removed, clusters(&set_up)];
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n") + "\n"
}

/// Each domain of this node, with who took it over, and what is wrong with what is written about it.
fn topology(config: &Config, clusters: &Clusters) -> String {
    let crush_location = config.crush_location.clone();
    let node = NodeTopology::load(&config.name, &config.topology, crush_location, clusters.takeover());
    let mut lines = node.map_or_else(|why| vec![format!("wrong: {why}")], |node| node.domains());
    lines.extend(clusters.takeover_trouble().map(|why| format!("wrong: {why}")));
    table(["DOMAINS OF THIS NODE"], &lines.into_iter().map(|line| [line]).collect::<Vec<_>>())
}

/// Each pool that was removed, as the clusters file says, and whether its cluster agrees.
fn removed_pools(config: &Config, clusters: &Clusters) -> String {
    match daemon::removed_pools(config, clusters) {
        Ok(rows) if rows.is_empty() => String::new(),
        Ok(rows) => table(["CLUSTER", "REMOVED POOL", "STATE"], &rows),
        Err(error) => format!("whether the pools in `removed_pools` are gone is not known: {error}"),
    }
}

/// Each cluster with where its key comes from, never the key, and why it cannot be used.
fn clusters(clusters: &Clusters) -> String {
    let rows: Vec<_> = clusters.entries().iter().map(|(name, entry)| cluster(name, entry)).collect();
    match rows.is_empty() {
        true => clusters.trouble().unwrap_or_default(),
        false => table(["CLUSTER", "MONITORS", "USER", "KEY", "POOLS", "NAMESPACES", "STATE"], &rows),
    }
}

fn cluster(name: &str, entry: &ClusterEntry) -> [String; 7] {
    let Some(cluster) = &entry.cluster else {
        let state = format!("disabled: {}", entry.trouble.as_deref().unwrap_or_default());
        return [name, "-", "-", "-", "-", "-", &state].map(str::to_string);
    };
    let all_or = |names: String| if names.is_empty() { String::from("all") } else { names };
    let monitors = cluster.monitors_text();
    let monitors = if monitors.is_empty() { "by its ceph.conf" } else { &monitors };
    let (user, state) = match &cluster.credentials {
        Some(credentials) => (credentials.user.as_str(), "ready"),
        None => (
            "-",
            "reduced mode: serves requests that bring secrets; no lists, no capacity, no work in the \
             background",
        ),
    };
    let (pools, namespaces) = (all_or(cluster.named_pools().join(",")), all_or(cluster.namespaces.join(",")));
    [name, monitors, user, &cluster.key_from, &pools, &namespaces, state].map(str::to_string)
}

fn row(setting: &Setting) -> [String; 4] {
    let from = if setting.from_environment { "environment" } else { "default" };
    [setting.name.to_string(), setting.value.clone(), from.to_string(), setting.meaning.to_string()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_with_where_they_come_from() {
        let variables =
            [("CSI_ENDPOINT".into(), "/run/x.sock".into()), ("CEPHLET_WORKERS".into(), "9".into())];
        let text = describe(&Config::from_variables(Role::Daemon, variables).unwrap());
        let line = |name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .unwrap()
                .split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
        };
        assert_eq!(line("CEPHLET_WORKERS"), ["CEPHLET_WORKERS", "9", "environment"]);
        assert_eq!(line("CEPHLET_TOOLS"), ["CEPHLET_TOOLS", "4", "default"]);
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
