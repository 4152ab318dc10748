//! Volumes and snapshots by their names, with several backends beside each other.

use crate::support::cli::{done, json, refused};
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
