use parking_lot::Mutex;

use super::*;
use crate::backend::ceph::Programs;
use crate::backend::ceph::monitor::blocklist::Entry;
use crate::backend::ceph::monitor::fake::FakeMonitors;
use crate::clusters::{Cluster, Credentials};
use crate::error::Kind;
use crate::exec::fake::FakeRunner;

const NEVER: &str = "2106-02-07T06:28:15.333020+0000";

fn host(address: &str) -> Entry {
    Entry::of_address(address, NEVER)
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn fake(knows_ranges: bool) -> FakeMonitors {
    let own = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    FakeMonitors {
        knows_ranges,
        osds: own(&["10.9.0.1", "127.0.0.1"]),
        monitors: own(&["10.9.0.2", "fd09::2"]),
        managers: own(&["10.9.0.3"]),
        metadata_servers: own(&["10.9.0.4"]),
        ..FakeMonitors::default()
    }
}

fn fences(monitors: Arc<dyn Monitors>) -> Fences {
    let mut main = Cluster::named("main");
    main.conf = Some("/etc/ceph/ceph.conf".into());
    main.credentials = Some(Credentials { user: "web".into(), key: None });
    Fences::new(Arc::new(Clusters::of([main])), monitors)
}

struct Scene {
    cluster: Arc<Mutex<FakeMonitors>>,
    fences: Fences,
}

impl Scene {
    fn of(cluster: FakeMonitors) -> Self {
        let cluster = Arc::new(Mutex::new(cluster));
        let fences = fences(Arc::new(Arc::clone(&cluster)));
        Self { cluster, fences }
    }

    fn fence(&self, texts: &[&str]) -> Result<()> {
        self.fences.fence(&Call::internal("test"), "main", &networks(texts), false, &Secrets::default())
    }

    fn unfence(&self, texts: &[&str]) -> Result<()> {
        self.fences.unfence(&Call::internal("test"), "main", &networks(texts), &Secrets::default())
    }

    fn list(&self) -> Vec<String> {
        let fences = self.fences.fences(&Call::internal("test"), "main", &Secrets::default()).unwrap();
        fences.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_fence_is_set_once_and_lifted_once() {
    let scene = Scene::of(fake(true));
    for _ in 0..3 {
        scene.fence(&["10.0.0.7/32", "10.1.0.0/24", "fd00::/64"]).unwrap();
        assert_eq!(scene.list(), ["10.0.0.7/32", "10.1.0.0/24", "fd00::/64"]);
    }
    assert_eq!(scene.cluster.lock().entries.len(), 3);
    scene.unfence(&["10.1.0.0/25"]).unwrap();
    assert_eq!(scene.list().len(), 3, "a part of a fence is none");
    for _ in 0..2 {
        scene.unfence(&["10.1.0.0/24", "10.0.0.7/32"]).unwrap();
        assert_eq!(scene.list(), ["fd00::/64"]);
    }
}

#[test]
fn every_spelling_of_a_fence_is_lifted() {
    let scene = Scene::of(fake(true));
    // As an administrator may have written the entries: with host bits, and a single host as a range.
    let written = ["cidr:10.1.0.5:0/24", "cidr:10.1.0.0:0/24", "cidr:10.0.0.7:0/32"];
    let entries = written.map(|text| Entry::of_range(text, NEVER).unwrap());
    scene.cluster.lock().entries = entries.into_iter().chain([host("10.0.0.7:0/0")]).collect();
    assert_eq!(scene.list(), ["10.0.0.7/32", "10.1.0.0/24"]);
    scene.unfence(&["10.1.0.0/24", "10.0.0.7/32"]).unwrap();
    assert_eq!(scene.cluster.lock().entries, []);
}

/// The entry is as an administrator or another plugin sets it.
#[test]
fn what_is_shut_out_for_a_time_is_no_fence() {
    let scene = Scene::of(fake(true));
    let for_a_time = Entry::of_address("10.0.0.7:0/0", "2105-12-31T23:59:59.999999+0000");
    scene.cluster.lock().entries = vec![for_a_time.clone()];
    assert!(scene.list().is_empty());
    scene.unfence(&["10.0.0.7/32"]).unwrap();
    assert_eq!(scene.cluster.lock().entries, [for_a_time], "it is not ours");
    scene.fence(&["10.0.0.7/32"]).unwrap();
    assert_eq!(scene.list(), ["10.0.0.7/32"], "UNSAFE: the fence would end");
}

#[test]
fn without_ranges_a_network_is_fenced_address_by_address() {
    let scene = Scene::of(fake(false));
    scene.fence(&["10.0.0.4/30", "fd00::4/127"]).unwrap();
    let each = ["10.0.0.4/32", "10.0.0.5/32", "10.0.0.6/32", "10.0.0.7/32", "fd00::4/128", "fd00::5/128"];
    assert_eq!(scene.list(), each);
    let too_large = scene.fence(&["10.0.0.0/23"]).unwrap_err();
    assert_eq!((too_large.kind(), scene.list().len()), (Kind::InvalidArgument, each.len()));
    assert_eq!(scene.fence(&["fd00::/64"]).unwrap_err().kind(), Kind::InvalidArgument);
    let together = scene.fence(&["10.0.2.0/25", "10.0.3.0/25", "10.0.4.0/32"]).unwrap_err();
    assert_eq!((together.kind(), scene.list().len()), (Kind::InvalidArgument, each.len()));
    scene.fence(&["10.0.1.0/24"]).unwrap();
    scene.unfence(&["10.0.1.0/24", "10.0.0.4/30", "fd00::4/127"]).unwrap();
    assert!(scene.list().is_empty());
}

#[test]
fn the_cluster_and_this_host_are_not_fenced() {
    let scene = Scene::of(fake(true));
    for (network, whose) in [
        ("10.9.0.1/32", "an OSD"),
        ("10.9.0.0/30", "a monitor"),
        ("fd09::/16", "a monitor"),
        ("10.9.0.3/32", "the active manager"),
        ("10.9.0.4/32", "a metadata server"),
    ] {
        let error = scene.fence(&["10.0.0.7/32", network]).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{network}");
        assert!(error.message().contains(whose) && error.message().contains(network), "{error}");
        assert!(scene.list().is_empty(), "UNSAFE: {network}");
    }
    // 127.0.0.1 belongs to an OSD: this host's own address towards that OSD is the same.
    scene.cluster.lock().osds = vec!["127.0.0.1".into()];
    let own = guard::check(&networks(&["127.0.0.0/8"]), &ClusterMap::default(), &ips(&["127.0.0.1"]));
    assert!(own.unwrap_err().message().contains("allowSelf"));
}

#[test]
fn who_could_not_lift_a_fence_sets_none() {
    let scene = Scene::of(FakeMonitors { forbids_removal: true, ..fake(true) });
    let error = scene.fence(&["10.0.0.7/32"]).unwrap_err();
    assert_eq!((error.kind(), scene.list().len()), (Kind::Precondition, 0));
    assert!(
        error
            .message()
            .contains("ceph auth caps client.web mon 'profile rbd, allow command \"osd blocklist\"'"),
        "{error}"
    );
    scene.cluster.lock().entries = vec![host("10.0.0.7:0/0")];
    assert_eq!(scene.unfence(&["10.0.0.7/32"]).unwrap_err().kind(), Kind::Precondition);
    scene.fence(&["10.0.0.7/32"]).expect("what is fenced already is");
}

#[test]
fn what_was_done_by_half_is_said_and_finished_by_a_repetition() {
    let scene = Scene::of(FakeMonitors { fails_after: Some(1), ..fake(true) });
    let wanted = ["10.0.0.7/32", "10.1.0.0/24"];
    let error = scene.fence(&wanted).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().contains("missing: 10.1.0.0/24;"), "{error}");
    scene.fence(&wanted).unwrap();
    assert_eq!(scene.list(), wanted);
    assert!(scene.unfence(&wanted).unwrap_err().message().contains("missing: 10.1.0.0/24;"));
    scene.unfence(&wanted).unwrap();
    assert!(scene.list().is_empty());
}

#[test]
fn a_host_is_named_by_the_address_that_osds_see() {
    let scene = Scene::of(fake(true));
    scene.cluster.lock().osds = vec!["127.0.0.1".into(), "127.0.0.1".into()];
    let clients = || scene.fences.clients(&Call::internal("test"), "main", &Secrets::default());
    let client = FenceClient { id: "c0ffee".into(), addresses: networks(&["127.0.0.1/32"]) };
    assert_eq!(clients().unwrap(), [client]);
    scene.cluster.lock().osds = vec![];
    assert_eq!(clients().unwrap_err().kind(), Kind::Unavailable);
}

/// The input of `ceph` in each run, if it prints these texts to stdout and stderr.
fn told(answers: &[(&str, &str)], work: impl Fn(&Fences) -> Result<()>) -> (Result<()>, Vec<String>) {
    let argv = "ceph -c /etc/ceph/ceph.conf --id web --connect-timeout 20 --format=json";
    let runner = Arc::new(FakeRunner::default());
    for (printed, said) in answers {
        runner.expect_said(&argv.split(' ').collect::<Vec<_>>(), printed, said);
    }
    let by_ceph = Programs::new(Arc::clone(&runner) as _, None);
    let result = work(&fences(Arc::new(by_ceph)));
    let lines = |cmd: &crate::exec::Cmd| String::from_utf8(cmd.stdin_bytes().to_vec()).unwrap();
    (result, runner.ran().iter().map(lines).collect())
}

const LOOK: &str = "mon dump\nmgr dump\nfs dump\nosd dump\nosd blocklist rm 192.0.2.255:0/4294967295\n";

#[test]
fn one_process_shows_the_cluster_and_another_makes_all_changes_and_reads_them_back() {
    let dump = |hosts: &str, ranges: &str| {
        format!(r#"{{"fsid":"c0ffee","osds":[],"blocklist":{{{hosts}}},"range_blocklist":{{{ranges}}}}}"#)
    };
    let empty = dump("", "");
    let may = "dumped monmap epoch 1\n192.0.2.255:0/4294967295 isn't blocklisted\n";
    let asked = networks(&["10.0.0.7/32", "fd00::7/128", "10.1.0.0/24"]);
    let (call, none) = (Call::internal("test"), Secrets::default());
    let fence = |fences: &Fences| fences.fence(&call, "main", &asked, false, &none);
    let (result, told_first) = told(&[(&empty, may), (&empty, "Error EINVAL: no\n")], fence);
    assert!(result.unwrap_err().message().contains(r#"ceph said "Error EINVAL: no""#));
    let added = "osd blocklist range add 10.1.0.0/24 1000000000000\n\
        osd blocklist add 10.0.0.7:0/0 1000000000000\nosd blocklist add [fd00::7]:0/0 1000000000000\nosd dump\n";
    let sorted = |text: &str| text.lines().map(str::to_string).collect::<BTreeSet<_>>();
    assert_eq!((told_first[0].as_str(), sorted(&told_first[1])), (LOOK, sorted(added)));
    assert!(told_first[1].ends_with("\nosd dump\n"));
    let refused = "dumped monmap epoch 1\nError EACCES: access denied\nError EACCES: access denied\n";
    assert_eq!(told(&[(&empty, refused)], fence).0.unwrap_err().kind(), Kind::Precondition);

    let full = dump(&format!(r#""[fd00::7]:0/0":"{NEVER}""#), &format!(r#""cidr:10.1.0.5:0/24":"{NEVER}""#));
    let unfence = |fences: &Fences| fences.unfence(&call, "main", &asked, &none);
    let (result, told_then) = told(&[(&full, may), (&full, refused)], unfence);
    assert!(result.unwrap_err().message().contains("may not remove a fence"));
    assert_eq!(
        told_then,
        [LOOK, "osd blocklist rm [fd00::7]:0/0\nosd blocklist range rm 10.1.0.5/24\nosd dump\n"]
    );
}

/// The commands of the volumes may all hang.
#[test]
fn commands_of_fences_are_counted_apart() {
    let scene = Scene::of(fake(true));
    let access = scene.fences.access("main", &Secrets::default()).unwrap();
    assert_eq!(&*access.bulkhead, "fences of main");
}
