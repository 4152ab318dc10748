//! Options of a pool that change what is made and removed there, and the number of snapshots.

use super::delete::delete;
use super::mapping::{Host, attach};
use super::publish::{refused, scene};
use super::*;
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::backend::rbd::tool::*;
use crate::csi::Mode;
use crate::error::Kind;

fn features_of(cluster: &FakeCluster, id: &VolumeId) -> Vec<String> {
    let info = cluster.here().info(ImageRef::Name(&id.object)).unwrap().unwrap();
    info.features.into_iter().filter(|it| it != "operations").collect()
}

fn with_features(name: &str, features: &str, mode: Mode) -> NewVolume {
    NewVolume {
        parameters: Map::from([("imageFeatures".to_string(), features.to_string())]),
        capabilities: vec![Capability { access: Access::Block, mode }],
        ..wanted(name, GIB, None)
    }
}

#[test]
fn a_volume_has_the_lock_that_writers_need_whatever_the_default() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    cluster.set_options("rbd", |options| options.features = ["layering".to_string()].into());
    let volume = create(&rbd, &wanted("volume", GIB, None)).unwrap().id;
    assert_eq!(features_of(&cluster, &volume), ["exclusive-lock", "layering"]);
    // A copy has the feature that its source lacks.
    let source = create(&rbd, &with_features("source", "layering", Mode::MultiNodeReaderOnly)).unwrap().id;
    assert_eq!(features_of(&cluster, &source), ["layering"]);
    let snap = snapshot(&rbd, &source, "snap").unwrap().id;
    for (name, origin) in [("a", Origin::Snapshot(snap)), ("b", Origin::Volume(source))] {
        let copy = create(&rbd, &wanted(name, 0, Some(origin))).unwrap().id;
        assert_eq!(features_of(&cluster, &copy), ["exclusive-lock", "layering"], "{name}");
    }
}

#[test]
fn features_without_the_lock_are_for_readers() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter] {
        let outcome = create(&rbd, &with_features("volume", "layering", mode));
        refused(outcome, Kind::InvalidArgument, &["imageFeatures", "add exclusive-lock"]);
    }
    assert_eq!(cluster.dump(), "");
    create(&rbd, &with_features("volume", "layering", Mode::SingleNodeReaderOnly)).unwrap();
}

#[test]
fn all_that_an_option_could_change_is_named() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    cluster.add_pool("ec");
    cluster.set_options("rbd", |options| options.data_pool = Some("ec".to_string()));
    let volume = create(&rbd, &wanted("volume", GIB, None)).unwrap().id;
    let layout = cluster.layout(&cluster.at(), &volume.object);
    assert_eq!((layout.object_size, layout.striping), (Some(4 << 20), Some((4 << 20, 1))));
    assert_eq!((layout.data_pool.as_deref(), layout.is_default_data_pool), (Some("ec"), true));
    let mut new = wanted("in-its-own-pool", GIB, None);
    new.parameters.extend([("objectSize", "1M"), ("dataPool", "rbd")].map(|(k, v)| (k.into(), v.into())));
    let volume = create(&rbd, &new).unwrap().id;
    let layout = cluster.layout(&cluster.at(), &volume.object);
    assert_eq!((layout.object_size, layout.striping), (Some(1 << 20), Some((1 << 20, 1))));
    assert_eq!((layout.data_pool.as_deref(), layout.is_default_data_pool), (Some("rbd"), false));
}

#[test]
fn an_image_in_use_is_not_removed_by_way_of_the_trash() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    cluster.set_options("rbd", |options| options.trashes_removed = true);
    let id = create(&rbd, &wanted("volume", GIB, None)).unwrap().id;
    let before = cluster.dump();
    cluster.watch(&cluster.at(), &id.object, "10.0.0.7:0/7");
    refused(delete(&rbd, &id), Kind::Precondition, &["10.0.0.7:0/7"]);
    cluster.unwatch("10.0.0.7:0/7");
    assert_eq!(cluster.dump(), before);
    delete(&rbd, &id).unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), "");
}

/// In such a pool an image in the trash that has the name of a volume is an operator's.
#[test]
fn what_a_killed_removal_left_in_the_trash_is_purged_and_an_operators_is_not() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    cluster.set_options("rbd", |options| options.trashes_removed = true);
    let [id, by_hand] = ["volume", "other"].map(|name| create(&rbd, &wanted(name, GIB, None)).unwrap().id);
    cluster.put_aside(&cluster.at(), &by_hand.object);
    delete(&rbd, &id).unwrap();
    // Before the removal: the look-up, the former name, our own lock, the lock taken anew, the clients.
    let removal = 9;
    cluster.fail_at(removal, Fault::After);
    do_jobs(&rbd);
    assert!(cluster.dump().contains("trash rbd/csi-held-"), "{}", cluster.dump());
    let late = controller(&cluster, TWO);
    cluster.advance(Duration::from_secs(400));
    late.recover().unwrap();
    do_jobs(&late);
    assert_eq!(cluster.dump(), format!("trash rbd/{} {GIB}", by_hand.object));
}

/// 450 snapshots leave room below the 510 that the kernel's driver takes.
#[test]
fn an_image_gets_no_more_snapshots_than_the_kernel_takes() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let source = create(&rbd, &wanted("source", GIB, None)).unwrap().id;
    cluster.take_snapshots(&cluster.at(), &source.object, 448);
    let copy = wanted("copy", 0, Some(Origin::Volume(source.clone())));
    create(&rbd, &copy).unwrap();
    let last = snapshot(&rbd, &source, "last").unwrap();
    let parts = ["has 450 snapshots", "delete snapshots", "rbd flatten"];
    refused(snapshot(&rbd, &source, "more"), Kind::NoSpace, &parts);
    let another = wanted("another", 0, Some(Origin::Volume(source.clone())));
    refused(create(&rbd, &another), Kind::NoSpace, &parts);
    // Acknowledged requests succeed again, also by a controller that remembers nothing.
    let cold = controller(&cluster, TWO);
    assert_eq!(snapshot(&cold, &source, "last").unwrap().id, last.id);
    create(&cold, &copy).unwrap();
    create(&cold, &wanted("restored", 0, Some(Origin::Snapshot(last.id)))).unwrap();
}

#[test]
fn an_image_on_which_the_kernel_would_hang_is_not_mapped() {
    for (snapshots, read_only) in [(510, false), (511, false), (511, true)] {
        let it = scene();
        let host = Host::new(&it.cluster);
        let node = host.daemon();
        let mode = if read_only { Mode::MultiNodeReaderOnly } else { Mode::SingleNodeWriter };
        let told = it.publish("n1", mode, read_only).unwrap();
        it.cluster.take_snapshots(&it.cluster.at(), &it.id.object, snapshots);
        match attach(&node, &it.id, &told, mode) {
            Ok(_) => assert_eq!(snapshots, 510),
            outcome => {
                refused(outcome, Kind::Precondition, &["has 511 snapshots", "510", "mounter=rbd-nbd"]);
                assert_eq!(snapshots, 511);
            }
        }
    }
}
