//! Limits of a volume that exists.

use super::publish::{refused, scene};
use super::*;
use crate::backend::rbd::tool::*;
use crate::error::Kind;

#[test]
fn limits_are_set_and_unknown_ones_refused() {
    let it = scene();
    let modify = |pairs: &[(&str, &str)]| {
        let map = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        it.rbd.volumes().modify(&call(), &it.id, &map, &Secrets::default())
    };
    modify(&[("iops", "500"), ("bps", "0")]).unwrap();
    assert_eq!(it.methods(), ["info", "set_limits"]);
    let set = it.cluster.all_metadata(&it.cluster.at(), &it.id.object);
    assert_eq!(set.get("conf_rbd_qos_iops_limit").map(String::as_str), Some("500"));
    refused(modify(&[("iop", "5")]), Kind::InvalidArgument, &["did you mean \"iops\""]);
    modify(&[]).unwrap();
    assert!(it.cluster.here().info(ImageRef::Name(&it.id.object)).unwrap().is_some());
    it.remove();
    refused(modify(&[]), Kind::NotFound, &[]);
    refused(modify(&[("iops", "1")]), Kind::NotFound, &[]);
}

#[test]
fn an_image_that_a_killed_creation_left_without_limits_gets_them_with_its_record() {
    let (cluster, new) = (FakeCluster::new(), wanted("a", GIB, None));
    let new = NewVolume { mutable_parameters: [("iops".into(), "500".into())].into(), ..new };
    let image = NewImage { name: &new.object, size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.here().create(&image).unwrap();
    cluster.forget_steps();
    create(&controller(&cluster, ONE), &new).unwrap();
    let set = cluster.all_metadata(&cluster.at(), &new.object);
    assert_eq!(set.get("conf_rbd_qos_iops_limit").map(String::as_str), Some("500"), "{:#?}", cluster.steps());
}
