//! Exact commands, recorded answers, and their meaning.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::blocklist::Entry;
use super::pools::ListedPool;
use super::*;
use crate::backend::ceph::{FreeSpace, Programs};
use crate::clusters::{Cluster, Credentials};
use crate::error::{Error, Kind};
use crate::exec::fake::FakeRunner;
use crate::secrets::Secrets;

/// The start of every command line of `ceph`.
const REACHED: &str = "ceph -c /etc/ceph/ceph.conf --id cephlet --connect-timeout 20";

/// Monitors behind a fake `ceph`.
struct Fixture {
    runner: Arc<FakeRunner>,
    monitors: Programs,
    call: Call,
    access: ClusterAccess,
}

impl Fixture {
    fn new() -> Self {
        let runner = Arc::new(FakeRunner::default());
        let credentials = Some(Credentials { user: "cephlet".into(), key: None });
        let cluster =
            Cluster { conf: Some("/etc/ceph/ceph.conf".into()), credentials, ..Cluster::named("main") };
        let access = ClusterAccess::new(Arc::new(cluster), &Secrets::default()).unwrap();
        Self {
            monitors: Programs::new(Arc::clone(&runner) as _, None),
            runner,
            call: Call::internal("test"),
            access,
        }
    }

    fn monitors(&self) -> MonitorClient<'_> {
        (&self.monitors as &dyn Monitors).of(&self.call, &self.access)
    }

    /// Expects `ceph` with these words next; it prints `stdout`.
    fn prints(&self, words: &str, stdout: &str) {
        let line = format!("{REACHED} {words}");
        self.runner.expect(&line.split(' ').collect::<Vec<_>>(), stdout);
    }

    /// Expects `ceph` with these words next; it fails.
    fn fails(&self, words: &str, status: i32, stderr: &str) {
        let line = format!("{REACHED} {words}");
        self.runner.expect_failure(&line.split(' ').collect::<Vec<_>>(), status, stderr);
    }
}

