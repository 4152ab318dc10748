//! Requests to a controller, for any backend, and what must be true once they have succeeded.

use std::collections::BTreeMap;

use cephlet::proto::csi_v1 as wire;

use super::remote::Scene;
use super::trial::Outcome;
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{MIB, Place};

/// Creates a volume, which is deleted in the end.
pub fn create<P: Place>(scene: &mut Scene<P>, request: wire::CreateVolumeRequest) -> Answer<Outcome> {
    let made = scene.client().create(&request)?;
    assert_eq!(made.content_source, request.volume_content_source);
    if !scene.volumes.contains(&made.volume_id) {
        scene.volumes.push(made.volume_id.clone());
    }
    Ok(Outcome::new(&made, &(made.capacity_bytes, &made.volume_context)))
}

pub fn take_snapshot<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    let taken = scene
        .client()
        .create_snapshot(&snapshot("snap", scene.id()))?
        .snapshot
        .into_option()
        .expect("a snapshot");
    assert_eq!(taken.source_volume_id, scene.id());
    scene.snapshots = vec![taken.snapshot_id.clone()];
    Ok(Outcome::new(&taken, &(taken.size_bytes, taken.ready_to_use)))
}

pub fn delete_last<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    scene
        .client()
        .delete_volume(&delete(scene.volumes.last().expect("a volume")))
        .map(|reply| Outcome::plain(&reply))
}

pub fn delete_first<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    scene.client().delete_volume(&delete(scene.id())).map(|reply| Outcome::plain(&reply))
}

pub fn delete_first_snapshot<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    scene.client().delete_snapshot(&delete_snapshot(&scene.snapshots[0])).map(|reply| Outcome::plain(&reply))
}

/// The last volume is a copy of the first.
pub fn assert_copied<P: Place>(scene: &mut Scene<P>) {
    let [old, .., new] = scene.volumes.as_slice() else { panic!("two volumes: {:?}", scene.volumes) };
    let [old, new] = [old, new].map(|id| scene.corner.content(id));
    assert_eq!(old, new);
}

pub fn have_snapshot<P: Place>(scene: &mut Scene<P>) {
    scene.have("old");
    scene.have_snapshot("snap");
}

pub fn have_copy<P: Place>(scene: &mut Scene<P>) {
    scene.have("old");
    let request = from_volume(scene.corner.request("copy"), scene.id());
    create(scene, request).expect("copy");
}

pub fn assert_one_volume<P: Place>(scene: &mut Scene<P>) {
    scene.client().controller_get_volume(&get(scene.id())).expect("get");
}

pub fn expand_first<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    let grown = scene.client().controller_expand_volume(&expand(scene.id(), 16 * MIB))?;
    Ok(Outcome::plain(&grown))
}

pub fn assert_grown<P: Place>(scene: &mut Scene<P>) {
    let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
    assert_eq!((got.volume.capacity_bytes, scene.corner.size(scene.id())), (16 * MIB, 16 * MIB));
}

/// The nodes that the first volume is published to.
pub fn published<P: Place>(scene: &Scene<P>) -> Vec<String> {
    let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
    got.status.published_node_ids.clone()
}

pub fn publish_to_node<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    let request = scene.corner.publication(scene.id(), "node-1");
    // The context names the object, which differs each time.
    let reply = scene.client().controller_publish_volume(&request)?;
    let context: BTreeMap<_, _> = reply.publish_context.iter().collect();
    Ok(Outcome::new(&context, &context.len()))
}

pub fn unpublish_from_node<P: Place>(scene: &mut Scene<P>) -> Answer<Outcome> {
    let request = unpublish_from(scene.id(), "node-1");
    scene.client().controller_unpublish_volume(&request).map(|reply| Outcome::plain(&reply))
}
