//! What a network fence does to the kernel's mappings of a host.

use std::fs;
use std::process::Command;

use super::scene::{Scene, fill};
use crate::support::addons::Client;
use crate::support::machine::{checksum, run, text};
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

    // What was mapped is given back before the host is let in again.
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
