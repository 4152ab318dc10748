//! Making, finding, expanding and deleting.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Barrier;

use super::*;
use crate::backend::local::store::Shelf;
use crate::backend::{Deleted, Placement};
use crate::csi::TopologyRequirement;
use crate::ids::{Place, VolumeId};

#[test]
fn a_new_volume_is_sparse_private_and_found_by_its_id() {
    let it = fixture();
    let volume = it.volume("a", 5 * MIB);
    let image = std::fs::metadata(it.image(&volume)).unwrap();
    assert_eq!((volume.size, image.len(), image.blocks()), (5 * MIB, 5 * MIB, 0));
    assert_eq!(volume.condition, Some(None));
    assert_eq!(volume.topology, [Map::from([("org.test/node".into(), NODE.into())])]);
    assert_eq!(volume.id.incarnation.as_ref().unwrap().len(), 16);
    assert_eq!(it.find(&volume).unwrap().id, volume.id);
    for directory in ["", "volumes", "snapshots", "pending"] {
        assert_eq!(std::fs::metadata(it.root.join(directory)).unwrap().permissions().mode() & 0o777, 0o700);
    }
    assert!(it.names("pending").is_empty());
}

#[test]
fn the_same_request_gives_the_same_volume() {
    let it = fixture();
    let new = it.new_volume("a", 5 * MIB);
    let first = it.create(&new).unwrap();
    let second = it.create(&new).unwrap();
    assert_eq!((first.id, first.size), (second.id, second.size));
    let wider = NewVolume { size: SizeRange { required: MIB, limit: 6 * MIB }, ..new };
    assert_eq!(it.create(&wider).unwrap().size, 5 * MIB);
}

#[test]
fn a_repeat_after_an_expansion_gives_the_volume_as_it_is() {
    let it = fixture();
    let new = NewVolume { size: SizeRange { required: 2 * MIB, limit: 2 * MIB }, ..it.new_volume("a", 0) };
    let volume = it.create(&new).unwrap();
    it.local.expand(&it.call, &volume.id, &SizeRange { required: 4 * MIB, limit: 0 }, &it.none).unwrap();
    assert_eq!(it.create(&new).unwrap().size, 4 * MIB);
}

#[test]
fn another_request_for_the_same_name_is_told_the_difference() {
    let it = fixture();
    let new = it.new_volume("a", 5 * MIB);
    let volume = it.create(&new).unwrap();
    let other_size = NewVolume { size: SizeRange { required: 6 * MIB, limit: 0 }, ..new.clone() };
    refused(
        it.create(&other_size),
        Kind::AlreadyExists,
        &["\"a\"", "5242880", "6291456", &volume.id.to_string()],
    );
    let other_parameters =
        NewVolume { parameters: Map::from([("preallocate".into(), "true".into())]), ..new.clone() };
    refused(it.create(&other_parameters), Kind::AlreadyExists, &["preallocate", "not set"]);
    refused(
        it.create(&NewVolume { source: it.copy_of("b", &volume).source, ..new.clone() }),
        Kind::AlreadyExists,
        &["source"],
    );
    refused(
        it.create(&NewVolume { name: "b".into(), ..new }),
        Kind::AlreadyExists,
        &["\"a\"", "\"b\"", "another name"],
    );
}

#[test]
fn identical_creates_at_once_make_one_volume() {
    let it = fixture();
    let (new, start) = (it.new_volume("a", MIB), Barrier::new(32));
    let ids: Vec<_> = std::thread::scope(|scope| {
        let create = || {
            start.wait();
            it.create(&new).unwrap().id
        };
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(it.names("volumes"), [ids[0].object.clone()]);
    assert!(it.names("pending").is_empty(), "those that lost have cleaned up");
}

#[test]
fn the_file_system_of_the_parameters_reaches_the_nodes() {
    let it = fixture();
    let parameters =
        Map::from([("csi.storage.k8s.io/fstype".into(), "xfs".into()), ("backend".into(), "local".into())]);
    let volume = it.create(&NewVolume { parameters, ..it.new_volume("a", MIB) }).unwrap();
    assert_eq!(it.find(&volume).unwrap().context, Map::from([("fsType".into(), "xfs".into())]));
}

#[test]
fn placement_refuses_what_cannot_be() {
    let it = fixture();
    let placement = |parameters: &Map, requisite: Vec<Map>| {
        let topology = &TopologyRequirement { requisite, preferred: Vec::new() };
        it.local.place(&PlacementRequest { parameters, mutable_parameters: &Map::new(), topology })
    };
    let segment = |node: &str| Map::from([("org.test/node".to_string(), node.to_string())]);
    let placed = placement(&Map::new(), vec![segment("other"), segment(NODE)]).unwrap();
    let Placement::At(place) = placed else { panic!("{placed:?}") };
    assert_eq!(it.local.serves(&place), Served::Here);
    assert_eq!((place.backend.as_str(), place.cluster.as_str()), ("local", NODE));
    refused(placement(&Map::new(), vec![segment("other")]), Kind::NoSpace, &["org.test/node", NODE]);
    refused(placement(&Map::from([("size".into(), "1".into())]), vec![]), Kind::InvalidArgument, &["size"]);
    let elsewhere = Place { cluster: "other".into(), ..place.clone() };
    assert_eq!(it.local.serves(&elsewhere), Served::ByNode("other".into()));
    assert_eq!(it.local.serves(&Place { pool: "p".into(), ..place }), Served::Nowhere);
}

#[test]
fn modes_of_several_nodes_and_strange_file_systems_are_refused() {
    let it = fixture();
    let with = |mode, fs_type: &str| Capability {
        access: Access::Mount { fs_type: fs_type.into(), flags: vec![] },
        mode,
    };
    for fs_type in ["", "ext4", "xfs", "btrfs"] {
        it.local.supports(&with(Mode::SingleNodeMultiWriter, fs_type)).unwrap();
    }
    refused(
        it.local.supports(&with(Mode::SingleNodeWriter, "vfat")),
        Kind::InvalidArgument,
        &["vfat", "ext4"],
    );
    for mode in [Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter] {
        refused(it.local.supports(&with(mode, "")), Kind::InvalidArgument, &["own node"]);
    }
}

#[test]
fn ids_of_others_mean_no_volume() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let with_object = |object: &str| VolumeId { object: object.into(), ..volume.id.clone() };
    let older = VolumeId { incarnation: Some("0123456789abcdef".into()), ..volume.id.clone() };
    let elsewhere =
        VolumeId { place: Place { cluster: "other".into(), ..volume.id.place.clone() }, ..volume.id.clone() };
    let up = with_object(&format!("../volumes/{}", volume.id.object));
    for id in [
        older,
        elsewhere,
        up,
        with_object(".."),
        with_object("."),
        with_object(&"x".repeat(300)),
        with_object("csi-vol-0"),
    ] {
        assert!(it.local.find(&it.call, &id, &it.none).unwrap().is_none(), "{id}");
        assert_eq!(it.delete(&id).unwrap(), Deleted::Absent, "{id}");
    }
    let any = VolumeId { incarnation: None, ..volume.id.clone() };
    assert_eq!(it.local.find(&it.call, &any, &it.none).unwrap().unwrap().id, volume.id);
}

#[test]
fn deleting_twice_is_deleting_once() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Absent);
    assert!(it.names("volumes").is_empty() && it.names("pending").is_empty());
}

