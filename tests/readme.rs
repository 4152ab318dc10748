//! README says what the code says.

mod support;

use cephlet::{LIMITS, PARAMETERS, VARIABLES};
use support::cluster;

const README: &str = include_str!("../README.md");

/// The first two cells of README's rows about variables.
fn rows() -> Vec<(String, String)> {
    let cells = |line: &str| {
        line.split('|').map(|cell| cell.trim().trim_matches('`').to_string()).collect::<Vec<_>>()
    };
    let is_variable =
        |row: &Vec<String>| row.len() > 3 && (row[1].starts_with("CEPHLET_") || row[1].starts_with("CSI_"));
    README.lines().map(cells).filter(is_variable).map(|row| (row[1].clone(), row[2].clone())).collect()
}

#[test]
fn every_variable_stands_in_the_table_with_its_default() {
    let rows = rows();
    let documented: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let known: Vec<&str> =
        VARIABLES.iter().map(|variable| variable.name).filter(|name| *name != "CEPHLET_CRASH_AT").collect();
    assert_eq!(documented, known);
    for variable in VARIABLES.iter().filter(|variable| !variable.default.is_empty()) {
        let said = rows.iter().find(|(name, _)| name == variable.name).map(|(_, default)| default.as_str());
        assert!(said.is_none_or(|said| said == variable.default), "{}: README says {said:?}", variable.name);
    }
}

#[test]
fn the_commands_of_the_quick_start_are_there() {
    for script in ["packaging/demo", "tests/run", "packaging/build"] {
        assert!(README.contains(script), "README should name {script}");
        assert!(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(script).is_file(),
            "{script} is missing"
        );
    }
}

/// The first cells of the table that begins with this one, without the quotes of code.
fn column(head: &str) -> Vec<&'static str> {
    let first = |line: &'static str| line.strip_prefix("| ")?.split(" |").next();
    let table = README.lines().skip_while(|line| first(line) != Some(head)).skip(2);
    table.map_while(first).map(|cell| cell.trim_matches('`')).collect()
}

#[test]
fn every_parameter_of_rbd_stands_in_its_table() {
    assert_eq!(column("parameter"), PARAMETERS);
    assert_eq!(column("mutable parameter"), LIMITS.map(|(name, _)| name));
}

/// What a user of the cluster may do, one line a service, without the pools that README does not have.
fn rights(user: &str) -> Vec<String> {
    let shown = cluster().ceph(&["auth", "get", user]);
    let rights = shown.lines().filter_map(|line| line.trim().strip_prefix("caps "));
    rights.map(|line| line.split(", ").next().unwrap_or_default().trim_end_matches('"').to_string()).collect()
}

#[test]
fn the_users_of_the_tests_have_the_rights_that_are_recommended() {
    let commands = README.lines().filter_map(|line| line.strip_prefix("ceph auth get-or-create client."));
    let mut users = Vec::new();
    for command in commands {
        // Arguments between quotes are one, as for a shell.
        let words = command.split('\'').enumerate().flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().collect(),
            _ => vec![text],
        });
        let words: Vec<&str> = words.collect();
        let recommended = format!("client.recommended-{}", words[0]);
        cluster().ceph(&[&["auth", "get-or-create", &recommended], &words[1..]].concat());
        assert_eq!(rights(&recommended), rights(&format!("client.{}", words[0])));
        users.push(words[0]);
    }
    assert_eq!(users, ["cephlet", "cephlet-node"]);
}
