//! Volumes whose pool is chosen by topology: where they go, and which topology they report.

use super::delete::delete;
use super::*;
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, Page, SnapshotFilter};
use crate::csi::TopologyRequirement;
use crate::error::Kind;
use crate::ids::{registered, volume_object};

/// The pools, with the zone that each is in.
const POOLS: [(&str, &str); 3] = [("one", "1"), ("two", "2"), ("three", "3")];

/// A cluster with a pool in each zone, and a pool without a zone.
pub(super) fn three_zones() -> FakeCluster {
    let cluster = FakeCluster::new();
    for (pool, zone) in POOLS {
        cluster.add_pool(pool);
        cluster.label(pool, "cephlet.zone", zone);
    }
    cluster.set_now(std::time::SystemTime::now());
    cluster
}

fn segments(zone: &str) -> Map {
    Map::from([(format!("{PLUGIN}/zone"), zone.to_string())])
}

/// A request for a volume in one of these zones.
pub(super) fn wanted_in(name: &str, preferred: &[&str], requisite: &[&str]) -> NewVolume {
    let all = |zones: &[&str]| zones.iter().map(|zone| segments(zone)).collect();
    let topology = Some(TopologyRequirement { preferred: all(preferred), requisite: all(requisite) });
    let object = registered(&volume_object("default", name), "rbd");
    NewVolume { object, topology, ..wanted(name, GIB, None) }
}

/// The topology that a volume reports if it names this zone.
fn told(zone: &str) -> [Map; 2] {
    [segments(zone), Map::from([(format!("{PLUGIN}/takes.zone.{zone}"), "true".to_string())])]
}

#[test]
fn the_first_preferred_domain_that_has_a_pool_is_taken_and_named() {
    let (cluster, all) = (three_zones(), ["1", "2", "3"]);
    let rbd = controller(&cluster, ONE);
    let made = create(&rbd, &wanted_in("a", &["9", "2", "1"], &all)).unwrap();
    assert_eq!((made.id.place.pool.as_str(), made.topology.as_slice()), ("two", &told("2")[..]));
    let steps: Vec<_> = cluster.steps().iter().map(|it| it.split(' ').next().unwrap().to_string()).collect();
    assert_eq!(steps, ["pools", "rooms", "lock", "create", "info"], "the name is claimed first");
    cluster.forget_steps();
    create(&rbd, &wanted_in("b", &["1"], &all)).unwrap();
    assert_eq!(cluster.steps().len(), 3, "labels and room are remembered: {:?}", cluster.steps());
    assert_eq!(delete(&rbd, &made.id).unwrap(), Deleted::Gone);
}

#[test]
fn one_of_several_is_drawn_and_reachable_from_everywhere() {
    let cluster = three_zones();
    cluster.set_room("two", FreeSpace { available: 0, full: true });
    let rbd = controller(&cluster, ONE);
    for number in 0..20 {
        let made = create(&rbd, &wanted_in(&format!("v{number}"), &[], &["1", "2"])).unwrap();
        assert_eq!((made.id.place.pool.as_str(), made.topology.len()), ("one", 0), "not the full pool");
    }
    let only = create(&rbd, &wanted_in("only", &[], &["3"])).unwrap();
    assert_eq!((only.id.place.pool.as_str(), only.topology.as_slice()), ("three", &told("3")[..]));
    cluster.set_room("one", FreeSpace { available: 0, full: true });
    let error = create(&controller(&cluster, ONE), &wanted_in("full", &[], &["1", "2"])).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    assert!(error.message().contains("one, two"), "{error}");
}

#[test]
fn what_a_volume_says_can_be_asked_for() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let with = |name: &str, access: &str, preferred: &[&str]| {
        let mut new = wanted_in(name, preferred, &["1", "2"]);
        new.parameters = Map::from([("topologyAccess".to_string(), access.to_string())]);
        create(&rbd, &new).unwrap()
    };
    let strict = with("strict", "strict", &[]);
    let zone = POOLS.iter().find(|(pool, _)| *pool == strict.id.place.pool).unwrap().1;
    assert_eq!(strict.topology, told(zone));
    let any = with("any", "any", &["2"]);
    assert_eq!((any.id.place.pool.as_str(), any.topology.len()), ("two", 0));
}

