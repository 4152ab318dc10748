//! RBD on a real cluster: the cost of volumes beside that of the bare tool for similar work, in the same run.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::load::{all_at_once, percentile, share, timed};
use crate::process::{Started, megabytes, resident, resident_at_most, resident_with_children, started_by};
use crate::support::machine::text;
use crate::support::{Client, Cluster, Daemon, MIB, Setup, cluster, requests};
use crate::{CALLERS, figure, names, show};

/// The Ceph user of the daemon and of the bare tool.
const USER: &str = "cephlet";
/// How often a figure of one caller is taken; the median counts.
const TIMES: usize = 30;
/// The default of CEPHLET_TOOLS.
const TOOLS: f64 = 4.0;

/// All figures of RBD, with the session and without.
pub fn measure() {
    let bare = Bare(cluster());
    for session in ["auto", "off"] {
        println!("\n{:<58} {:>14}   should be", format!("RBD, CEPHLET_SESSION={session}"), "measured");
        let daemon = daemon(bare.0, session);
        let run = Run { daemon: &daemon, bare: &bare, session };
        run.one_caller();
        run.many_callers();
        run.copies();
        run.publications();
        run.a_long_list();
        drop(daemon);
        memory(bare.0, session);
        show(&commands(bare.0, session));
    }
    a_session_comes_and_goes(bare.0);
}

fn daemon(cluster: &Cluster, session: &str) -> Daemon {
    Setup::new().set("CEPHLET_LOG", "info").set("CEPHLET_SESSION", session).on(cluster, USER).start()
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

/// A daemon that is measured beside the bare tool.
struct Run<'a> {
    daemon: &'a Daemon,
    bare: &'a Bare<'a>,
    session: &'a str,
}

