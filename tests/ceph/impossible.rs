//! A volume that no node could ever use is refused when it is requested, not when it is staged.

use cephlet::proto::csi_v1 as wire;

use crate::support::requests::*;
use crate::support::{Code, Corner, MIB, object_of, refused};

/// The largest image with an object map, in objects of 4 MiB.
const LARGEST: i64 = 256_000_000 * 4 * MIB;

/// The least size of an xfs, in bytes.
const LEAST: i64 = 300 * MIB;

/// A volume for this use, of at least `mib` MiB and at most `limit` bytes.
fn wanted(
    corner: &Corner,
    name: &str,
    (mib, limit): (i64, i64),
    capability: wire::VolumeCapability,
) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        capacity_range: range(mib * MIB, limit),
        volume_capabilities: vec![capability],
        ..corner.volume(name, 0)
    }
}

#[test]
fn an_image_has_the_room_that_its_file_system_needs() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let raw = client.create(&wanted(&corner, "raw", (1, 0), block())).expect("a block device");
    assert_eq!(raw.capacity_bytes, MIB);
    let make = |name: &str, limit| wanted(&corner, name, (100, limit), mount("xfs"));
    let made = client.create(&make("xfs", 0)).expect("create");
    assert_eq!((made.capacity_bytes, &corner.info(&made.volume_id)["size"]), (LEAST, &LEAST.into()));
    let copy = from_volume(make("copy", 0), &raw.volume_id);
    assert_eq!(client.create(&copy).expect("a copy").capacity_bytes, LEAST);
    let before = corner.objects();
    let parts = ["xfs", &LEAST.to_string(), "limit_bytes"];
    let limited = make("limited", LEAST - 1);
    refused(client.create(&limited), Code::OUT_OF_RANGE, &parts);
    refused(client.create(&from_volume(limited, &raw.volume_id)), Code::OUT_OF_RANGE, &parts);
    assert_eq!(corner.objects(), before);
    let request = wire::GetCapacityRequest {
        volume_capabilities: vec![mount("xfs")],
        parameters: corner.volume("x", 0).parameters,
        ..Default::default()
    };
    let capacity = client.get_capacity(&request).expect("capacity");
    assert_eq!(capacity.minimum_volume_size.value, LEAST);
}

#[test]
fn a_copy_for_another_file_system_than_its_source_is_refused() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let source = client.create(&wanted(&corner, "source", (8, 0), mount("ext4"))).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot("of ext4", &source)).expect("snapshot");
    let before = corner.objects();
    let other = wanted(&corner, "copy", (8, 0), mount("xfs"));
    for request in [from_snapshot(other.clone(), &taken.snapshot.snapshot_id), from_volume(other, &source)] {
        refused(client.create(&request), Code::INVALID_ARGUMENT, &["ext4", "xfs"]);
    }
    assert_eq!(corner.objects(), before, "neither a clone nor a snapshot is left");
    let same = from_volume(wanted(&corner, "copy", (8, 0), mount("ext4")), &source);
    let copy = client.create(&same).expect("the same file system");
    // A copy of this name exists already, so the name means that copy, whatever the new request says.
    let other = from_volume(wanted(&corner, "copy", (8, 0), mount("xfs")), &source);
    refused(client.create(&other), Code::ALREADY_EXISTS, &["ext4", "xfs", object_of(&copy.volume_id)]);
    let raw = corner.volume_with("raw", 8, &[("csi.storage.k8s.io/fstype", "ext4")]);
    let raw = client.create(&raw).expect("a block device").volume_id;
    let of_raw = from_volume(wanted(&corner, "of raw", (8, 0), mount("xfs")), &raw);
    client.create(&of_raw).expect("what is on a block device is its user's");
}

#[test]
fn a_name_is_for_the_file_system_for_which_it_validates() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let xfs = wanted(&corner, "one", (320, 0), mount("xfs"));
    let made = daemon.client().create(&xfs).expect("create");
    for _ in 0..2 {
        let client = daemon.client();
        let other = wanted(&corner, "one", (320, 0), mount("ext4"));
        refused(client.create(&other), Code::ALREADY_EXISTS, &["xfs", "ext4"]);
        for (capability, fits) in
            [(mount("ext4"), false), (mount("xfs"), true), (mount(""), true), (block(), true)]
        {
            let request = wanted(&corner, "one", (320, 0), capability.clone());
            let verdict = client.validate_volume_capabilities(&validate(&made.volume_id, capability));
            assert_eq!(verdict.expect("validate").confirmed.is_some(), fits);
            assert_eq!(
                client.create(&request).ok().map(|it| it.volume_id),
                fits.then(|| made.volume_id.clone())
            );
        }
        // After a restart the daemon has to ask the cluster.
        daemon.restart();
    }
}

#[test]
fn a_size_that_no_image_can_have_is_refused_with_the_largest() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let sized = |name: &str, bytes, parameters: &[(&str, &str)]| wire::CreateVolumeRequest {
        capacity_range: range(bytes, 0),
        ..corner.volume_with(name, 0, parameters)
    };
    let source = client.create(&corner.volume("source", 8)).expect("create").volume_id;
    let small = [("objectSize", "1M"), ("stripeUnit", "64K"), ("stripeCount", "3")];
    let striped = client.create(&corner.volume_with("striped", 8, &small)).expect("create").volume_id;
    let before = corner.objects();
    let parts = [&*LARGEST.to_string(), "ask for less"];
    refused(client.create(&sized("huge", LARGEST + 1, &[])), Code::OUT_OF_RANGE, &parts);
    refused(
        client.create(&from_volume(sized("copy", LARGEST + 1, &[]), &source)),
        Code::OUT_OF_RANGE,
        &parts,
    );
    refused(client.controller_expand_volume(&expand(&source, LARGEST + 1)), Code::OUT_OF_RANGE, &parts);
    // The largest size consists of whole sets of three objects.
    let largest = 255_999_999 * MIB;
    let parts = [&*largest.to_string(), "ask for less"];
    refused(client.create(&sized("striped too", largest + 1, &small)), Code::OUT_OF_RANGE, &parts);
    refused(client.controller_expand_volume(&expand(&striped, largest + 1)), Code::OUT_OF_RANGE, &parts);
    assert_eq!(corner.objects(), before);
    // Without an object map it can be larger. It stays, as its removal would try every object it could have.
    let features = [("imageFeatures", "layering,exclusive-lock")];
    let mapless = client.create(&sized("mapless", 8 * MIB, &features)).expect("create").volume_id;
    let reply = client.controller_expand_volume(&expand(&mapless, 1 << 60)).expect("it has no object map");
    assert_eq!((reply.capacity_bytes, &corner.info(&mapless)["size"]), (1 << 60, &(1_i64 << 60).into()));
}
