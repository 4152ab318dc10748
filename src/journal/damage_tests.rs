//! Files that are not as they were written: every bit and every length of a small journal, and what recovery
//! cuts off or refuses.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::crash_tests::{NAME_FATES, State, state_of};
use super::format::{CHANGE_HEADER, FILE_HEADER, RECORD_HEADER};
use super::ram::{Fate, RamDisk, errno};
use super::tests::{ONE_SEGMENT, SMALL, open, put};
use super::{Change, Table};

/// Two journals of a few records: a segment alone, and a snapshot with its segment.
fn small_journals() -> Vec<BTreeMap<String, Vec<u8>>> {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    for n in 0..4 {
        journal
            .write(&[
                put(&format!("key {}", n % 2), &n.to_string()),
                Change::put(Table::Intents, "i", vec![n]),
            ])
            .unwrap();
    }
    let one = disk.files();
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    for n in 0..12 {
        journal.write(&[put(&format!("key {}", n % 3), &n.to_string())]).unwrap();
    }
    assert_eq!(disk.files().len(), 2);
    vec![one, disk.files()]
}

/// What a journal whose last segment is cut between any two records would hold.
fn beginnings(files: &BTreeMap<String, Vec<u8>>) -> Vec<State> {
    let segment = files.keys().rev().find(|name| name.ends_with(".log")).unwrap().clone();
    let mut states = Vec::new();
    for length in FILE_HEADER..=files[&segment].len() {
        let mut cut = files.clone();
        cut.get_mut(&segment).unwrap().truncate(length);
        let disk = RamDisk::with_files(&cut);
        let state = state_of(&open(&disk, ONE_SEGMENT).unwrap_or_else(|e| panic!("length {length}: {e}")));
        if !states.contains(&state) {
            states.push(state);
        }
    }
    states
}

#[test]
fn no_flipped_bit_gives_a_wrong_value() {
    for files in small_journals() {
        let allowed = beginnings(&files);
        assert!(allowed.len() > 2);
        for (name, content) in &files {
            for bit in 0..content.len() * 8 {
                let mut damaged = files.clone();
                damaged.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
                let disk = RamDisk::with_files(&damaged);
                match open(&disk, ONE_SEGMENT) {
                    Ok(journal) => {
                        let state = state_of(&journal);
                        let last_two = &allowed[allowed.len() - 2..];
                        assert!(
                            last_two.contains(&state),
                            "{name}, bit {bit}: only the last record may be taken for torn"
                        );
                    }
                    Err(error) => {
                        assert!(
                            error.message().contains(&**name) && error.message().contains("damaged at byte"),
                            "{error}"
                        );
                        assert_eq!(disk.files(), damaged, "a journal that is refused is not touched");
                    }
                }
            }
        }
    }
}

#[test]
fn no_shorter_file_gives_a_wrong_value() {
    for files in small_journals() {
        let allowed = beginnings(&files);
        for (name, content) in &files {
            for length in 0..content.len() {
                let mut damaged = files.clone();
                damaged.get_mut(name).unwrap().truncate(length);
                let disk = RamDisk::with_files(&damaged);
                match open(&disk, ONE_SEGMENT) {
                    Ok(journal) => {
                        let empty_and_alone = files.len() == 1 && length < FILE_HEADER;
                        let state = state_of(&journal);
                        assert!(
                            allowed.contains(&state) || empty_and_alone && state.is_empty(),
                            "{name}, {length} bytes"
                        );
                    }
                    Err(error) => {
                        assert!(error.message().contains(&**name), "{name}, {length} bytes: {error}")
                    }
                }
            }
        }
    }
}

#[test]
fn a_missing_file_is_refused_and_named() {
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    // Snapshots are given up on this disk: the log becomes several segments.
    disk.hook(
        |op, name| if op == "create" && name.ends_with(".tmp") { Err(errno(libc::ENOSPC)) } else { Ok(()) },
    );
    (0..200).for_each(|n| journal.write(&[put(&n.to_string(), "x")]).unwrap());
    let segments = disk.files();
    assert!(segments.len() >= 3, "{:?}", segments.keys());
    let last = segments.keys().next_back().unwrap();
    for name in segments.keys().filter(|name| *name != last) {
        let mut files = segments.clone();
        files.remove(name);
        let error = open(&RamDisk::with_files(&files), SMALL).unwrap_err();
        assert!(error.message().contains(&**name) && error.message().contains("missing"), "{error}");
        let mut files = segments.clone();
        let content = files.get_mut(name).unwrap();
        content.truncate(content.len() - 1);
        let error = open(&RamDisk::with_files(&files), SMALL).unwrap_err();
        assert!(error.message().contains(&**name), "torn, but not the last: {error}");
    }
    let with_snapshot = &small_journals()[1];
    for name in with_snapshot.keys() {
        let mut files = with_snapshot.clone();
        files.remove(name);
        assert!(open(&RamDisk::with_files(&files), SMALL).is_err(), "without {name}");
        // It had a whole header before there was a snapshot.
        files.insert(name.clone(), vec![0; 3]);
        assert!(open(&RamDisk::with_files(&files), SMALL).is_err(), "{name} without a header");
    }
}

