//! The key of the cluster's user is shown nowhere while volumes come and go.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

use cephlet::proto::csi_v1 as wire;

use super::scene::{Scene, device};
use crate::support::Daemon;
use crate::support::requests::*;

/// Looks at the command line and environment of every process and at what the driver was told, until it is
/// stopped.
pub struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Watch {
    pub fn start(keys: Vec<String>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = spawn(move || {
            let mut found = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                found.extend(
                    shown()
                        .into_iter()
                        .filter(|path| has_key(path, &keys))
                        .map(|path| path.display().to_string()),
                );
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            found
        });
        Self { over, thread }
    }

    pub fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it looked")
    }
}

fn shown() -> Vec<PathBuf> {
    let list = |path: &str| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_processes = list("/proc")
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit()));
    let of_processes = of_processes.flat_map(|path| [path.join("cmdline"), path.join("environ")]);
    of_processes.chain(list("/sys/bus/rbd/devices").map(|path| path.join("config_info"))).collect()
}

fn has_key(path: &Path, keys: &[String]) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    keys.iter().any(|key| bytes.windows(key.len()).any(|window| window == key.as_bytes()))
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(kind) if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    };
    entries.flat_map(below).collect()
}

#[test]
#[ignore = "long: tests/run --full"]
fn no_key_is_shown_anywhere() {
    let scene = Scene::new();
    let keys = ["cephlet", "cephlet-node"].map(|user| scene.cluster().key(user).trim().to_string()).to_vec();
    let watch = Watch::start(keys.clone());
    for (name, mounter) in [("one", "rbd"), ("two", "rbd-nbd")] {
        let mut volume = scene.make(wire::CreateVolumeRequest {
            parameters: map(&[("mounter", mounter)]),
            secrets: map(&[("userID", "cephlet"), ("userKey", &keys[0])]),
            ..volume_as(name, 32 << 20, mount("ext4"))
        });
        volume = scene.publish_to_node(volume, false);
        scene.stage(&volume, "stage").expect("stage");
        scene.publish(&volume, "stage", "target").expect("publish");
        if mounter != "rbd-nbd" {
            device(&volume);
        }
        scene.retire(&volume, &["target"], &["stage"]);
    }
    let found = watch.end();
    assert!(found.is_empty(), "{found:?}");
    for daemon in [&scene.controller, &scene.node] {
        assert_is_told_no(&keys, daemon);
    }
    scene.assert_clean();
}

/// Asserts that a daemon has written none of these keys to its log or a file.
#[track_caller]
pub fn assert_is_told_no(keys: &[String], daemon: &Daemon) {
    assert!(keys.iter().all(|key| daemon.log.lines_with(key).is_empty()), "in the log");
    let told: Vec<_> = files_below(&daemon.path("")).into_iter().filter(|path| has_key(path, keys)).collect();
    assert!(told.is_empty(), "{told:?}");
}
