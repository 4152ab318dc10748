//! Volumes of Ceph clusters page by page, one by one with their condition, and the room for more of them.

use std::collections::BTreeSet;

use cephlet::proto::csi_v1 as wire;
use cephlet::proto::csi_v1::controller_service_capability::rpc::Type;

use super::shared::setup;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, MIB, await_that, cluster, refused};

fn create(corner: &Corner, client: &Client, names: std::ops::Range<usize>) -> BTreeSet<String> {
    names
        .map(|name| client.create(&corner.volume(&format!("v{name}"), 8)).expect("create").volume_id)
        .collect()
}

fn ids(reply: &wire::ListVolumesResponse) -> Vec<String> {
    reply.entries.iter().map(|entry| entry.volume.volume_id.clone()).collect()
}

/// All that follows the token, in pages of at most three.
fn rest(daemon: &Daemon, token: &str) -> Vec<String> {
    let (mut token, mut all) = (token.to_string(), Vec::new());
    loop {
        let reply = daemon.client().list_volumes(&page(3, &token)).expect("a page");
        assert!(reply.entries.len() <= 3);
        all.extend(ids(&reply));
        token = reply.next_token;
        if token.is_empty() {
            return all;
        }
    }
}

#[test]
fn every_volume_is_listed_once_even_after_a_restart() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    assert!(rest(&daemon, "").is_empty());
    let made = create(&corner, &daemon.client(), 0..7);
    corner.cluster.rbd(&["create", "--size", "8M", &corner.spec("by-hand")]);
    for _ in 0..2 {
        let told = rest(&daemon, "");
        assert_eq!((told.len(), told.into_iter().collect::<BTreeSet<_>>()), (7, made.clone()));
        let first = daemon.client().list_volumes(&page(3, "")).expect("first page");
        daemon.restart();
        let told = [ids(&first), rest(&daemon, &first.next_token)].concat();
        assert_eq!((told.len(), told.into_iter().collect::<BTreeSet<_>>()), (7, made.clone()));
    }
}

#[test]
fn a_list_says_what_the_creation_said() {
    let corner = Corner::new();
    let mut daemon = corner.start();
    let client = daemon.client();
    let source = client
        .create(&corner.volume_with("source", 8, &[("csi.storage.k8s.io/fstype", "xfs")]))
        .expect("create");
    let taken = client
        .create_snapshot(&snapshot("list-of", &source.volume_id))
        .expect("snapshot")
        .snapshot
        .snapshot_id
        .clone();
    let copy = client.create(&from_snapshot(corner.volume("copy", 8), &taken)).expect("copy");
    for _ in 0..2 {
        let listed = daemon.client().list_volumes(&page(0, "")).expect("list").entries;
        assert_eq!(listed.len(), 2);
        for made in [&source, &copy] {
            let entry =
                listed.iter().find(|entry| entry.volume.volume_id == made.volume_id).expect("it is listed");
            assert_eq!(entry.volume.as_ref(), Some(made));
            let condition = &entry.status.volume_condition;
            assert!(
                !condition.abnormal && condition.message.contains("ControllerGetVolume"),
                "{condition:?}"
            );
            let got = daemon.client().controller_get_volume(&get(&made.volume_id)).expect("get");
            assert_eq!(got.volume.as_ref(), Some(made));
        }
        daemon.restart();
    }
}

#[test]
fn pages_survive_what_comes_and_goes_between_them() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let made = create(&corner, &client, 0..9);
    let first = client.list_volumes(&page(3, "")).expect("first page");
    let told = ids(&first);
    // The last listed volume (the token's) and one that is still to come are deleted; others are made.
    let coming = made.iter().find(|id| !told.contains(id)).expect("six are to come").clone();
    for gone in [told.last().expect("three were told"), &coming] {
        client.delete_volume(&delete(gone)).expect("delete");
    }
    let new = create(&corner, &client, 9..14);
    let later = rest(&daemon, &first.next_token);
    assert!(told.iter().all(|id| !later.contains(id)), "told twice");
    let stayed: Vec<&String> = made.iter().filter(|id| !told.contains(id) && **id != coming).collect();
    assert!(
        stayed.iter().all(|id| later.iter().filter(|it| it == id).count() == 1),
        "left out or told twice"
    );
    assert!(later.iter().all(|id| new.contains(id) || stayed.contains(&id)), "told though it is gone");
    for token in ["x", "local:", "0"] {
        refused(client.list_volumes(&page(2, token)), Code::ABORTED, &["starting_token"]);
    }
}

#[test]
fn nodes_are_not_promised_in_lists_that_omit_them() {
    let daemon = Corner::new().start();
    let offered =
        daemon.client().controller_get_capabilities(&Default::default()).expect("capabilities").capabilities;
    let rpcs: Vec<i32> = offered.iter().map(|it| it.rpc().type_.value()).collect();
    let [condition, nodes] =
        [Type::VOLUME_CONDITION, Type::LIST_VOLUMES_PUBLISHED_NODES].map(|rpc| rpc as i32);
    assert!(rpcs.contains(&condition) && !rpcs.contains(&nodes), "{rpcs:?}");
}

/// The condition of a volume, if it is abnormal.
fn trouble(client: &Client, id: &str) -> Option<String> {
    let reply = client.controller_get_volume(&get(id)).expect("get");
    let condition = &reply.status.volume_condition;
    condition.abnormal.then(|| condition.message.clone())
}

