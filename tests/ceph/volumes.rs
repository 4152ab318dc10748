//! Volumes that are RBD images: made with all that can be asked for, found, expanded, changed and deleted.

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::requests::*;
use crate::support::{Code, Corner, MIB, object_of, refused};

#[test]
fn a_volume_is_made_once() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let made = daemon.client().create(&corner.volume("one", 32)).expect("create");
    let expected = format!("rbd:main:rbd:{}:csi-vol-", corner.namespace);
    assert!(made.volume_id.starts_with(&expected) && made.volume_id.len() <= 128, "{}", made.volume_id);
    assert_eq!(made.capacity_bytes, 32 * MIB);
    let info = corner.info(&made.volume_id);
    assert_eq!(info["size"], 32 * MIB);
    assert!(made.volume_id.ends_with(info["id"].as_str().expect("an id")), "{} of {info}", made.volume_id);
    assert_eq!(daemon.client().create(&corner.volume("one", 32)).expect("again"), made);
    daemon.restart();
    assert_eq!(daemon.client().create(&corner.volume("one", 32)).expect("after a restart"), made);
    assert_eq!(corner.images(), [object_of(&made.volume_id)]);
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    corner.await_empty();
}

#[test]
fn sizes_are_exact() {
    let corner = Corner::new();
    let daemon = corner.start();
    let create = |name: &str, required, limit| {
        let request =
            wire::CreateVolumeRequest { capacity_range: range(required, limit), ..corner.volume(name, 0) };
        daemon.client().create(&request).map(|made| {
            assert_eq!(corner.info(&made.volume_id)["size"], made.capacity_bytes, "{name}");
            made.capacity_bytes
        })
    };
    let exact = 5 * MIB + 4096;
    assert_eq!(create("exact", exact, exact).expect("exact"), exact);
    assert_eq!(create("rounded", exact + 1, 0).expect("rounded"), exact + 4096);
    assert_eq!(create("limited", 0, 7 * MIB + 1).expect("limited"), 7 * MIB);
    assert_eq!(create("any", 0, 0).expect("any"), 1 << 30);
    refused(create("between", exact + 1, exact + 2), Code::OUT_OF_RANGE, &["limit_bytes"]);
    refused(create("huge", i64::MAX, 0), Code::OUT_OF_RANGE, &[]);
    let none = wire::CreateVolumeRequest { capacity_range: MessageField::none(), ..corner.volume("none", 0) };
    assert_eq!(daemon.client().create(&none).expect("none").capacity_bytes, 1 << 30);
    assert_eq!(corner.images().len(), 5);
}

#[test]
fn parameters_shape_the_image() {
    let corner = Corner::new();
    let daemon = corner.start();
    let asked = [
        ("dataPool", "data"),
        ("imageFeatures", "layering,exclusive-lock"),
        ("objectSize", "1M"),
        ("stripeUnit", "64K"),
        ("stripeCount", "4"),
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/pvc/name", "claim"),
    ];
    let request = wire::CreateVolumeRequest {
        mutable_parameters: map(&[("iops", "500"), ("readBps", "1048576")]),
        volume_capabilities: vec![mount("")],
        ..corner.volume_with("one", 8, &asked)
    };
    let made = daemon.client().create(&request).expect("create");
    let info = corner.info(&made.volume_id);
    assert_eq!((&info["data_pool"], &info["object_size"]), (&"data".into(), &MIB.into()), "{info}");
    assert_eq!((&info["stripe_unit"], &info["stripe_count"]), (&(64 << 10).into(), &4.into()), "{info}");
    let features: Vec<&str> =
        info["features"].as_array().expect("features").iter().filter_map(|it| it.as_str()).collect();
    assert_eq!(features, ["layering", "striping", "exclusive-lock", "data-pool"]);
    assert_eq!(limit(&corner, &made.volume_id, "iops_limit"), "500");
    assert_eq!(limit(&corner, &made.volume_id, "read_bps_limit"), "1048576");
    assert_eq!(daemon.client().create(&request).expect("again"), made);
    let verdict = daemon
        .client()
        .validate_volume_capabilities(&validate(&made.volume_id, mount("ext4")))
        .expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("xfs"), "{}", verdict.message);
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    corner.await_empty();
}

/// A limit of an image, as `rbd` shows it; empty if there is none.
fn limit(corner: &Corner, id: &str, name: &str) -> String {
    let all = corner.json(&["config", "image", "ls", &corner.spec(id)]);
    let found = all
        .as_array()
        .expect("settings")
        .iter()
        .find(|it| it["name"] == format!("rbd_qos_{name}"))
        .expect("it is known");
    if found["source"] == "image" {
        found["value"].as_str().unwrap_or_default().to_string()
    } else {
        String::new()
    }
}

