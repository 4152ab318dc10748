//! What can still be written when the disk is full.

#![allow(clippy::unwrap_used)]

use super::disk::Disk;
use super::ram::{RamDisk, errno};
use super::tests::{ONE_SEGMENT, SMALL, fail, get, open, put};
use super::{Change, Journal, Table};
use crate::error::Kind;

/// A disk on which no more room can be had than what is kept.
fn fill(disk: &RamDisk) {
    disk.hook(|op, _| if op == "keep room" { Err(errno(libc::ENOSPC)) } else { Ok(()) });
}

/// So many records as could have no room but what is kept.
fn grow(journal: &Journal) {
    (0..10_000).for_each(|number| journal.write(&[put("grown", &format!("{number:099}"))]).unwrap());
}

#[test]
fn a_full_disk_takes_removals_and_nothing_else() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    grow(&journal);
    let [kept, gone] = ["kept", "gone"].map(|key| put(key, "1"));
    journal.write(&[kept, gone]).unwrap();
    fill(&disk);
    // What is kept is asked for ahead of time, so the last of it may be had still.
    while journal.write(&[put("last", "1")]).is_ok() {}
    for journal in [journal, open(&disk, ONE_SEGMENT).unwrap()] {
        let files = disk.files();
        let both = [Change::remove(Table::Node, "kept"), put("new", "2")];
        for refused in [journal.write(&[put("new", "2")]), journal.write(&both), {
            journal.write_unsynced(&[put("new", "2")])
        }] {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.errno()), (Kind::NoSpace, Some(libc::ENOSPC)));
            assert!(error.message().contains("disk of the journal is full"), "{error}");
        }
        assert_eq!(disk.files(), files, "what is refused has touched nothing");
        journal.write_for_removal(&[put("intent", "deletion of gone")]).unwrap();
        journal.write(&[Change::remove(Table::Node, "gone")]).unwrap();
        journal.write_unsynced(&[Change::remove(Table::Node, "intent")]).unwrap();
        assert_eq!(
            (get(&journal, "gone"), get(&journal, "intent"), get(&journal, "new")),
            (None, None, None)
        );
        assert_eq!(get(&journal, "kept").as_deref(), Some("1"));
        assert!(journal.poisoned().is_none());
    }
    disk.hook(|_, _| Ok(()));
    open(&disk, ONE_SEGMENT).unwrap().write(&[put("new", "2")]).unwrap();
}

#[test]
fn a_segment_without_room_for_removals_is_not_begun() {
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    journal.write(&[put("kept", "1")]).unwrap();
    fill(&disk);
    for number in 0..100 {
        journal.write_for_removal(&[put("intent", &number.to_string())]).unwrap();
    }
    assert_eq!(disk.files().len(), 1, "{:?}", disk.files().keys());
    assert!(journal.poisoned().is_none());
    disk.hook(|_, _| Ok(()));
    (0..200).for_each(|number| journal.write(&[put("key", &number.to_string())]).unwrap());
    assert!(disk.files().keys().any(|name| name.ends_with(".snapshot")), "{:?}", disk.files().keys());
    assert_eq!(get(&open(&disk, SMALL).unwrap(), "kept").as_deref(), Some("1"));
}

#[test]
fn where_a_file_system_keeps_no_room_each_record_finds_its_own() {
    let disk = RamDisk::default();
    fail(&disk, "keep room", "", libc::EOPNOTSUPP);
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    grow(&journal);
    fail(&disk, "write", "", libc::ENOSPC);
    for refused in [journal.write(&[put("new", "1")]), journal.write(&[Change::remove(Table::Node, "grown")])]
    {
        assert_eq!(refused.unwrap_err().kind(), Kind::NoSpace);
    }
    assert!(journal.poisoned().is_none());
}

/// As btrfs does, where the room that is kept cannot be written to, but can be given up.
#[test]
fn a_removal_that_finds_no_room_gives_up_what_is_kept() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    journal.write(&[put("gone", "1"), put("kept", "1")]).unwrap();
    let watched = disk.clone();
    disk.hook(move |op, _| {
        let is_cut = watched.operations().last().is_some_and(|last| last.starts_with("truncate"));
        if op == "write" && !is_cut { Err(errno(libc::ENOSPC)) } else { Ok(()) }
    });
    for _ in 0..2 {
        assert_eq!(journal.write(&[put("new", "2")]).unwrap_err().kind(), Kind::NoSpace);
        // The next write is not the one behind this cut.
        disk.sync_dir().unwrap();
    }
    journal.write(&[Change::remove(Table::Node, "gone")]).unwrap();
    let found = open(&disk.after_kill(), ONE_SEGMENT).unwrap();
    for journal in [journal, found] {
        assert_eq!((get(&journal, "gone"), get(&journal, "new")), (None, None));
        assert_eq!(get(&journal, "kept").as_deref(), Some("1"));
    }
}
