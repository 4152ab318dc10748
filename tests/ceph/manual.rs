//! The manual recommends the users that the tests use.

use crate::support::{cluster, manual};

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
