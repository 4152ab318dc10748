//! CephFS on a real cluster: the cost of volumes beside that of the bare commands of the manager, in the same
//! run.

use std::sync::Mutex;

use crate::load::{all_at_once, percentile, timed};
use crate::process::{Started, megabytes, resident_at_most, started_by};
use crate::support::{Client, Cluster, Daemon, Group, MIB, Place, cluster, requests};
use crate::{CALLERS, figure, names, show};

/// How often a figure of one caller is taken; the median counts.
const TIMES: usize = 30;
/// How many volumes many callers make.
const COUNT: usize = 400;
/// How many volumes are listed.
const LISTED: usize = 500;

/// The manager's commands by one connection, without cephlet.
const BARE: &str = include_str!("cephfs.py");

/// All figures of CephFS, with the session.
pub fn measure() {
    println!("\n{:<58} {:>14}   should be", "CephFS", "measured");
    let group = Group::of(cluster());
    let daemon = group.setup().set("CEPHLET_LOG", "info").start();
    let client = daemon.client();
    create(&group, &client, "makes-the-group");
    one_caller(&group, &client);
    many_callers(&group, &daemon);
    a_long_list(&group, &daemon);
    figure("resident at most", megabytes(resident_at_most(&daemon)), "≤ 13 MB");
    drop(daemon);
    show(&commands(&group));
}

fn create(group: &Group, client: &Client, name: &str) -> String {
    client.create(&group.volume(name, 1024)).unwrap().volume_id
}

/// The seconds in which so many callers make subvolumes of these names.
fn bare(cluster: &Cluster, callers: usize, names: &[String]) -> f64 {
    let mut python = cluster.command("/usr/bin/python3");
    let output = python.args(["-c", BARE, &callers.to_string()]).args(names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn one_caller(group: &Group, client: &Client) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // They take turns, so that other work of the machine slows both.
    for number in 0..TIMES {
        ours.extend(timed(1, |_| drop(create(group, client, &format!("single-{number}")))));
        theirs.push(bare(group.cluster, 1, &[format!("single-{}-{number}", group.name)]));
    }
    let (ours, theirs) = (percentile(&ours, 50), percentile(&theirs, 50));
    figure("CreateVolume, one caller, median", format!("{:.1} ms", ours * 1e3), "≤ 20 ms");
    figure("  `fs subvolume create` by one connection", format!("{:.1} ms", theirs * 1e3), "");
    figure("  ratio", format!("{:.2}", ours / theirs), "");
}

fn many_callers(group: &Group, daemon: &Daemon) {
    const ROUNDS: usize = 4;
    let rate = |seconds: f64| format!("{:.0} /s", COUNT as f64 / seconds);
    let (mut ours, mut theirs) = (0.0, 0.0);
    let ids = Mutex::new(Vec::new());
    let all = names("many", COUNT);
    for part in all.chunks(COUNT / ROUNDS) {
        let bare_names: Vec<String> = part.iter().map(|name| format!("{name}-{}", group.name)).collect();
        theirs += bare(group.cluster, CALLERS, &bare_names);
        ours += all_at_once(daemon, CALLERS, part, |client, name| {
            let id = create(group, client, name);
            ids.lock().unwrap().push(id);
        });
    }
    figure("CreateVolume, 16 callers", rate(ours), "");
    figure("  times as fast as `fs subvolume create`", format!("{:.2}", theirs / ours), "≥ 0.9");
    let again = all_at_once(daemon, CALLERS, &all, |client, name| drop(create(group, client, name)));
    figure("  the same again", rate(again), "≥ 400 /s");
    let gone = all_at_once(daemon, CALLERS, &ids.into_inner().unwrap(), |client, id| {
        drop(client.delete_volume(&requests::delete(id)).unwrap());
    });
    figure("DeleteVolume, 16 callers", rate(gone), "");
}

fn a_long_list(group: &Group, daemon: &Daemon) {
    let client = daemon.client();
    let volumes = || client.list_volumes(&requests::page(0, "")).unwrap().entries.len();
    let more = names("listed", LISTED.saturating_sub(volumes()));
    all_at_once(daemon, CALLERS, &more, |client, name| drop(create(group, client, name)));
    let times = timed(5, |_| assert!(volumes() >= LISTED));
    figure("500 volumes listed, median", format!("{:.3} s", percentile(&times, 50)), "≤ 3 s");
}

/// The processes of each rpc without a session.
fn commands(group: &Group) -> Vec<Started> {
    let daemon = group.setup_of(2).set("CEPHLET_SESSION", "off").start();
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count = |name: &'static str, rpc: &mut dyn FnMut()| found.push(started_by(&daemon, name, rpc));
    let (mut volume, mut taken) = (String::new(), String::new());
    count("CreateVolume", &mut || volume = create(group, &client, "life"));
    count("CreateVolume, again", &mut || drop(create(group, &client, "life")));
    let publication = group.publication(&volume, "node-1");
    count("ControllerPublishVolume", &mut || drop(client.controller_publish_volume(&publication).unwrap()));
    count("ControllerGetVolume", &mut || {
        drop(client.controller_get_volume(&requests::get(&volume)).unwrap());
    });
    count("ControllerExpandVolume", &mut || {
        drop(client.controller_expand_volume(&requests::expand(&volume, 2048 * MIB)).unwrap());
    });
    count("ControllerUnpublishVolume", &mut || {
        drop(client.controller_unpublish_volume(&requests::unpublish_from(&volume, "node-1")).unwrap());
    });
    count("CreateSnapshot", &mut || {
        let reply = client.create_snapshot(&requests::snapshot("life", &volume)).unwrap();
        taken = reply.snapshot.unwrap().snapshot_id;
    });
    count("DeleteSnapshot", &mut || {
        drop(client.delete_snapshot(&requests::delete_snapshot(&taken)).unwrap());
    });
    count("ListVolumes", &mut || drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("DeleteVolume", &mut || drop(client.delete_volume(&requests::delete(&volume)).unwrap()));
    found
}
