//! `cephlet doctor` on this machine: each finding is made, named, mended as it says, and gone.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::cli::{command, done};
use crate::support::machine::{run, text};
use crate::support::requests::{block, mount};
use crate::support::scratch::fill_up;
use crate::support::{Daemon, Setup, TestVolume};

/// The exit status if something is found.
const FOUND: i32 = 12;

/// The names of the findings, each with what mends it.
#[track_caller]
fn findings(output: &Output) -> Vec<(String, String)> {
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = found.as_array().expect("an array");
    let said = String::from_utf8_lossy(&output.stderr);
    let status = if found.is_empty() { 0 } else { FOUND };
    assert!(output.status.code() == Some(status) && said.is_empty(), "{} {said} {found:?}", output.status);
    let text = |finding: &Value, key: &str| {
        let text = finding[key].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{finding} has no {key}");
        text.to_string()
    };
    found
        .iter()
        .map(|it| {
            text(it, "meaning");
            text(it, "cost");
            (text(it, "name"), text(it, "mend"))
        })
        .collect()
}

#[track_caller]
fn of(daemon: &Daemon) -> Vec<(String, String)> {
    findings(&command(daemon, "doctor --json", ""))
}

/// The one finding; gives what mends it.
#[track_caller]
fn only(found: Vec<(String, String)>, name: &str) -> String {
    match found.as_slice() {
        [(found, mend)] if found == name => mend.clone(),
        _ => panic!("not only {name}: {found:?}"),
    }
}

/// With these settings, without a daemon.
fn alone(setup: &Setup) -> Vec<(String, String)> {
    let output = setup.command().args(["doctor", "--json"]).stdout(std::process::Stdio::piped()).output();
    findings(&output.expect("run cephlet"))
}

#[test]
fn a_healthy_host_has_no_findings() {
    let daemon = Daemon::start();
    TestVolume::in_use(&daemon, "one");
    TestVolume::create(&daemon, "two", 32, block());
    assert_eq!(done(&daemon, "doctor"), "nothing was found");
}

#[test]
fn a_device_and_a_mount_that_no_record_knows_are_found_with_their_commands() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, block());
    let device = run("losetup", &["--find", "--show", text(&volume.image())]);
    let mend = only(of(&daemon), &format!("DeviceUnknown:{device}"));
    run("sh", &["-c", &mend]);
    assert_eq!(of(&daemon), []);

    let place = daemon.path("run/mounts/0123");
    fs::create_dir_all(&place).expect("make a directory");
    run("mount", &["-t", "tmpfs", "tmpfs", text(&place)]);
    let mend = only(of(&daemon), &format!("MountUnknown:{}", place.display()));
    run("sh", &["-c", &mend]);
    assert_eq!(of(&daemon), []);
}

#[test]
fn a_volume_that_is_not_well_is_found_by_its_name() {
    let daemon = Daemon::start();
    let target = daemon.text("target");
    done(&daemon, "volume create web --size 32M");
    done(&daemon, &format!("volume publish web {target}"));
    run("umount", &[&target]);
    let mend = only(of(&daemon), "MountGone:web");
    assert_eq!(mend, "unpublish it and publish it again");
    done(&daemon, &format!("volume unpublish web {target}"));
    done(&daemon, &format!("volume publish web {target}"));
    assert_eq!(of(&daemon), []);
    done(&daemon, &format!("volume unpublish web {target}"));
    done(&daemon, "volume delete web");
}

#[test]
fn all_paths_of_a_volume_are_looked_at_and_none_where_it_was_given_up() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    run("umount", &[&daemon.text("target")]);
    only(of(&daemon), "MountGone:one");
    fs::write(daemon.path("target/theirs"), "").expect("write");
    volume.unpublish("target").expect_err("the directory is not empty");
    assert_eq!(of(&daemon), []);
    fs::remove_file(daemon.path("target/theirs")).expect("remove");
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn a_tool_that_is_missing_is_found_with_its_package() {
    let setup = Setup::new();
    let tools = setup.scratch.dir("tools");
    let add = |name: &str| {
        std::os::unix::fs::symlink(run("sh", &["-c", &format!("command -v {name}")]), tools.join(name))
            .expect("link");
    };
    ["e2fsck", "resize2fs"].into_iter().for_each(add);
    let mut daemon = setup.with_tools(tools.display()).start();
    let mend = only(of(&daemon), "ToolMissing:mkfs.ext4");
    assert!(mend.contains("apt-get install e2fsprogs") && mend.contains("restart cephlet"), "{mend}");
    add("mkfs.ext4");
    daemon.restart();
    assert_eq!(of(&daemon), []);
}

/// In the place of the device that makes loop devices there is one that no driver has.
const WITHOUT_LOOPS: &str = "none=$(mktemp --dry-run) && mknod $none c 1 99 && mount --bind $none /dev/loop-control && rm $none; \
                             exec \"$0\" \"$@\"";

