//! Tests of what the journal promises. The machine stops after every operation, the disk fills up and fails,
//! and the file is damaged.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::file::{NAME, NEW};
use super::ram::{Fate, RamDisk, errno};
use super::{Change, Disk, Journal, RealDisk, Table};
use crate::error::{Kind, Result};

fn open(disk: &RamDisk) -> Result<Journal> {
    Journal::open(Arc::new(disk.clone()), |_| {})
}

fn put(key: &str, value: impl Into<Value>) -> Change {
    Change::put(Table::Volumes, key, value.into())
}

fn remove(key: &str) -> Change {
    Change::remove(Table::Volumes, key)
}

fn get(journal: &Journal, key: &str) -> Option<Value> {
    journal.get(Table::Volumes, key)
}

/// Fails every operation `what` on a file of this name, from now on.
fn fail(disk: &RamDisk, what: &'static str, file: &'static str, number: i32) {
    disk.hook(move |op, name| if op == what && name == file { Err(errno(number)) } else { Ok(()) });
}

fn count(disk: &RamDisk, what: &str) -> usize {
    disk.operations().iter().filter(|op| op.starts_with(what)).count()
}

/// The content of the journal's file.
fn content(disk: &RamDisk) -> Vec<u8> {
    disk.files()[NAME].clone()
}

fn disk_with(content: &[u8]) -> RamDisk {
    RamDisk::with_files(&BTreeMap::from([(NAME.to_string(), content.to_vec())]))
}

#[test]
fn a_write_is_there_before_and_after_a_restart() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("b", 1), put("a", 2), Change::put(Table::Deletions, "a", json!({"x": 3}))]).unwrap();
    journal.write(&[remove("b"), put("a", "four\n")]).unwrap();
    for journal in [journal, open(&disk).unwrap()] {
        assert_eq!(journal.entries(Table::Volumes), [("a".to_string(), json!("four\n"))]);
        assert_eq!(journal.get(Table::Deletions, "a"), Some(json!({"x": 3})));
    }
    let lines = String::from_utf8(content(&disk)).unwrap();
    assert!(lines.starts_with("{\"journal\":1}\n"), "{lines}");
}

#[test]
fn a_call_without_changes_touches_no_disk() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    let before = disk.operations();
    journal.write(&[]).unwrap();
    journal.note(&[]);
    journal.sync().unwrap();
    assert_eq!(disk.operations(), before);
}

#[test]
fn a_note_is_visible_at_once_and_durable_with_the_next_write() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("key", 1)]).unwrap();
    let before = disk.operations();
    journal.note(&[put("key", 2), put("noted", 1)]);
    assert_eq!((get(&journal, "key"), disk.operations()), (Some(json!(2)), before));
    assert_eq!(get(&open(&disk.after_kill()).unwrap(), "noted"), None);
    journal.write(&[put("key", 3)]).unwrap();
    let found = open(&disk.after_crash(Fate::Dropped, Fate::Dropped)).unwrap();
    assert_eq!((get(&found, "key"), get(&found, "noted")), (Some(json!(3)), Some(json!(1))));
    journal.note(&[remove("noted")]);
    journal.sync().unwrap();
    assert_eq!(get(&open(&disk).unwrap(), "noted"), None);
}

#[test]
fn a_write_is_one_write_and_one_sync() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    let before = (count(&disk, "write"), count(&disk, "sync"));
    journal.write(&[put("a", 1), put("b", 2)]).unwrap();
    assert_eq!((count(&disk, "write"), count(&disk, "sync")), (before.0 + 1, before.1 + 1));
}

#[test]
fn after_a_failed_sync_the_journal_takes_nothing_more() {
    for what in ["sync", "write"] {
        let disk = RamDisk::default();
        let told = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&told);
        let journal = Journal::open(Arc::new(disk.clone()), move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let journal = journal.unwrap();
        journal.write(&[put("before", 1)]).unwrap();
        // The file was made as `journal.new`, and renamed since.
        fail(&disk, what, NEW, libc::EIO);
        let error = journal.write(&[put("lost", 1)]).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (Kind::Unavailable, Some(libc::EIO)), "{what}");
        disk.hook(|_, _| Ok(()));
        assert_eq!(journal.write(&[remove("before")]).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!((get(&journal, "before"), get(&journal, "lost")), (Some(json!(1)), None));
        assert_eq!(told.load(Ordering::Relaxed), 1, "{what}: told once");
        assert!(journal.poisoned().is_some());
    }
}

/// The whole content of a journal.
type State = Vec<Vec<(String, Value)>>;

fn state_of(journal: &Journal) -> State {
    Table::ALL.into_iter().map(|table| journal.entries(table)).collect()
}