impl Run<'_> {
    /// The figure that is wanted with the session, or without.
    fn wanted(&self, with: &'static str, without: &'static str) -> &'static str {
        if self.session == "auto" { with } else { without }
    }

    /// Names that no other run has.
    fn name(&self, what: &str, number: usize) -> String {
        format!("{what}-{}-{number}", self.session)
    }

    fn names(&self, what: &str, count: usize) -> Vec<String> {
        names(&format!("{what}-{}", self.session), count)
    }

    fn one_caller(&self) {
        let client = self.daemon.client();
        let (ours, theirs) = medians(
            |number| drop(create(&client, &self.name("single", number))),
            |number| self.bare.create(&self.name("bare", number)),
        );
        let wanted = self.wanted("≤ 0.35", "≤ 2.8");
        compare("CreateVolume, one caller, median", ours, theirs, wanted);
    }

    fn many_callers(&self) {
        const COUNT: usize = 200;
        let rate = |seconds: f64| format!("{:.0} /s", COUNT as f64 / seconds);
        let (bare, names) = (self.bare, self.names("many", COUNT));
        let theirs = self.names("bare-many", COUNT);
        let slow = share(&[(); CALLERS], &theirs, |(), name| bare.create(name));
        let ids = Mutex::new(Vec::new());
        let fast = all_at_once(self.daemon, CALLERS, &names, |client, name| {
            let id = create(client, name);
            ids.lock().unwrap().push(id);
        });
        figure("CreateVolume, 16 callers", rate(fast), self.wanted("≥ 260 /s", ""));
        figure(
            "  times as fast as `rbd create`",
            format!("{:.2}", slow / fast),
            self.wanted("≥ 6", "≥ 0.33"),
        );
        let again = all_at_once(self.daemon, CALLERS, &names, |client, name| drop(create(client, name)));
        figure("  the same again", rate(again), self.wanted("≥ 2000 /s", ""));
        let slow = share(&[(); CALLERS], &theirs, |(), name| bare.run(&["rm", &format!("rbd/{name}")]));
        let fast = all_at_once(self.daemon, CALLERS, &ids.into_inner().unwrap(), |client, id| {
            drop(client.delete_volume(&requests::delete(id)).unwrap());
        });
        figure("DeleteVolume, 16 callers", rate(fast), self.wanted("≥ 45 /s", ""));
        figure("  times as fast as `rbd rm`", format!("{:.2}", slow / fast), self.wanted("≥ 2", ""));
    }

    fn copies(&self) {
        let client = self.daemon.client();
        let volume = create(&client, &self.name("original", 0));
        let taken = client.create_snapshot(&requests::snapshot(&self.name("state", 0), &volume)).unwrap();
        let snapshot = &taken.snapshot.snapshot_id;
        let original = self.name("bare-original", 0);
        self.bare.create(&original);
        self.bare.run(&["snap", "create", "--no-progress", &format!("rbd/{original}@state")]);
        let ours = |number| {
            let name = self.name("copy", number);
            let request = requests::volume_as(&name, 1024 * MIB, requests::mount("ext4"));
            client.create(&requests::from_snapshot(request, snapshot)).unwrap();
        };
        let theirs = |number| {
            let copy = format!("rbd/{}", self.name("bare-copy", number));
            let of = format!("rbd/{original}@state");
            self.bare.run(&["clone", "--rbd-default-clone-format=2", &of, &copy]);
        };
        let (ours, theirs) = medians(ours, theirs);
        compare("a volume from a snapshot, median", ours, theirs, self.wanted("≤ 1.5", "≤ 5"));
    }

    fn publications(&self) {
        const COUNT: usize = 200;
        let client = self.daemon.client();
        let ids: Vec<_> = self.names("published", COUNT).iter().map(|name| create(&client, name)).collect();
        let seconds = all_at_once(self.daemon, CALLERS, &ids, |client, id| {
            client.controller_publish_volume(&requests::publish_to(id, "node-1")).unwrap();
            client.controller_unpublish_volume(&requests::unpublish_from(id, "node-1")).unwrap();
        });
        let rate = format!("{:.0} /s", COUNT as f64 / seconds);
        figure("publish and unpublish, 16 callers", rate, self.wanted("≥ 200 /s", ""));
    }

    fn a_long_list(&self) {
        const COUNT: usize = 1000;
        let client = self.daemon.client();
        let volumes = || client.list_volumes(&requests::page(0, "")).unwrap().entries.len();
        let present = volumes();
        let more = self.names("listed", COUNT.saturating_sub(present));
        all_at_once(self.daemon, CALLERS, &more, |client, name| drop(create(client, name)));
        let times = timed(3, |_| assert!(volumes() >= COUNT));
        let seconds = percentile(&times, 50) * COUNT as f64 / present.max(COUNT) as f64;
        figure("1 000 volumes listed, median", format!("{seconds:.2} s"), self.wanted("≤ 0.6 s", "≤ 5 s"));
    }
}

/// The most memory that 64 creates at once take: the daemon alone, and with its session and tools.
fn memory(cluster: &Cluster, session: &str) {
    let daemon = daemon(cluster, session);
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
        let names = names(&format!("memory-{session}"), 1000);
        all_at_once(&daemon, 64, &names, |client, name| drop(create(client, name)));
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    });
    figure("resident at most, 64 concurrent creates", megabytes(resident_at_most(&daemon)), "≤ 13 MB");
    let limit = match session {
        "auto" => String::from("≤ 65 MB"),
        _ => format!("≤ {} MB", 12.5 + 36.0 * TOOLS),
    };
    figure("  with session and tools, shared pages counted for each", megabytes(tree), &limit);
}

/// The first answer of a daemon without a running session, and what is left when the session has ended.
fn a_session_comes_and_goes(cluster: &Cluster) {
    let setup = Setup::new().set("CEPHLET_SESSION_IDLE", "2s").on(cluster, USER);
    let daemon = setup.start();
    let client = daemon.client();
    let id = create(&client, "single-auto-0");
    let alone = || resident_with_children(daemon.pid()) == resident(&daemon);
    let await_end = || {
        while !alone() {
            thread::sleep(Duration::from_millis(50));
        }
    };
    let first = |_| {
        await_end();
        let times = timed(1, |_| drop(client.controller_get_volume(&requests::get(&id)).unwrap()));
        times[0]
    };
    let times: Vec<f64> = (0..5).map(first).collect();
    figure("ControllerGetVolume, cold", format!("{:.0} ms", percentile(&times, 50) * 1e3), "≤ 150 ms");
    await_end();
    figure("resident once the session has ended", megabytes(resident(&daemon)), "≤ 8 MB");
}