#[test]
fn a_machine_without_loop_devices_is_found() {
    let without = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", WITHOUT_LOOPS];
    let scratch = {
        let daemon = Setup::new().under(&without).start();
        let found = of(&daemon);
        assert!(found.iter().any(|(name, _)| name == "BackendUnusable:local"), "{found:?}");
        std::sync::Arc::clone(&daemon.setup.scratch)
    };
    assert_eq!(of(&Setup::within(scratch).start()), []);
}

#[test]
fn a_setting_that_is_not_heeded_is_found() {
    let setup = Setup::new();
    let (directory, scratch) = (setup.scratch.path("prom"), std::sync::Arc::clone(&setup.scratch));
    let daemon = setup.set("CEPHLET_METRICS", scratch.path("prom/cephlet.prom").display()).start();
    only(of(&daemon), "SettingUnheeded");
    fs::create_dir(directory).expect("make the directory");
    assert_eq!(of(&daemon), []);
}

#[test]
fn what_keeps_a_daemon_from_its_start_is_found_without_it() {
    let mut daemon = Daemon::start();
    TestVolume::create(&daemon, "one", 32, mount("ext4"));
    daemon.terminate();
    let mend = only(alone(&daemon.setup), "DaemonSilent");
    assert!(mend.starts_with("systemctl start cephlet"), "{mend}");

    let journal = daemon.path("state/journal");
    let whole = fs::read(&journal).expect("read the journal");
    fs::write(&journal, "no journal").expect("write");
    let names: Vec<String> = alone(&daemon.setup).into_iter().map(|(name, _)| name).collect();
    let refused = format!("JournalRefused:{}", daemon.text("state"));
    assert_eq!(names, ["DaemonSilent", &refused]);
    assert_eq!(fs::read(&journal).expect("read"), b"no journal", "nothing is changed");
    fs::write(&journal, whole).expect("write");

    let wrong = Setup::within(std::sync::Arc::clone(&daemon.setup.scratch)).set("CEPHLET_WORKERS", "many");
    let names: Vec<String> = alone(&wrong).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["SettingRefused:CEPHLET_WORKERS"]);
    daemon.restart();
    assert_eq!(of(&daemon), []);
}

#[test]
fn a_wrong_command_line_is_no_finding() {
    let output = Setup::new().command().args(["doctor", "--timeout", "xyz"]).output().expect("run cephlet");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--timeout"), "{} {said}", output.status);
}

#[test]
fn a_journal_without_room_is_found() {
    let setup = Setup::new();
    let disk = setup.scratch.small_disk("disk", "ext4", 32);
    let mut daemon = setup.set("CEPHLET_STATE_DIR", disk.join("state").display()).start();
    let ballast = fill_up(&disk);
    daemon.terminate();
    // Written anew, it has lost the room behind its end.
    let journal = disk.join("state/journal");
    let content = fs::read(&journal).expect("read the journal");
    fs::write(&journal, content).expect("write the journal");
    fill_up(&disk);
    daemon.restart();
    let mend = only(of(&daemon), &format!("JournalWithoutRoom:{}", disk.join("state").display()));
    assert!(mend.contains("restart cephlet"), "{mend}");
    fs::remove_file(ballast).expect("make room");
    daemon.restart();
    assert_eq!(of(&daemon), []);
}

/// A line of the journal: its length, its checksum and its JSON.
fn line(json: &str) -> String {
    format!("{} {:08x} {json}\n", json.len(), crc32fast::hash(json.as_bytes()))
}

#[test]
fn a_deletion_whose_cluster_is_not_set_up_is_found() {
    let mut daemon = Daemon::start();
    daemon.terminate();
    let id = "rbd:main:rbd::csi-vol-web-abcdefghij234:10ab";
    let deletion = line(&format!("{{\"deletions\":{{\"volume {id}\":{{\"began\":1763777600}}}}}}"));
    write_journal(&daemon.path("state/journal"), &deletion);
    daemon.restart();
    let mend = only(of(&daemon), &format!("DeletionPending:volume {id}"));
    assert!(mend.contains("reload cephlet"), "{mend}");
    daemon.terminate();
    write_journal(&daemon.path("state/journal"), "");
    daemon.restart();
    assert_eq!(of(&daemon), []);
}

fn write_journal(at: &Path, lines: &str) {
    fs::write(at, format!("{{\"journal\":1}}\n{lines}")).expect("write the journal");
}

#[test]
fn a_name_that_is_no_finding_changes_nothing() {
    let daemon = Daemon::start();
    let output = command(&daemon, "doctor --fix CopyLeft:main/rbd/csi-tmp-1", "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("shows how each finding is mended"), "{said}");
}
