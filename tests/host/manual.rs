//! README and the manual agree with the code. src/cli/manual.rs compares the sections of cephlet(8) that are
//! made from tables.

use std::path::Path;
use std::process::Command;

use cephlet::{CEPHFS_PARAMETERS, LIMITS, PARAMETERS};

const README: &str = include_str!("../../README.md");
const RBD: &str = include_str!("../../packaging/man/cephlet-rbd.7");
const CEPHFS: &str = include_str!("../../packaging/man/cephlet-cephfs.7");

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn readme_is_short_and_names_files_that_exist() {
    let lines = README.lines().count();
    assert!(
        lines <= 130,
        "README has {lines} lines: what is not for everybody belongs into a page of the manual"
    );
    let is_path =
        |word: &&str| ["packaging/", "systemd/", ".github/"].iter().any(|dir| word.starts_with(dir));
    let words = README.split(|c: char| c.is_whitespace() || "`:;,*()".contains(c));
    let missing: Vec<&str> = words
        .filter(is_path)
        .map(|word| word.trim_end_matches(['.', '/']))
        .filter(|word| !checkout().join(word).exists())
        .collect();
    assert!(missing.is_empty(), "README names {missing:?}");
}

#[test]
fn every_page_that_is_named_exists_and_is_clean() {
    let directory = checkout().join("packaging/man");
    let pages: Vec<_> =
        directory.read_dir().expect("pages").map(|entry| entry.expect("a page").path()).collect();
    let mut lint = Command::new("mandoc");
    let found = lint.arg("-Tlint").args(&pages).output().expect("mandoc");
    let said = String::from_utf8_lossy(&found.stdout);
    // mandoc looks for references among the installed pages.
    let wrong: Vec<&str> =
        said.lines().filter(|line| !line.contains("referenced manual not found")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("a page");
        for reference in text.lines().filter_map(|line| line.strip_prefix(".Xr cephlet")) {
            let words: Vec<&str> = reference.split_whitespace().take(2).collect();
            let [name, section] =
                if words[0].parse::<u8>().is_ok() { ["", words[0]] } else { [words[0], words[1]] };
            let file = directory.join(format!("cephlet{name}.{section}"));
            assert!(file.exists(), "{} refers to {}", page.display(), file.display());
        }
    }
}

/// The tags of the first list after a heading of a page.
fn tags(page: &'static str, heading: &str) -> Vec<&'static str> {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).expect("the heading");
    let list = rest.split(".El").next().unwrap_or_default();
    list.lines().filter_map(|line| line.strip_prefix(".It Va ")).collect()
}

#[test]
fn every_parameter_is_described() {
    assert_eq!(tags(RBD, ".Sh PARAMETERS"), PARAMETERS);
    assert_eq!(tags(RBD, ".Ss Mutable parameters"), LIMITS.map(|(name, _)| name));
    assert_eq!(tags(CEPHFS, ".Sh PARAMETERS"), CEPHFS_PARAMETERS);
}
