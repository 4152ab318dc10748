//! Tests of `rbd`: what is asked and answered. The kernel's part is tried in the virtual machine.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::error::Kind;
use crate::exec::fake::FakeHelper;

fn image() -> ImageToMap {
    ImageToMap {
        monitors: "10.0.0.1:6789".into(),
        user: "csi".into(),
        key: Secret::new("AQBkey=="),
        options: vec!["queue_depth=64".into()],
        pool: "vms".into(),
        namespace: "n1".into(),
        name: "web".into(),
        image_id: "10309e725270".into(),
        fsid: None,
        read_only: false,
    }
}

fn mapped() -> MappedImage {
    MappedImage {
        number: 3,
        pool: "vms".into(),
        namespace: "n1".into(),
        name: "old name".into(),
        image_id: "10309e725270".into(),
        snapshot: "-".into(),
        fsid: "f".into(),
        client: "client1".into(),
        address: "10.0.0.7:0/1".into(),
        config: String::new(),
        read_only: false,
    }
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

fn answering(request: RbdRequest, reply: &HelperReply) -> (Arc<FakeHelper>, Kernel) {
    let helper = Arc::new(FakeHelper::default());
    helper.expect(bytes(&HelperRequest::Rbd(request)), bytes(reply));
    (helper.clone(), Kernel::new(helper))
}

#[test]
fn the_key_travels_but_is_not_shown() {
    let request = HelperRequest::Rbd(RbdRequest::Map { image: image() });
    assert!(String::from_utf8(bytes(&request)).unwrap().contains("AQBkey=="));
    assert_eq!(serde_json::from_slice::<HelperRequest>(&bytes(&request)).unwrap(), request);
    assert!(!format!("{request:?}").contains("AQBkey"));
    assert!(!image().line().unwrap().contains("AQBkey"));
}

#[test]
fn the_kernel_is_told_where_to_find_the_key() {
    let line = image().line().unwrap();
    assert_eq!(line, "10.0.0.1:6789 name=csi,key=client.csi,_pool_ns=n1,queue_depth=64 vms web -");
    let plain = ImageToMap { namespace: String::new(), options: Vec::new(), read_only: true, ..image() };
    assert_eq!(plain.line().unwrap(), "10.0.0.1:6789 name=csi,key=client.csi,ro vms web -");
}

#[test]
fn an_image_is_known_by_its_id() {
    let other = |change: fn(&mut MappedImage)| {
        let mut mapped = mapped();
        change(&mut mapped);
        mapped
    };
    assert!(image().is(&mapped()), "it was renamed, or its monitors have moved");
    assert!(!image().is(&other(|mapped| mapped.image_id = "1".into())));
    assert!(!image().is(&other(|mapped| mapped.pool = "rbd".into())));
    assert!(!image().is(&other(|mapped| mapped.namespace = String::new())));
    assert!(!image().is(&other(|mapped| mapped.snapshot = "s".into())));
    let known = ImageToMap { fsid: Some("f".into()), ..image() };
    assert!(known.is(&mapped()));
    assert!(known.is(&other(|mapped| mapped.fsid = String::new())), "an older kernel");
    assert!(!known.is(&other(|mapped| mapped.fsid = "g".into())));
}

#[test]
fn requests_and_replies_fit() {
    let call = Call::internal("test");
    let (helper, kernel) = answering(
        RbdRequest::Map { image: image() },
        &HelperReply::Rbd(RbdReply::Mapped(Box::new(mapped()))),
    );
    assert_eq!(kernel.map_rbd(&call, &image()).unwrap(), mapped());
    assert_eq!(helper.asked(), [("map vms/n1/web".to_owned(), Class::Change)]);
    let (_helper, kernel) = answering(
        RbdRequest::Unmap { image: mapped() },
        &HelperReply::Rbd(RbdReply::Unmapped(Unmapped::InUse)),
    );
    assert_eq!(kernel.unmap_rbd(&call, &mapped()).unwrap(), Unmapped::InUse);
    let (_helper, kernel) =
        answering(RbdRequest::Refresh { image: mapped() }, &HelperReply::Rbd(RbdReply::Bytes(5)));
    assert_eq!(kernel.refresh_rbd(&call, &mapped()).unwrap(), 5);
    let (_helper, kernel) = answering(RbdRequest::Refresh { image: mapped() }, &HelperReply::Done);
    assert_eq!(kernel.refresh_rbd(&call, &mapped()).unwrap_err().kind(), Kind::Internal);
}

#[test]
fn different_images_have_different_locks() {
    let keys = [
        name_key("a", "", "1"),
        lock_key("a", "", "1"),
        lock_key("a", "1", ""),
        lock_key("a1", "", ""),
        lock_key("a", "", "2"),
    ];
    let different: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len());
}
