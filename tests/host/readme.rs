//! README says what the code says.

use cephlet::{LIMITS, PARAMETERS, VARIABLES};

const README: &str = include_str!("../../README.md");

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
