//! What a network fence does to the kernel's mappings of a host.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::lost_nodes::write;
use super::scene::{Scene, fill};
use crate::support::addons::Client;
use crate::support::machine::{checksum, rbd_devices, run, text};
use crate::support::requests::*;
use crate::support::{Code, Setup, cluster, refused};

#[test]
#[ignore = "long: tests/run --full"]
fn a_fenced_host_does_not_write_and_comes_back() {
    let scene = Scene::alone();
    let fencing = Setup::new().on(cluster(), "cephlet-fence").set("CEPHLET_SERVICES", "controller").start();
    let fences = Client::of(&fencing);
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    let file = scene.path("target/file");
    fill(&file, 1_000_003);
    run("sync", &["-f", text(&file)]);
    let before = checksum(&file);

    let clients = Client::of(&scene.node).fence_clients().expect("this host's addresses");
    let [(fsid, addresses)] = clients.as_slice() else { panic!("one cluster: {clients:?}") };
    assert_eq!((fsid, addresses.len()), (&cluster().fsid(), 1));
    let own = [addresses[0].as_str()];
    refused(
        fences.fence(&own),
        Code::FAILED_PRECONDITION,
        &["allowSelf", addresses[0].trim_end_matches("/32")],
    );
    fences.fence_with(&[("allowSelf", "true")], &own).expect("fence");
    let more = text(&scene.path("target/more")).to_string();
    let written = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k", "count=1", "oflag=direct", "conv=fsync"])
        .arg(format!("of={more}"))
        .output()
        .expect("dd");
    assert!(!written.status.success(), "UNSAFE: a host that is shut out has written");
    assert_eq!(fences.fences().as_deref(), Ok(&own.map(String::from)[..]), "monitors speak with it");

    // The mappings are given back before the host is let in again.
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    fences.unfence(&own).expect("unfence");
    scene.stage(&volume, "stage").expect("stage anew");
    scene.publish(&volume, "stage", "target").expect("publish anew");
    assert_eq!(checksum(&file), before, "UNSAFE: what was written before is not there");
    fs::write(&more, "it writes again").expect("write");
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
    fencing.assert_well();
}

/// A host without cephlet: an image of this name, mapped by a client that claims to be at this address.
struct Stranger(PathBuf);

impl Stranger {
    #[track_caller]
    fn new(image: &str, address: &str) -> Self {
        cluster().rbd(&["create", "--size=16M", &format!("rbd/{image}")]);
        let (mon, key) = (cluster().mon_host(), cluster().key("admin"));
        let line = format!("{mon} name=admin,secret={},ip={address},noshare rbd {image} -", key.trim());
        fs::write("/sys/bus/rbd/add_single_major", line).expect("map it");
        Self(rbd_devices(image).pop().expect("its device"))
    }

    fn writes(&self) -> bool {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4k", "count=1", "oflag=direct", &format!("of={}", text(&self.0))]);
        dd.output().expect("dd").status.success()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let number = text(&self.0).trim_start_matches("/dev/rbd");
        let _ = fs::write("/sys/bus/rbd/remove_single_major", format!("{number} force"));
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn only_whose_address_is_fenced_is_shut_out_however_it_is_written() {
    let scene = Scene::alone();
    let fencing = Setup::new().on(cluster(), "cephlet-fence").set("CEPHLET_SERVICES", "controller").start();
    let fences = Client::of(&fencing);
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    let hosts = ["198.51.100.3", "2001:db8:7::3"];
    for (number, (host, spelling)) in [
        (0, "198.51.100.3"),
        (0, "198.51.100.3/32"),
        (0, "198.51.100.1/30"),
        (1, "2001:db8:7::3"),
        (1, "2001:0DB8:7:0::3/128"),
        (1, "2001:db8:7::ffff/64"),
    ]
    .into_iter()
    .enumerate()
    {
        // A mapping that was shut out stays shut out, so each round makes new ones.
        let other = Stranger::new(&format!("other-{number}"), hosts[1 - host]);
        let fenced = Stranger::new(&format!("fenced-{number}"), hosts[host]);
        assert!(other.writes() && fenced.writes(), "before {spelling}");
        fences.fence(&[spelling]).expect("fence");
        assert!(!fenced.writes(), "UNSAFE: {spelling}: a host that is shut out has written");
        assert!(other.writes(), "UNSAFE: {spelling}: another host is shut out");
        write(&scene, "target/file", spelling).expect("UNSAFE: this host is shut out");
        fences.unfence(&[spelling]).expect("unfence");
        assert_eq!(fences.fences().as_deref(), Ok(&[][..]), "{spelling}");
        drop(fenced);
        assert!(Stranger::new(&format!("again-{number}"), hosts[host]).writes(), "after {spelling}");
    }
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
    fencing.assert_well();
}
