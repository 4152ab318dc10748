//! Loop devices: finding, attaching, detaching.

use super::*;
use crate::backend::{Attachment, BlockDevice, Deleted, NodeContext, PublishedBy};
use crate::ids::VolumeId;

fn attach(it: &Fixture, id: &VolumeId, publish: &Map) -> Result<BlockDevice> {
    let attached = it.local.attach(
        &it.call,
        id,
        None,
        &NodeContext {
            volume: &Map::new(),
            publish,
            secrets: &it.none,
            capability: &block(),
            read_only: false,
        },
        &|_| Ok(()),
    );
    attached.map(|attached| attached.device().unwrap().clone())
}

#[test]
fn attaching_is_repeatable_and_detaching_too() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    assert_eq!(it.local.attached(&volume.id).unwrap(), None);
    let device = attach(&it, &volume.id, &Map::new()).unwrap();
    assert_eq!(device.sparse_file, Some(it.image(&volume)));
    assert_eq!(attach(&it, &volume.id, &Map::new()).unwrap(), device);
    assert_eq!(it.local.attached(&volume.id).unwrap(), Some(Attachment::Block(device.clone())));
    it.local.grow(&it.call, &volume.id, &Attachment::Block(device.clone()), 0).unwrap();
    for _ in 0..2 {
        it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none).unwrap();
        assert_eq!(it.local.attached(&volume.id).unwrap(), None);
    }
    assert_eq!(*it.loops.done.lock(), ["grow /dev/loop700", "detach /dev/loop700"]);
}

#[test]
fn a_read_only_publication_is_attached_read_only() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let publication = crate::backend::Publication { node: NODE.into(), capability: block(), read_only: true };
    let context = it.local.publish(&it.call, &volume.id, &publication, &it.none).unwrap();
    assert!(attach(&it, &volume.id, &context).unwrap().read_only);
}

#[test]
fn an_attached_volume_is_not_deleted() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    attach(&it, &volume.id, &Map::new()).unwrap();
    it.loops.mounted_at(&it.image(&volume), &["/mnt/x", "/mnt/y"]);
    let parts = [&volume.id.to_string(), "/dev/loop700", "/mnt/x, /mnt/y"];
    refused(it.delete(&volume.id), Kind::Precondition, &parts);
    refused(
        it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none),
        Kind::Precondition,
        &parts,
    );
    it.loops.mounted_at(&it.image(&volume), &[]);
    it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none).unwrap();
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
}

#[test]
fn a_device_that_another_one_stands_on_stays_attached() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let device = attach(&it, &volume.id, &Map::new()).unwrap();
    let holder =
        Holder { device: "dm-0".into(), mapped_name: Some("vgx-l".into()), release: Some("r".into()) };
    *it.loops.holders.lock() = vec![holder];
    let parts = [&volume.id.to_string(), "/dev/loop700", "held by vgx-l (dm-0), which `r` releases"];
    let detach = || it.local.detach(&it.call, &volume.id, PublishedBy::Controller, &it.none);
    refused(detach(), Kind::Precondition, &parts);
    refused(it.delete(&volume.id), Kind::Precondition, &parts);
    assert_eq!(
        it.local.attached(&volume.id).unwrap(),
        Some(Attachment::Block(device)),
        "it can be used still"
    );
    it.loops.holders.lock().clear();
    detach().unwrap();
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
}

#[test]
fn a_volume_deleted_while_it_was_attached_is_detached_again() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    *it.loops.deleted_meanwhile.lock() = Some(it.root.join("volumes").join(&volume.id.object));
    refused(attach(&it, &volume.id, &Map::new()), Kind::NotFound, &[&volume.id.to_string(), "deleted"]);
    assert_eq!(*it.loops.done.lock(), ["detach /dev/loop700"]);
}

#[test]
fn the_device_of_a_newer_volume_is_not_that_of_an_older() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let device = attach(&it, &volume.id, &Map::new()).unwrap();
    let older = VolumeId { incarnation: Some("0123456789abcdef".into()), ..volume.id.clone() };
    assert_eq!(it.local.attached(&older).unwrap(), None);
    it.local.detach(&it.call, &older, PublishedBy::Controller, &it.none).unwrap();
    refused(attach(&it, &older, &Map::new()), Kind::NotFound, &[&older.to_string()]);
    assert_eq!(it.local.attached(&volume.id).unwrap(), Some(Attachment::Block(device)));
}

#[test]
fn a_volume_without_image_cannot_be_attached() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    std::fs::remove_file(it.image(&volume)).unwrap();
    refused(
        attach(&it, &volume.id, &Map::new()),
        Kind::Precondition,
        &[&volume.id.to_string(), "image is missing"],
    );
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
}