#[test]
fn a_late_delete_spares_the_next_volume_of_the_name() {
    let it = fixture();
    let first = it.volume("a", MIB);
    it.delete(&first.id).unwrap();
    let second = it.volume("a", MIB);
    assert_eq!(it.delete(&first.id).unwrap(), Deleted::Absent);
    assert!(it.find(&second).is_some());
}

#[test]
fn expanding_rounds_up_and_never_shrinks() {
    let it = fixture();
    let volume = it.volume("a", 2 * MIB);
    let expand =
        |required, limit| it.local.expand(&it.call, &volume.id, &SizeRange { required, limit }, &it.none);
    assert_eq!(expand(3 * MIB + 1, 0).unwrap(), 3 * MIB + 4096);
    assert_eq!(expand(MIB, 0).unwrap(), 3 * MIB + 4096);
    refused(expand(MIB, 2 * MIB), Kind::OutOfRange, &[&volume.id.to_string(), "never shrinks"]);
    let after = it.find(&volume).unwrap();
    assert_eq!((after.size, after.condition), (3 * MIB + 4096, Some(None)));
    let unknown = VolumeId { object: "csi-vol-0".into(), ..volume.id.clone() };
    refused(
        it.local.expand(&it.call, &unknown, &SizeRange::default(), &it.none),
        Kind::NotFound,
        &["csi-vol-0"],
    );
}

#[test]
fn preallocated_volumes_have_their_blocks() {
    let it = fixture();
    let parameters = Map::from([("preallocate".into(), "true".into())]);
    let volume = it.create(&NewVolume { parameters, ..it.new_volume("a", 2 * MIB) }).unwrap();
    let allocated = || std::fs::metadata(it.image(&volume)).unwrap().blocks() * 512;
    assert!(allocated() >= 2 * MIB);
    it.local.expand(&it.call, &volume.id, &SizeRange { required: 4 * MIB, limit: 0 }, &it.none).unwrap();
    assert!(allocated() >= 4 * MIB);
    assert_eq!(it.find(&volume).unwrap().size, 4 * MIB);
}

/// The kernel reports a failed sync only once, and the next one succeeds.
#[test]
fn nothing_is_answered_from_a_directory_that_could_not_be_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (dir.path().join("volumes"), dir.path().join("elsewhere"));
    let shelf = Shelf::ensure(path.clone()).unwrap();
    shelf.sync().unwrap();
    assert!(shelf.names().unwrap().is_empty());
    std::fs::rename(&path, &elsewhere).unwrap();
    shelf.sync().unwrap_err();
    std::fs::rename(&elsewhere, &path).unwrap();
    refused(shelf.names(), Kind::Unavailable, &["could not be synced", "restart"]);
}

#[test]
fn nothing_can_be_modified() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let modify = |parameters: &Map| it.local.modify(&it.call, &volume.id, parameters, &it.none);
    modify(&Map::new()).unwrap();
    refused(modify(&Map::from([("iops".into(), "1".into())])), Kind::InvalidArgument, &["iops"]);
}

/// Two requests for one volume wait for each other, under any name of the node in their IDs.
#[test]
fn a_volume_has_one_spelling_under_all_names_of_its_node() {
    let (dir, loops) = (tempfile::tempdir().unwrap(), Arc::new(FakeLoops::default()));
    let name = NodeName::new("a").renamed("b").renamed("c");
    let local = Local::open(dir.path().into(), &name, "org.test", loops, None).unwrap();
    let at = |node: &str| Place { cluster: node.into(), ..local.own_place() };
    for node in ["a", "b", "c"] {
        assert_eq!((local.canonical(&at(node)), local.serves(&at(node))), (at("a"), Served::Here));
    }
    assert_eq!(local.canonical(&at("d")), at("d"));
    assert_eq!(local.serves(&at("d")), Served::ByNode("d".into()));
}
