//! Volumes that are published again after a boot, by reboots of the VM: one in good order, one as by a power
//! failure, and one into a cluster that does not answer.
//!
//! The test begins anew after each boot, and finds on the VM's disk how far it has come.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{cephlet, install_program};
use crate::support::cluster::outside;
use crate::support::machine::{exists, is_mounted, mount_at, run, run_within};
use crate::support::{LONG_PATIENCE, await_that};

/// How far the test has come.
const PHASE: &str = "/var/lib/boots/phase";
const UNITS: &str = "/etc/systemd/system";
/// The volumes: name, path, and the name of the path's units.
const WEB: (&str, &str, &str) = ("web", "/srv/web", "srv-web");
const DATA: (&str, &str, &str) = ("data", "/srv/my data", "srv-my\\x20data");
const SHARED: (&str, &str, &str) = ("shared", "/srv/shared", "srv-shared");
const ALL: [(&str, &str, &str); 3] = [WEB, DATA, SHARED];

/// The ID of a volume. A name would be looked for in the cluster, too, by a tool that is slow in the VM.
fn id_of(name: &str) -> String {
    fs::read_to_string(format!("/var/lib/boots/{name}")).expect("the ID")
}

/// What a unit of systemd is doing.
fn state(unit: &str) -> String {
    run("systemctl", &["show", "--property", "ActiveState", "--value", unit])
}

/// What `systemctl status` tells about a unit in any state.
fn status(unit: &str) -> String {
    let said =
        Command::new("systemctl").args(["status", "--no-pager", "--full", "--lines=50", unit]).output();
    String::from_utf8_lossy(&said.expect("systemctl").stdout).to_string()
}

