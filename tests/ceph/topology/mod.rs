//! Pools in domains: where volumes go, and which topology they report. The quotations are from Ceph-CSI's
//! design of topology.

mod files;
mod registry;
mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::corner::{entry, is_free_name};
use crate::support::daemon::binary;
use crate::support::requests::*;
use crate::support::{Cluster, Code, Daemon, MIB, Scratch, Setup, cluster, object_of, refused};

/// The pools that all tests share. Each has the label of a zone of its own name.
const ZONES: [&str; 3] = ["zone-1", "zone-2", "zone-3"];
const PLUGIN: &str = "org.cephlet.csi";

/// A namespace of pool rbd, where names are registered, and of the pool in each zone.
struct Zones {
    cluster: &'static Cluster,
    namespace: String,
}

impl Zones {
    fn new() -> Self {
        Self::of(cluster())
    }

    fn of(cluster: &'static Cluster) -> Self {
        let there = cluster.ceph(&["osd", "pool", "ls", "detail", "--format", "json"]);
        // Other processes make the same ones at the same time, which is no harm.
        for zone in ZONES.iter().filter(|zone| !there.contains(&format!("\"cephlet.zone\":{zone:?}"))) {
            cluster.ceph(&["osd", "pool", "create", zone, "1"]);
            cluster.rbd(&["pool", "init", zone]);
            cluster.ceph(&["osd", "pool", "application", "set", zone, "rbd", "cephlet.zone", zone]);
        }
        let namespace = crate::support::corner::unused_name("z");
        for pool in [&["rbd"][..], &ZONES].concat() {
            cluster.rbd(&["namespace", "create", &format!("{pool}/{namespace}")]);
        }
        Self { cluster, namespace }
    }

    /// A daemon that sees nothing else, with further lines in its clusters file.
    fn start_with(&self, lines: &str) -> Daemon {
        self.setup_with(lines).start()
    }

    fn setup_with(&self, lines: &str) -> Setup {
        let scratch = Arc::new(Scratch::new());
        let file = scratch.path("clusters.toml");
        let entry = entry("main", self.cluster, "cephlet-zones");
        fs::write(&file, format!("{entry}namespaces = [{:?}]\n{lines}\n", self.namespace)).expect("write");
        let setup = Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display());
        setup.set("CEPHLET_BACKENDS", "rbd")
    }

    /// A daemon that lists only the test's own volumes.
    fn start(&self) -> Daemon {
        self.start_with("pools = [\"rbd\", \"zone-1\", \"zone-2\", \"zone-3\"]")
    }

    /// A volume that is wanted in one of these zones.
    fn volume(&self, name: &str, preferred: &[&str], requisite: &[&str]) -> wire::CreateVolumeRequest {
        self.volume_with(name, (preferred, requisite), &[])
    }

    fn volume_with(
        &self,
        name: &str,
        (preferred, requisite): (&[&str], &[&str]),
        parameters: &[(&str, &str)],
    ) -> wire::CreateVolumeRequest {
        let all = |zones: &[&str]| zones.iter().map(|zone| topology(&[("zone", zone)])).collect();
        let requirement = wire::TopologyRequirement {
            requisite: all(requisite),
            preferred: all(preferred),
            ..Default::default()
        };
        let namespace = [("namespace", self.namespace.as_str())];
        wire::CreateVolumeRequest {
            parameters: map(&[&namespace[..], parameters].concat()),
            accessibility_requirements: MessageField::some(requirement),
            ..volume_as(name, 8 * MIB, block())
        }
    }

    fn images(&self, pool: &str) -> Vec<String> {
        let listed = self.cluster.rbd(&["ls", &format!("{pool}/{}", self.namespace)]);
        listed.lines().map(str::to_string).collect()
    }

    /// The claims of names in the registry.
    fn claims(&self) -> Vec<String> {
        let objects = self.cluster.rados(&["--pool", "rbd", "--namespace", &self.namespace, "ls"]);
        let is_claimed = |name: &&str| {
            name.starts_with("cephlet.name.") && !is_free_name(self.cluster, &self.namespace, name)
        };
        objects.lines().filter(is_claimed).map(str::to_string).collect()
    }

    #[track_caller]
    fn assert_empty(&self) {
        let images: Vec<String> = ZONES.iter().flat_map(|pool| self.images(pool)).collect();
        assert_eq!((images, self.claims()), (Vec::new(), Vec::new()), "UNSAFE: something is left");
    }
}

