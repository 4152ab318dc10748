//! What cephlet 0.2.0 has written is read by this version: its directories as they were after a machine lost
//! power with a volume in use.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, Scratch, Setup, refused};

const SIZE: i64 = 16 * MIB;
/// Where the volume was in use.
const TARGET: &str = "/nonexistent/cephlet/web";

/// Copies a directory of text files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make a directory");
    for entry in fs::read_dir(from).expect("read a directory").map(|entry| entry.expect("an entry")) {
        let to = to.join(entry.file_name());
        match entry.file_type().expect("its type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copy a file")),
        }
    }
}

/// The images, which are too large to be kept beside the test.
fn make_images(local: &Path) {
    for kind in ["volumes", "snapshots"] {
        for object in fs::read_dir(local.join(kind)).expect("objects").map(|entry| entry.expect("an object")) {
            let image = File::create(object.path().join("image")).expect("make an image");
            image.set_len(u64::try_from(SIZE).expect("a size")).expect("give it its size");
        }
    }
}

#[test]
fn what_0_2_0_has_written_is_read() {
    let scratch = Arc::new(Scratch::new());
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/0.2.0");
    for directory in ["state", "local"] {
        copy(&fixture.join(directory), &scratch.path(directory));
    }
    make_images(&scratch.path("local"));
    let daemon = Setup::within(scratch).set("CEPHLET_NODE_ID", "node-1").start();
    let client = daemon.client();
    let volumes = client.list_volumes(&page(0, "")).expect("list").entries;
    let [listed] = volumes.as_slice() else { panic!("{volumes:?}") };
    let id = listed.volume.volume_id.clone();
    assert_eq!((id.as_str(), listed.volume.capacity_bytes), (VOLUME, SIZE));
    assert_eq!(listed.status.published_node_ids, ["node-1"]);
    assert_eq!(client.create(&volume_as("web", SIZE, block())).expect("again").volume_id, id);
    let taken = client.create_snapshot(&snapshot("nightly", &id)).expect("again");
    assert_eq!(taken.snapshot.snapshot_id, SNAPSHOT);
    refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["node-1"]);
    client.node_unpublish_volume(&unpublish(&id, TARGET)).expect("it is known where it was in use");
    client.delete_snapshot(&delete_snapshot(SNAPSHOT)).expect("delete the snapshot");
    client.delete_volume(&delete(&id)).expect("delete");
    daemon.assert_node_is_clean();
}
