//! Snapshots, and the disks that they fail on.
#![allow(clippy::unwrap_used)]

use super::ram::{RamDisk, errno};
use super::tests::{SMALL, count, fail, open, put};
use super::{Journal, Table};

/// Writes until the log has been replaced by a snapshot several times; the state is the last value of each of
/// ten keys.
pub(super) fn write_long(journal: &Journal) {
    for n in 0..200 {
        journal.write(&[put(&format!("key {}", n % 10), &n.to_string())]).unwrap();
    }
}

fn last_values(journal: &Journal) -> Vec<String> {
    journal.entries(Table::Node).into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect()
}

#[test]
fn a_snapshot_replaces_the_old_segments() {
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    write_long(&journal);
    let names: Vec<_> = disk.files().into_keys().collect();
    assert!(count(&disk, "rename") > 5);
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0].replace(".log", ""), names[1].replace(".snapshot", ""));
    let expected: Vec<_> = (190..200).map(|n| n.to_string()).collect();
    assert_eq!(last_values(&journal), expected);
    assert_eq!(last_values(&open(&disk, SMALL).unwrap()), expected);
}

#[test]
fn a_snapshot_on_a_full_disk_is_given_up_without_harm() {
    let steps = [
        ("create", ".log"),
        ("write", ".log"),
        ("create", ".tmp"),
        ("write", ".tmp"),
        ("sync", ".tmp"),
        ("rename", ".tmp"),
    ];
    for (what, suffix) in steps {
        let disk = RamDisk::default();
        let journal = open(&disk, SMALL).unwrap();
        let watched = disk.clone();
        // The header of a new segment is told from a record by what came before it.
        disk.hook(move |op, name| {
            let header = watched.operations().last().is_some_and(|last| last == &format!("create {name}"));
            let hit = op == what && name.ends_with(suffix) && (suffix == ".tmp" || op == "create" || header);
            if hit { Err(errno(libc::ENOSPC)) } else { Ok(()) }
        });
        write_long(&journal);
        let tried = count(&disk, what);
        assert!(journal.poisoned().is_none(), "{what} {suffix}");
        assert!(!disk.files().keys().any(|name| name.contains("snapshot")));
        assert!(tried < 400, "tried {tried} times");
        let expected: Vec<_> = (190..200).map(|n| n.to_string()).collect();
        assert_eq!(last_values(&open(&disk, SMALL).unwrap()), expected, "{what} {suffix}");
        disk.hook(|_, _| Ok(()));
        (0..10).for_each(|_| write_long(&journal));
        assert!(
            count(&disk, "rename") > 0 && disk.files().len() == 2,
            "{what} {suffix}: {:?}",
            disk.files().keys()
        );
    }
}

#[test]
fn a_snapshot_on_a_broken_disk_poisons_and_the_write_before_it_holds() {
    for (what, suffix) in
        [("create", ".log"), ("write", ".tmp"), ("sync", ".tmp"), ("rename", ".tmp"), ("sync", "directory")]
    {
        let disk = RamDisk::default();
        let journal = open(&disk, SMALL).unwrap();
        fail(&disk, what, suffix, libc::EIO);
        let written = (0..100).take_while(|n| journal.write(&[put(&format!("{n:02}"), "x")]).is_ok()).count();
        assert!(written < 100 && journal.poisoned().is_some(), "{what} {suffix}");
        disk.hook(|_, _| Ok(()));
        assert_eq!(open(&disk, SMALL).unwrap().len(Table::Node), written, "{what} {suffix}");
    }
}

#[test]
fn old_segments_that_cannot_be_removed_do_no_harm() {
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    fail(&disk, "remove", "", libc::EIO);
    write_long(&journal);
    assert!(journal.poisoned().is_none() && disk.files().len() > 4);
    disk.hook(|_, _| Ok(()));
    let expected: Vec<_> = (190..200).map(|n| n.to_string()).collect();
    assert_eq!(last_values(&open(&disk, SMALL).unwrap()), expected);
    assert_eq!(disk.files().len(), 2, "the next start removes them");
}
