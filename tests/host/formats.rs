//! Later versions read what cephlet 0.2.0 has written. The fixture is its directories after the machine lost
//! power while the operator had a volume published.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::support::requests::*;
use crate::support::{MIB, Scratch, Setup};

const SIZE: i64 = 16 * MIB;
const VOLUME: &str = "local:node-1:::csi-vol-web-zlbmmhb5qexfj:09fd46f8f7ceb05f";
const SNAPSHOT: &str = "local:node-1:::09fd46f8f7ceb05f@et4euqvgsgabj-znh3h4ig";

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
        for object in fs::read_dir(local.join(kind)).expect("objects").map(|entry| entry.expect("an object"))
        {
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
    let daemon = Setup::within(scratch).start();
    let client = daemon.client();
    let volumes = client.list_volumes(&page(0, "")).expect("list").entries;
    let [listed] = volumes.as_slice() else { panic!("{volumes:?}") };
    let id = listed.volume.volume_id.clone();
    assert_eq!((id.as_str(), listed.volume.capacity_bytes), (VOLUME, SIZE));
    daemon.log.await_lines("was in use before this boot; its 1 paths are gone", 1);
    assert!(listed.status.published_node_ids.is_empty(), "the operator publishes it again");
    assert_eq!(client.create(&volume_as("web", SIZE, block())).expect("again").volume_id, id);
    let taken = client.create_snapshot(&snapshot("nightly", &id)).expect("again");
    assert_eq!(taken.snapshot.snapshot_id, SNAPSHOT);
    client.delete_snapshot(&delete_snapshot(SNAPSHOT)).expect("delete the snapshot");
    client.delete_volume(&delete(&id)).expect("delete");
    daemon.assert_node_is_clean();
}
