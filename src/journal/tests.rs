//! What the journal promises to its callers, one promise a test. Crashes have their own file.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::ram::{RamDisk, errno};
use super::snapshot_tests::write_long;
use super::{Change, Journal, RealDisk, SnapshotLimits, Table};
use crate::error::{Kind, Result};

/// Snapshots after almost nothing, copied a few entries at a time.
pub(super) const SMALL: SnapshotLimits = SnapshotLimits { snapshot_floor: 400, chunk: 60 };
/// Never a snapshot.
pub(super) const ONE_SEGMENT: SnapshotLimits = SnapshotLimits { snapshot_floor: u64::MAX, chunk: 60 };

pub(super) fn open(disk: &RamDisk, limits: SnapshotLimits) -> Result<Journal> {
    Journal::open_with(Arc::new(disk.clone()), limits, Box::new(|_| {}))
}

pub(super) fn put(key: &str, value: &str) -> Change {
    Change::put(Table::Node, key, value)
}

pub(super) fn get(journal: &Journal, key: &str) -> Option<String> {
    journal.get(Table::Node, key).map(|value| String::from_utf8(value).unwrap())
}

pub(super) fn count(disk: &RamDisk, what: &str) -> usize {
    disk.operations().iter().filter(|op| op.starts_with(what)).count()
}

/// Fails every operation `what` on a file whose name ends in `suffix`, from now on.
pub(super) fn fail(disk: &RamDisk, what: &'static str, suffix: &'static str, number: i32) {
    disk.hook(move |op, name| if op == what && name.ends_with(suffix) { Err(errno(number)) } else { Ok(()) });
}

#[test]
fn what_was_written_is_there_before_and_after_a_restart() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    journal.write(&[put("b", "1"), put("a", "2"), Change::put(Table::Intents, "a", "3")]).unwrap();
    journal.write(&[Change::remove(Table::Node, "b"), put("a", "4")]).unwrap();
    for journal in [journal, open(&disk, ONE_SEGMENT).unwrap()] {
        assert_eq!(journal.entries(Table::Node), [("a".to_owned(), b"4".to_vec())]);
        assert_eq!(journal.get(Table::Intents, "a"), Some(b"3".to_vec()));
        assert_eq!((journal.get(Table::Node, "b"), journal.get(Table::Formats, "a")), (None, None));
        assert_eq!((journal.len(Table::Intents), journal.is_empty(Table::Formats)), (1, true));
    }
}

#[test]
fn nothing_to_change_touches_no_disk() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    let before = disk.operations();
    journal.write(&[]).unwrap();
    journal.write_unsynced(&[]).unwrap();
    journal.sync().unwrap();
    assert_eq!(disk.operations(), before);
}

#[test]
fn a_note_is_seen_at_once_and_synced_with_the_next_write() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    let syncs = count(&disk, "sync");
    journal.write_unsynced(&[put("noted", "1")]).unwrap();
    assert_eq!((get(&journal, "noted").as_deref(), count(&disk, "sync")), (Some("1"), syncs));
    journal.write(&[put("written", "2")]).unwrap();
    journal.sync().unwrap();
    assert_eq!(count(&disk, "sync"), syncs + 1);
}

#[test]
fn a_note_does_not_overtake_a_write_of_the_same_key() {
    let disk = RamDisk::default();
    let journal = Arc::new(open(&disk, ONE_SEGMENT).unwrap());
    let (inner, once) = (journal.clone(), AtomicBool::new(true));
    disk.hook(move |op, _| {
        if op == "sync" && once.swap(false, Ordering::SeqCst) {
            // The write is on its way to the disk and not visible yet.
            inner.write_unsynced(&[put("same", "note")]).unwrap();
            inner.write_unsynced(&[put("other", "note")]).unwrap();
            assert_eq!((get(&inner, "same"), get(&inner, "other").as_deref()), (None, Some("note")));
        }
        Ok(())
    });
    journal.write(&[put("same", "write")]).unwrap();
    assert_eq!(get(&journal, "same").as_deref(), Some("note"));
    assert_eq!(get(&open(&disk, ONE_SEGMENT).unwrap(), "same").as_deref(), Some("note"));
}

