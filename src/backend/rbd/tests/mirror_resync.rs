//! Copies that are made anew.

use super::mirror::{changes, promotion};
use super::publish::{Scene, refused, scene};
use super::*;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::*;
use crate::error::Kind::*;

#[test]
fn a_copy_is_made_anew_once_and_only_from_a_primary() {
    let it = scene();
    it.set(true);
    refused(it.resync(true), Precondition, &["primary", "demote"]);
    it.set_copy("snapshots-split-brain", "split-brain-secondary");
    refused(it.resync(false), Precondition, &["split-brain", "force"]);
    let mut alone = recorded::status("split-brain-secondary");
    alone.peers[0].is_up = false;
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, alone);
    refused(it.resync(true), Precondition, &["not primary at the other site"]);
    assert_eq!(changes(&it), [""; 0], "a wish that cannot be met strikes later");
    it.set_copy("snapshots-split-brain", "split-brain-secondary");
    for _ in 0..3 {
        assert!(!it.resync(true).unwrap());
    }
    assert_eq!(changes(&it), ["request_resync"], "it would be copied for ever");
    // The copy is gone for some seconds: it counts neither as deleted nor as absent.
    it.remove();
    let none = Secrets::default();
    let deletion = crate::backend::Deletion { id: &it.id, snapshots_may_outlive: true, secrets: &none };
    refused(it.rbd.volumes().delete(&call(), &deletion, &|| Ok(())), Unavailable, &["anew"]);
    refused(it.resync(true), Unavailable, &["anew"]);
}

/// Another call's resync is done while this call looks: the image goes, and comes back under another id.
#[test]
fn a_copy_that_is_replaced_meanwhile_is_not_replaced_once_more() {
    for step in 2..=5 {
        for comes_back in [false, true] {
            let it = scene();
            it.set_copy("snapshots-split-brain", "split-brain-secondary");
            let name = it.id.object.clone();
            it.cluster.on_step(step, move |cluster| {
                let (at, image) = (cluster.at(), name.as_str());
                let metadata = cluster.all_metadata(&at, image);
                cluster.on(&at).remove(image).unwrap();
                if comes_back {
                    let pairs: Vec<(&str, &str)> =
                        metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                    let layout = Layout::default();
                    let image = NewImage { name: image, size: GIB, layout: &layout, metadata: &pairs };
                    cluster.on(&at).create(&image).unwrap();
                }
            });
            let of = it.rbd.replication().unwrap();
            match of.resync(&call(), &it.id, true, &Secrets::default()) {
                Ok(ready) => assert!(!ready, "after step {step}"),
                Err(error) => refused::<()>(Err(error), Unavailable, &["anew"]),
            }
            let asked = changes(&it).contains(&"request_resync".to_string());
            assert_eq!(asked, step == 5, "after step {step}: it would be copied twice");
        }
    }
}

#[test]
fn a_copy_is_ready_when_all_is_here_and_is_left_alone() {
    let it = scene();
    for (snapshots, status, ready) in [
        ("snapshots-copy", "healthy-secondary", true),
        ("snapshots-demotion-arrived", "both-demoted", true),
        ("snapshots-demotion-arrived", "healthy-secondary", false),
        ("snapshots-demoted", "healthy-secondary", false),
        ("snapshots-incomplete", "healthy-secondary", false),
        ("snapshots-copy", "first-copy-secondary", false),
        ("snapshots-copy", "primary-dead-secondary", false),
    ] {
        it.set_copy(snapshots, status);
        assert_eq!(it.resync(true).unwrap(), ready, "{snapshots} {status}");
    }
    assert_eq!(changes(&it), [""; 0]);
}

/// A request for a resync that outlives its reason has the image deleted whenever it is a copy again.
#[test]
fn a_promotion_takes_the_wish_back() {
    let it = scene();
    it.set_copy("snapshots-split-brain", "split-brain-secondary");
    assert!(!it.resync(true).unwrap());
    it.set_copy("snapshots-split-brain", "both-demoted");
    refused(it.resync(true), Precondition, &["to be copied anew", "not primary at the other site"]);
    it.promote(&promotion(true)).unwrap();
    assert_eq!(changes(&it), ["request_resync", "promote", "set_metadata"]);
    it.set_copy("snapshots-copy", "healthy-secondary");
    assert!(it.resync(true).unwrap(), "it would be made anew");
}

#[test]
fn a_copy_that_is_read_is_not_taken_from_its_readers() {
    let it = scene();
    it.set_copy("snapshots-split-brain", "split-brain-secondary");
    it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    changes(&it);
    refused(it.resync(true), Precondition, &["copied anew", "\"n1\""]);
    assert_eq!(changes(&it), [""; 0]);
}

/// The ID may have the name of either cluster.
#[test]
fn a_copy_in_making_is_neither_absent_nor_deleted_under_any_of_its_names() {
    let it = scene();
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let here =
        Cluster { credentials: Some(credentials), serves: vec!["ceph".into()], ..Cluster::named("backup") };
    let it = Scene { rbd: with_timing(Clusters::of([here]), &it.cluster, TWO, timing()), ..it };
    it.set_copy("snapshots-split-brain", "split-brain-secondary");
    assert!(!it.resync(true).unwrap());
    it.remove();
    for cluster in ["ceph", "backup"] {
        let id =
            VolumeId { place: Place { cluster: cluster.into(), ..it.id.place.clone() }, ..it.id.clone() };
        let none = Secrets::default();
        let deletion = crate::backend::Deletion { id: &id, snapshots_may_outlive: true, secrets: &none };
        let deleted = it.rbd.volumes().delete(&call(), &deletion, &|| Ok(()));
        refused(deleted, Unavailable, &["anew"]);
    }
}