#[test]
fn no_pool_that_fits_is_refused_with_those_there_are() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let error = create(&rbd, &wanted_in("a", &[], &["9"])).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    for part in ["zone=9", "zone=1 (pool one)", "zone=3 (pool three)"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(!cluster.dump().contains("claim"));
    // A label that was just written counts, and so does a pool that was made since its room was asked for.
    create(&rbd, &wanted_in("drawn", &[], &["1", "2"])).unwrap();
    cluster.add_pool("nine");
    cluster.label("nine", "cephlet.zone", "9");
    assert_eq!(create(&rbd, &wanted_in("a", &[], &["9"])).unwrap().id.place.pool, "nine");
    assert_eq!(create(&rbd, &wanted_in("b", &["9"], &["1", "9"])).unwrap().id.place.pool, "nine");
}

#[test]
fn where_nobody_speaks_of_domains_the_usual_pool_is_for_everywhere() {
    let cluster = FakeCluster::new();
    let made = create(&controller(&cluster, ONE), &wanted_in("a", &["1"], &["1"])).unwrap();
    assert_eq!((made.id.place.pool.as_str(), made.topology.len()), ("rbd", 0));
}

#[test]
fn the_volumes_own_parameter_comes_before_labels() {
    let cluster = three_zones();
    cluster.add_pool("ec");
    let text =
        r#"[{"poolName":"two","dataPool":"ec","domainSegments":[{"domainLabel":"zone","value":"1"}]}]"#;
    let mut new = wanted_in("a", &[], &["1"]);
    new.parameters = Map::from([("topologyConstrainedPools".to_string(), text.to_string())]);
    let made = create(&controller(&cluster, ONE), &new).unwrap();
    assert_eq!((made.id.place.pool.as_str(), made.topology.as_slice()), ("two", &told("1")[..]));
    let layout = cluster.layout(&cluster.at_pool("two", ""), &new.object);
    assert_eq!(layout.data_pool.as_deref(), Some("ec"));
    let anywhere = NewVolume { topology: Some(TopologyRequirement::default()), ..new.clone() };
    assert_eq!(create(&controller(&cluster, TWO), &anywhere).unwrap().id, made.id);
}

#[test]
fn a_preferred_pool_that_is_full_is_passed_over() {
    let cluster = three_zones();
    cluster.set_room("two", FreeSpace { available: 0, full: true });
    let made = create(&controller(&cluster, ONE), &wanted_in("a", &["2", "1"], &["1", "2"])).unwrap();
    assert_eq!((made.id.place.pool.as_str(), made.topology.as_slice()), ("one", &told("1")[..]));
}

#[test]
fn a_copy_stays_with_its_source_or_has_all_its_data() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let source = create(&rbd, &wanted_in("a", &["1"], &[])).unwrap().id;
    cluster.write(&cluster.at_pool("one", ""), &source.object, "data");
    let taken = snapshot(&rbd, &source, "s").unwrap().id;
    let origins = [Origin::Volume(source.clone()), Origin::Snapshot(taken)];
    for (number, origin) in origins.into_iter().enumerate() {
        let copy = |name: &str, preferred: &[&str], requisite: &[&str]| {
            let name = format!("{name}{number}");
            let source = wanted("x", 0, Some(origin.clone())).source;
            create(&rbd, &NewVolume { source, ..wanted_in(&name, preferred, requisite) })
        };
        let near = copy("near", &["2", "1"], &[]).unwrap();
        assert_eq!((near.id.place.pool.as_str(), near.topology.as_slice()), ("one", &told("1")[..]));
        let far = copy("far", &["2"], &["2", "3"]).unwrap();
        assert_eq!((far.id.place.pool.as_str(), far.topology.as_slice()), ("two", &told("2")[..]));
        let (at, object) = (cluster.at_pool("two", ""), &far.id.object);
        assert_eq!(cluster.content(&at, object), "data");
        assert!(!cluster.dump().contains(&format!("image two/{object} {GIB} of ")), "{}", cluster.dump());
        assert_eq!(copy("none", &[], &["9"]).unwrap_err().kind(), Kind::NoSpace);
    }
}