fn topology(labels: &[(&str, &str)]) -> wire::Topology {
    let segments =
        labels.iter().map(|(label, value)| (format!("{PLUGIN}/{label}"), value.to_string())).collect();
    wire::Topology { segments, ..Default::default() }
}

/// The topologies of a volume that names its zone.
fn told(zone: &str) -> [wire::Topology; 2] {
    [topology(&[("zone", zone)]), topology(&[(&format!("takes.zone.{zone}"), "true")])]
}

fn pool_of(volume: &wire::Volume) -> &str {
    volume.volume_id.split(':').nth(2).expect("the ID names the pool")
}

/// "For volumeBindingMode WaitForFirstConsumer the first domain specified in the preferred list of topologies
/// would be chosen."
#[test]
fn the_first_preferred_domain_that_has_a_pool_is_taken() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let request = zones.volume("web", &["zone-9", "zone-2", "zone-1"], &ZONES);
    let made = client.create(&request).expect("create");
    assert_eq!((pool_of(&made), made.accessible_topology.as_slice()), ("zone-2", &told("zone-2")[..]));
    assert_eq!(zones.images("zone-2"), [object_of(&made.volume_id)]);
    assert_eq!(zones.claims().len(), 1);
    // The answer is the same at every controller, whichever zone is preferred now.
    for client in [&client, &zones.start().client()] {
        for preferred in ["zone-1", "zone-9"] {
            assert_eq!(client.create(&zones.volume("web", &[preferred], &ZONES)).expect("again"), made);
        }
        let elsewhere = client.create(&zones.volume("web", &[], &["zone-1"]));
        refused(elsewhere, Code::ALREADY_EXISTS, &["zone=zone-2"]);
        let listed = client.list_volumes(&page(0, "")).expect("list");
        assert_eq!(listed.entries[0].volume.accessible_topology, made.accessible_topology);
        let got = client.controller_get_volume(&get(&made.volume_id)).expect("get");
        assert_eq!(got.volume.accessible_topology, made.accessible_topology);
        let confirmed = client.validate_volume_capabilities(&validate(&made.volume_id, block()));
        assert!(confirmed.expect("validate").confirmed.is_some());
    }
    let larger = wire::CreateVolumeRequest { capacity_range: range(16 * MIB, 0), ..request };
    refused(client.create(&larger), Code::ALREADY_EXISTS, &["web", "zone-2"]);
    client.delete_volume(&delete(&made.volume_id)).expect("delete");
    client.delete_volume(&delete(&made.volume_id)).expect("again");
    zones.assert_empty();
}

/// "Choose a domain at random and provision the volume on the pool the domain belongs to. Further, return an
/// empty accessible_topology in the response, as the volume can be accessed from any domain."
#[test]
fn one_of_several_domains_is_drawn_and_reachable_from_everywhere() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let two = &ZONES[..2];
    let drawn = client.create(&zones.volume("drawn", &[], two)).expect("create");
    assert!(two.contains(&pool_of(&drawn)) && drawn.accessible_topology.is_empty(), "{drawn:?}");
    assert_eq!(client.create(&zones.volume("drawn", &[], two)).expect("again"), drawn);
    let with = |name: &str, preferred: &[&str], access: &str| {
        client.create(&zones.volume_with(name, (preferred, two), &[("topologyAccess", access)])).expect(name)
    };
    let strict = with("strict", &[], "strict");
    assert_eq!(strict.accessible_topology, told(pool_of(&strict)));
    let any = with("any", &["zone-2"], "any");
    assert_eq!((pool_of(&any), any.accessible_topology.len()), ("zone-2", 0));
    let only = client.create(&zones.volume("only", &[], &["zone-3"])).expect("create");
    assert_eq!((pool_of(&only), only.accessible_topology.as_slice()), ("zone-3", &told("zone-3")[..]));
    for volume in [drawn, strict, any, only] {
        client.delete_volume(&delete(&volume.volume_id)).expect("delete");
    }
    zones.assert_empty();
}

