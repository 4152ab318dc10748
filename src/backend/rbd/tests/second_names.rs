//! Images that a rename has left with two names, and images that an operator has moved away.

use super::delete::{delete, release, with_volume};
use super::publish::{given, refused, scene};
use super::*;
use crate::backend::Deleted;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind;

/// In such a pool a small plain volume is renamed, too, when it is deleted.
#[test]
fn a_volume_that_is_half_deleted_is_no_answer_in_a_pool_with_a_trash() {
    let (cluster, rbd, id) = with_volume(1);
    cluster.set_options("rbd", |options| options.trashes_removed = true);
    let rbd = {
        drop(rbd);
        controller(&cluster, ONE)
    };
    let held = format!("csi-held-{}", id.incarnation.as_ref().unwrap());
    cluster.fail_at(1, Fault::HalfMoved);
    cluster.here().rename(&id.object, &held).unwrap_err();
    let new = create(&rbd, &wanted("a", GIB, None)).unwrap();
    assert_ne!(new.id.incarnation, id.incarnation, "UNSAFE: this image is about to be removed");
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), format!("image rbd/{} {GIB}", id.object));
}

#[test]
fn a_deleted_volume_has_lost_its_name_even_if_the_rename_has_left_it() {
    let (cluster, rbd, id) = with_volume(5);
    cluster.leave_old_names();
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(cluster.here().info(ImageRef::Name(&id.object)).unwrap(), None);
    assert!(cluster.dump().contains("image rbd/csi-held-"), "{}", cluster.dump());
}

#[test]
fn a_repeated_publication_keeps_the_lock_of_an_image_that_was_renamed_by_mistake() {
    let it = scene();
    let first = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.cluster.here().rename(&it.id.object, "aside").unwrap();
    let again = it.publish("n1", Mode::SingleNodeWriter, false);
    refused(again, Kind::NotFound, &[&it.id.to_string()]);
    assert_eq!(given(&it.cluster), ["n1"], "UNSAFE: the node uses the image");
    it.cluster.here().rename("aside", &it.id.object).unwrap();
    assert_eq!(it.publish("n1", Mode::SingleNodeWriter, false).unwrap(), first);
}

#[test]
fn a_volume_in_the_trash_that_has_snapshots_is_not_said_to_be_deleted() {
    for delete in [delete, release] {
        let (cluster, rbd, id) = with_volume(1);
        snapshot(&rbd, &id, "s").unwrap();
        cluster.put_aside(&cluster.at(), &id.object);
        let (before, image) = (cluster.dump(), id.incarnation.clone().unwrap());
        let advice = format!("rbd trash restore rbd/{image}");
        refused(delete(&rbd, &id), Kind::HasSnapshots, &[&advice]);
        assert_eq!(cluster.dump(), before);
    }
}
