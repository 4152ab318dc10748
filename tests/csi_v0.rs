//! CSI 0.1, on the local backend with real mounts. Each test names the section of the specification whose MUST it looks at.

mod support;

use std::fs;

use support::Daemon;
use support::machine::{is_mounted, mount_at};
use support::v0::*;

#[test]
fn a_volume_lives_through_0_1() {
    let daemon = Daemon::start();
    let client = Client::of(&daemon);
    let made = client.create(&volume("one")).expect("create");
    let target = daemon.text("target");
    client.controller_publish_volume(&publish_to(&made.id, "node-1", mount("ext4"))).expect("publish to the node");
    client.publish(&publish(&made.id, &target, mount("ext4"))).expect("publish");
    assert_eq!(mount_at(&daemon.path("target")).expect("mounted").fs_type, "ext4");
    fs::write(daemon.path("target/file"), "data").expect("write");
    client.node_unpublish_volume(&unpublish(&made.id, &target)).expect("unpublish");
    assert!(!is_mounted(&daemon.path("target")) && daemon.path("target").is_dir());
    daemon.assert_node_is_clean();
    client.controller_unpublish_volume(&unpublish_from(&made.id, "node-1")).expect("take back");
    client.delete_volume(&delete(&made.id)).expect("delete");
    assert!(client.list().is_empty());
}
