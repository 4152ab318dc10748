//! The unit as an administrator installs it without a package, in a VM whose process 1 is systemd.

mod boots;
mod packages;

use std::fs;
use std::path::Path;

use crate::support::machine::{is_mounted, owner, run, run_within, text};
use crate::support::{LONG_PATIENCE, await_that, binary, cluster};

const TARGET: &str = "/srv/web";
const FILE: &str = "/srv/web/file";

/// Installs what the daemon needs, with the cluster in /etc/ceph.
fn install_program() {
    run("install", &[binary(), "/usr/bin/cephlet"]);
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    run("install", &["-m", "644", text(&unit.join("cephlet.service")), "/etc/systemd/system/"]);
    run("install", &["-D", "-m", "600", text(&unit.join("cephlet.env")), "/etc/cephlet/cephlet.env"]);
    let settings = fs::read_to_string("/etc/cephlet/cephlet.env").expect("read the settings");
    fs::write("/etc/cephlet/cephlet.env", settings + "\nCEPHLET_BACKENDS=local,rbd,cephfs\n")
        .expect("write the settings");
    let (conf, keyring) = (cluster().conf(), cluster().keyring("admin"));
    run("install", &["-D", "-m", "600", text(&conf), "/etc/ceph/ceph.conf"]);
    run("install", &["-m", "600", text(&keyring), "/etc/ceph/ceph.client.admin.keyring"]);
    run("systemctl", &["daemon-reload"]);
}

/// The same, and starts the unit anew: another test may have left it running in another directory.
fn install() {
    install_program();
    // The root of the VM is an overlay over memory, from which loop devices cannot read directly.
    fs::create_dir_all("/var/lib/cephlet").expect("make the directory");
    run("mount", &["-t", "tmpfs", "-o", "size=1g,mode=0700", "tmpfs", "/var/lib/cephlet"]);
    systemctl("restart");
}

fn systemctl(verb: &str) {
    run_within(LONG_PATIENCE, "systemctl", &[verb, "cephlet.service"]);
}

/// The variables of the tests are no settings of cephlet.
fn cephlet(arguments: &[&str]) -> String {
    run_within(LONG_PATIENCE, "env", &[&["--unset=CEPHLET_BINARY", "cephlet"], arguments].concat())
}

fn main_pid() -> String {
    run("systemctl", &["show", "--property", "MainPID", "--value", "cephlet.service"])
}

/// Kills the daemon, and waits for the unit to start another.
fn kill_daemon() {
    let former = main_pid();
    run("systemctl", &["kill", "--kill-whom", "main", "--signal", "KILL", "cephlet.service"]);
    await_that("the unit is active again", || {
        let state = run("systemctl", &["show", "--property", "ActiveState", "--value", "cephlet.service"]);
        if state.trim() == "active" && main_pid() != former { Ok(()) } else { Err(state) }
    });
}

/// A volume is made with these parameters, used while the unit comes and goes, grown, and deleted.
fn outlives_the_daemon(name: &str, parameters: &[&str]) {
    let create = ["volume", "create", name, "--size", "64M"];
    let parameters = parameters.iter().flat_map(|parameter| ["--parameter", parameter]);
    let id = cephlet(&create.into_iter().chain(parameters).collect::<Vec<_>>());
    cephlet(&["volume", "publish", &id, TARGET]);
    fs::write(FILE, name).expect("write");
    let open = fs::File::open(FILE).expect("open");
    let stays = |after: &str| assert_eq!(fs::read_to_string(FILE).expect("read"), name, "{after} of {id}");
    systemctl("restart");
    stays("a restart");
    systemctl("stop");
    stays("a stop");
    systemctl("start");
    cephlet(&["volume", "expand", &id, "--size", "128M"]);
    kill_daemon();
    stays("a kill");
    cephlet(&["volume", "publish", &id, TARGET]);
    drop(open);
    cephlet(&["volume", "unpublish", &id, TARGET]);
    assert!(!is_mounted(Path::new(TARGET)), "{id} is still mounted");
    cephlet(&["volume", "delete", &id]);
}

/// The sandbox of the unit allows all that volumes of every kind need, and ends none of their processes.
#[test]
#[ignore = "a VM of its own: tests/run --full"]
fn volumes_of_every_kind_outlive_the_daemon_of_the_unit() {
    install();
    outlives_the_daemon("local", &["backend=local"]);
    outlives_the_daemon("rbd", &["backend=rbd", "pool=rbd"]);
    outlives_the_daemon("nbd", &["backend=rbd", "pool=rbd", "mounter=rbd-nbd"]);
    outlives_the_daemon("files", &["backend=cephfs"]);
    outlives_the_daemon("fuse", &["backend=cephfs", "mounter=fuse"]);

    let owned = ["backend=cephfs", "uid=65534", "gid=65533", "mode=0710"];
    let parameters = owned.iter().flat_map(|parameter| ["--parameter", parameter]);
    let create = ["volume", "create", "owned", "--size", "64M"].into_iter().chain(parameters);
    let id = cephlet(&create.collect::<Vec<_>>());
    cephlet(&["volume", "publish", &id, TARGET]);
    assert_eq!(owner(Path::new(TARGET)), (65534, 65533, 0o710));
    let snapshot = cephlet(&["snapshot", "create", &id, "before"]);
    let clients = cluster().ceph(&["tell", "mds.cephfs:0", "session", "ls"]);
    assert!(clients.contains("\"cephlet/vm\""), "the mount has no host name of its own: {clients}");
    cephlet(&["volume", "unpublish", &id, TARGET]);
    cephlet(&["snapshot", "delete", &snapshot]);
    cephlet(&["volume", "delete", &id]);
    let said = run("journalctl", &["--unit", "cephlet", "--priority", "warning", "--output", "cat"]);
    assert_eq!(said, "", "the journal has complaints");
}