/// Writes until a write fails. Returns the states before and after that write, or the last state twice.
fn work(disk: &RamDisk) -> [State; 2] {
    let Ok(journal) = open(disk) else { return [vec![vec![]; 3], vec![vec![]; 3]] };
    let long = "x".repeat(25_000);
    for number in 0..5 {
        let before = state_of(&journal);
        let key = format!("key {}", number % 2);
        let changes =
            [put(&key, format!("{number}{long}")), Change::put(Table::Deletions, key, Value::from(number))];
        if journal.write(&changes).is_err() {
            let mut expected = before.clone();
            for (table, change) in [(1, &changes[0]), (0, &changes[1])] {
                expected[table].retain(|(key, _)| *key != change.key);
                expected[table].push((change.key.clone(), change.value.clone().unwrap()));
                expected[table].sort_by(|one, other| one.0.cmp(&other.0));
            }
            return [before, expected];
        }
    }
    let state = state_of(&journal);
    [state.clone(), state]
}

const FATES: [Fate; 12] = [
    Fate::Kept,
    Fate::Dropped,
    Fate::Without(0),
    Fate::Without(1),
    Fate::First(1),
    Fate::First(14),
    Fate::First(40),
    Fate::First(5_000),
    Fate::Zeroed(0),
    Fate::Zeroed(1),
    Fate::Zeroed(40),
    Fate::Zeroed(5_000),
];

#[test]
fn after_a_crash_at_any_step_each_answered_write_is_there_and_the_last_one_whole_or_not() {
    let whole = RamDisk::default();
    work(&whole);
    assert!(count(&whole, "rename") >= 2, "it is rewritten on the way: {:?}", whole.operations());
    for step in 0..=whole.operations().len() {
        let disk = RamDisk::default();
        disk.power_off_after(step);
        let allowed = work(&disk);
        let names = [Fate::Kept, Fate::Dropped, Fate::Without(0), Fate::First(1)];
        for (data, names) in FATES.iter().flat_map(|data| names.map(|names| (*data, names))) {
            let found = disk.after_crash(data, names);
            let journal =
                open(&found).unwrap_or_else(|error| panic!("UNSAFE: step {step}, {data:?}: {error}"));
            let state = state_of(&journal);
            assert!(allowed.contains(&state), "UNSAFE: step {step}, {data:?}, {names:?}: {state:?}");
            journal.write(&[put("later", 1)]).unwrap();
            assert_eq!(get(&open(&found.after_kill()).unwrap(), "later"), Some(json!(1)));
        }
    }
}

#[test]
fn an_incomplete_last_line_is_cut_off() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("kept", 1)]).unwrap();
    let before = content(&disk).len();
    journal.write(&[put("torn", 1)]).unwrap();
    let all = content(&disk);
    for length in before..all.len() {
        let journal = open(&disk_with(&all[..length])).unwrap();
        assert_eq!((get(&journal, "kept"), get(&journal, "torn")), (Some(json!(1)), None), "{length} bytes");
    }
    let zeros = [&all[..before], &[0; 50]].concat();
    assert_eq!(get(&open(&disk_with(&zeros)).unwrap(), "kept"), Some(json!(1)));
}

#[test]
fn damage_before_the_last_line_refuses_the_start_and_names_the_place() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("first", 1)]).unwrap();
    let before = content(&disk).len();
    journal.write(&[put("second", 1)]).unwrap();
    let all = content(&disk);
    for at in 0..before {
        let mut damaged = all.clone();
        damaged[at] ^= 0x11;
        let error = open(&disk_with(&damaged)).map(drop).unwrap_err();
        assert!(error.message().contains("/ram/journal"), "byte {at}: {error}");
        assert_eq!(content(&disk_with(&damaged)), damaged, "byte {at}: the file was changed");
    }
    let mut damaged = all;
    damaged[before - 5] ^= 0x11;
    let error = open(&disk_with(&damaged)).map(drop).unwrap_err();
    assert!(error.message().contains("damaged at byte 14"), "{error}");
}

#[test]
fn a_journal_of_a_later_version_is_refused_and_left_alone() {
    let newer = [&b"{\"journal\":2}\nanything"[..], &[HEADER_1, &line_of("{\"moons\":{\"a\":1}}")].concat()];
    for content in newer {
        let disk = disk_with(content);
        let error = open(&disk).map(drop).unwrap_err();
        assert!(error.message().contains("later cephlet"), "{error}");
        assert_eq!(disk.files()[NAME], content);
    }
}

const HEADER_1: &[u8] = b"{\"journal\":1}\n";

fn line_of(json: &str) -> Vec<u8> {
    format!("{} {:08x} {json}\n", json.len(), crc32fast::hash(json.as_bytes())).into_bytes()
}

/// Makes a disk give no more room than it keeps already.
fn fill(disk: &RamDisk) {
    disk.hook(|op, _| if op == "keep room" { Err(errno(libc::ENOSPC)) } else { Ok(()) });
}