#[test]
fn many_writers_share_a_sync() {
    const WRITERS: usize = 16;
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    let (before, written) = (count(&disk, "sync"), AtomicUsize::new(0));
    let watched = disk.clone();
    // The first sync ends when everybody has written, as on a disk that is slower than they are.
    disk.hook(move |op, _| {
        while op == "sync" && count(&watched, "write") < WRITERS + 1 {
            thread::yield_now();
        }
        Ok(())
    });
    thread::scope(|scope| {
        for n in 0..WRITERS {
            let (journal, written) = (&journal, &written);
            scope.spawn(move || {
                journal.write(&[put(&n.to_string(), "x")]).unwrap();
                assert!(get(journal, &n.to_string()).is_some());
                written.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(written.into_inner(), WRITERS);
    assert!(count(&disk, "sync") - before <= 2, "{:?}", disk.operations());
    assert_eq!(open(&disk, ONE_SEGMENT).unwrap().len(Table::Node), WRITERS);
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let disk = RamDisk::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = told.clone();
    let tell = Box::new(move |e: &crate::error::Error| teller.lock().unwrap().push(e.to_string()));
    let journal = Journal::open_with(Arc::new(disk.clone()), ONE_SEGMENT, tell).unwrap();
    journal.write(&[put("before", "1")]).unwrap();
    fail(&disk, "sync", ".log", libc::EIO);
    let error = journal.write(&[put("lost", "2")]).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (Kind::Unavailable, Some(libc::EIO)));
    assert!(error.message().contains("sync the journal file /ram/0000000000000001.log"), "{error}");
    // A second fsync would answer Ok; it must not be asked.
    disk.hook(|_, _| Ok(()));
    let operations = disk.operations();
    for result in
        [journal.write(&[put("later", "3")]), journal.write_unsynced(&[put("later", "3")]), journal.sync()]
    {
        assert_eq!(result.unwrap_err().message(), error.message());
    }
    assert_eq!(disk.operations(), operations);
    assert_eq!((get(&journal, "before").as_deref(), get(&journal, "lost")), (Some("1"), None));
    assert_eq!(journal.poisoned().unwrap().message(), error.message());
    assert_eq!(*told.lock().unwrap(), [error.message()]);
}

#[test]
fn whoever_waits_for_a_sync_that_fails_is_told() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    let watched = disk.clone();
    disk.hook(move |op, _| {
        while op == "sync" && count(&watched, "write") < 5 {
            thread::yield_now();
        }
        if op == "sync" { Err(errno(libc::EIO)) } else { Ok(()) }
    });
    let syncs = count(&disk, "sync");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn({
                    let journal = &journal;
                    move || journal.write(&[put(&n.to_string(), "x")])
                })
            })
            .collect();
        for writer in writers {
            assert_eq!(writer.join().unwrap().unwrap_err().kind(), Kind::Unavailable);
        }
    });
    assert_eq!((journal.len(Table::Node), count(&disk, "sync")), (0, syncs));
}

#[test]
fn a_full_disk_takes_nothing_and_breaks_nothing() {
    let disk = RamDisk::default();
    let journal = open(&disk, ONE_SEGMENT).unwrap();
    journal.write(&[put("before", "1")]).unwrap();
    let files = disk.files();
    fail(&disk, "write", ".log", libc::ENOSPC);
    for result in [journal.write(&[put("k", "2")]), journal.write_unsynced(&[put("k", "2")])] {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (Kind::NoSpace, Some(libc::ENOSPC)));
        assert_eq!((disk.files(), get(&journal, "k")), (files.clone(), None));
    }
    disk.hook(|_, _| Ok(()));
    journal.write(&[put("after", "3")]).unwrap();
    assert_eq!(open(&disk, ONE_SEGMENT).unwrap().len(Table::Node), 2);
}

#[test]
fn an_append_that_cannot_be_taken_back_poisons() {
    for (cut, write_error) in [(libc::EIO, libc::ENOSPC), (0, libc::EIO)] {
        let disk = RamDisk::default();
        let journal = open(&disk, ONE_SEGMENT).unwrap();
        disk.hook(move |op, _| match op {
            "write" => Err(errno(write_error)),
            "truncate" if cut != 0 => Err(errno(cut)),
            _ => Ok(()),
        });
        let error = journal.write(&[put("k", "1")]).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (Kind::Unavailable, Some(libc::EIO)));
        assert!(journal.poisoned().is_some());
        disk.hook(|_, _| Ok(()));
        assert_eq!(
            open(&disk, ONE_SEGMENT).unwrap().len(Table::Node),
            0,
            "the half record is cut at the next start"
        );
    }
}

