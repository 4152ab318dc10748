//! `ceph osd blocklist`, several commands in one process: `ceph` reads them from its standard input, one a
//! line, and ends with 0 whatever became of them.

use std::sync::Arc;

use ipnet::IpNet;

use super::bulkhead;
use super::map::{ClusterMap, Entry};
use crate::backend::ceph::ClusterAccess;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Output, Runner, Tool};

/// Beyond the end of the cluster's clocks, in seconds: it makes 2106-02-07 of it, which nobody asks for by
/// hand.
const FOR_EVER: &str = "1e12";
/// An entry that is never there (192.0.2.0/24 is for documentation, RFC 5737): who may remove it may remove
/// others.
const NO_ENTRY: &str = "192.0.2.255:0/4294967295";
/// What is said of an entry that is not there.
const NOT_THERE: &str = "isn't blocklisted";
const FORBIDDEN: &str = "EACCES";

/// A change of the blocklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Shut out for good.
    Add(IpNet),
    /// Let in again.
    Remove(Entry),
}

/// What a look at a cluster shows.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    /// The cluster.
    pub(super) map: ClusterMap,
    /// Whether this user may let anybody in again.
    pub(super) may_remove: bool,
}

/// What a change came to.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    /// The cluster afterwards.
    pub(super) map: ClusterMap,
    /// The user may not do all of it.
    pub(super) is_forbidden: bool,
    /// The last line that `ceph` said.
    pub(super) said: String,
}

/// What is asked of a cluster about whom it speaks with.
pub(super) trait FenceTool: Send + Sync {
    /// The cluster, its daemons, and what this user may do.
    fn look(&self, call: &Call, access: &ClusterAccess) -> Result<Looked>;

    /// The cluster alone.
    fn map(&self, call: &Call, access: &ClusterAccess) -> Result<ClusterMap>;

    /// Makes the changes, one after the other, and looks again.
    fn change(&self, call: &Call, access: &ClusterAccess, changes: &[Change]) -> Result<Changed>;
}

/// Fences by the program `ceph`.
pub(super) struct CephFences {
    runner: Arc<dyn Runner>,
}

impl CephFences {
    /// Runs `ceph` with `runner`.
    pub(super) fn new(runner: Arc<dyn Runner>) -> Self {
        Self { runner }
    }

    fn run(&self, call: &Call, access: &ClusterAccess, class: Class, lines: &[String]) -> Result<Output> {
        let cmd =
            access.command(Tool::Ceph, class).within(bulkhead(&access.cluster.name)).arg("--format=json");
        let cmd = cmd.stdin(lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        let cluster = format!("ask cluster {:?} whom it has shut out", access.cluster.name);
        access.run(&*self.runner, call, &cmd).map_err(|failure| failure.into_error(cluster))
    }
}

impl FenceTool for CephFences {
    fn look(&self, call: &Call, access: &ClusterAccess) -> Result<Looked> {
        let test = format!("osd blocklist rm {NO_ENTRY}");
        let lines = ["mon dump", "mgr dump", "osd dump", &test].map(String::from);
        let output = self.run(call, access, Class::Change, &lines)?;
        Ok(Looked { map: read(&output)?, may_remove: output.stderr_tail.contains(NOT_THERE) })
    }

    fn map(&self, call: &Call, access: &ClusterAccess) -> Result<ClusterMap> {
        read(&self.run(call, access, Class::Question, &[String::from("osd dump")])?)
    }