#[test]
fn parameters_that_cannot_be_are_refused_and_make_nothing() {
    let corner = Corner::new();
    let daemon = corner.start();
    let create =
        |parameters: &[(&str, &str)]| daemon.client().create(&corner.volume_with("one", 8, parameters));
    refused(create(&[("dataPol", "data")]), Code::INVALID_ARGUMENT, &["did you mean \"dataPool\"?"]);
    refused(
        create(&[("dataPool", "absent")]),
        Code::FAILED_PRECONDITION,
        &["absent", "ceph osd pool create"],
    );
    refused(create(&[("imageFeatures", "exclusive-lock")]), Code::INVALID_ARGUMENT, &["layering"]);
    refused(create(&[("objectSize", "3M")]), Code::INVALID_ARGUMENT, &["objectSize"]);
    refused(create(&[("cluster", "other")]), Code::INVALID_ARGUMENT, &["other", "cephlet config"]);
    refused(create(&[("pool", "second")]), Code::INVALID_ARGUMENT, &["second", "allowed"]);
    corner.await_empty();
}

#[test]
fn the_same_name_with_other_properties_is_refused() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let made = daemon.client().create(&corner.volume("one", 32)).expect("create");
    for _ in 0..2 {
        let client = daemon.client();
        refused(client.create(&corner.volume("one", 64)), Code::ALREADY_EXISTS, &["one", "bytes"]);
        let other = corner.volume_with("one", 32, &[("objectSize", "1M")]);
        refused(client.create(&other), Code::ALREADY_EXISTS, &["objectSize", "not set", "1M"]);
        let limited = wire::CreateVolumeRequest {
            mutable_parameters: map(&[("iops", "5")]),
            ..corner.volume("one", 32)
        };
        refused(client.create(&limited), Code::ALREADY_EXISTS, &["iops"]);
        let source = from_volume(corner.volume("one", 32), &made.volume_id);
        refused(client.create(&source), Code::ALREADY_EXISTS, &["source"]);
        let fits = wire::CreateVolumeRequest {
            capacity_range: range(16 * MIB, 64 * MIB),
            ..corner.volume("one", 0)
        };
        assert_eq!(client.create(&fits).expect("a compatible size"), made);
        // After a restart the daemon has to ask the cluster.
        daemon.restart();
    }
    assert_eq!(corner.images().len(), 1);
}

#[test]
fn deletion_is_final_and_spares_a_newer_volume() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let first = daemon.client().create(&corner.volume("one", 8)).expect("create");
    for _ in 0..2 {
        daemon.client().delete_volume(&delete(&first.volume_id)).expect("delete");
    }
    corner.await_empty();
    refused(
        daemon.client().controller_get_volume(&get(&first.volume_id)),
        Code::NOT_FOUND,
        &[&first.volume_id],
    );
    let second = daemon.client().create(&corner.volume("one", 8)).expect("create again");
    assert_ne!(first.volume_id, second.volume_id);
    daemon.client().delete_volume(&delete(&first.volume_id)).expect("the first is gone");
    daemon.restart();
    daemon.client().delete_volume(&delete(&first.volume_id)).expect("the first is gone");
    assert_eq!(daemon.client().create(&corner.volume("one", 8)).expect("the second is there"), second);
    let absent = format!("rbd:main:rbd:{}:csi-vol-none", corner.namespace);
    for foreign in ["x", "local:node-1:::x:1", &absent, &format!("{absent}:10ab")] {
        daemon
            .client()
            .delete_volume(&delete(foreign))
            .unwrap_or_else(|error| panic!("{foreign}: {error:?}"));
    }
    daemon.client().delete_volume(&delete(&second.volume_id)).expect("delete");
    corner.await_empty();
}

#[test]
fn a_large_volume_is_removed_in_the_background() {
    let corner = Corner::new();
    let daemon = corner.start();
    let made = daemon.client().create(&corner.volume("large", 10 << 10)).expect("create");
    corner.poke(&made.volume_id, 9 << 30, b"far behind");
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    assert!(corner.images().iter().all(|name| name.starts_with("csi-held-")), "{:?}", corner.images());
    corner.await_empty();
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("again");
    corner.await_empty();
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 32)).expect("create").volume_id;
    for _ in 0..2 {
        let reply = client.controller_expand_volume(&expand(&id, 48 * MIB)).expect("expand");
        assert!(reply.capacity_bytes == 48 * MIB && reply.node_expansion_required);
    }
    assert_eq!(
        client.controller_expand_volume(&expand(&id, 16 * MIB)).expect("large enough").capacity_bytes,
        48 * MIB
    );
    let within = |required, limit| {
        let request =
            wire::ControllerExpandVolumeRequest { capacity_range: range(required, limit), ..expand(&id, 0) };
        client.controller_expand_volume(&request)
    };
    refused(within(0, 40 * MIB), Code::OUT_OF_RANGE, &["shrinks"]);
    refused(within(48 * MIB + 1, 48 * MIB + 2), Code::OUT_OF_RANGE, &["limit_bytes"]);
    assert_eq!(within(48 * MIB + 1, 0).expect("rounded").capacity_bytes, 48 * MIB + 4096);
    assert_eq!(corner.info(&id)["size"], 48 * MIB + 4096);
    let again = client.create(&corner.volume("one", 32)).expect("the first request again");
    assert_eq!((again.volume_id, again.capacity_bytes), (id, 48 * MIB + 4096));
    let absent = format!("rbd:main:rbd:{}:none:10ab", corner.namespace);
    refused(client.controller_expand_volume(&expand(&absent, MIB)), Code::NOT_FOUND, &[&absent]);
}

