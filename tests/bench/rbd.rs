//! RBD on a real cluster: the cost of volumes beside that of the bare tool for similar work, in the same run.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::load::{all_at_once, percentile, share, timed};
use crate::process::{Started, megabytes, resident_at_most, resident_with_children, started_by};
use crate::support::machine::text;
use crate::support::{Client, Cluster, Daemon, MIB, Setup, cluster, requests};
use crate::{CALLERS, figure, names, show};

/// The Ceph user of the daemon and of the bare tool.
const USER: &str = "cephlet";
/// How often a figure of one caller is taken; the median counts.
const TIMES: usize = 30;
/// The default of CEPHLET_TOOLS.
const TOOLS: f64 = 4.0;

/// All figures of RBD.
pub fn measure() {
    println!("\n{:<58} {:>14}   should be", "RBD, each against the bare tool", "measured");
    let bare = Bare(cluster());
    let daemon = Setup::new().set("CEPHLET_LOG", "info").on(bare.0, USER).start();
    one_caller(&daemon, &bare);
    many_callers(&daemon, &bare);
    copies(&daemon, &bare);
    a_long_list(&daemon);
    drop(daemon);
    memory(bare.0);
    show(&commands(bare.0));
}

/// The bare tool, with the rights of the daemon.
struct Bare<'a>(&'a Cluster);

impl Bare<'_> {
    fn run(&self, arguments: &[&str]) {
        let mut rbd = Command::new("rbd");
        rbd.arg("-c")
            .arg(self.0.conf())
            .args(["--id", USER, "--keyring", text(&self.0.keyring(USER))])
            .args(arguments);
        let status =
            rbd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("rbd");
        assert!(status.success(), "rbd {arguments:?}: {status}");
    }

    fn create(&self, name: &str) {
        self.run(&["create", "--size=1G", &format!("rbd/{name}")]);
    }
}

fn create(client: &Client, name: &str) -> String {
    client.create(&requests::volume_as(name, 1024 * MIB, requests::mount("ext4"))).unwrap().volume_id
}

/// Prints the time of the daemon and of the bare tool, and their ratio.
fn compare(what: &str, ours: f64, theirs: f64, wanted: &str) {
    figure(what, format!("{:.1} ms", ours * 1e3), "");
    figure("  the bare tool", format!("{:.1} ms", theirs * 1e3), "");
    figure("  ratio", format!("{:.2}", ours / theirs), wanted);
}

/// The medians of two ways. They take turns, so that other work of the machine slows both.
fn medians(ours: impl Fn(usize), theirs: impl Fn(usize)) -> (f64, f64) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..TIMES {
        first.extend(timed(1, |_| ours(number)));
        second.extend(timed(1, |_| theirs(number)));
    }
    (percentile(&first, 50), percentile(&second, 50))
}

fn one_caller(daemon: &Daemon, bare: &Bare) {
    let client = daemon.client();
    let again = create(&client, "single-again");
    let (ours, theirs) =
        medians(|it| drop(create(&client, &format!("single-{it}"))), |it| bare.create(&format!("bare-{it}")));
    compare("CreateVolume, one caller, median", ours, theirs, "≤ 2.8");
    let repeat = timed(TIMES, |_| assert_eq!(create(&client, "single-again"), again));
    figure("  the same again", format!("{:.1} ms", percentile(&repeat, 50) * 1e3), "");
}

fn many_callers(daemon: &Daemon, bare: &Bare) {
    const COUNT: usize = 100;
    let theirs = share(&[(); CALLERS], &names("bare-many", COUNT), |(), name| bare.create(name));
    let ours = all_at_once(daemon, CALLERS, &names("many", COUNT), |client, name| drop(create(client, name)));
    compare("100 creates, 16 callers", ours, theirs, "≤ 3.0");
    figure("  a second", format!("{:.0}", COUNT as f64 / ours), "");
}

fn copies(daemon: &Daemon, bare: &Bare) {
    let client = daemon.client();
    let volume = create(&client, "original");
    let snapshot =
        client.create_snapshot(&requests::snapshot("state", &volume)).unwrap().snapshot.unwrap().snapshot_id;
    bare.create("bare-original");
    bare.run(&["snap", "create", "rbd/bare-original@state"]);
    let ours = |number| {
        let request = requests::volume_as(&format!("copy-{number}"), 1024 * MIB, requests::mount("ext4"));
        client.create(&requests::from_snapshot(request, &snapshot)).unwrap();
    };
    let theirs = |number| {
        bare.run(&[
            "clone",
            "--rbd-default-clone-format=2",
            "rbd/bare-original@state",
            &format!("rbd/bare-copy-{number}"),
        ]);
    };
    let (ours, theirs) = medians(ours, theirs);
    compare("a volume from a snapshot, median", ours, theirs, "≤ 5");
}

fn a_long_list(daemon: &Daemon) {
    const COUNT: usize = 1000;
    let client = daemon.client();
    let volumes = || client.list_volumes(&requests::page(0, "")).unwrap().entries.len();
    let present = volumes();
    all_at_once(daemon, CALLERS, &names("listed", COUNT - present), |client, name| {
        drop(create(client, name))
    });
    let times = timed(3, |_| assert_eq!(volumes(), COUNT));
    figure("1 000 volumes listed, median", format!("{:.2} s", percentile(&times, 50)), "≤ 5 s");
}

