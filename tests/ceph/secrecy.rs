//! A key of a Ceph cluster goes from its file to the tools and nowhere else.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::run;
use crate::support::requests::*;
use crate::support::{Client, Cluster, Corner, MIB, cluster};

/// Looks at the command lines of all processes until it is told to stop.
struct Scanner {
    keys: Vec<String>,
    over: AtomicBool,
    /// How often tools of Ceph were seen, so that it is known that it looked.
    seen: AtomicUsize,
}

impl Scanner {
    fn new(keys: &[String]) -> Self {
        Self { keys: keys.to_vec(), over: AtomicBool::new(false), seen: AtomicUsize::new(0) }
    }

    /// What was found: command lines and environments with a key in them.
    fn scan(&self) -> Vec<String> {
        let mut found = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            for process in fs::read_dir("/proc").expect("/proc is readable").flatten() {
                for file in ["cmdline", "environ"] {
                    let Ok(text) = fs::read(process.path().join(file)) else { continue };
                    let text = String::from_utf8_lossy(&text).replace('\0', " ");
                    self.seen.fetch_add(usize::from(text.contains("--keyfile")), Ordering::Relaxed);
                    if self.keys.iter().any(|key| text.contains(key)) {
                        found.push(text);
                    }
                }
            }
        }
        found
    }
}

/// A volume's life, told with these secrets.
fn live(corner: &Corner, client: &Client, name: &str, secrets: &std::collections::HashMap<String, String>) {
    let create = |name: &str, source: Option<&str>| {
        let request = corner.volume(name, 8);
        let request = source.map_or(request.clone(), |source| from_snapshot(request, source));
        client
            .create(&wire::CreateVolumeRequest { secrets: secrets.clone(), ..request })
            .expect("create")
            .volume_id
    };
    let id = create(name, None);
    let take =
        wire::CreateSnapshotRequest { secrets: secrets.clone(), ..snapshot(&format!("secret-{name}"), &id) };
    let taken = client.create_snapshot(&take).expect("snapshot").snapshot.snapshot_id.clone();
    let copy = create(&format!("{name}-copy"), Some(&taken));
    let publish =
        wire::ControllerPublishVolumeRequest { secrets: secrets.clone(), ..publish_to(&id, "node-1") };
    client.controller_publish_volume(&publish).expect("publish");
    client
        .controller_publish_volume(&wire::ControllerPublishVolumeRequest { readonly: true, ..publish })
        .expect_err("otherwise");
    client.controller_get_volume(&get(&id)).expect("get");
    client.list_volumes(&page(0, "")).expect("list");
    let back = wire::ControllerUnpublishVolumeRequest { secrets: secrets.clone(), ..unpublish_from(&id, "") };
    client.controller_unpublish_volume(&back).expect("unpublish");
    let grow = wire::ControllerExpandVolumeRequest { secrets: secrets.clone(), ..expand(&id, 16 * MIB) };
    client.controller_expand_volume(&grow).expect("expand");
    for id in [&id, &copy] {
        client
            .delete_volume(&wire::DeleteVolumeRequest { secrets: secrets.clone(), ..delete(id) })
            .expect("delete");
    }
    let drop_it = wire::DeleteSnapshotRequest { secrets: secrets.clone(), ..delete_snapshot(&taken) };
    client.delete_snapshot(&drop_it).expect("delete the snapshot");
}

/// Calls that fail, whose messages and log lines are as much as any.
fn fail(corner: &Corner, client: &Client, cluster: &Cluster) -> Vec<String> {
    let admin = cluster.key("admin");
    let wrong = |pairs: &[(&str, &str)]| {
        let request = wire::CreateVolumeRequest { secrets: map(pairs), ..corner.volume("fails", 8) };
        client.create(&request).expect_err("wrong secrets").message
    };
    vec![
        wrong(&[("userID", "cephlet"), ("userKey", &admin)]),
        wrong(&[("userID", &admin), ("userKey", &admin)]),
        wrong(&[("userID", "cephlet"), ("userKey", &admin[..admin.len() - 2])]),
        wrong(&[("userKey", &admin)]),
    ]
}

#[test]
fn a_key_is_nowhere() {
    let (cluster, corner) = (cluster(), Corner::new());
    let keys: Vec<String> =
        ["admin", "cephlet"].map(|user| cluster.key(user).trim_end_matches('=').to_string()).into();
    let scanner = Scanner::new(&keys);
    let setup = corner.setup().set("CEPHLET_LOG", "trace");
    let mut daemon = setup.start();
    let client = daemon.client();
    let secrets = map(&[("userID", "cephlet"), ("userKey", &cluster.key("cephlet"))]);
    let (found, said) = thread::scope(|scope| {
        let found = scope.spawn(|| scanner.scan());
        live(&corner, &client, "own", &map(&[]));
        live(&corner, &client, "brought", &secrets);
        let said = fail(&corner, &client, cluster);
        scanner.over.store(true, Ordering::Relaxed);
        (found.join().expect("the scanner"), said)
    });
    assert!(found.is_empty(), "{found:?}");
    assert!(scanner.seen.load(Ordering::Relaxed) > 10, "the scanner saw no tools");
    daemon.restart();
    assert!(daemon.terminate().success());
    for key in &keys {
        assert!(said.iter().all(|message| !message.contains(key)), "{said:?}");
        let lines = daemon.log.lines_with(key);
        assert!(lines.is_empty(), "in the log: {lines:?}");
        let found = run("sh", &["-c", &format!("grep -rlaF -e '{key}' {} || true", daemon.text(""))]);
        assert!(found.is_empty(), "in {found}");
    }
    corner.await_empty();
}
