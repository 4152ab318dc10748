//! Images that are for cephlet's own use are no volumes to any operation.

use super::*;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, Deletion, NodeContext, SnapshotFilter, Unpublished};
use crate::error::Kind;

fn not_found<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.expect_err("it is no volume");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

/// A cluster with a retained image and a copy that is being made, and the IDs that could be written for them.
fn scene() -> (FakeCluster, Rbd, Vec<VolumeId>) {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let source = create(&rbd, &wanted("a", GIB, None)).unwrap().id;
    snapshot(&rbd, &source, "s").unwrap();
    super::delete::delete(&rbd, &source).unwrap();
    let retained = format!("csi-held-{}", source.incarnation.as_ref().unwrap());
    let copy = format!("csi-tmp-{TWO}-abcdefghij234-zyxw7654");
    let image = NewImage { name: &copy, size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.here().create(&image).unwrap();
    let id = |object: &str, named: bool| {
        let info = cluster.here().info(ImageRef::Name(object)).unwrap().unwrap();
        let incarnation = named.then_some(info.id);
        VolumeId { place: place("rbd"), object: object.into(), incarnation }
    };
    let names = [&retained, &copy].into_iter();
    let ids = names.flat_map(|name| [true, false].map(|named| id(name, named))).collect();
    (cluster, rbd, ids)
}

#[test]
fn nothing_is_done_with_them() {
    let (cluster, rbd, ids) = scene();
    let (before, secrets) = (cluster.dump(), Secrets::default());
    let capability = Capability { access: Access::Block, mode: Mode::SingleNodeWriter };
    for id in &ids {
        let publication = crate::backend::Publication {
            node: "n1".into(),
            capability: capability.clone(),
            read_only: false,
        };
        not_found(rbd.publisher().publish(&call(), id, &publication, &secrets));
        not_found(rbd.volumes().expand(&call(), id, &SizeRange { required: 2 * GIB, limit: 0 }, &secrets));
        not_found(rbd.volumes().modify(&call(), id, &Map::new(), &secrets));
        not_found(snapshot(&rbd, id, "of it"));
        not_found(create(&rbd, &wanted("copy", 0, Some(Origin::Volume(id.clone())))));
        for publish in [Map::new(), [("imageId".to_string(), "1".to_string())].into()] {
            let context = NodeContext {
                volume: &Map::new(),
                publish: &publish,
                secrets: &secrets,
                capability: &capability,
                read_only: false,
            };
            not_found(rbd.node().attach(&call(), id, None, &context, &|_| Ok(())));
        }
        assert_eq!(cluster.dump(), before, "{id}");
    }
}

#[test]
fn they_are_absent_to_who_looks_or_deletes() {
    let (cluster, rbd, ids) = scene();
    let (before, secrets) = (cluster.dump(), Secrets::default());
    for id in &ids {
        assert!(rbd.volumes().find(&call(), id, &secrets).unwrap().is_none());
        assert!(rbd.volumes().inspect(&call(), id, &secrets).unwrap().is_none());
        let of = SnapshotFilter::Of(id.clone());
        assert!(rbd.snapshots().list(&call(), &of, &Secrets::default(), "", 0).unwrap().entries.is_empty());
        let deletion = Deletion { id, snapshots_may_outlive: true, secrets: &secrets };
        assert_eq!(rbd.volumes().delete(&call(), &deletion, &|| Ok(())).unwrap(), Deleted::Absent);
        assert_eq!(rbd.publisher().unpublish(&call(), id, None, &secrets).unwrap(), Unpublished::NoVolume);
        assert_eq!(cluster.dump(), before, "{id}");
    }
    assert!(rbd.volumes().list(&call(), ("", 0), &Err).unwrap().entries.is_empty());
}