#[test]
fn a_full_disk_takes_removals_and_nothing_else() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("kept", 1), put("gone", 1)]).unwrap();
    fill(&disk);
    // Room is reserved ahead of time, so some writes still succeed.
    while journal.write(&[put("last", 1)]).is_ok() {}
    let before = content(&disk);
    for refused in [journal.write(&[put("new", 2)]), journal.write(&[remove("kept"), put("new", 2)])] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (Kind::NoSpace, Some(libc::ENOSPC)));
    }
    assert_eq!(content(&disk), before, "a refused write changes nothing");
    for number in 0..1000 {
        journal.write_for_removal(&[put("deletion", number)]).unwrap();
    }
    journal.write(&[remove("gone")]).unwrap();
    for journal in [journal, open(&disk).unwrap()] {
        assert_eq!((get(&journal, "gone"), get(&journal, "kept")), (None, Some(json!(1))));
        assert!(journal.poisoned().is_none());
        journal.write(&[remove("deletion")]).unwrap();
    }
    disk.hook(|_, _| Ok(()));
    open(&disk).unwrap().write(&[put("new", 2)]).unwrap();
}

#[test]
fn where_a_file_system_keeps_no_room_each_line_finds_its_own() {
    let disk = RamDisk::default();
    disk.hook(|op, _| if op == "keep room" { Err(errno(libc::EOPNOTSUPP)) } else { Ok(()) });
    let journal = open(&disk).unwrap();
    journal.write(&[put("kept", 1)]).unwrap();
    fail(&disk, "write", NEW, libc::ENOSPC);
    for refused in [journal.write(&[put("new", 1)]), journal.write(&[remove("kept")])] {
        assert_eq!(refused.unwrap_err().kind(), Kind::NoSpace);
    }
    assert!(journal.poisoned().is_none());
}

/// As on btrfs: the room that is kept cannot be written to, but it can be given up.
#[test]
fn a_removal_that_finds_no_room_gives_up_the_room_that_is_kept() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    journal.write(&[put("gone", 1), put("kept", 1)]).unwrap();
    let watched = disk.clone();
    disk.hook(move |op, _| {
        let is_cut = watched.operations().last().is_some_and(|last| last.starts_with("truncate"));
        if op == "write" && !is_cut { Err(errno(libc::ENOSPC)) } else { Ok(()) }
    });
    assert_eq!(journal.write(&[put("new", 2)]).unwrap_err().kind(), Kind::NoSpace);
    // The last operation is no longer the cut, so writes fail again.
    disk.sync_dir().unwrap();
    journal.write(&[remove("gone")]).unwrap();
    assert_eq!((get(&journal, "gone"), get(&journal, "kept")), (None, Some(json!(1))));
}

#[test]
fn the_file_stays_within_a_few_times_its_content() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    for number in 0..5_000 {
        journal.write(&[put("key", format!("{number:099}"))]).unwrap();
    }
    assert!(content(&disk).len() < 80 << 10, "{} bytes", content(&disk).len());
    assert_eq!(get(&open(&disk).unwrap(), "key"), Some(json!(format!("{:099}", 4_999))));
}

#[test]
fn a_rewrite_that_finds_no_room_is_put_off() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    disk.hook(|op, name| if op == "create" && name == NEW { Err(errno(libc::ENOSPC)) } else { Ok(()) });
    for number in 0..2_000 {
        journal.write(&[put("key", format!("{number:099}"))]).unwrap();
    }
    assert!(content(&disk).len() > 128 << 10);
    assert_eq!(get(&open(&disk).unwrap(), "key"), Some(json!(format!("{:099}", 1_999))));
    disk.hook(|_, _| Ok(()));
    // The rewrite is put off until the file has doubled.
    (0..3_000).for_each(|number| journal.write(&[put("key", format!("{number:099}"))]).unwrap());
    assert!(content(&disk).len() < 80 << 10);
}

#[test]
fn writers_side_by_side_lose_nothing() {
    let disk = RamDisk::default();
    let journal = open(&disk).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                (0..50).for_each(|n| journal.write(&[put(&format!("{writer} {n}"), n)]).unwrap())
            });
        }
    });
    for journal in [journal, open(&disk).unwrap()] {
        assert_eq!(journal.entries(Table::Volumes).len(), 400);
    }
}

#[test]
fn only_root_can_read_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let disk = || Arc::new(RealDisk::open(directory.path()).unwrap());
    let journal = Journal::open(disk(), |error| panic!("{error}")).unwrap();
    journal.write(&[put("key", 1)]).unwrap();
    drop(journal);
    let journal = Journal::open(disk(), |error| panic!("{error}")).unwrap();
    assert_eq!(get(&journal, "key"), Some(json!(1)));
    let mode = directory.path().join(NAME).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