/// Asserts an error of this kind whose message contains all these texts.
#[track_caller]
fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind, texts: &[&str]) {
    let error = result.expect_err("it must be refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(texts.iter().all(|text| error.message().contains(text)), "{error} should say {texts:?}");
}

#[test]
fn several_commands_are_one_process_that_prints_json() {
    let it = Fixture::new();
    it.prints("--format=json", "{}");
    let network = "10.1.0.0/24".parse().unwrap();
    let commands = [blocklist::addition(&network), question("osd dump", None)];
    it.monitors().ask(Class::Change, &commands).unwrap();
    let ran = it.runner.ran();
    let lines = String::from_utf8(ran[0].stdin_bytes().to_vec()).unwrap();
    assert_eq!(lines, "osd blocklist range add 10.1.0.0/24 1000000000000\nosd dump\n");
}

/// As `ceph` itself sends a command, after it has looked the names up.
#[test]
fn a_command_is_the_json_that_a_monitor_takes() {
    let json = |command: Command| {
        let pairs = command.into_iter().map(|(name, value)| (name.to_string(), value));
        serde_json::to_string(&pairs.collect::<serde_json::Map<_, _>>()).unwrap()
    };
    let list = r#"{"detail":"detail","format":"json","prefix":"osd pool ls"}"#;
    assert_eq!(json(question("osd pool ls", Some("detail"))), list);
    let add = r#"{"addr":"10.1.0.0/24","blocklistop":"add","expire":1000000000000.0,"prefix":"osd blocklist","range":"range"}"#;
    assert_eq!(json(blocklist::addition(&"10.1.0.0/24".parse().unwrap())), add);
}

#[test]
fn the_room_of_all_pools_is_one_question() {
    let it = Fixture::new();
    let printed = r#"{"pools":[{"name":"data","id":1,"stats":{"stored":1,"max_avail":4000}}]}"#;
    it.prints("df detail --format=json", printed);
    let room = FreeSpace { available: 4000, full: false };
    assert_eq!(it.monitors().free_spaces().unwrap(), [("data".to_string(), room)].into());
}

#[test]
fn pools_are_listed_with_what_is_written_on_them_for_rbd() {
    let it = Fixture::new();
    let printed = r#"
[{"pool_name":"eu1","application_metadata":{"rbd":{"cephlet.zone":"eu-1"}}},
{"pool_name":"plain","application_metadata":{"rbd":{}}},{"pool_name":"fs","application_metadata":{"cephfs":{}}}]"#;
    it.prints("osd pool ls detail --format=json", printed);
    let listed = |name: &str, labels: &[(&str, &str)]| ListedPool {
        name: name.into(),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let expected = [listed("eu1", &[("cephlet.zone", "eu-1")]), listed("plain", &[])];
    assert_eq!(it.monitors().pools("rbd").unwrap(), expected);
}

#[test]
fn who_is_shut_out_stands_in_two_lists() {
    let it = Fixture::new();
    let printed = "\n[{\"addr\":\"10.9.9.9:0/123456\",\"until\":\"2026-11-21T08:32:30.332627+0000\"},\
        {\"addr\":\"10.9.9.8:0/0\",\"until\":\"2026-11-21T08:32:30.332627+0000\"}]\
        [{\"range\":\"10.9.8.5:0/24\",\"until\":\"2026-11-21T08:32:31.348015+0000\"}]";
    it.prints("osd blocklist ls --format=json", printed);
    let entry = |address: &str, network: Option<&str>, seconds| Entry {
        address: address.into(),
        network: network.map(|it| it.parse().unwrap()),
        until: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    };
    let expected = [
        entry("10.9.9.9:0/123456", None, 1_795_249_950),
        entry("10.9.9.8:0/0", Some("10.9.9.8/32"), 1_795_249_950),
        entry("10.9.8.5/24", Some("10.9.8.0/24"), 1_795_249_951),
    ];
    assert_eq!(it.monitors().blocklist().unwrap(), expected);
}

#[test]
fn a_client_is_shut_out_for_years() {
    let it = Fixture::new();
    let add = "osd blocklist add 10.9.9.9:0/42 315360000";
    it.prints(add, "");
    it.monitors().shut_out("10.9.9.9:0/42", 10).unwrap();
    it.fails(add, 13, "Error EACCES: access denied\n");
    let parts = ["shut out the client at 10.9.9.9:0/42", "`ceph auth caps client.cephlet mon 'profile rbd'"];
    assert_error(it.monitors().shut_out("10.9.9.9:0/42", 10), Kind::Precondition, &parts);
}

#[test]
fn older_clusters_call_it_by_another_name() {
    let it = Fixture::new();
    it.fails("osd blocklist ls --format=json", 22, "Error EINVAL: invalid command\n");
    it.prints("osd blacklist ls --format=json", "[]");
    assert_eq!(it.monitors().blocklist().unwrap(), []);
}

#[test]
fn a_cluster_that_is_not_reached_is_told_as_such_whatever_was_asked() {
    let it = Fixture::new();
    let parts = ["cluster \"main\" was not reached", "check that they run"];
    it.fails("osd pool ls detail --format=json", 1, "timed out\n");
    assert_error(it.monitors().pools("rbd"), Kind::Unavailable, &parts);
    it.fails("df detail --format=json", 1, "timed out\n");
    assert_error(it.monitors().free_space("vms"), Kind::Unavailable, &parts);
    it.fails("osd blocklist ls --format=json", 1, "timed out\n");
    assert_error(it.monitors().blocklist(), Kind::Unavailable, &parts);
}

#[test]
fn an_entry_means_one_client_a_whole_host_or_a_network() {
    let covers = |entry: &str, client: &str| Entry::of_address(entry, "").covers(client);
    assert!(covers("10.0.0.7:0/4711", "10.0.0.7:0/4711"));
    assert!(covers("v1:10.0.0.7:0/4711", "10.0.0.7:0/4711"));
    assert!(covers("10.0.0.7:0/0", "10.0.0.7:0/4711"));
    assert!(covers("[fd00::7]:0/0", "[fd00::7]:0/4711"));
    assert!(!covers("10.0.0.7:0/4712", "10.0.0.7:0/4711"));
    assert!(!covers("10.0.0.70:0/0", "10.0.0.7:0/4711"));
    let range = Entry::of_range("cidr:10.0.0.5:0/24", "").unwrap();
    assert!(range.covers("10.0.0.7:0/4711") && range.covers("v1:10.0.0.7:0/4711"));
    assert!(!range.covers("10.0.1.7:0/4711"));
}