/// The most memory that 64 creates at once take: the daemon alone, and with its tools.
fn memory(cluster: &Cluster) {
    let daemon = Setup::new().set("CEPHLET_LOG", "info").on(cluster, USER).start();
    let (pid, over) = (daemon.pid(), AtomicBool::new(false));
    let tree = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = resident_with_children(pid).max(most);
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        all_at_once(&daemon, 64, &names("memory", 256), |client, name| drop(create(client, name)));
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    });
    figure("resident at most, 64 concurrent creates", megabytes(resident_at_most(&daemon)), "≤ 12.5 MB");
    let limit = format!("≤ {} MB", 12.5 + 36.0 * TOOLS);
    figure("  with its tools, shared pages counted for each", megabytes(tree), &limit);
}

/// The processes of each rpc, on a cluster with one pool.
fn commands(cluster: &Cluster) -> Vec<Started> {
    let daemon = daemon_of_one_pool(cluster, "second");
    let mut found = commands_of_a_volume(&daemon);
    found.extend(commands_of_lists_and_deletions(&daemon));
    found
}

fn commands_of_a_volume(daemon: &Daemon) -> Vec<Started> {
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count = |name: &'static str, rpc: &mut dyn FnMut()| found.push(started_by(daemon, name, rpc));
    let (mut volume, mut snapshot, mut copy) = (String::new(), String::new(), String::new());
    count("CreateVolume", &mut || volume = create(&client, "life"));
    count("CreateVolume, again", &mut || drop(create(&client, "life")));
    let publish = requests::publish_to(&volume, "node-1");
    count("ControllerPublishVolume", &mut || drop(client.controller_publish_volume(&publish).unwrap()));
    count("ControllerPublishVolume, again", &mut || {
        drop(client.controller_publish_volume(&publish).unwrap())
    });
    count("ControllerGetVolume", &mut || {
        drop(client.controller_get_volume(&requests::get(&volume)).unwrap())
    });
    count("ControllerExpandVolume", &mut || {
        drop(client.controller_expand_volume(&requests::expand(&volume, 2048 * MIB)).unwrap());
    });
    count("ControllerUnpublishVolume", &mut || {
        drop(client.controller_unpublish_volume(&requests::unpublish_from(&volume, "node-1")).unwrap());
    });
    count("CreateSnapshot", &mut || {
        snapshot = client
            .create_snapshot(&requests::snapshot("life", &volume))
            .unwrap()
            .snapshot
            .unwrap()
            .snapshot_id;
    });
    count("CreateSnapshot, again", &mut || {
        drop(client.create_snapshot(&requests::snapshot("life", &volume)).unwrap())
    });
    let from_snapshot =
        requests::from_snapshot(requests::volume_as("copy", 0, requests::mount("ext4")), &snapshot);
    count("CreateVolume from a snapshot", &mut || copy = client.create(&from_snapshot).unwrap().volume_id);
    let from_volume = requests::from_volume(requests::volume_as("twin", 0, requests::mount("ext4")), &copy);
    count("CreateVolume from a volume", &mut || drop(client.create(&from_volume).unwrap()));
    count("DeleteVolume that was copied from", &mut || {
        drop(client.delete_volume(&requests::delete(&copy)).unwrap())
    });
    count("DeleteSnapshot", &mut || {
        drop(client.delete_snapshot(&requests::delete_snapshot(&snapshot)).unwrap())
    });
    found
}

fn commands_of_lists_and_deletions(daemon: &Daemon) -> Vec<Started> {
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count = |name: &'static str, rpc: &mut dyn FnMut()| found.push(started_by(daemon, name, rpc));
    count("ListVolumes, first", &mut || drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("ListVolumes", &mut || drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("ListSnapshots", &mut || drop(client.list_snapshots(&requests::snapshot_page(0, "")).unwrap()));
    count("GetCapacity", &mut || drop(client.get_capacity(&Default::default()).unwrap()));
    let plain = create(&client, "plain");
    count("DeleteVolume", &mut || drop(client.delete_volume(&requests::delete(&plain)).unwrap()));
    count("DeleteVolume, again", &mut || drop(client.delete_volume(&requests::delete(&plain)).unwrap()));
    let large =
        client.create(&requests::volume_as("large", 8192 * MIB, requests::mount("ext4"))).unwrap().volume_id;
    count("DeleteVolume of 8 GiB", &mut || drop(client.delete_volume(&requests::delete(&large)).unwrap()));
    found
}

fn daemon_of_one_pool(cluster: &Cluster, pool: &str) -> Daemon {
    let setup = Setup::new();
    let file = setup.scratch.path("clusters.toml");
    let (conf, keyring) = (cluster.conf(), cluster.keyring(USER));
    let lines = format!(
        "[cluster.ceph]\nconf = {conf:?}\nuser = \"{USER}\"\nkeyring = {keyring:?}\npools = [\"{pool}\"]\nnamespaces = [\"\"]\n"
    );
    fs::write(&file, lines).unwrap();
    setup.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_CLUSTERS", file.display()).start()
}