/// "Dynamically inform surviving nodeplugins in other domains to take over the failed domain, as Ceph pools
/// are essentially cross domain accessible." What a volume said at its creation is not changed by that.
#[test]
fn a_volume_of_a_domain_that_was_taken_over_is_for_the_nodes_of_another() {
    let zones = Zones::new();
    let daemon = zones.setup_with("").set("CEPHLET_TOPOLOGY", "zone=zone-2").start();
    let client = daemon.client();
    let made = client.create(&zones.volume("web", &["zone-1"], &ZONES)).expect("create");
    // A node fits if it has all segments of one of the volume's topologies.
    let fits = || {
        let node = client.node_get_info(&wire::NodeGetInfoRequest::new()).expect("info").accessible_topology;
        let has = |(key, value): (&String, &String)| node.segments.get(key) == Some(value);
        made.accessible_topology.iter().any(|topology| topology.segments.iter().all(has))
    };
    let file = fs::read_to_string(daemon.path("clusters.toml")).expect("read");
    assert!(!fits());
    let map = "[takeover]\n\"zone=zone-1\" = [\"zone=zone-2\"]\n";
    for (count, (lines, taken)) in [(1, (map, true)), (2, ("", false))] {
        daemon.scratch().replace("clusters.toml", &format!("{file}{lines}"));
        daemon.log.await_lines("this node's topology is now ", count);
        assert_eq!(fits(), taken, "{lines:?}");
    }
    client.delete_volume(&delete(&made.volume_id)).expect("delete");
    zones.assert_empty();
}

/// The share of each pool is within what chance allows: five standard deviations.
///
/// "The distribution of volumes evenly across pools that support the said domains becomes a requirement of
/// the CSI plugin, when the volumeBindingMode is Immediate."
#[test]
#[ignore = "long, and by chance: tests/run --full"]
fn two_hundred_volumes_are_balanced() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..200 {
        let made = client.create(&zones.volume(&format!("v{number}"), &[], &ZONES)).expect("create");
        *shares.entry(pool_of(&made).to_string()).or_default() += 1;
        client.delete_volume(&delete(&made.volume_id)).expect("delete");
    }
    assert!(ZONES.iter().all(|zone| (33..=100).contains(&shares[*zone])), "{shares:?}");
    zones.assert_empty();
}