/// The processes of each rpc, on a cluster with one pool.
fn commands(cluster: &Cluster, session: &str) -> Vec<Started> {
    let daemon = daemon_of_one_pool(cluster, "second", session);
    let mut found = commands_of_a_volume(&daemon, session);
    found.extend(commands_of_lists_and_deletions(&daemon, session));
    found
}

fn commands_of_a_volume(daemon: &Daemon, session: &str) -> Vec<Started> {
    let life = format!("life-{session}");
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count = |name: &'static str, rpc: &mut dyn FnMut()| found.push(started_by(daemon, name, rpc));
    let (mut volume, mut snapshot, mut copy) = (String::new(), String::new(), String::new());
    count("CreateVolume", &mut || volume = create(&client, &life));
    count("CreateVolume, again", &mut || drop(create(&client, &life)));
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
            .create_snapshot(&requests::snapshot(&life, &volume))
            .unwrap()
            .snapshot
            .unwrap()
            .snapshot_id;
    });
    count("CreateSnapshot, again", &mut || {
        drop(client.create_snapshot(&requests::snapshot(&life, &volume)).unwrap())
    });
    let from_snapshot = requests::from_snapshot(
        requests::volume_as(&format!("copy-{session}"), 0, requests::mount("ext4")),
        &snapshot,
    );
    count("CreateVolume from a snapshot", &mut || copy = client.create(&from_snapshot).unwrap().volume_id);
    let from_volume = requests::from_volume(
        requests::volume_as(&format!("twin-{session}"), 0, requests::mount("ext4")),
        &copy,
    );
    count("CreateVolume from a volume", &mut || drop(client.create(&from_volume).unwrap()));
    count("DeleteVolume that was copied from", &mut || {
        drop(client.delete_volume(&requests::delete(&copy)).unwrap())
    });
    count("DeleteSnapshot", &mut || {
        drop(client.delete_snapshot(&requests::delete_snapshot(&snapshot)).unwrap())
    });
    found
}

fn commands_of_lists_and_deletions(daemon: &Daemon, session: &str) -> Vec<Started> {
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count = |name: &'static str, rpc: &mut dyn FnMut()| found.push(started_by(daemon, name, rpc));
    count("ListVolumes, first", &mut || drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("ListVolumes", &mut || drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("ListSnapshots", &mut || drop(client.list_snapshots(&requests::snapshot_page(0, "")).unwrap()));
    count("GetCapacity", &mut || drop(client.get_capacity(&Default::default()).unwrap()));
    let plain = create(&client, &format!("plain-{session}"));
    count("DeleteVolume", &mut || drop(client.delete_volume(&requests::delete(&plain)).unwrap()));
    count("DeleteVolume, again", &mut || drop(client.delete_volume(&requests::delete(&plain)).unwrap()));
    let large = client
        .create(&requests::volume_as(&format!("large-{session}"), 8192 * MIB, requests::mount("ext4")))
        .unwrap()
        .volume_id;
    count("DeleteVolume of 8 GiB", &mut || drop(client.delete_volume(&requests::delete(&large)).unwrap()));
    found
}

fn daemon_of_one_pool(cluster: &Cluster, pool: &str, session: &str) -> Daemon {
    let setup = Setup::new().set("CEPHLET_SESSION", session);
    let file = setup.scratch.path("clusters.toml");
    let (conf, keyring) = (cluster.conf(), cluster.keyring(USER));
    let lines = format!(
        "[cluster.ceph]\nconf = {conf:?}\nuser = \"{USER}\"\nkeyring = {keyring:?}\npools = [\"{pool}\"]\nnamespaces = [\"\"]\n"
    );
    fs::write(&file, lines).unwrap();
    setup.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_CLUSTERS", file.display()).start()
}
