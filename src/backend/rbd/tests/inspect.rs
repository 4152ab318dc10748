//! How a volume is doing.

use super::publish::{Scene, refused, scene, unpublish};
use super::*;
use crate::backend::Reason;
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind;

/// The volume, as seen by a controller that has not looked before.
fn inspect(it: &Scene) -> Volume {
    controller(&it.cluster, TWO)
        .volumes()
        .inspect(&call(), &it.id, &Secrets::default())
        .unwrap()
        .expect("it is there")
}

#[test]
fn nodes_are_told_once_and_only_those_that_have_it() {
    let it = scene();
    assert_eq!(inspect(&it).published, [""; 0]);
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(inspect(&it).published, ["n1"]);
    unpublish(&it.rbd, &it.id, None).unwrap();
    for node in ["n3", "n2"] {
        it.publish(node, Mode::MultiNodeReaderOnly, true).unwrap();
    }
    assert_eq!(inspect(&it).published, ["n2", "n3"]);
    unpublish(&it.rbd, &it.id, None).unwrap();
    let hold = LockRequest {
        cookie: "delete".into(),
        description: r#"{"deletion":{"controller":"x"},"version":1}"#.into(),
        shared: None,
        seconds: None,
    };
    it.cluster.here().lock(LockTarget::Header(&it.image()), &hold).unwrap();
    assert_eq!(inspect(&it).published, [""; 0]);
}

#[test]
fn pools_without_room_and_clients_shut_out_make_it_abnormal() {
    let it = scene();
    assert_eq!(inspect(&it).condition, Some(None));
    for (room, reason, part) in [
        (FreeSpace { available: 0, full: true }, Reason::PoolFull, "is full"),
        (FreeSpace { available: GIB / 21, full: false }, Reason::PoolNearlyFull, "nearly full"),
    ] {
        it.cluster.set_room("rbd", room);
        let told = inspect(&it).condition.flatten().unwrap();
        assert_eq!(told.reason, reason);
        assert!(told.detail.contains(part) && told.detail.contains("\"rbd\""), "{told}");
    }
    it.cluster.set_room("rbd", FreeSpace { available: GIB, full: false });
    it.watch("10.0.0.7:0/1");
    it.cluster.shut_out("10.0.0.7:0/2");
    assert_eq!(inspect(&it).condition, Some(None));
    it.cluster.shut_out("10.0.0.7:0/1");
    let told = inspect(&it).condition.flatten().unwrap();
    assert!(told.reason == Reason::ClientShutOut && told.detail.contains("10.0.0.7:0/1"), "{told}");
}

#[test]
fn a_volume_that_is_gone_is_none() {
    let it = scene();
    it.remove();
    assert!(it.rbd.volumes().inspect(&call(), &it.id, &Secrets::default()).unwrap().is_none());
}

#[test]
fn a_cluster_out_of_reach_is_the_condition_of_what_is_known_and_an_error_for_the_rest() {
    let it = scene();
    it.cluster.fail_at(1, Fault::Before);
    let volume = it.rbd.volumes().inspect(&call(), &it.id, &Secrets::default()).unwrap().unwrap();
    let told = volume.condition.flatten().unwrap();
    assert_eq!((volume.id, told.reason), (it.id.clone(), Reason::ClusterUnreachable));
    assert!(told.detail.contains("\"ceph\" cannot be reached"), "{told}");
    let fresh = controller(&it.cluster, TWO);
    it.cluster.fail_at(1, Fault::Before);
    refused(fresh.volumes().inspect(&call(), &it.id, &Secrets::default()), Kind::Timeout, &[]);
    let other = VolumeId { incarnation: Some("1f".into()), ..it.id.clone() };
    it.cluster.fail_at(1, Fault::Before);
    refused(it.rbd.volumes().inspect(&call(), &other, &Secrets::default()), Kind::Timeout, &[]);
}

#[test]
fn what_holds_for_all_volumes_of_a_pool_is_asked_once_in_a_while() {
    let it = scene();
    it.watch("10.0.0.7:0/1");
    let ask = || it.rbd.volumes().inspect(&call(), &it.id, &Secrets::default()).unwrap();
    ask();
    assert_eq!(it.methods(), ["info", "holders", "watchers", "blocklist", "room"]);
    ask();
    assert_eq!(it.methods(), ["info", "holders", "watchers"]);
    it.rbd.volumes().find(&call(), &it.id, &Secrets::default()).unwrap();
    assert_eq!(it.methods(), ["info"]);
}

/// An image with the lock of a later version is neither changed nor removed, even if the lock cannot be read.
#[test]
fn what_a_later_version_holds_is_in_use() {
    let it = scene();
    let hold = LockRequest {
        cookie: "n7".into(),
        description: r#"{"lease":{"until":"noon"},"version":2}"#.into(),
        shared: Some("n7".into()),
        seconds: None,
    };
    it.cluster.here().lock(LockTarget::Header(&it.image()), &hold).unwrap();
    let before = it.cluster.dump();
    refused(it.publish("n1", Mode::SingleNodeWriter, false), Kind::Precondition, &["later cephlet"]);
    let unpublished = unpublish(&it.rbd, &it.id, None).unwrap_err();
    let deleted = super::delete::delete(&it.rbd, &it.id).unwrap_err();
    for error in [unpublished, deleted] {
        let is_said = error.kind() == Kind::Precondition && error.message().contains("later cephlet");
        assert!(is_said, "UNSAFE: {error}");
    }
    assert_eq!(it.cluster.dump(), before);
    assert_eq!(inspect(&it).published, ["n7"]);
}
