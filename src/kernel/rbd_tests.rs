//! Tests of `rbd`: requests and replies. The virtual machine tests the kernel's part.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::error::Kind;
use crate::exec::fake::FakeHelper;
use crate::kernel::failure::reply;

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
        former: vec![1],
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
        monitors: Vec::new(),
        has_own_client: true,
        read_only: false,
    }
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

fn answering<T: Serialize>(request: HelperRequest, answer: T) -> (Arc<FakeHelper>, Kernel) {
    let helper = Arc::new(FakeHelper::default());
    helper.expect(bytes(&request), reply(Answer::Ok(answer)));
    (helper.clone(), Kernel::new(helper))
}

#[test]
fn the_key_travels_but_is_not_shown() {
    let request = HelperRequest::MapRbd { image: image() };
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
fn requests_and_replies_fit() {
    let call = Call::internal("test");
    let (helper, kernel) = answering(HelperRequest::MapRbd { image: image() }, mapped());
    let file = tempfile::NamedTempFile::new().unwrap();
    let lock = ByteLock::try_take(file.reopen().unwrap(), 8).unwrap().unwrap();
    assert_eq!(kernel.map_rbd(&call, &image(), &lock).unwrap(), mapped());
    assert_eq!(helper.asked(), [("map vms/n1/web".to_owned(), Class::Change)]);
    let (_helper, kernel) = answering(HelperRequest::UnmapRbd { image: mapped() }, Unmapped::InUse);
    assert_eq!(kernel.unmap_rbd(&call, &mapped(), Some(&lock)).unwrap(), Unmapped::InUse);
    let (_helper, kernel) = answering(HelperRequest::RefreshRbd { image: mapped() }, 5);
    assert_eq!(kernel.refresh_rbd(&call, &mapped()).unwrap(), 5);
    let (_helper, kernel) = answering(HelperRequest::RefreshRbd { image: mapped() }, ());
    assert_eq!(kernel.refresh_rbd(&call, &mapped()).unwrap_err().kind(), Kind::Internal);
}

/// A directory that looks like sysfs, with these devices of the image's name.
fn bus_with(ids: &[(u32, &str)]) -> (tempfile::TempDir, Bus) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for file in ["add_single_major", "remove_single_major"] {
        write(format!("bus/rbd/{file}"), "");
    }
    for (number, id) in ids {
        let values = [("pool", "vms"), ("pool_ns", "n1"), ("name", "web"), ("image_id", *id)];
        for (name, value) in values.into_iter().chain([("current_snap", "-"), ("client_id", "client1")]) {
            write(format!("bus/rbd/devices/{number}/{name}"), value);
        }
        write(format!("block/rbd{number}/ro"), "0");
    }
    let bus = Bus::at(dir.path());
    (dir, bus)
}

/// The driver does not report which device it has mapped.
#[test]
fn what_is_mapped_is_looked_for_and_must_be_the_only_device_of_the_image() {
    let meant = image().image_id;
    let map = |devices: &[(u32, &str)]| {
        let (dir, bus) = bus_with(devices);
        let mapped = add_and_find(&bus, &image());
        let removed = std::fs::read_to_string(dir.path().join("bus/rbd/remove_single_major")).unwrap();
        (
            mapped.map(|mapped| mapped.number).map_err(|failure| (failure.errno, failure.action.unwrap())),
            removed,
        )
    };
    assert_eq!(map(&[(1, "former"), (3, &meant)]), (Ok(3), String::new()));
    let (refused, removed) = map(&[(1, "former"), (3, "another")]);
    assert_eq!((refused.unwrap_err().0, removed.as_str()), (Some(libc::ENOENT), "3"));
    let (refused, removed) = map(&[(1, &meant), (3, &meant)]);
    let (errno, said) = refused.expect_err("UNSAFE: an image has two devices");
    assert_eq!((errno, removed.as_str()), (Some(libc::EEXIST), "3"));
    assert!(said.contains("/dev/rbd1 and as /dev/rbd3"), "{said}");
}
