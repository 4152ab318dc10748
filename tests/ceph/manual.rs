//! The manual recommends the users that the tests use.

use crate::support::{cluster, manual};

/// The users for CephFS, whose names here differ from those for RBD, and what they may do. Here a node may
/// mount any group, as each test has one of its own.
#[test]
fn the_users_of_the_tests_have_the_rights_that_are_recommended_for_cephfs() {
    let examples = manual::cephfs().join("");
    let commands = examples.lines().filter_map(|line| line.strip_prefix("ceph auth get-or-create client."));
    let mut users = Vec::new();
    for command in commands {
        let command =
            command.replace("META", "fs-meta").replace("FS", "cephfs").replace("/volumes/csi", "/volumes");
        let (name, recommended) = command.split_once(' ').expect("rights");
        let user = name.replacen("cephlet", "cephlet-fs", 1);
        let shown = cluster().ceph(&["auth", "get", &format!("client.{user}")]);
        let rights = shown.lines().filter_map(|line| line.trim().strip_prefix("caps "));
        let mut rights: Vec<String> = rights.map(|line| line.replace(" = ", " ").replace('"', "'")).collect();
        let mut recommended: Vec<String> =
            recommended.split_inclusive("' ").map(|right| right.trim().to_string()).collect();
        rights.sort();
        recommended.sort();
        assert_eq!(rights, recommended, "{name}");
        users.push(user);
    }
    assert_eq!(users, ["cephlet-fs", "cephlet-fs-node"]);
}

/// What a user of the cluster may do, one line a service, without the pools that the manual does not name.
fn rights(user: &str) -> Vec<String> {
    let shown = cluster().ceph(&["auth", "get", user]);
    let rights = shown.lines().filter_map(|line| line.trim().strip_prefix("caps "));
    rights.map(|line| line.split(", ").next().unwrap_or_default().trim_end_matches('"').to_string()).collect()
}

#[test]
fn the_users_of_the_tests_have_the_rights_that_are_recommended() {
    let examples = [manual::rbd(), manual::replication()].concat().join("");
    let commands = examples.lines().filter_map(|line| line.strip_prefix("ceph auth get-or-create client."));
    let mut users = Vec::new();
    for command in commands {
        // Arguments between quotes are one argument, as for a shell.
        let words = command.split('\'').enumerate().flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().collect(),
            _ => vec![text],
        });
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('>')).collect();
        let recommended = format!("client.recommended-{}", words[0]);
        cluster().ceph(&[&["auth", "get-or-create", &recommended], &words[1..]].concat());
        assert_eq!(rights(&recommended), rights(&format!("client.{}", words[0])));
        users.push(words[0]);
    }
    assert_eq!(users, ["cephlet", "cephlet-node", "mirror"]);
}