#[test]
fn a_volume_that_is_gone_is_not_found_and_a_well_one_is_well() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let id = client.create(&corner.volume("one", 8)).expect("create").volume_id;
    assert_eq!(trouble(&client, &id), None);
    client.controller_publish_volume(&publish_to(&id, "node-7")).expect("publish");
    let reply = client.controller_get_volume(&get(&id)).expect("get");
    assert_eq!(reply.status.published_node_ids, ["node-7"]);
    corner.cluster.rbd(&["rm", "--no-progress", &corner.spec(&id)]);
    refused(client.controller_get_volume(&get(&id)), Code::NOT_FOUND, &[&id]);
}

/// The volumes that are not well, with their reasons.
fn unwell(client: &Client) -> Vec<(String, String)> {
    let (mut all, mut starting_token) = (Vec::new(), String::new());
    loop {
        let request = wire::ControllerListVolumeHealthRequest { starting_token, ..Default::default() };
        let page = client.controller_list_volume_health(&request).expect("a page");
        let reason = |it: wire::VolumeHealth| (it.volume_id, it.health_statuses[0].reason.clone());
        all.extend(page.entries.into_iter().map(reason));
        starting_token = page.next_token;
        if starting_token.is_empty() {
            return all;
        }
    }
}

/// A volume in a pool of its own, which is named after the volume.
fn in_own_pool(daemon: &Daemon, pool: &str) -> String {
    let cluster = cluster();
    cluster.ceph(&["osd", "pool", "create", pool, "1"]);
    cluster.rbd(&["pool", "init", pool]);
    let request = wire::CreateVolumeRequest {
        parameters: map(&[("pool", pool)]),
        ..volume_as(pool, 64 * MIB, block())
    };
    daemon.client().create(&request).expect("create").volume_id
}

/// Sets how many bytes a pool may have; 0 is no limit.
fn set_quota(pool: &str, bytes: &str) {
    cluster().ceph(&["osd", "pool", "set-quota", pool, "max_bytes", bytes]);
}

fn room(client: &Client, pool: &str) -> i64 {
    let request = wire::GetCapacityRequest { parameters: map(&[("pool", pool)]), ..Default::default() };
    client.get_capacity(&request).expect("capacity").available_capacity
}

#[test]
fn a_quota_counts_and_a_full_pool_shows() {
    // The user for controllers may use three pools only, so a pool that a test makes is for the admin.
    let corner = Corner::new();
    let (cluster, pool) = (corner.cluster, corner.namespace.as_str());
    let daemon = setup("admin", &["rbd", pool, "absent"], &[""]).start();
    let client = daemon.client();
    let id = in_own_pool(&daemon, pool);
    set_quota(pool, "16777216");
    await_that("the quota counts", || match room(&client, pool) {
        room if (15 * MIB..=16 * MIB).contains(&room) => Ok(()),
        room => Err(room.to_string()),
    });
    assert!(room(&client, "rbd") > 1 << 30);
    // A full pool would block its writer.
    set_quota(pool, "0");
    let object = id.split(':').nth(4).expect("the object");
    cluster.rbd(&[
        "bench",
        "--io-type",
        "write",
        "--io-size",
        "1M",
        "--io-total",
        "20M",
        &format!("{pool}/{object}"),
    ]);
    set_quota(pool, "16777216");
    let said = await_that("the full pool shows", || {
        trouble(&client, &id).filter(|it| it.contains("is full")).ok_or("well".into())
    });
    assert!(said.contains(&format!("{pool:?}")) && said.contains("quota"), "{said}");
    let seen = client.controller_get_volume_health(&health(&id)).expect("health").volume_health;
    assert_eq!(seen.health_statuses[0].reason, "PoolFull", "{seen:?}");
    // Other tests may have volumes that are not well in the shared pool.
    let others = setup("admin", &["rbd", pool], &[""]).start();
    let listed: Vec<_> = unwell(&others.client()).into_iter().filter(|(other, _)| *other == id).collect();
    assert_eq!(listed, [(id.clone(), "PoolFull".to_string())]);
    assert_eq!(room(&client, pool), 0);
    let absent = wire::GetCapacityRequest { parameters: map(&[("pool", "absent")]), ..Default::default() };
    refused(client.get_capacity(&absent), Code::FAILED_PRECONDITION, &["absent", "ceph osd pool create"]);
    full_pool_refuses(&client, pool, &id);
    set_quota(pool, "0");
    await_that("there is room again", || match room(&client, pool) {
        0 => Err("none".to_string()),
        _ => Ok(()),
    });
    // A pool needs a moment to notice that it has room again.
    await_that("it is deleted", || client.delete_volume(&delete(&id)).map_err(|refused| refused.message));
    cluster.ceph(&["osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it"]);
}

/// Changes in a full pool wait. The daemon ends them and names the cause, each within the client's patience.
fn full_pool_refuses(client: &Client, pool: &str, id: &str) {
    let mut number = 0;
    // OSDs learn of it a moment later than monitors.
    let refusal = await_that("the OSDs know that the pool is full", || {
        number += 1;
        let parameters = map(&[("pool", pool)]);
        let volume = volume_as(&format!("more-{number}"), 8 * MIB, block());
        let made = client.create(&wire::CreateVolumeRequest { parameters, ..volume });
        made.err().ok_or_else(|| format!("{number} were made"))
    });
    for answer in [Err(refusal), client.delete_volume(&delete(id)).map(drop)] {
        refused(answer, Code::RESOURCE_EXHAUSTED, &[&format!("{pool:?}"), "quota"]);
    }
}
