//! A key of a Ceph cluster goes from its file to the tools and nowhere else.

use std::path::Path;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::{run, text};
use crate::support::requests::*;
use crate::support::stub::{BEHIND, install};
use crate::support::{Client, Cluster, Corner, MIB, cluster};

/// A tool that writes what every user of the machine could see of it to a file of its own in `told`.
fn telling(tool: &str, told: &Path) -> String {
    format!(
        "#!/bin/sh\n{{ echo {tool} \"$@\"; /usr/bin/env; }} >> {}/$$\nPATH={BEHIND} exec {tool} \"$@\"\n",
        told.display()
    )
}

/// A volume's life, with these secrets in its requests.
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

/// Makes calls that fail; returns their messages, which may not show a key either.
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
    let setup = corner.setup().set("CEPHLET_LOG", "trace");
    let (tools, told) = (setup.scratch.dir("tools"), setup.scratch.dir("told"));
    for tool in ["rbd", "rados", "ceph"] {
        install(&tools.join(tool), &telling(tool, &told));
    }
    let mut daemon = setup.with_tools(format!("{}:{BEHIND}", tools.display())).start();
    let client = daemon.client();
    let secrets = map(&[("userID", "cephlet"), ("userKey", &cluster.key("cephlet"))]);
    live(&corner, &client, "own", &map(&[]));
    live(&corner, &client, "brought", &secrets);
    let said = fail(&corner, &client, cluster);
    let with_key = run("grep", &["-rlF", "-e", "--keyfile", text(&told)]);
    assert!(with_key.lines().count() > 10, "the tools told nothing: {with_key}");
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
