//! Mistakes of the operator of CephFS are reported so that the operator can correct them.

use std::fs;

use cephlet::proto::csi_v1 as wire;

use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Client, Code, Group, Place, refused};

/// A key of the right form, which no user has.
const WRONG_KEY: &str = "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==";

/// Every call that asks the cluster, about this volume if it is about one.
fn every_call(client: &Client, group: &Group, id: &str) -> Vec<(&'static str, Answer<()>)> {
    vec![
        ("create", client.create(&group.volume("refused", 8)).map(drop)),
        ("get", client.controller_get_volume(&get(id)).map(drop)),
        ("expand", client.controller_expand_volume(&expand(id, 64 << 20)).map(drop)),
        ("publish", client.controller_publish_volume(&group.publication(id, "node-1")).map(drop)),
        ("snapshot", client.create_snapshot(&snapshot("refused", id)).map(drop)),
        ("clone", client.create(&from_volume(group.volume("refused-clone", 8), id)).map(drop)),
        ("delete", client.delete_volume(&delete(id)).map(drop)),
        ("list", client.list_volumes(&page(0, "")).map(drop)),
        ("capacity", client.get_capacity(&wire::GetCapacityRequest::default()).map(drop)),
    ]
}

/// A group with a volume.
fn with_volume() -> (Group, String) {
    let group = Group::new();
    let made = group.start().client().create(&group.volume("one", 8)).expect("create");
    (group, made.volume_id)
}

#[test]
fn a_wrong_key_is_refused() {
    let (group, id) = with_volume();
    let setup = group.setup_of(2);
    let (keyring, clusters) = (setup.scratch.path("keyring"), setup.scratch.path("clusters.toml"));
    fs::write(&keyring, format!("[client.cephlet-fs]\n\tkey = {WRONG_KEY}\n")).expect("write the keyring");
    let conf = group.cluster.conf();
    let entry = format!("[cluster.main]\nconf = {conf:?}\nuser = \"cephlet-fs\"\nkeyring = {keyring:?}\n");
    fs::write(&clusters, entry).expect("write the file");
    let daemon = setup.start();
    for (what, answer) in every_call(&daemon.client(), &group, &id) {
        let failure = answer.expect_err(what);
        assert_eq!(failure.code, Code::UNAUTHENTICATED, "{what}: {failure:?}");
        assert!(failure.message.contains("ceph auth get client.cephlet-fs"), "{what}: {failure:?}");
        assert!(!failure.message.contains(WRONG_KEY), "{what}: {failure:?}");
    }
    assert!(!daemon.log.text().contains(WRONG_KEY));
    assert_eq!(group.subvolumes().len(), 1);
}

/// The users for nodes and for RBD are those that an operator confuses with the right one.
#[test]
fn a_user_without_the_rights_is_told_which_it_needs() {
    let (group, id) = with_volume();
    for user in ["cephlet-fs-node", "cephlet"] {
        let daemon = group.setup_as(2, user).start();
        for (what, answer) in every_call(&daemon.client(), &group, &id) {
            // The first may ask for space, and the second, which has no file system, lists none.
            let Err(failure) = answer else {
                assert!(["list", "capacity"].contains(&what), "{what} as {user} was not refused");
                continue;
            };
            assert_eq!(failure.code, Code::FAILED_PRECONDITION, "{what} as {user}: {failure:?}");
            for part in [&format!("client.{user}")[..], "namespace=cephlet", "cephlet-cephfs(7)"] {
                assert!(failure.message.contains(part), "{what} as {user}: no {part} in {failure:?}");
            }
        }
    }
    assert_eq!(group.subvolumes().len(), 1);
}

#[test]
fn names_that_are_not_there_or_cannot_be_are_refused() {
    let (group, id) = with_volume();
    let daemon = group.start();
    let client = daemon.client();
    let elsewhere = id.replace(":main:cephfs:", ":main:nowhere:");
    let calls = every_call(&client, &group, &elsewhere);
    for (what, answer) in calls.into_iter().filter(|(what, _)| !["create", "list", "capacity"].contains(what))
    {
        let failure = answer.expect_err(what);
        assert!(
            [Code::FAILED_PRECONDITION, Code::INVALID_ARGUMENT].contains(&failure.code),
            "{what}: {failure:?}"
        );
        assert!(failure.message.contains("\"nowhere\""), "{what}: {failure:?}");
    }
    for (key, value) in
        [("fsName", "."), ("subvolumeGroup", "a/b"), ("subvolumeGroup", "_nogroup"), ("pool", "..")]
    {
        let request = group.volume_with("other", 8, &[(key, value)]);
        refused(client.create(&request), Code::INVALID_ARGUMENT, &[key, value, "letter or digit in front"]);
    }
    let long = group.volume_with("other", 8, &[("subvolumeGroup", &"g".repeat(80)[..])]);
    refused(client.create(&long), Code::INVALID_ARGUMENT, &["use shorter names"]);
    // The one that every call was about, and the one that `create` among them has made.
    assert_eq!(group.subvolumes().len(), 2, "UNSAFE: bad input made something");
}
