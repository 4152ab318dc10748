//! Start and end: configuration, notification, signals.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::thread;

use cephlet::proto::csi_v1::NodeStageVolumeResponse;
use rustix::process::Signal;

use crate::support::client::Answer;
use crate::support::machine::{exists, is_mounted};
use crate::support::requests::*;
use crate::support::stub::Hanging;
use crate::support::{Code, Daemon, Scratch, Setup, refused};

/// A daemon whose first mkfs.ext4 hangs, and a volume for it.
fn with_stuck_volume() -> (Daemon, Hanging, String) {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "mkfs.ext4");
    let daemon = Setup::within(scratch).set("CEPHLET_TOOL_PATH", stub.tool_path()).start();
    let id = daemon.client().create(&volume("stuck")).expect("create").volume_id;
    (daemon, stub, id)
}

#[test]
fn an_idle_daemon_ends_at_once_and_in_order() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    assert!(client.is_ready());
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    daemon.manager.await_message("STOPPING=1");
    assert!(!exists(&daemon.path("csi.sock")));
    refused(client.create(&volume("late")), Code::UNAVAILABLE, &[]);
}

/// A daemon that was told to end while it stages a volume whose formatter hangs.
fn stopping_with_a_call_in_progress()
-> (Daemon, Hanging, thread::JoinHandle<Answer<NodeStageVolumeResponse>>, String) {
    let (daemon, stub, id) = with_stuck_volume();
    let request = stage(&id, &daemon.text("stage"), mount("ext4"));
    let client = daemon.client();
    let under_way = thread::spawn(move || client.node_stage_volume(&request));
    stub.await_start();
    daemon.signal(Signal::TERM);
    daemon.manager.await_message("STOPPING=1");
    (daemon, stub, under_way, id)
}

#[test]
fn calls_in_progress_are_finished_before_the_end() {
    let (mut daemon, stub, under_way, id) = stopping_with_a_call_in_progress();
    stub.release();
    under_way.join().expect("the client").expect("it was answered");
    assert!(daemon.wait().success(), "{}", daemon.log.text());
    assert!(is_mounted(&daemon.path("stage")) && !exists(&daemon.path("csi.sock")));
    daemon.restart();
    daemon.client().node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}

/// Takes the 20 s that calls in progress get.
#[test]
fn a_call_that_does_not_end_is_abandoned_and_accounted_for() {
    let (mut daemon, stub, id) = with_stuck_volume();
    let (request, behind) =
        (stage(&id, &daemon.text("stage"), mount("ext4")), unstage(&id, &daemon.text("stage")));
    let (client, other) = (daemon.client(), daemon.client());
    let under_way = thread::spawn(move || client.node_stage_volume(&request));
    stub.await_start();
    let parked = thread::spawn(move || other.node_unstage_volume(&behind));
    daemon.log.await_lines("waits behind another", 1);
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    refused(under_way.join().expect("the client"), Code::UNAVAILABLE, &["mkfs.ext4", "stopping"]);
    refused(parked.join().expect("the client"), Code::UNAVAILABLE, &[]);
    let lines = daemon.log.lines_with("/csi.v1.Node/NodeStageVolume");
    assert!(
        lines.len() == 1 && lines[0].contains("mkfs.ext4") && lines[0].contains("cephlet is stopping"),
        "{lines:?}"
    );
    // A formatting is not killed; this one ends without having touched the device.
    drop(stub);
    daemon.restart();
    daemon
        .client()
        .node_stage_volume(&stage(&id, &daemon.text("stage"), mount("ext4")))
        .expect("the same again");
    daemon.client().node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}

/// A check asks the cluster right after the start, and nothing waits for its answer.
#[test]
fn a_stop_kills_a_question_without_a_warning() {
    let scratch = Arc::new(Scratch::new());
    let stub = Hanging::new(&scratch, "ceph");
    let [conf, keyring] = ["ceph.conf", "keyring"].map(|name| scratch.path(name));
    fs::write(&conf, "[global]\nmon_host = 127.0.0.1\n").expect("write the configuration");
    fs::write(&keyring, "[client.admin]\nkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n").expect("write");
    let setup = Setup::within(scratch).set("CEPHLET_BACKENDS", "cephfs").with_tools(stub.tool_path());
    let setup = setup.set("CEPHLET_CEPH_CONF", conf.display()).set("CEPHLET_CEPH_KEYRING", keyring.display());
    let mut daemon = setup.start();
    stub.await_start();
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    let killed = daemon.log.lines_with("is killed after");
    assert!(!killed.is_empty() && killed.iter().all(|line| line.contains(" INFO ")), "{killed:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (mut daemon, _stub, under_way, _) = stopping_with_a_call_in_progress();
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().signal(), Some(Signal::INT.as_raw()));
    assert!(under_way.join().expect("the client").is_err());
}

