//! The package for Debian, while a volume is mounted: it comes, is replaced, goes, and comes back.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::{cephlet, main_pid, systemctl};
use crate::support::cluster::outside;
use crate::support::machine::{exists, is_mounted, run, run_within, text};
use crate::support::{LONG_PATIENCE, binary, cluster};

const TARGET: &str = "/srv/packaged";
const FILE: &str = "/srv/packaged/file";
const STATE: &str = "/var/lib/cephlet";
const README: &str = include_str!("../../../README.md");
/// Where README publishes a volume.
const TARGET_OF_README: &str = "/srv/web";
const SETTINGS: &str = "/etc/cephlet/cephlet.env";

/// The package of a version, built on the machine that this VM runs on, in the one folder that both see.
fn package(version: &str) -> String {
    let (script, into) = (format!("{}/packaging/deb", env!("CARGO_MANIFEST_DIR")), cluster().dir());
    outside(&[&script, "--program", binary(), "--version", version, "--into", text(into)]);
    format!("{}/cephlet_{version}-1_amd64.deb", into.display())
}

fn dpkg(arguments: &[&str]) -> String {
    run_within(LONG_PATIENCE, "dpkg", arguments)
}

fn state() -> String {
    run("systemctl", &["show", "--property", "ActiveState", "--value", "cephlet.service"])
}

/// The volume is mounted, with what was written to it.
#[track_caller]
fn stays(after: &str) {
    assert!(is_mounted(Path::new(TARGET)), "after {after} nothing is mounted");
    assert_eq!(fs::read_to_string(FILE).expect("read"), "written", "{after}");
}

/// With a machine that starts what is installed, and room of this `size` for files from which loop devices
/// can read directly. Only what is written takes memory.
fn prepare(size: &str) {
    if exists(Path::new("/usr/sbin/policy-rc.d")) {
        fs::remove_file("/usr/sbin/policy-rc.d").expect("remove it");
    }
    fs::create_dir_all(format!("{STATE}/local")).expect("make the directory");
    let options = format!("size={size},mode=0700");
    run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &format!("{STATE}/local")]);
}

fn installed_and_used(package: &str) -> File {
    dpkg(&["--install", package]);
    assert_eq!(state(), "active");
    assert_eq!(run("systemctl", &["is-enabled", "cephlet.service"]), "enabled");
    cephlet(&["volume", "create", "web", "--size", "64M", "--parameter", "backend=local"]);
    cephlet(&["volume", "publish", "web", TARGET]);
    fs::write(FILE, "written").expect("write");
    File::open(FILE).expect("open")
}

fn upgraded(package: &str) {
    let former = main_pid();
    let mut settings = OpenOptions::new().append(true).open(SETTINGS).expect("open the settings");
    writeln!(settings, "CEPHLET_LOG=debug").expect("change the settings");
    dpkg(&["--install", package]);
    assert_eq!(state(), "active");
    assert_ne!(main_pid(), former, "the former daemon is at work still");
    assert!(fs::read_to_string(SETTINGS).expect("read").ends_with("\nCEPHLET_LOG=debug\n"));
    stays("an upgrade");
    cephlet(&["volume", "expand", "web", "--size", "128M"]);

    systemctl("stop");
    dpkg(&["--install", package]);
    assert_eq!(state(), "inactive", "what was stopped is started by an upgrade");
    systemctl("start");
}

fn removed_and_purged() {
    let said = dpkg(&["--remove", "cephlet"]);
    assert!(said.contains("stay mounted") && said.contains(&format!("\n  {TARGET}")), "{said}");
    assert!(!exists(Path::new("/usr/bin/cephlet")) && exists(Path::new(SETTINGS)), "{said}");
    assert_eq!(state(), "inactive");
    stays("a removal");
    let said = dpkg(&["--purge", "cephlet"]);
    assert!(said.contains("/var/lib/cephlet stays"), "{said}");
    assert!(!exists(Path::new("/etc/cephlet")), "{said}");
    stays("a purge");
}

/// The commands of README's section about hosts with systemd, without their comments.
fn commands_of_readme() -> Vec<&'static str> {
    let (_, section) = README.split_once("\n## On a host with systemd\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).flat_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter_map(|line| line.split("  #").next()).map(str::trim).collect()
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn readme_is_enough_for_the_first_hour() {
    prepare("64g");
    let package = package("0.0.1");
    let commands = commands_of_readme();
    assert!(commands.len() <= 12 && !commands.iter().any(|command| command.contains(':')), "{commands:?}");
    let type_in = |command: &str| {
        let line = command.replace("./target/packages/cephlet_*_amd64.deb", &package);
        run_within(LONG_PATIENCE, "env", &["--unset=CEPHLET_BINARY", "sh", "-c", &line])
    };
    let size = || run("findmnt", &["--noheadings", "--bytes", "--output", "SIZE", TARGET_OF_README]);
    let mut small = String::new();
    for command in commands {
        let said = match command {
            // It was run where the package was built.
            "packaging/deb" => continue,
            command => type_in(command),
        };
        if command.contains(" publish ") {
            fs::write(format!("{TARGET_OF_README}/file"), "written").expect("write");
            small = size();
        } else if command.contains(" expand ") {
            assert!(size().parse::<u64>().expect("bytes") > small.parse::<u64>().expect("bytes") * 3 / 2);
        } else if command.ends_with(" list") {
            assert!(said.contains("\nold ") && said.contains("\nweb "), "{said}");
        }
    }
    assert!(!is_mounted(Path::new(TARGET_OF_README)));
    cephlet(&["volume", "publish", "old", TARGET]);
    assert_eq!(fs::read_to_string(FILE).expect("read"), "written", "the copy of the snapshot");
    cephlet(&["volume", "unpublish", "old", TARGET]);
    cephlet(&["volume", "delete", "old"]);
    assert_eq!(cephlet(&["doctor"]), "nothing was found");
}

#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn a_volume_outlives_every_change_of_the_package() {
    prepare("1g");
    let (old, new) = (package("0.0.1"), package("99.0.0"));
    let open = installed_and_used(&old);
    upgraded(&new);
    removed_and_purged();

    dpkg(&["--install", &new]);
    stays("an installation");
    assert!(cephlet(&["volume", "show", "web"]).contains(TARGET));
    drop(open);
    cephlet(&["volume", "unpublish", "web", TARGET]);
    assert!(!is_mounted(Path::new(TARGET)));
    cephlet(&["volume", "delete", "web"]);

    // A start writes the journal anew: nothing is left to keep.
    systemctl("restart");
    dpkg(&["--remove", "cephlet"]);
    run("umount", &[&format!("{STATE}/local")]);
    let said = dpkg(&["--purge", "cephlet"]);
    assert!(!exists(Path::new(STATE)), "{said}");
}
