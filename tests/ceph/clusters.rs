//! Several Ceph clusters at once, one that hangs, one without credentials of its own.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use cephlet::proto::csi_v1 as wire;
use rustix::process::Signal;

use crate::support::corner::{self, unused_name};
use crate::support::raw::call_within;
use crate::support::requests::*;
use crate::support::{Client, Cluster, Code, Daemon, MIB, Scratch, Setup, await_that, cluster, refused};

/// A cluster in the clusters file, without the namespaces of other tests.
fn entry(name: &str, cluster: &Cluster) -> String {
    let entry = corner::entry(name, cluster, "cephlet");
    format!("{entry}pools = [\"second\"]\nnamespaces = [\"\"]\n")
}

/// A daemon with this clusters file.
fn start(file: &str) -> Daemon {
    let scratch = Arc::new(Scratch::new());
    let path = scratch.path("clusters.toml");
    fs::write(&path, file).expect("write the file");
    Setup::within(scratch).set("CEPHLET_CLUSTERS", path.display()).start()
}

fn volume_in(name: &str, cluster: &str) -> wire::CreateVolumeRequest {
    let parameters = map(&[("backend", "rbd"), ("cluster", cluster), ("pool", "second")]);
    wire::CreateVolumeRequest { parameters, ..volume_as(name, 8 * MIB, block()) }
}

fn listed(client: &Client) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for entry in client.list_volumes(&page(0, "")).expect("list").entries {
        ids.push(entry.volume.volume_id.clone());
    }
    ids
}

/// The calls that work while the monitor of cluster "other" stands still.
fn one_hangs(client: &Client, monitors: &str) {
    std::thread::scope(|scope| {
        // More calls than workers; all about volumes of the cluster that hangs.
        let requests = (0..12).map(|number| volume_in(&format!("stuck-{number}"), "other"));
        let stuck: Vec<_> =
            requests.map(|request| scope.spawn(move || client.create(&request).map(drop))).collect();
        let listing = scope.spawn(|| client.list_volumes(&page(0, "")).map(drop));
        for _ in 0..5 {
            assert!(client.is_ready());
        }
        let beside = volume_in(&unused_name("beside"), "one");
        let made = client.create(&beside).expect("the other cluster works");
        assert!(stuck.iter().any(|it| !it.is_finished()), "no call waited for the cluster that hangs");
        client.delete_volume(&delete(&made.volume_id)).expect("delete");
        for answer in stuck {
            let said = answer.join().expect("a client").expect_err("the cluster hangs");
            assert!(matches!(said.code, Code::DEADLINE_EXCEEDED | Code::UNAVAILABLE), "{said:?}");
            assert!(said.message.contains("\"other\"") && said.message.contains(monitors), "{said:?}");
        }
        let said = listing.join().expect("a client").expect_err("the cluster hangs");
        assert!(said.message.contains("\"other\""), "{said:?}");
    });
}

#[test]
fn two_clusters_and_one_that_hangs() {
    let other = Cluster::start();
    let daemon = start(&[entry("one", cluster()), entry("other", &other)].concat());
    let client = daemon.client();
    let twin = unused_name("twin");
    let [one, two] =
        ["one", "other"].map(|name| client.create(&volume_in(&twin, name)).expect("create").volume_id);
    assert!(one.starts_with("rbd:one:second::") && two.starts_with("rbd:other:second::"), "{one} {two}");
    assert_eq!(crate::support::object_of(&one), crate::support::object_of(&two));
    assert!(other.rbd(&["ls", "second"]).contains(crate::support::object_of(&two)));
    let all = listed(&client);
    assert!(all.contains(&one) && all.contains(&two), "{all:?}");
    let missing = wire::CreateVolumeRequest { parameters: map(&[("backend", "rbd")]), ..volume_in("x", "") };
    refused(client.create(&missing), Code::INVALID_ARGUMENT, &["\"cluster\"", "one, other"]);
    let abroad = from_volume(volume_in("abroad", "other"), &one);
    refused(client.create(&abroad), Code::INVALID_ARGUMENT, &["a copy stays in its source's cluster"]);

    // Sessions go on without monitors, as far as they have connections.
    let paused = [other.pause("mon"), other.pause("osd")];
    one_hangs(&client, &other.mon_host());
    drop(paused);
    await_that("the cluster goes on", || {
        client.create(&volume_in("stuck-0", "other")).map_err(|refused| refused.message)
    });
    assert_eq!(client.create(&volume_in(&twin, "other")).expect("as before").volume_id, two);
    daemon.assert_well();
}