#[test]
fn limits_are_changed_while_a_volume_is_used() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
    client
        .controller_modify_volume(&modify(&id, &[("iops", "100"), ("writeBps", "2097152")]))
        .expect("modify");
    assert_eq!(
        (limit(&corner, &id, "iops_limit").as_str(), limit(&corner, &id, "write_bps_limit").as_str()),
        ("100", "2097152")
    );
    for _ in 0..2 {
        client.controller_modify_volume(&modify(&id, &[("iops", "0")])).expect("no limit any more");
    }
    assert_eq!(
        (limit(&corner, &id, "iops_limit").as_str(), limit(&corner, &id, "write_bps_limit").as_str()),
        ("", "2097152")
    );
    refused(
        client.controller_modify_volume(&modify(&id, &[("iop", "5")])),
        Code::INVALID_ARGUMENT,
        &["did you mean \"iops\"?"],
    );
    refused(
        client.controller_modify_volume(&modify(&id, &[("iops", "-5")])),
        Code::INVALID_ARGUMENT,
        &["iops"],
    );
    client.controller_modify_volume(&modify(&id, &[])).expect("nothing to change");
    let absent = format!("rbd:main:rbd:{}:none", corner.namespace);
    refused(client.controller_modify_volume(&modify(&absent, &[("iops", "5")])), Code::NOT_FOUND, &[&absent]);
}

#[test]
fn capabilities_of_a_volume_are_confirmed_or_explained() {
    use AccessModeOf as Mode;
    let corner = Corner::new();
    let daemon = corner.start();
    let id = daemon.client().create(&corner.volume("one", 8)).expect("create").volume_id;
    let verdict = |capability| {
        daemon.client().validate_volume_capabilities(&validate(&id, capability)).expect("validate")
    };
    for good in [mount("ext4"), mount(""), block(), block_as(Mode::MULTI_NODE_MULTI_WRITER)] {
        assert_eq!(verdict(good.clone()).confirmed.volume_capabilities, [good]);
    }
    assert!(verdict(mount_as("ext4", Mode::MULTI_NODE_READER_ONLY, &[])).confirmed.is_some());
    for bad in [mount("vfat"), mount_as("ext4", Mode::MULTI_NODE_MULTI_WRITER, &[])] {
        let verdict = verdict(bad);
        assert!(verdict.confirmed.is_none() && !verdict.message.is_empty());
    }
    let many = wire::CreateVolumeRequest {
        volume_capabilities: vec![mount_as("ext4", Mode::MULTI_NODE_MULTI_WRITER, &[])],
        ..corner.volume("many", 8)
    };
    refused(daemon.client().create(&many), Code::INVALID_ARGUMENT, &["breaks"]);
}

#[test]
fn an_image_that_was_there_is_taken_in() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    corner.cluster.rbd(&["create", "--size", "16M", &corner.spec("web-disk")]);
    let id = format!("rbd:main:rbd:{}:web-disk", corner.namespace);
    let id = id.as_str();
    let found = client.controller_get_volume(&get(id)).expect("get");
    assert_eq!(
        (found.volume.capacity_bytes, found.volume.volume_id.split(':').nth(4)),
        (16 * MIB, Some("web-disk"))
    );
    client.controller_publish_volume(&publish_to(id, "node-1")).expect("publish");
    assert_eq!(
        client.controller_expand_volume(&expand(id, 24 * MIB)).expect("expand").capacity_bytes,
        24 * MIB
    );
    let taken =
        client.create_snapshot(&snapshot("of-web-disk", id)).expect("snapshot").snapshot.snapshot_id.clone();
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete the snapshot");
    client.controller_unpublish_volume(&unpublish_from(id, "node-1")).expect("unpublish");
    let verdict = client.validate_volume_capabilities(&validate(id, block())).expect("validate");
    assert!(verdict.confirmed.is_some(), "{}", verdict.message);
    client.delete_volume(&delete(id)).expect("delete");
    refused(client.controller_get_volume(&get(id)), Code::NOT_FOUND, &[id]);
    corner.await_empty();
}
