//! A volume that no node could ever use is refused when it is requested, not when it is staged.

use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::picture;
use crate::support::requests::*;
use crate::support::scratch::poke;
use crate::support::{Client, Code, Daemon, MIB, Scratch, Setup, TestVolume, refused};

/// What mkfs needs for each file system, in bytes.
const LEAST: [(&str, i64); 3] = [("ext4", MIB), ("xfs", 300 * MIB), ("btrfs", 109 * MIB)];

const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// A request for at least 1 byte and at most `limit`.
fn smallest(name: &str, limit: i64, capability: wire::VolumeCapability) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest { capacity_range: range(1, limit), ..volume_as(name, 0, capability) }
}

#[test]
fn the_smallest_volume_of_each_file_system_can_be_staged() {
    let daemon = Daemon::start();
    for (fs_type, least) in LEAST {
        let made = TestVolume::make(&daemon, smallest(fs_type, 0, mount(fs_type)));
        assert_eq!(made.image().metadata().expect("the image").len(), least as u64, "{fs_type}");
        made.stage("stage").expect(fs_type);
        made.retire(&[], &["stage"]);
        let parameters = map(&[(FS_TYPE, fs_type)]);
        let request = wire::CreateVolumeRequest { parameters, ..smallest("by parameter", least, mount("")) };
        let made = TestVolume::make(&daemon, request);
        assert_eq!(made.image().metadata().expect("the image").len(), least as u64, "{fs_type}");
        made.retire(&[], &[]);
    }
    assert_eq!(
        daemon.client().create(&smallest("raw", 0, block())).expect("a block device").capacity_bytes,
        MIB
    );
}

#[test]
fn a_limit_below_what_a_file_system_needs_is_refused_with_both() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let blank = client.create(&smallest("blank", 0, block())).expect("create").volume_id;
    let before = picture(&daemon.local_dir());
    for (fs_type, least) in LEAST {
        let parts = [fs_type, &least.to_string(), "limit_bytes"];
        let request = smallest(fs_type, least - 1, mount(fs_type));
        refused(client.create(&request), Code::OUT_OF_RANGE, &parts);
        if fs_type != "ext4" {
            refused(client.create(&from_volume(request, &blank)), Code::OUT_OF_RANGE, &parts);
        }
    }
    assert_eq!(picture(&daemon.local_dir()), before);
    let copy = client.create(&from_volume(smallest("copy", 0, mount("xfs")), &blank)).expect("a copy");
    assert_eq!(copy.capacity_bytes, 300 * MIB);
}

#[test]
fn the_capacity_says_how_small_a_volume_of_that_file_system_can_be() {
    let daemon = Daemon::start();
    let least = |volume_capabilities: Vec<wire::VolumeCapability>, parameters: &[(&str, &str)]| {
        let parameters = map(parameters);
        let request = wire::GetCapacityRequest { volume_capabilities, parameters, ..Default::default() };
        daemon.client().get_capacity(&request).expect("capacity").minimum_volume_size.value
    };
    for (fs_type, bytes) in LEAST {
        assert_eq!(least(vec![mount(fs_type)], &[]), bytes);
        assert_eq!(least(vec![], &[(FS_TYPE, fs_type)]), bytes);
    }
    assert_eq!((least(vec![], &[]), least(vec![block()], &[])), (MIB, MIB));
}

/// Takes a snapshot; gives its ID.
fn take(client: &Client, name: &str, volume_id: &str) -> String {
    let reply = client.create_snapshot(&snapshot(name, volume_id)).expect("snapshot");
    reply.snapshot.snapshot_id.clone()
}

#[test]
fn a_copy_for_another_file_system_than_its_source_holds_is_refused() {
    let daemon = Daemon::start();
    let source = TestVolume::create(&daemon, "source", 32, mount("ext4"));
    let client = daemon.client();
    let blank = take(&client, "blank", &source.id);
    source.stage("stage").expect("format it");
    source.unstage("stage").expect("unstage");
    let snap = take(&client, "formatted", &source.id);
    let before = picture(&daemon.local_dir());
    let by_parameter =
        wire::CreateVolumeRequest { parameters: map(&[(FS_TYPE, "xfs")]), ..volume_as("copy", 0, mount("")) };
    for request in [volume_as("copy", 0, mount("xfs")), by_parameter] {
        for request in [from_snapshot(request.clone(), &snap), from_volume(request, &source.id)] {
            refused(client.create(&request), Code::INVALID_ARGUMENT, &["ext4", "xfs"]);
        }
    }
    assert_eq!(picture(&daemon.local_dir()), before);
    for fs_type in ["", "ext4"] {
        let same = from_snapshot(volume_as(&format!("{fs_type} copy"), 0, mount(fs_type)), &snap);
        client.create(&same).expect("the same file system");
    }
    let blank = from_snapshot(volume_as("of nothing", 0, mount("xfs")), &blank);
    TestVolume::make(&daemon, blank).stage("blank").expect("what is blank gets any file system");
}