#[test]
fn a_call_ends_with_its_own_deadline() {
    use protobuf::Message;
    let own = Cluster::start();
    let daemon = start(&entry("slow", &own));
    let client = daemon.client();
    client.create(&volume_in("early", "slow")).expect("create");
    let _paused = own.pause("osd");
    let bytes = volume_in("late", "slow").write_to_bytes().expect("encodes");
    let deadline = Duration::from_secs(10);
    let answer = call_within(&client.channel, "/csi.v1.Controller/CreateVolume", bytes, deadline);
    refused(answer, Code::DEADLINE_EXCEEDED, &[]);
    // The client's own deadline gives this code in any case. The log shows that the daemon gave up, too.
    let ended = daemon.log.await_lines("CreateVolume", 2).remove(1);
    assert!(ended.contains("DEADLINE_EXCEEDED"), "{ended}");
    assert!(client.is_ready());
}

#[test]
fn a_broken_file_keeps_the_old_clusters() {
    let daemon = start(&entry("main", cluster()));
    let client = daemon.client();
    let [kept, new] = ["kept", "new"].map(unused_name);
    let made = client.create(&volume_in(&kept, "main")).expect("create");
    fs::write(daemon.path("clusters.toml"), "[cluster.main\n").expect("write the file");
    daemon.signal(Signal::HUP);
    daemon.log.await_lines("the clusters stay as they were", 1);
    assert_eq!(client.create(&volume_in(&kept, "main")).expect("as before"), made);
    assert!(client.is_ready());
    let both = [entry("main", cluster()), entry("again", cluster())].concat();
    fs::write(daemon.path("clusters.toml"), both).expect("write the file");
    daemon.signal(Signal::HUP);
    daemon.log.await_lines("cluster \"again\"", 1);
    client.create(&volume_in(&new, "again")).expect("the new cluster works");
}

#[test]
fn an_entry_that_is_wrong_disables_that_cluster_only() {
    let wrong =
        "[cluster.wrong]\nmonitors = \"127.0.0.1:1\"\nuser = \"cephlet\"\nkey_file = \"/nonexistent/key\"\n";
    let daemon = start(&[&entry("main", cluster()), wrong].concat());
    let client = daemon.client();
    client.create(&volume_in(&unused_name("well"), "main")).expect("create");
    refused(client.create(&volume_in("x", "wrong")), Code::UNAVAILABLE, &["\"wrong\"", "/nonexistent/key"]);
    assert!(client.is_ready());
}