#[test]
fn lists_and_looks_tell_the_same_topology() {
    let cluster = three_zones();
    let maker = controller(&cluster, ONE);
    let made = create(&maker, &wanted_in("a", &["1"], &[])).unwrap();
    create(&maker, &wanted("plain", GIB, None)).unwrap();
    let rbd = controller(&cluster, TWO);
    let list = || -> Page<Volume> { rbd.volumes().list(&call(), ("", 0), &Err).unwrap() };
    let topologies: Vec<_> = list().entries.into_iter().map(|volume| volume.topology).collect();
    assert_eq!(topologies, [made.topology.clone(), Vec::new()]);
    cluster.forget_steps();
    list();
    assert!(!cluster.steps().iter().any(|step| step.contains("metadata")), "{:?}", cluster.steps());
    let none = Secrets::default();
    let inspected = rbd.volumes().inspect(&call(), &made.id, &none).unwrap().unwrap();
    let found = rbd.volumes().find(&call(), &made.id, &none).unwrap().unwrap();
    assert_eq!((&inspected.topology, &found.topology), (&made.topology, &made.topology));
}

#[test]
fn a_snapshot_is_where_its_volume_is() {
    let cluster = three_zones();
    let maker = controller(&cluster, ONE);
    let made = create(&maker, &wanted_in("a", &["1"], &[])).unwrap();
    let plain = create(&maker, &wanted("plain", GIB, None)).unwrap();
    let taken = snapshot(&maker, &made.id, "s").unwrap();
    assert_eq!(taken.topology, told("1"));
    assert_eq!(snapshot(&maker, &plain.id, "of plain").unwrap().topology, [] as [Map; 0]);
    let (rbd, none) = (controller(&cluster, TWO), Secrets::default());
    assert_eq!(rbd.snapshots().find(&call(), &taken.id, &none).unwrap().unwrap().topology, told("1"));
    for filter in [SnapshotFilter::All, SnapshotFilter::Of(made.id.clone())] {
        let listed = rbd.snapshots().list(&call(), &filter, &none, "", 0).unwrap().entries;
        let own = listed.into_iter().find(|it| it.id == taken.id).unwrap();
        assert_eq!(own.topology, told("1"), "{filter:?}");
    }
}

#[test]
fn room_is_that_of_the_domain() {
    let cluster = three_zones();
    for (number, (pool, _)) in POOLS.iter().enumerate() {
        cluster.set_room(pool, FreeSpace { available: (number as u64 + 1) << 20, full: false });
    }
    let rbd = controller(&cluster, ONE);
    let room = |zone: Option<&str>, parameters: &[(&str, &str)]| {
        let parameters = parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        rbd.volumes().capacity(&call(), &parameters, &[], zone.map(segments).as_ref()).unwrap().available
    };
    assert_eq!((room(Some("2"), &[]), room(Some("9"), &[])), (2 << 20, 0));
    assert_eq!(room(None, &[]), 1 << 40, "the usual pool");
    assert_eq!(room(Some("9"), &[("pool", "three")]), 3 << 20, "a pool that is named is meant");
}

#[test]
fn a_volume_whose_name_a_later_version_has_claimed_is_not_deleted() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let made = create(&rbd, &wanted_in("a", &["1"], &[])).unwrap().id;
    let at = cluster.at();
    let target = LockTarget::VolumeName(crate::ids::volume_key(&made.object).unwrap());
    let claim = LockRequest {
        cookie: TWO.into(),
        description: r#"{"version":2}"#.into(),
        shared: Some("one".into()),
        seconds: None,
    };
    cluster.on(&at).lock(target, &claim).unwrap();
    let before = cluster.dump();
    let error = delete(&rbd, &made).unwrap_err();
    assert!(error.kind() == Kind::Precondition && error.message().contains("later cephlet"), "{error}");
    assert_eq!(cluster.dump(), before);
}

/// Each controller was just started, and remembers nothing of the volume.
#[test]
fn a_refused_repeat_leaves_the_name_to_its_volume() {
    let cluster = three_zones();
    let new = wanted_in("a", &["1"], &[]);
    let made = create(&controller(&cluster, ONE), &new).unwrap();
    let larger = SizeRange { required: 1 << 40, limit: 0 };
    let impossible = SizeRange { required: 1, limit: 1 };
    for (size, kind) in [(larger, Kind::AlreadyExists), (impossible, Kind::OutOfRange)] {
        let other = NewVolume { size, ..new.clone() };
        assert_eq!(create(&controller(&cluster, ONE), &other).unwrap_err().kind(), kind);
        let again = create(&controller(&cluster, ONE), &wanted_in("a", &["2"], &[])).unwrap();
        assert_eq!(again.id, made.id, "UNSAFE: two volumes of a name");
    }
}
