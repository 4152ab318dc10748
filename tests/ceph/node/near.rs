//! Reads from the OSDs that are nearest to the node: what the kernel's driver is told.

use std::fs;

use super::scene::{Scene, by_file, driver_options};
use crate::support::requests::*;
use crate::support::{Setup, cluster};

const NEAR: &str = "read_from_replica=localize,crush_location=zone:eu-1|rack:r7";

fn in_eu_1(node: Setup) -> Setup {
    node.set("CEPHLET_TOPOLOGY", "zone=eu-1,rack=r7")
}

/// The driver's options of a volume in use. The data that is written to it must be readable.
fn options(scene: &Scene, parameters: &[(&str, &str)]) -> String {
    let volume = scene.use_volume("one", 32, mount("ext4"), parameters);
    fs::write(scene.path("target/file"), "content").expect("write");
    let options = driver_options(&volume);
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    scene.stage(&volume, "stage").expect("stage again");
    scene.publish(&volume, "stage", "target").expect("publish again");
    assert_eq!(fs::read_to_string(scene.path("target/file")).expect("read"), "content");
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
    options
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_kernel_reads_near_where_the_cluster_says_so() {
    let keyring = cluster().keyring("cephlet-node");
    let settings = format!("user = 'cephlet-node'\nkeyring = {keyring:?}\nreadAffinity = true\n");
    let scene = Scene::of_node(|node| in_eu_1(by_file(node, &settings)));
    let told = options(&scene, &[]);
    assert!(told.contains(NEAR), "{told}");
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_kernel_reads_near_where_the_volume_says_so() {
    let scene = Scene::of_node(in_eu_1);
    let told = options(&scene, &[("mapOptions", "krbd:read_from_replica=localize")]);
    assert!(told.contains("read_from_replica=localize"), "{told}");
    assert!(told.contains("crush_location=zone:eu-1|rack:r7"), "{told}");
    assert!(!options(&scene, &[]).contains("read_from_replica"), "only where it is asked for");
}