#[test]
fn a_cluster_without_credentials_serves_requests_that_bring_some() {
    let cluster = cluster();
    let daemon = start(&format!("[cluster.main]\nmonitors = {:?}\n", cluster.mon_vector()));
    let client = daemon.client();
    let [tenant, tenants, copy] = ["tenant", "tenants", "copy"].map(unused_name);
    let parts = ["\"main\"", "userID", "userKey", "key_file"];
    refused(client.create(&volume_in(&tenant, "main")), Code::UNAUTHENTICATED, &parts);
    let secrets = map(&[("userID", "cephlet"), ("userKey", &cluster.key("cephlet"))]);
    let request = wire::CreateVolumeRequest { secrets: secrets.clone(), ..volume_in(&tenant, "main") };
    let id = client.create(&request).expect("create").volume_id;
    refused(client.delete_volume(&delete(&id)), Code::UNAUTHENTICATED, &parts);
    let expand = wire::ControllerExpandVolumeRequest { secrets: secrets.clone(), ..expand(&id, 16 * MIB) };
    assert_eq!(client.controller_expand_volume(&expand).expect("expand").capacity_bytes, 16 * MIB);
    let publish =
        wire::ControllerPublishVolumeRequest { secrets: secrets.clone(), ..publish_to(&id, "node-1") };
    client.controller_publish_volume(&publish).expect("publish");
    // Nomad does not send the secrets again. It may repeat the call if the first answer is lost.
    for _ in 0..2 {
        client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");
    }
    let publish =
        wire::ControllerPublishVolumeRequest { secrets: secrets.clone(), ..publish_to(&id, "node-2") };
    client.controller_publish_volume(&publish).expect("it moves");
    client.controller_unpublish_volume(&unpublish_from(&id, "node-2")).expect("unpublish");
    assert!(!daemon.log.text().contains(&cluster.key("cephlet")), "UNSAFE: the key is in the log");
    let take = wire::CreateSnapshotRequest { secrets: secrets.clone(), ..snapshot(&tenants, &id) };
    let taken = client.create_snapshot(&take).expect("snapshot").snapshot.snapshot_id.clone();
    let copy = wire::CreateVolumeRequest {
        secrets: secrets.clone(),
        ..from_snapshot(volume_in(&copy, "main"), &taken)
    };
    let copy = wire::CreateVolumeRequest { capacity_range: range(16 * MIB, 0), ..copy };
    let copy = client.create(&copy).expect("copy").volume_id;
    let drop_snapshot = wire::DeleteSnapshotRequest { secrets: secrets.clone(), ..delete_snapshot(&taken) };
    client.delete_snapshot(&drop_snapshot).expect("delete the snapshot");
    for id in [&id, &copy] {
        let request = wire::DeleteVolumeRequest { secrets: secrets.clone(), ..delete(id) };
        client.delete_volume(&request).expect("delete");
    }
    assert!(listed(&client).is_empty(), "without credentials there is no list");
    assert!(client.is_ready());
}

#[test]
fn what_is_in_a_cluster_that_is_not_set_up_is_not_gone() {
    let other = entry("other", cluster());
    let daemon = start(&[entry("main", cluster()), other.clone()].concat());
    let client = daemon.client();
    let made = client.create(&volume_in(&unused_name("stays"), "main")).expect("create");
    let snapshot = client.create_snapshot(&snapshot("of-it", &made.volume_id)).expect("snapshot").snapshot;
    client.controller_publish_volume(&publish_to(&made.volume_id, "node-1")).expect("publish");
    let path = daemon.path("clusters.toml");
    let all = fs::read_to_string(&path).expect("the file");
    fs::write(&path, other).expect("write the file");
    daemon.signal(Signal::HUP);
    let parts = ["\"main\"", "not set up"];
    await_that("the cluster is forgotten", || match client.controller_get_volume(&get(&made.volume_id)) {
        Err(error) if error.code == Code::FAILED_PRECONDITION => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    let unpublish = unpublish_from(&made.volume_id, "node-1");
    refused(client.controller_unpublish_volume(&unpublish), Code::FAILED_PRECONDITION, &parts);
    refused(client.delete_volume(&delete(&made.volume_id)), Code::FAILED_PRECONDITION, &parts);
    let delete_snapshot = delete_snapshot(&snapshot.snapshot_id);
    refused(client.delete_snapshot(&delete_snapshot), Code::FAILED_PRECONDITION, &parts);
    fs::write(&path, all).expect("write the file");
    daemon.signal(Signal::HUP);
    await_that("the cluster is back", || {
        client.controller_unpublish_volume(&unpublish).map(drop).map_err(|error| format!("{error:?}"))
    });
    client.delete_snapshot(&delete_snapshot).expect("delete the snapshot");
    client.delete_volume(&delete(&made.volume_id)).expect("delete");
    assert!(!listed(&client).contains(&made.volume_id));
}
