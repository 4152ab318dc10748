//! Health as CSI 1.13 has it: of volumes, as the controller and the node see them, and of the storage.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use wire::node_get_storage_health_response::StorageBackendHealth;

use crate::support::cli::{done, json};
use crate::support::machine::{loops_below, run, text};
use crate::support::requests::*;
use crate::support::scratch::fill_up;
use crate::support::{Code, Daemon, Scratch, Setup, TestVolume, await_that, refused};

use wire::StorageHealthErrorType as Storage;
use wire::VolumeHealthErrorType as Status;

/// What is wrong with a volume: statuses and reasons.
fn told(health: &wire::VolumeHealth) -> Vec<(Status, &str)> {
    let all = health.health_statuses.iter();
    all.map(|it| (it.status.enum_value().expect("a known status"), it.reason.as_str())).collect()
}

/// Every page of the volumes that are not well, and how many pages there are.
fn unwell(daemon: &Daemon, max_entries: i32) -> (Vec<wire::VolumeHealth>, usize) {
    let client = daemon.client();
    let mut request = wire::ControllerListVolumeHealthRequest { max_entries, ..Default::default() };
    let (mut all, mut pages) = (Vec::new(), 0);
    loop {
        let page = client.controller_list_volume_health(&request).expect("a page");
        assert!(max_entries == 0 || page.entries.len() <= max_entries as usize, "{page:?}");
        all.extend(page.entries);
        pages += 1;
        if page.next_token.is_empty() {
            return (all, pages);
        }
        request.starting_token = page.next_token;
    }
}

fn on_node(volume_id: &str, at: &str) -> wire::NodeGetVolumeHealthRequest {
    wire::NodeGetVolumeHealthRequest {
        volume_id: volume_id.to_string(),
        volume_publish_path: at.to_string(),
        ..Default::default()
    }
}

#[test]
fn a_volume_without_its_image_has_lost_its_data() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let volumes = ["a", "b", "c"].map(|name| TestVolume::create(&daemon, name, 16, block()));
    let ids = volumes.each_ref().map(|volume| volume.id.clone());
    assert_eq!(unwell(&daemon, 0).0, []);
    fs::remove_file(volumes[1].image()).expect("take the image away");

    for (max_entries, pages) in [(0, 1), (1, 3), (2, 2)] {
        let (all, count) = unwell(&daemon, max_entries);
        let [health] = all.as_slice() else { panic!("only one is not well: {all:?}") };
        assert_eq!((&health.volume_id, told(health)), (&ids[1], vec![(Status::DATA_LOSS, "ImageMissing")]));
        assert_eq!(count, pages, "pages of {max_entries}");
    }
    for id in &ids {
        let expected = if *id == ids[1] { vec![(Status::DATA_LOSS, "ImageMissing")] } else { vec![] };
        let seen = client.controller_get_volume_health(&health(id)).expect("health").volume_health;
        assert_eq!((&seen.volume_id, told(&seen)), (id, expected.clone()));
        // It is not in use on the node, but an attempt to stage it would fail.
        let seen = client.node_get_volume_health(&on_node(id, "")).expect("health").volume_health;
        assert_eq!((&seen.volume_id, told(&seen)), (id, expected));
    }
    let shown = json(&daemon, &format!("volume show {}", ids[1]));
    assert_eq!(shown["condition"]["reason"], "ImageMissing", "{shown}");
    assert_eq!(shown["condition"]["status"], "DATA_LOSS", "{shown}");
    let shown = done(&daemon, &format!("volume show {}", ids[1]));
    assert!(shown.contains("ImageMissing: its image is missing"), "{shown}");
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let gone = "local:node-1:::csi-vol-0123456789abc:0011223344556677";
    refused(client.controller_get_volume_health(&health(gone)), Code::NOT_FOUND, &[gone]);
    refused(client.node_get_volume_health(&on_node(gone, "")), Code::NOT_FOUND, &[gone]);
    refused(client.controller_get_volume_health(&health("")), Code::INVALID_ARGUMENT, &["volume_id"]);
    refused(client.node_get_volume_health(&on_node("", "")), Code::INVALID_ARGUMENT, &["volume_id"]);
    let long = format!("/{}", "x".repeat(5000));
    let answer = client.node_get_volume_health(&on_node(gone, &long));
    refused(answer, Code::INVALID_ARGUMENT, &["volume_publish_path"]);
    let page = |max_entries, token: &str| wire::ControllerListVolumeHealthRequest {
        max_entries,
        starting_token: token.to_string(),
        ..Default::default()
    };
    refused(client.controller_list_volume_health(&page(0, "x")), Code::ABORTED, &["starting_token"]);
    refused(client.controller_list_volume_health(&page(-1, "")), Code::INVALID_ARGUMENT, &["max_entries"]);
}