/// A service that needs the path, and keeps what it has found there.
fn consumer(name: &str, path: &str) {
    let unit = format!(
        "[Unit]\nRequiresMountsFor=\"{path}\"\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'cp \"{path}/file\" /run/found-{name}'\n[Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(format!("{UNITS}/user-{name}.service"), unit).expect("write the unit");
    run("systemctl", &["enable", &format!("user-{name}.service")]);
}

/// Ends this boot; the next one begins the test anew, with this phase.
fn boot_into(phase: &str, how: &[&str]) -> ! {
    fs::write(PHASE, phase).expect("write the phase");
    run("sync", &[]);
    Command::new(how[0]).args(&how[1..]).status().expect("reboot");
    loop {
        thread::park();
    }
}

/// As a power failure does: nothing is unmounted or written.
const POWER_FAILURE: [&str; 3] = ["sh", "-c", "echo b >/proc/sysrq-trigger"];

fn first_boot() {
    install_program();
    run("systemctl", &["enable", "--now", "cephlet.service"]);
    let backends = ["backend=local", "backend=rbd", "backend=cephfs"];
    for ((name, ..), backend) in ALL.into_iter().zip(backends) {
        let id = cephlet(&["volume", "create", name, "--size", "64M", "--parameter", backend]);
        fs::write(format!("/var/lib/boots/{name}"), id).expect("write the ID");
    }
    cephlet(&["volume", "publish", WEB.0, WEB.1, "--at-boot", "--flags", "noatime"]);
    cephlet(&["volume", "publish", SHARED.0, SHARED.1, "--at-boot"]);
    cephlet(&["volume", "publish", DATA.0, DATA.1]);
    for (name, path, _) in ALL {
        fs::write(format!("{path}/file"), name).expect("write");
    }
    cephlet(&["volume", "unpublish", DATA.0, DATA.1]);
    cephlet(&["volume", "publish", DATA.0, DATA.1, "--at-boot", "--read-only"]);
    for (name, path, unit) in ALL {
        consumer(name, path);
        assert_eq!(state(&format!("{unit}.mount")), "active");
        assert_eq!(state(&format!("cephlet-publish@{unit}.service")), "active");
    }
    boot_into("in good order", &["systemctl", "reboot"]);
}

/// The volumes are published as before, before their users started.
fn all_are_back() {
    for (name, path, unit) in ALL {
        await_that("the user of the path has started", || match state(&format!("user-{name}.service")) {
            started if started == "active" => Ok(()),
            _ => {
                let user = format!("user-{name}.service");
                let units = [&format!("{unit}.mount"), &format!("cephlet-publish@{unit}.service"), &user];
                let log = run("journalctl", &["--boot", "--no-pager", "--lines=200"]);
                Err(units.map(|unit| status(unit)).concat() + &log)
            }
        });
        assert_eq!(fs::read_to_string(format!("/run/found-{name}")).expect("read"), name);
        assert!(cephlet(&["volume", "show", &id_of(name)]).contains(path));
    }
    assert!(mount_at(Path::new(WEB.1)).expect("mounted").options.contains("noatime"));
    assert!(mount_at(Path::new(DATA.1)).expect("mounted").options.starts_with("ro,"));
}

fn warnings_of_this_boot() -> String {
    run("journalctl", &["--boot", "--unit", "cephlet", "--priority", "warning", "--output", "cat"])
}

fn after_a_reboot() {
    all_are_back();
    let said = warnings_of_this_boot();
    assert!(!said.contains("was in use before this boot"), "the shutdown has unpublished nothing: {said}");

    let mount = format!("{}.mount", WEB.2);
    run_within(LONG_PATIENCE, "systemctl", &["stop", &mount]);
    assert!(!is_mounted(Path::new(WEB.1)) && !cephlet(&["volume", "show", &id_of(WEB.0)]).contains(WEB.1));
    assert_eq!(state("user-web.service"), "inactive", "what needs the path goes on without it");
    run_within(LONG_PATIENCE, "systemctl", &["start", "user-web.service"]);
    run("systemctl", &["daemon-reload"]);
    run_within(LONG_PATIENCE, "systemctl", &["restart", "cephlet.service"]);
    assert_eq!((state("user-web.service"), state(&mount)), ("active".into(), "active".into()));
    // By hand, and then wanted again.
    run_within(LONG_PATIENCE, "systemctl", &["stop", "user-web.service"]);
    run("umount", &[WEB.1]);
    await_that("the service has stopped with the mount", || {
        match state(&format!("cephlet-publish@{}.service", WEB.2)) {
            stopped if stopped == "inactive" => Ok(()),
            other => Err(other),
        }
    });
    run_within(LONG_PATIENCE, "systemctl", &["start", "user-web.service"]);
    boot_into("a power failure", &POWER_FAILURE);
}

fn after_a_power_failure() {
    all_are_back();
    let said = warnings_of_this_boot();
    assert!(said.contains("was in use before this boot"), "the power did not fail: {said}");
    outside(&["sh", "-c", "kill -s STOP $(cat \"$CLUSTER_DIR/run/mon.pid\")"]);
    boot_into("a silent cluster", &POWER_FAILURE);
}

fn after_a_boot_without_the_cluster() {
    let units = [DATA, SHARED]
        .map(|(_, _, unit)| (format!("{unit}.mount"), format!("cephlet-publish@{unit}.service")));
    await_that("the boot goes on without the volume", || match state("user-web.service") {
        started if started == "active" => Ok(()),
        other => Err(other),
    });
    for (mount, service) in &units {
        await_that("the reason is told", || match status(service) {
            said if ["cephlet: UNAVAILABLE: ", "cephlet: DEADLINE_EXCEEDED: "]
                .iter()
                .any(|it| said.contains(it)) =>
            {
                Ok(())
            }
            said => Err(said),
        });
        let said = status(mount);
        assert!(said.contains(service), "{said}");
    }
    for (name, path, unit) in [DATA, SHARED] {
        assert_eq!(state(&format!("cephlet-publish@{unit}.service")), "activating");
        assert_eq!(state(&format!("user-{name}.service")), "inactive");
        assert!(!is_mounted(Path::new(path)));
    }

    outside(&["sh", "-c", "kill -s CONT $(cat \"$CLUSTER_DIR/run/mon.pid\")"]);
    all_are_back();
}

fn undone() {
    for (name, path, unit) in ALL {
        let id = &id_of(name);
        cephlet(&["volume", "unpublish", id, path]);
        let (mount, service) = (format!("{unit}.mount"), format!("cephlet-publish@{unit}.service"));
        assert!(!is_mounted(Path::new(path)) && !exists(Path::new(path)));
        for file in [&mount, &service, &format!("multi-user.target.wants/{mount}")] {
            assert!(!exists(&Path::new(UNITS).join(file)), "{file}");
        }
        for unit in [&mount, &service] {
            assert_eq!(run("systemctl", &["show", "--property", "LoadState", "--value", unit]), "not-found");
        }
        cephlet(&["volume", "publish", id, path]);
        cephlet(&["volume", "unpublish", id, path]);
        cephlet(&["volume", "delete", id]);
    }
    let failed =
        run("systemctl", &["list-units", "--failed", "--plain", "--no-legend", "*cephlet*", "srv-*"]);
    assert_eq!(failed, "");
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn volumes_are_published_again_after_each_boot() {
    fs::create_dir_all("/var/lib/boots").expect("make the directory");
    match fs::read_to_string(PHASE).unwrap_or_default().as_str() {
        "" => first_boot(),
        "in good order" => after_a_reboot(),
        "a power failure" => after_a_power_failure(),
        _ => {
            after_a_boot_without_the_cluster();
            undone();
        }
    }
}