#[test]
fn a_copy_of_a_block_device_is_for_any_file_system() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let plain = TestVolume::create(&daemon, "plain", 8, block());
    let request = volume_as("named", 8 * MIB, block());
    let named = TestVolume::make(
        &daemon,
        wire::CreateVolumeRequest { parameters: map(&[(FS_TYPE, "ext4")]), ..request },
    );
    for source in [&plain, &named] {
        poke(&source.image(), 5000, b"put in by its user");
        let copy = from_volume(volume_as(&format!("of {}", source.id), 0, mount("xfs")), &source.id);
        client.create(&copy).expect("the content is its user's");
    }
}

#[test]
fn a_name_is_for_the_file_system_for_which_it_validates() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let made = client.create(&volume_as("one", 320 * MIB, mount("xfs"))).expect("create");
    let verdict = |capabilities: &[wire::VolumeCapability]| {
        let volume_capabilities = capabilities.to_vec();
        let request = wire::ValidateVolumeCapabilitiesRequest {
            volume_capabilities,
            ..validate(&made.volume_id, block())
        };
        client.validate_volume_capabilities(&request).expect("validate").confirmed.is_some()
    };
    for other in ["ext4", "btrfs"] {
        let request = volume_as("one", 320 * MIB, mount(other));
        refused(client.create(&request), Code::ALREADY_EXISTS, &["xfs", other]);
        let request =
            wire::CreateVolumeRequest { volume_capabilities: vec![block(), mount(other)], ..request };
        refused(client.create(&request), Code::ALREADY_EXISTS, &["xfs", other]);
        assert!(!verdict(&[mount(other)]) && !verdict(&[block(), mount(other)]));
    }
    for same in [mount("xfs"), mount(""), block()] {
        let request = volume_as("one", 320 * MIB, same.clone());
        assert_eq!(client.create(&request).expect("the same").volume_id, made.volume_id);
        assert!(verdict(&[same]));
    }
}

#[test]
fn no_volume_has_two_file_systems() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let both = vec![mount("ext4"), mount("xfs")];
    let request = wire::CreateVolumeRequest { volume_capabilities: both.clone(), ..volume("one") };
    refused(client.create(&request), Code::INVALID_ARGUMENT, &["ext4", "xfs"]);
    let request = wire::CreateVolumeRequest { parameters: map(&[(FS_TYPE, "xfs")]), ..volume("one") };
    refused(client.create(&request), Code::INVALID_ARGUMENT, &["ext4", "xfs"]);
    let made = client.create(&volume_as("any", 320 * MIB, mount(""))).expect("create");
    let request = wire::ValidateVolumeCapabilitiesRequest {
        volume_capabilities: both,
        ..validate(&made.volume_id, block())
    };
    let verdict = client.validate_volume_capabilities(&request).expect("validate");
    assert!(verdict.confirmed.is_none() && verdict.message.contains("xfs"), "{}", verdict.message);
}

#[test]
fn a_size_that_no_file_can_have_is_refused_with_the_largest() {
    let scratch = Arc::new(Scratch::new());
    let local = scratch.small_ext4("local", 24);
    let daemon = Setup::within(scratch).start();
    let client = daemon.client();
    let small = TestVolume::create(&daemon, "small", 1, block());
    let before = picture(&local);
    // An ext4 as small as this has blocks of 1 KiB, and counts those of a file in 32 bits.
    let largest = (i64::from(u32::MAX) * 1024) / 4096 * 4096;
    let parts = [&*largest.to_string(), "ask for less"];
    refused(client.create(&volume_as("huge", largest + 1, block())), Code::OUT_OF_RANGE, &parts);
    let copy = from_volume(volume_as("huge copy", largest + 1, block()), &small.id);
    refused(client.create(&copy), Code::OUT_OF_RANGE, &parts);
    refused(small.expand(largest + 1), Code::OUT_OF_RANGE, &parts);
    assert_eq!(picture(&local), before);
    let file = std::fs::File::create(local.join("file")).expect("a file");
    file.set_len(largest as u64).expect("a file can be as large as that");
    file.set_len(largest as u64 + 4096).expect_err("but no larger");
}