#[test]
fn a_later_record_that_survived_a_torn_one_does_not_hinder_the_start() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    journal.write(&[put("written", "1")]).unwrap();
    journal.write_unsynced(&[put("first note", "2")]).unwrap();
    journal.write_unsynced(&[put("second note", "3")]).unwrap();
    let crashed = disk.after_crash(Fate::Without(0), Fate::Kept);
    assert_eq!(
        open(&crashed, ONE_SEGMENT).unwrap().entries(Table::Node),
        [("written".to_owned(), b"1".to_vec())]
    );
    // The same hole, but a later write proves that the notes were durable once.
    journal.write(&[put("written", "4")]).unwrap();
    journal.write(&[put("written", "5")]).unwrap();
    let (name, mut content) = disk.files().into_iter().next().unwrap();
    let hole = FILE_HEADER + RECORD_HEADER + CHANGE_HEADER + "written".len() + 1;
    content[hole..hole + 20].fill(0);
    let error = open(&RamDisk::with_files(&BTreeMap::from([(name, content)])), ONE_SEGMENT).unwrap_err();
    assert!(error.message().contains(&format!("damaged at byte {hole}")), "{error}");
}

#[test]
fn what_was_cut_never_comes_back() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    journal.write_unsynced(&[put("first", "1")]).unwrap();
    journal.write_unsynced(&[put("second", "2")]).unwrap();
    let crashed = disk.after_crash(Fate::Without(0), Fate::Kept);
    let journal = open(&crashed, ONE_SEGMENT).unwrap();
    // As long as the lost one: what stood behind that would now fit on.
    journal.write_unsynced(&[put("again", "1")]).unwrap();
    for fate in [Fate::Kept, Fate::Without(0)] {
        let journal = open(&crashed.after_crash(fate, Fate::Kept), ONE_SEGMENT).unwrap();
        assert_eq!(journal.get(Table::Node, "second"), None, "{fate:?}");
    }
}

#[test]
fn a_record_in_the_wrong_place_is_refused() {
    let disk = RamDisk::default();
    open(&disk, ONE_SEGMENT).unwrap().write(&[put("k", "1")]).unwrap();
    let (name, content) = disk.files().into_iter().next().unwrap();
    let twice = [&content[..], &content[FILE_HEADER..]].concat();
    let error = open(&RamDisk::with_files(&BTreeMap::from([(name, twice)])), ONE_SEGMENT).unwrap_err();
    assert!(error.message().contains("out of order"), "{error}");
}

#[test]
fn a_segment_that_was_given_up_does_not_come_back() {
    let disk = RamDisk::default();
    let journal = open(&disk, SMALL).unwrap();
    disk.hook(
        |op, name| if op == "write" && name.ends_with("2.log") { Err(errno(libc::ENOSPC)) } else { Ok(()) },
    );
    (0..20).for_each(|n| journal.write(&[put(&n.to_string(), "x")]).unwrap());
    assert!(disk.operations().iter().any(|op| op == "remove 0000000000000002.log"));
    journal.write_unsynced(&[put("note", "x")]).unwrap();
    for names in NAME_FATES {
        let crashed = disk.after_crash(Fate::First(5), names);
        assert_eq!(open(&crashed, SMALL).unwrap().len(Table::Node), 20, "{names:?}");
    }
}

#[test]
fn a_write_that_fails_beside_a_snapshot_stays_in_the_last_segment() {
    let disk = RamDisk::default();
    let journal = Arc::new(open(&disk, SMALL).unwrap());
    let (inner, failing) = (journal.clone(), AtomicBool::new(false));
    let watched = disk.clone();
    disk.hook(move |op, _| {
        let due = watched.files().values().map(Vec::len).sum::<usize>() > 400;
        if op == "sync" && due && !failing.swap(true, Ordering::SeqCst) {
            inner.write(&[put("half", "written")]).unwrap_err();
        }
        if op == "write" && failing.load(Ordering::SeqCst) { Err(errno(libc::EIO)) } else { Ok(()) }
    });
    let written = (0..20).take_while(|n| journal.write(&[put(&n.to_string(), "x")]).is_ok()).count();
    assert!(written > 0 && journal.poisoned().is_some());
    assert_eq!(open(&disk.after_kill(), SMALL).unwrap().len(Table::Node), written);
}