#[test]
fn a_failed_read_is_an_error_and_never_the_end() {
    let disk = RamDisk::default();
    write_long(&open(&disk, SMALL).unwrap());
    let before = disk.files();
    let reads = Arc::new(AtomicUsize::new(0));
    for fatal in 0.. {
        let (reads, counter) = (reads.clone(), reads.clone());
        reads.store(0, Ordering::SeqCst);
        disk.hook(move |op, _| {
            if op == "read" && counter.fetch_add(1, Ordering::SeqCst) == fatal {
                Err(errno(libc::EIO))
            } else {
                Ok(())
            }
        });
        match open(&disk, SMALL) {
            Err(error) => assert_eq!(error.errno(), Some(libc::EIO), "read {fatal}: {error}"),
            Ok(journal) => {
                assert!(reads.load(Ordering::SeqCst) <= fatal, "a failed read was passed over");
                assert_eq!(journal.len(Table::Node), 10);
                assert!(fatal >= 2, "both files were read");
                break;
            }
        }
        assert_eq!(disk.files(), before);
    }
}

#[test]
fn a_directory_of_the_file_system_works_too() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("journal");
    let real =
        |limits| Journal::open_with(Arc::new(RealDisk::open(&path).unwrap()), limits, Box::new(|_| {}));
    let journal = real(SMALL).unwrap();
    thread::scope(|scope| {
        for writer in 0..16 {
            let journal = &journal;
            scope.spawn(move || {
                (0..20).for_each(|n| {
                    journal.write(&[put(&format!("{writer} {n}"), "x"), put("last", "x")]).unwrap()
                });
                journal.write_unsynced(&[Change::remove(Table::Node, format!("{writer} 0"))]).unwrap();
            });
        }
    });
    journal.sync().unwrap();
    let entries = journal.entries(Table::Node);
    drop(journal);
    std::fs::write(path.join("note to self"), "not ours").unwrap();
    assert_eq!(entries.len(), 16 * 19 + 1);
    assert_eq!(real(SMALL).unwrap().entries(Table::Node), entries);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let ours: Vec<_> = std::fs::read_dir(&path)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some())
        .collect();
    assert!(ours.len() >= 2 && ours.iter().all(|path| mode(path) == 0o600), "{ours:?}");
    let snapshot = ours.iter().find(|path| path.extension().is_some_and(|e| e == "snapshot")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(snapshot).unwrap();
    file.write_all_at(b"?", 40).unwrap();
    let error = real(SMALL).unwrap_err();
    assert!(
        error.message().contains(snapshot.to_str().unwrap()) && error.message().contains("at byte 32"),
        "{error}"
    );
}

#[test]
fn a_real_directory_is_never_open_to_others_and_errors_name_it() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("journal");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    RealDisk::open(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let error = RealDisk::open(&path.join("missing/journal")).unwrap_err();
    assert!(error.message().contains("missing/journal") && error.errno() == Some(libc::ENOENT), "{error}");
}

#[test]
fn a_hundred_thousand_entries_are_there_again() {
    let parent = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(&parent.path().join("journal")).unwrap());
    let journal = Journal::open(disk.clone(), |_| {}).unwrap();
    for block in 0..100 {
        let entry = |n| put(&format!("{:060}", block * 1000 + n), &"v".repeat(120));
        journal.write(&(0..1000).map(entry).collect::<Vec<_>>()).unwrap();
    }
    drop(journal);
    let journal = Journal::open(disk, |_| {}).unwrap();
    assert_eq!(
        (journal.len(Table::Node), get(&journal, &format!("{:060}", 99_999))),
        (100_000, Some("v".repeat(120)))
    );
}

#[test]
fn what_a_newer_version_wrote_is_refused_with_that_reason() {
    let disk = RamDisk::default();
    open(&disk, ONE_SEGMENT).unwrap().write(&[put("k", "v")]).unwrap();
    let (name, bytes) = disk.files().into_iter().next().unwrap();
    let mut newer = super::format::LogRecord::of(&[put("k", "v")]).unwrap();
    let mut sealed = newer.seal(1, 0).to_vec();
    sealed[super::format::RECORD_HEADER] = 77;
    let checksum = crc32fast::hash(&sealed[super::format::RECORD_HEADER..]);
    sealed[24..28].copy_from_slice(&checksum.to_le_bytes());
    let header = crc32fast::hash(&sealed[..28]);
    sealed[28..32].copy_from_slice(&header.to_le_bytes());
    let file = [&bytes[..super::format::FILE_HEADER], &sealed].concat();
    let error = open(&RamDisk::with_files(&BTreeMap::from([(name, file)])), ONE_SEGMENT).unwrap_err();
    assert!(error.message().contains("newer cephlet"), "{error}");
}

#[test]
fn an_error_of_the_disk_keeps_its_errno() {
    let disk = RamDisk::default();
    fail(&disk, "create", ".log", libc::EROFS);
    assert_eq!(open(&disk, SMALL).unwrap_err().errno(), Some(libc::EROFS));
}