    fn change(&self, call: &Call, access: &ClusterAccess, changes: &[Change]) -> Result<Changed> {
        let lines: Vec<String> = changes.iter().map(Change::line).chain([String::from("osd dump")]).collect();
        let output = self.run(call, access, Class::Change, &lines)?;
        let said = output.stderr_tail.lines().next_back().unwrap_or_default().to_string();
        Ok(Changed { map: read(&output)?, is_forbidden: output.stderr_tail.contains(FORBIDDEN), said })
    }
}

impl Change {
    /// With `:0/0` an address may be added by every user of RBD.
    fn line(&self) -> String {
        match self {
            Self::Add(network) if network.prefix_len() == network.max_prefix_len() => {
                let address = std::net::SocketAddr::new(network.addr(), 0);
                format!("osd blocklist add {address}/0 {FOR_EVER}")
            }
            Self::Add(network) => format!("osd blocklist range add {network} {FOR_EVER}"),
            Self::Remove(Entry { listed, is_range: true, .. }) => format!("osd blocklist range rm {listed}"),
            Self::Remove(Entry { listed, .. }) => format!("osd blocklist rm {listed}"),
        }
    }
}

fn read(output: &Output) -> Result<ClusterMap> {
    ClusterMap::read(&output.stdout).map_err(|why| {
        let said = output.stderr_tail.lines().next_back().unwrap_or_default();
        Error::internal(format!(
            "`ceph osd dump` printed what cephlet cannot read: {why}; ceph said {said:?}"
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clusters::{Cluster, Credentials};
    use crate::exec::fake::FakeRunner;
    use crate::secrets::Secrets;

    const ARGV: [&str; 8] =
        ["ceph", "-c", "/etc/ceph/ceph.conf", "--id", "web", "--connect-timeout", "20", "--format=json"];
    const EMPTY: &str = r#"{"fsid":"c0ffee","osds":[],"blocklist":{},"range_blocklist":{}}"#;

    fn access() -> ClusterAccess {
        let mut cluster = Cluster::named("main");
        cluster.conf = Some("/etc/ceph/ceph.conf".into());
        cluster.credentials = Some(Credentials { user: "web".into(), key: None });
        ClusterAccess::new(Arc::new(cluster), &Secrets::default()).unwrap()
    }

    /// What `ceph` was told, after it printed this.
    fn told(said: &str, ask: impl Fn(&CephFences)) -> String {
        let runner = Arc::new(FakeRunner::default());
        runner.expect_said(&ARGV, EMPTY, said);
        ask(&CephFences::new(Arc::clone(&runner) as _));
        let ran = runner.ran();
        String::from_utf8(ran[0].stdin_bytes().to_vec()).unwrap()
    }

    #[test]
    fn one_process_shows_the_cluster_and_what_the_user_may() {
        for (said, may) in [
            ("dumped monmap epoch 1\n192.0.2.255:0/4294967295 isn't blocklisted\n", true),
            ("dumped monmap epoch 1\nError EACCES: access denied\nError EACCES: access denied\n", false),
        ] {
            let lines = told(said, |tool| {
                assert_eq!(tool.look(&Call::internal("test"), &access()).unwrap().may_remove, may, "{said}");
            });
            assert_eq!(lines, "mon dump\nmgr dump\nosd dump\nosd blocklist rm 192.0.2.255:0/4294967295\n");
        }
    }

    #[test]
    fn one_process_makes_all_changes_and_reads_them_back() {
        let changes = [
            Change::Add("10.0.0.7/32".parse().unwrap()),
            Change::Add("fd00::7/128".parse().unwrap()),
            Change::Add("10.1.0.0/24".parse().unwrap()),
            Change::Remove(Entry::range("cidr:10.2.0.5:0/24").unwrap()),
            Change::Remove(Entry::host("[fd00::1]:0/0").unwrap()),
        ];
        let lines = told("Error EACCES: access denied\n", |tool| {
            let changed = tool.change(&Call::internal("test"), &access(), &changes).unwrap();
            assert_eq!((changed.is_forbidden, changed.said.as_str()), (true, "Error EACCES: access denied"));
        });
        assert_eq!(
            lines,
            "osd blocklist add 10.0.0.7:0/0 1e12\n\
             osd blocklist add [fd00::7]:0/0 1e12\n\
             osd blocklist range add 10.1.0.0/24 1e12\n\
             osd blocklist range rm 10.2.0.5/24\n\
             osd blocklist rm [fd00::1]:0/0\n\
             osd dump\n"
        );
    }
}
