//! Volumes and snapshots by their names, with several backends beside each other.

use std::sync::Arc;

use serde_json::Value;

use crate::support::cli::{command, done, json, refused};
use crate::support::corner::entry;
use crate::support::{Cluster, Daemon, Setup};

/// A daemon with every backend, and a cluster of its own: names are looked for in the usual pools, which all
/// other tests use.
fn start() -> (Cluster, Daemon) {
    let cluster = Cluster::start();
    let setup = Setup::new();
    let file = setup.scratch.path("clusters.toml");
    std::fs::write(&file, entry("main", &cluster, "admin")).expect("write the file");
    let daemon =
        setup.set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "local,rbd,cephfs").start();
    (cluster, daemon)
}

fn names(list: &Value) -> Vec<&str> {
    let volumes = list.as_array().expect("an array");
    let mut names: Vec<&str> =
        volumes.iter().map(|volume| volume["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_list_has_the_names_of_volumes_and_goes_on_without_a_cluster_that_is_away() {
    let (cluster, scratch) = (Cluster::start(), Setup::new().scratch);
    let file = scratch.path("clusters.toml");
    let there = entry("main", &cluster, "admin");
    std::fs::write(&file, &there).expect("write the file");
    let start = |session| {
        let setup = Setup::within(Arc::clone(&scratch)).set("CEPHLET_CLUSTERS", file.display());
        setup.set("CEPHLET_BACKENDS", "local,rbd,cephfs").set("CEPHLET_SESSION", session).start()
    };
    let mut daemon = start("auto");
    for (name, backend) in [("web", "rbd"), ("A_long_name_of_an_image", "rbd"), ("Files", "cephfs")] {
        done(&daemon, &format!("volume create {name} --size 32M --parameter backend={backend}"));
    }
    daemon.restart();
    let list = json(&daemon, "volume list");
    assert_eq!(names(&list), ["A_long_name_of_an_image", "Files", "web"], "the daemon has only just started");

    let keyring = cluster.keyring("admin");
    let away =
        format!("[cluster.away]\nmonitors = \"127.0.0.1:1\"\nuser = \"admin\"\nkeyring = {keyring:?}\n");
    std::fs::write(&file, there + &away).expect("write the file");
    daemon.restart();
    let output = command(&daemon, "volume list --json", "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(6) && said.contains("\"away\""), "{} {said}", output.status);
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), list);

    // Without a session a name costs a process: what its object does not tell is listed by that object.
    daemon.terminate();
    std::fs::write(&file, entry("main", &cluster, "admin")).expect("write the file");
    let daemon = start("off");
    let shown = json(&daemon, "volume list");
    let objects: Vec<&str> = names(&shown).into_iter().filter(|name| name.starts_with("csi-vol-")).collect();
    let [object] = objects[..] else { panic!("{shown}") };
    assert!(object.starts_with("csi-vol-a-long-name-of-a-"), "{object}");
    let id = json(&daemon, &format!("volume show {object}"))["id"].clone();
    assert!(list.as_array().is_some_and(|all| all.iter().any(|volume| volume["id"] == id)), "{list}");
}

#[test]
fn a_name_means_one_volume_or_the_ids_of_all_that_have_it() {
    let (_cluster, daemon) = start();
    let image = done(&daemon, "volume create web --size 32M --parameter backend=rbd");
    assert_eq!(json(&daemon, "volume show web")["id"], image.as_str());
    let tree = done(
        &daemon,
        "volume create web --size 32M --parameter backend=cephfs --parameter subvolumeGroup=team",
    );
    let (status, said) = refused(&daemon, "volume delete web");
    assert!(status == 5 && said.contains(&image) && said.contains(&tree), "{status} {said}");
    assert_eq!(json(&daemon, "volume show web --parameter backend=cephfs")["id"], tree.as_str());
    assert_eq!(json(&daemon, "volume show web --parameter backend=rbd")["id"], image.as_str());

    let elsewhere =
        done(&daemon, "volume create db --size 32M --parameter backend=rbd --parameter pool=second");
    let (status, said) = refused(&daemon, "volume show db");
    assert!(status == 3 && said.contains("--parameter pool="), "{status} {said}");
    assert_eq!(json(&daemon, "volume show db --parameter pool=second")["id"], elsewhere.as_str());

    for backend in ["rbd", "cephfs"] {
        let place = format!("--parameter backend={backend}");
        let taken = done(&daemon, &format!("snapshot create web before-{backend} {place}"));
        assert_eq!(
            json(&daemon, &format!("snapshot show web@before-{backend} {place}"))["id"],
            taken.as_str()
        );
        done(&daemon, &format!("snapshot delete web@before-{backend} {place}"));
        done(&daemon, &format!("volume delete web {place}"));
    }
    done(&daemon, "volume delete db --parameter pool=second");
    assert_eq!(done(&daemon, "volume list"), "");
    daemon.assert_well();
}