#[test]
fn hang_ups_are_survived() {
    let daemon = Daemon::start();
    for count in 1..=3 {
        daemon.signal(Signal::HUP);
        daemon.log.await_lines("are read again", count);
    }
    daemon.assert_well();
}

#[test]
fn every_mistake_in_the_configuration_is_reported_at_once() {
    let wrong = [
        ("CSI_ENDPOINT", "tcp://127.0.0.1:1"),
        ("CEPHLET_WORKERS", "3"),
        ("CEPHLET_LOCK_WAIT", "soon"),
        ("CEPHLET_NAME", "no domain"),
        ("CEPHLET_STATE_DIR", "relative"),
        ("CEPHLET_SERVICES", "everything"),
        ("CEPHLET_WORKRES", "8"),
    ];
    let setup = wrong.iter().fold(Setup::new(), |setup, (key, value)| setup.set(key, value));
    let (code, said) = setup.fail();
    assert_ne!(code, 0);
    let missing: Vec<_> = wrong
        .iter()
        .filter(|(key, value)| !said.contains(key) || !(said.contains(value) || value == &"8"))
        .collect();
    assert!(missing.is_empty(), "{missing:?} are missing in\n{said}");
    assert!(!exists(&setup.scratch.path("state")), "nothing was made");
}

#[test]
fn an_endpoint_must_be_a_socket() {
    for wrong in [
        "",
        "unix://",
        "/run/x",
        "unix:///run/csi.socket",
        "http://x.sock",
        "../csi.sock/..",
        &format!("/{}.sock", "x".repeat(120)),
    ] {
        let (_, said) = Setup::new().set("CSI_ENDPOINT", wrong).fail();
        assert!(said.contains("CSI_ENDPOINT"), "{wrong}: {said}");
    }
}

#[test]
fn a_node_needs_an_id_that_fits_into_volume_ids() {
    let (_, said) = Setup::new().set("CEPHLET_NODE_ID", "n".repeat(cephlet::MAX_NODE + 1)).fail();
    assert!(said.contains("CEPHLET_NODE_ID"), "{said}");
    let daemon = Setup::new().set("CEPHLET_NODE_ID", "a b:c").start();
    let made = daemon.client().create(&volume("one")).expect("create");
    assert!(made.volume_id.len() <= 128);
    daemon.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    assert!(crate::support::machine::images(&daemon.local_dir()).is_empty());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let setup = Setup::new();
    let file = setup.scratch.path("file");
    std::fs::write(&file, "").expect("a file");
    for key in ["CEPHLET_STATE_DIR", "CEPHLET_LOCAL_DIR"] {
        let wrong = file.join("below").display().to_string();
        let (_, said) = Setup::within(Arc::clone(&setup.scratch)).set(key, &wrong).fail();
        assert!(said.contains(&wrong), "{key}: {said}");
    }
}

#[test]
fn a_start_is_quick_and_small() {
    let daemon = Daemon::start();
    assert!(daemon.client().is_ready());
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("its status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(resident < 32 * 1024, "{resident} KiB at rest");
    assert!(daemon.threads() < 32, "{} threads at rest", daemon.threads());
}

#[test]
fn probe_says_when_nothing_can_be_mounted() {
    let without = ["/usr/bin/setpriv", "--bounding-set=-sys_admin"];
    let node = Setup::new().set("CEPHLET_SERVICES", "node").under(&without).start();
    refused(node.client().probe(&Default::default()), Code::FAILED_PRECONDITION, &["CAP_SYS_ADMIN"]);
    let both = Setup::new().under(&without).start();
    both.client().probe(&Default::default()).expect("the controller can still make volumes");
    both.log.await_lines("CAP_SYS_ADMIN", 1);
}