/// "The returned Topology should adhere to the requested TopologyRequirement such that at least some parts
/// of the requirement are satisfied."
#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let parts = ["zone=zone-9", "zone=zone-1 (pool zone-1)", "zone=zone-3 (pool zone-3)"];
    refused(client.create(&zones.volume("web", &["zone-9"], &["zone-9"])), Code::RESOURCE_EXHAUSTED, &parts);
    for (pools, part) in [
        ("", "topologyConstrainedPools"),
        ("[]", "names no pool"),
        (r#"[{"poolName":"zone-1"}]"#, "domainSegments"),
        (r#"[{"poolName":"a/b","domainSegments":[{"domainLabel":"zone","value":"a"}]}]"#, "'/'"),
        (r#"[{"poolName":"a","domainSegments":[{"domainLabel":"zone","value":"a b"}]}]"#, "\"a b\""),
    ] {
        let request = zones.volume_with("web", (&["zone-1"], &[]), &[("topologyConstrainedPools", pools)]);
        refused(client.create(&request), Code::INVALID_ARGUMENT, &[part]);
    }
    let odd = zones.volume_with("web", (&["zone-1"], &[]), &[("topologyAccess", "stric")]);
    refused(client.create(&odd), Code::INVALID_ARGUMENT, &["strict"]);
    zones.assert_empty();
}

/// If the request names a pool, or the requirement names no domain of pools, topology chooses nothing.
#[test]
fn topology_chooses_only_where_it_is_asked_to() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let named = client.create(&zones.volume_with("named", (&["zone-1"], &[]), &[("pool", "rbd")]));
    let other = wire::CreateVolumeRequest {
        accessibility_requirements: MessageField::some(wire::TopologyRequirement {
            requisite: vec![topology(&[("node", "n1")])],
            ..Default::default()
        }),
        ..zones.volume("other", &[], &[])
    };
    for made in [named, client.create(&other)].map(|made| made.expect("create")) {
        assert_eq!((pool_of(&made), made.accessible_topology.len()), ("rbd", 0));
        assert_eq!(zones.claims(), Vec::<String>::new());
        client.delete_volume(&delete(&made.volume_id)).expect("delete");
    }
}

#[test]
fn a_copy_in_another_domain_has_all_its_data() {
    let zones = Zones::new();
    let daemon = zones.start();
    let client = daemon.client();
    let source = client.create(&zones.volume("source", &["zone-1"], &[])).expect("create").volume_id;
    let spec = |id: &str, pool: &str| format!("{pool}/{}/{}", zones.namespace, object_of(id));
    zones.cluster.rbd(&["bench", "--io-type", "write", "--io-total", "1M", &spec(&source, "zone-1")]);
    let sum = |id: &str, pool: &str| {
        let exported = zones.cluster.attempt("rbd", &["export", "--no-progress", &spec(id, pool), "-"]);
        assert!(exported.status.success() && exported.stdout.iter().any(|byte| *byte != 0));
        exported.stdout
    };
    let taken =
        client.create_snapshot(&snapshot("s", &source)).expect("snapshot").snapshot.snapshot_id.clone();
    let near = client.create(&from_snapshot(zones.volume("near", &["zone-2", "zone-1"], &ZONES), &taken));
    let near = near.expect("near");
    assert_eq!((pool_of(&near), near.accessible_topology.as_slice()), ("zone-1", &told("zone-1")[..]));
    let requests = [
        from_snapshot(zones.volume("of-snapshot", &["zone-2"], &["zone-2", "zone-3"]), &taken),
        from_volume(zones.volume("of-volume", &["zone-2"], &["zone-2", "zone-3"]), &source),
    ];
    let copies = requests.map(|request| client.create(&request).expect("copy").volume_id);
    for copy in &copies {
        assert!(!zones.cluster.rbd(&["info", &spec(copy, "zone-2")]).contains("parent:"), "it is flattened");
        assert_eq!(sum(copy, "zone-2"), sum(&source, "zone-1"));
    }
    let nowhere = from_volume(zones.volume("nowhere", &[], &["zone-9"]), &source);
    refused(client.create(&nowhere), Code::RESOURCE_EXHAUSTED, &["zone=zone-9"]);
    client.delete_volume(&delete(&near.volume_id)).expect("delete");
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete");
    client.delete_volume(&delete(&source)).expect("nothing reads from it");
    for copy in copies {
        client.delete_volume(&delete(&copy)).expect("delete");
    }
    zones.assert_empty();
}

#[test]
fn the_command_line_asks_for_domains_and_shows_them() {
    let zones = Zones::new();
    let daemon = zones.start();
    let say = |line: &str| {
        let mut command = Command::new(binary());
        command.env_clear().args(line.split_whitespace()).arg("--socket").arg(daemon.path("csi.sock"));
        let output = command.output().expect("cephlet");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    let namespace = format!("--parameter namespace={}", zones.namespace);
    let one = say(&format!("volume create one --size 8M --domain zone=zone-1 {namespace}"));
    let two =
        say(&format!("volume create two --size 8M --prefer zone=zone-9 --prefer zone=zone-2 {namespace}"));
    let list = say("volume list --wide");
    for (id, zone) in [(&one, "zone-1"), (&two, "zone-2")] {
        let line = list.lines().find(|line| line.contains(id.as_str())).expect("it is listed");
        assert!(
            line.contains(&format!("  zone={zone}  ")) || line.ends_with(&format!("zone={zone}")),
            "{list}"
        );
    }
    for (zone, is_none) in [("zone-9", true), ("zone-1", false)] {
        let room = say(&format!("capacity --json --domain zone={zone} {namespace}"));
        assert_eq!(
            room.contains("\"available_bytes\":0") || room.contains("\"available_bytes\": 0"),
            is_none,
            "{room}"
        );
    }
    [one, two].iter().for_each(|id| drop(say(&format!("volume delete {id}"))));
    zones.assert_empty();
    let room = |labels: &[(&str, &str)]| {
        let accessible_topology = MessageField::some(topology(labels));
        let parameters = map(&[("namespace", &zones.namespace)]);
        let request = wire::GetCapacityRequest { parameters, accessible_topology, ..Default::default() };
        daemon.client().get_capacity(&request).expect("capacity").available_capacity
    };
    assert!(room(&[("zone", "zone-1"), ("rack", "r7")]) > 0, "a pool of the zone is also for its racks");
    assert_eq!((room(&[("zone", "zone-9")]), room(&[("rack", "r7")])), (0, 0));
}