#[test]
fn the_node_tells_what_it_sees_of_a_volume_in_use() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    let at = |path: &str| {
        let path = daemon.text(path);
        let seen = volume.client.node_get_volume_health(&on_node(&volume.id, &path)).expect("health");
        seen.volume_health.into_option().expect("a health")
    };
    for path in ["target", "stage", "elsewhere"] {
        assert_eq!(told(&at(path)), [], "{path}");
    }
    run("umount", &[text(&volume.path("target"))]);
    assert_eq!(told(&at("target")), [(Status::INACCESSIBLE, "MountGone")]);
    assert_eq!(told(&at("stage")), []);
    let shown = json(&daemon, &format!("volume show {}", volume.id));
    assert_eq!(shown["condition"]["reason"], "MountGone", "{shown}");
    // The controller knows nothing of paths.
    assert_eq!(unwell(&daemon, 0).0, []);
    let (device, _) = loops_below(&volume.image()).remove(0);
    let name = device.file_name().expect("a name").display().to_string();
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").expect("trigger an error");
    // The kernel counts the error in a worker of its own (fs/ext4/super.c, ext4_handle_error).
    await_that("the error is counted", || match told(&at("stage"))[..] {
        [(Status::DEGRADED, "FileSystemErrors")] => Ok(()),
        ref other => Err(format!("{other:?}")),
    });
    assert_eq!(told(&unwell(&daemon, 0).0[0]), [(Status::DEGRADED, "FileSystemErrors")]);
}

/// Waits until the node says this of its storage: on a busy machine a look may take too long. Gives the
/// messages.
#[track_caller]
fn await_storage(daemon: &Daemon, expected: &[(Storage, &str)]) -> Vec<String> {
    let client = daemon.client();
    await_that("the node sees its storage as it is", || {
        let told = client.node_get_storage_health(&Default::default()).expect("health").backend_health;
        let status = |it: &StorageBackendHealth| it.status.enum_value().expect("a known status");
        let seen: Vec<_> = told.iter().map(|it| (status(it), it.reason.as_str())).collect();
        match seen == expected {
            true => Ok(told.iter().map(|it| it.message.clone()).collect()),
            false => Err(format!("{told:?}")),
        }
    })
}

#[test]
fn a_node_tells_when_the_disk_of_local_volumes_runs_full() {
    let setup = Setup::new();
    let disk = setup.scratch.small_disk("disk", "tmpfs", 64);
    let daemon = setup.set("CEPHLET_LOCAL_DIR", disk.join("local").display()).start();
    await_storage(&daemon, &[]);
    let ballast = fill_up(&disk);
    await_storage(&daemon, &[(Storage::STORAGE_DEGRADED, "LocalDiskNearlyFull")]);
    fs::remove_file(ballast).expect("make room");
    await_storage(&daemon, &[]);
}

#[test]
fn a_node_tells_which_clusters_it_does_not_reach() {
    let scratch = Arc::new(Scratch::new());
    // It accepts connections and says nothing, like a monitor that hangs.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("listen");
    let gone = TcpListener::bind("127.0.0.1:0").expect("listen").local_addr().expect("an address");
    let text = format!(
        "[cluster.gone]\nmonitors = [\"v2:{gone}\"]\n[cluster.hangs]\nmonitors = [\"v2:{}\"]\n\
         [cluster.wrong]\nmonitors = [\"a\"]\npols = []\n",
        hanging.local_addr().expect("an address")
    );
    let file = scratch.replace("clusters.toml", &text);
    let disk = scratch.small_disk("disk", "tmpfs", 64);
    let daemon = Setup::within(scratch)
        .set("CEPHLET_CLUSTERS", file.display())
        .set("CEPHLET_LOCAL_DIR", disk.join("local").display())
        .start();
    let unreachable = |reason| (Storage::STORAGE_UNREACHABLE, reason);
    let told = await_storage(&daemon, &[unreachable("MonitorsUnreachable"), unreachable("ClusterDisabled")]);
    assert!(told[0].contains("\"gone\"") && told[0].contains("\"hangs\""), "{told:?}");
    assert!(told[1].contains("\"wrong\""), "{told:?}");
}
