use parking_lot::Mutex;

use super::map::{ClusterMap, Entry};
use super::tool::{Change, Changed, FenceTool, Looked};
use super::*;
use crate::clusters::{Cluster, Credentials};
use crate::error::Kind;

/// A cluster that does what it is told, as far as the user may.
#[derive(Default)]
struct FakeCluster {
    map: Mutex<ClusterMap>,
    /// The user may fence, but free nobody.
    adds_only: bool,
    /// So many changes are made, and then the monitor is gone.
    fails_after: Option<usize>,
}

impl FenceTool for Arc<FakeCluster> {
    fn look(&self, call: &Call, access: &ClusterAccess) -> Result<Looked> {
        Ok(Looked { map: self.map(call, access)?, may_remove: !self.adds_only })
    }

    fn map(&self, _: &Call, _: &ClusterAccess) -> Result<ClusterMap> {
        Ok(self.map.lock().clone())
    }

    fn change(&self, call: &Call, access: &ClusterAccess, changes: &[Change]) -> Result<Changed> {
        for change in changes.iter().take(self.fails_after.unwrap_or(usize::MAX)) {
            let entries = &mut self.map.lock().entries;
            match change {
                Change::Add(network) => {
                    entries.retain(|it| it.network != *network);
                    entries.push(entry(*network));
                }
                Change::Remove(_) if self.adds_only => {}
                Change::Remove(gone) => entries.retain(|it| it != gone),
            }
        }
        let map = self.map(call, access)?;
        Ok(Changed { map, is_forbidden: self.adds_only, said: "as it may be".into() })
    }
}

fn entry(network: IpNet) -> Entry {
    let is_range = network.prefix_len() < network.max_prefix_len();
    let listed = if is_range { network.to_string() } else { format!("{}:0/0", network.addr()) };
    Entry { network, listed, is_range, is_lasting: true }
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn fake(knows_ranges: bool) -> FakeCluster {
    let map = ClusterMap {
        fsid: "c0ffee".into(),
        knows_ranges,
        osds: ips(&["10.9.0.1", "127.0.0.1"]),
        public: ips(&["10.9.0.1", "127.0.0.1"]),
        monitors: ips(&["10.9.0.2", "fd09::2"]),
        managers: ips(&["10.9.0.3"]),
        ..ClusterMap::default()
    };
    FakeCluster { map: Mutex::new(map), ..FakeCluster::default() }
}

struct Scene {
    cluster: Arc<FakeCluster>,
    fences: Fences,
}

impl Scene {
    fn of(cluster: FakeCluster) -> Self {
        let cluster = Arc::new(cluster);
        let mut main = Cluster::named("main");
        main.credentials = Some(Credentials { user: "web".into(), key: None });
        let fences = Fences::by(Arc::new(Clusters::of([main])), Arc::clone(&cluster));
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
    assert_eq!(scene.cluster.map.lock().entries.len(), 3);
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
    // As an administrator may have written them: with host bits, and a single host as a range.
    let written = ["cidr:10.1.0.5:0/24", "cidr:10.1.0.0:0/24", "cidr:10.0.0.7:0/32"];
    let entries = written.map(|text| Entry::range(text).unwrap());
    scene.cluster.map.lock().entries = entries.into_iter().chain(Entry::host("10.0.0.7:0/0")).collect();
    assert_eq!(scene.list(), ["10.0.0.7/32", "10.1.0.0/24"]);
    scene.unfence(&["10.1.0.0/24", "10.0.0.7/32"]).unwrap();
    assert_eq!(scene.cluster.map.lock().entries, []);
}

/// As an administrator or another plugin sets it.
#[test]
fn what_is_shut_out_for_a_time_is_no_fence() {
    let scene = Scene::of(fake(true));
    let for_a_time = Entry { is_lasting: false, ..entry("10.0.0.7/32".parse().unwrap()) };
    scene.cluster.map.lock().entries = vec![for_a_time.clone()];
    assert!(scene.list().is_empty());
    scene.unfence(&["10.0.0.7/32"]).unwrap();
    assert_eq!(scene.cluster.map.lock().entries, [for_a_time], "it is not ours");
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
    ] {
        let error = scene.fence(&["10.0.0.7/32", network]).unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{network}");
        assert!(error.message().contains(whose) && error.message().contains(network), "{error}");
        assert!(scene.list().is_empty(), "UNSAFE: {network}");
    }
    // 127.0.0.1 is an OSD's: this host's own address towards it is the same.
    scene.cluster.map.lock().osds = ips(&["127.0.0.1"]);
    let own = guard::check(
        &networks(&["127.0.0.0/8"]),
        &Protected::of(&ClusterMap::default(), ips(&["127.0.0.1"])),
    );
    assert!(own.unwrap_err().message().contains("allowSelf"));
}

#[test]
fn who_could_not_lift_a_fence_sets_none() {
    let scene = Scene::of(FakeCluster { adds_only: true, ..fake(true) });
    let error = scene.fence(&["10.0.0.7/32"]).unwrap_err();
    assert_eq!((error.kind(), scene.list().len()), (Kind::Precondition, 0));
    assert!(
        error
            .message()
            .contains("ceph auth caps client.web mon 'profile rbd, allow command \"osd blocklist\"'"),
        "{error}"
    );
    scene.cluster.map.lock().entries = vec![entry("10.0.0.7/32".parse().unwrap())];
    assert_eq!(scene.unfence(&["10.0.0.7/32"]).unwrap_err().kind(), Kind::Precondition);
    scene.fence(&["10.0.0.7/32"]).expect("what is fenced already is");
}

#[test]
fn what_was_done_by_half_is_said_and_finished_by_a_repetition() {
    let scene = Scene::of(FakeCluster { fails_after: Some(1), ..fake(true) });
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
    scene.cluster.map.lock().public = ips(&["127.0.0.1", "127.0.0.1"]);
    let clients = || scene.fences.clients(&Call::internal("test"), "main", &Secrets::default());
    let client = FenceClient { id: "c0ffee".into(), addresses: networks(&["127.0.0.1/32"]) };
    assert_eq!(clients().unwrap(), [client]);
    scene.cluster.map.lock().public = vec![];
    assert_eq!(clients().unwrap_err().kind(), Kind::Unavailable);
}
