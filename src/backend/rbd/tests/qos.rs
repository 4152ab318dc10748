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
