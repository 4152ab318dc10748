//! The machine stops after every operation, and what was not synced is kept, lost or torn. After each such
//! crash the journal must open, hold what was promised and go on.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::ram::{Fate, RamDisk};
use super::tests::{SMALL, open, put};
use super::{Change, Journal, SnapshotLimits, Table};
use crate::error::Result;

/// All that a journal holds.
pub(super) type State = BTreeMap<(u8, String), Vec<u8>>;

/// One call of the workload.
enum Step {
    Write(Vec<Change>),
    Note(Vec<Change>),
    Sync,
}

/// Some of everything: several changes at once, removals, notes in a row, enough for several snapshots.
fn workload() -> Vec<Step> {
    let mut steps = vec![Step::Note(vec![put("first", "a note before any write")])];
    for n in 0..18 {
        let intent = format!("intent {n}");
        steps.push(Step::Write(vec![
            Change::put(Table::Intents, &*intent, "creating"),
            put(&format!("key {}", n % 4), &"x".repeat(n)),
        ]));
        steps.push(Step::Note(vec![Change::remove(Table::Intents, &*intent)]));
        if n % 3 == 0 {
            steps.push(Step::Note(vec![
                put("noted", &n.to_string()),
                Change::remove(Table::Node, format!("key {}", n % 5)),
            ]));
            steps.push(Step::Note(vec![Change::put(Table::Formats, "device", n.to_string())]));
        }
    }
    steps.push(Step::Sync);
    steps
}

/// The state after each number of steps.
fn states(steps: &[Step]) -> Vec<State> {
    let mut states = vec![State::new()];
    for step in steps {
        let mut state = states.last().unwrap().clone();
        if let Step::Write(changes) | Step::Note(changes) = step {
            for change in changes {
                let key = (change.table as u8, change.key.clone());
                match &change.value {
                    Some(value) => drop(state.insert(key, value.clone())),
                    None => drop(state.remove(&key)),
                }
            }
        }
        states.push(state);
    }
    states
}

pub(super) fn state_of(journal: &Journal) -> State {
    let entries = |table: Table| {
        journal.entries(table).into_iter().map(move |(key, value)| ((table as u8, key), value))
    };
    Table::ALL.into_iter().flat_map(entries).collect()
}

/// Runs the workload until something fails. Gives the number of steps that are durable, and of those that
/// were begun.
fn run(disk: &RamDisk, steps: &[Step]) -> (usize, usize) {
    let Ok(journal) = open(disk, SMALL) else { return (0, 0) };
    let states = states(steps);
    let mut durable = 0;
    for (n, step) in steps.iter().enumerate() {
        let done = match step {
            Step::Write(changes) => journal.write(changes).map(|()| durable = n + 1),
            Step::Note(changes) => journal.write_unsynced(changes),
            Step::Sync => journal.sync().map(|()| durable = n + 1),
        };
        if done.is_err() {
            assert_eq!(state_of(&journal), states[n], "a step that failed is not seen");
            return (durable, n + 1);
        }
        assert_eq!(state_of(&journal), states[n + 1], "after step {n}");
    }
    (durable, steps.len())
}

fn data_fates() -> Vec<Fate> {
    let mut fates = vec![Fate::Kept, Fate::Dropped, Fate::Without(0), Fate::Without(1), Fate::Without(2)];
    for bytes in [1, 4, 31, 32, 33, 40, 70, 100, 150] {
        fates.extend([Fate::First(bytes), Fate::Zeroed(bytes)]);
    }
    fates.push(Fate::Zeroed(0));
    fates
}

pub(super) const NAME_FATES: [Fate; 6] =
    [Fate::Kept, Fate::Dropped, Fate::First(1), Fate::First(2), Fate::Without(0), Fate::Without(1)];

/// Every disk that a crash now may leave.
fn crashes(disk: &RamDisk) -> Vec<RamDisk> {
    let mut seen = Vec::new();
    let mut disks = Vec::new();
    for data in data_fates() {
        for names in NAME_FATES {
            let crashed = disk.after_crash(data, names);
            if !seen.contains(&crashed.files()) {
                seen.push(crashed.files());
                disks.push(crashed);
            }
        }
    }
    disks
}

/// Opens a disk after a crash: it holds a beginning of the workload, at least all that was promised. Then it
/// is used.
pub(super) fn check(disk: &RamDisk, expected: &[State], at: &str) {
    let journal = open(disk, SMALL).unwrap_or_else(|e| panic!("{at}: {e}: {:?}", disk.operations()));
    let found = state_of(&journal);
    assert!(expected.contains(&found), "{at}: {found:?}");
    journal.write(&[put("after", "the crash"), put("and", "on")]).unwrap();
    drop(journal);
    let journal = open(disk, SMALL).unwrap_or_else(|e| panic!("{at}, second start: {e}"));
    let mut with_more = found;
    with_more.insert((Table::Node as u8, "after".into()), b"the crash".into());
    with_more.insert((Table::Node as u8, "and".into()), b"on".into());
    assert_eq!(state_of(&journal), with_more, "{at}, second start");
}

/// Crashes `disk` in every way, and once more after each operation of the recovery.
fn check_all(disk: &RamDisk, expected: &[State], at: &str) {
    for (n, crashed) in crashes(disk).into_iter().enumerate() {
        let at = format!("{at}, left behind: {n}");
        check_recovery(|| RamDisk::with_files(&crashed.files()), expected, &at);
        check(&crashed, expected, &at);
    }
    check_recovery(|| disk.after_kill(), expected, &format!("{at}, killed"));
}

/// Crashes the recovery after each of its operations; once it has ended, what it showed must not vanish.
fn check_recovery(found: impl Fn() -> RamDisk, expected: &[State], at: &str) {
    let mut checked = Vec::new();
    for operations in 0.. {
        let disk = found();
        disk.power_off_after(operations);
        let shown = open(&disk, SMALL).ok().map(|journal| vec![state_of(&journal)]);
        let expected = shown.as_deref().unwrap_or(expected);
        for data in [Fate::Kept, Fate::Dropped, Fate::First(9)] {
            for names in [Fate::Kept, Fate::Dropped, Fate::Without(0), Fate::Without(1)] {
                let crashed = disk.after_crash(data, names);
                let case = (shown.is_some(), crashed.files());
                if !checked.contains(&case) {
                    check(&crashed, expected, &format!("{at}, recovery stopped after {operations}"));
                    checked.push(case);
                }
            }
        }
        if disk.operations().len() < operations {
            return;
        }
    }
}

#[test]
fn a_crash_after_any_operation_loses_nothing_promised() {
    let steps = workload();
    let states = states(&steps);
    let complete = RamDisk::default();
    assert_eq!(run(&complete, &steps), (steps.len(), steps.len()));
    let total = complete.operations().len();
    let renamed = complete.operations().iter().filter(|op| op.starts_with("rename")).count();
    assert!(renamed >= 2, "the workload is to take snapshots: {:?}", complete.operations());
    for k in 0..=total {
        let disk = RamDisk::default();
        disk.power_off_after(k);
        let (durable, begun) = run(&disk, &steps);
        let last = disk.operations().last().cloned().unwrap_or_default();
        check_all(&disk, &states[durable..=begun], &format!("operation {k} ({last})"));
    }
}

/// A journal whose writers go on while a snapshot is written, behind and before the place it has reached; a
/// note comes between the write that makes the snapshot due and the snapshot. Gives all states, and how many
/// steps are durable.
fn run_during_snapshot(disk: &RamDisk) -> (Vec<State>, usize) {
    let fill = (0..12).map(|n| Step::Write(vec![put(&format!("{n:02}"), &"old".repeat(8))]));
    let during = [
        Step::Note(vec![put("05", "noted before")]),
        Step::Write(vec![put("00", "new"), put("11", "new")]),
        Step::Note(vec![Change::remove(Table::Node, "01"), put("10", "noted")]),
        Step::Note(vec![put("01", "noted again"), Change::remove(Table::Node, "09")]),
    ];
    let steps: Arc<Vec<_>> = Arc::new(fill.chain(during).collect());
    let states = states(&steps);
    // The twelfth write makes the log longer than this.
    let Ok(journal) = Journal::open_with(
        Arc::new(disk.clone()),
        SnapshotLimits { snapshot_floor: 820, chunk: 60 },
        Box::new(|_| {}),
    ) else {
        return (states, 0);
    };
    let (journal, inner_durable) = (Arc::new(journal), Arc::new(AtomicUsize::new(0)));
    let (inner, inner_steps, durable, watched) =
        (journal.clone(), steps.clone(), inner_durable.clone(), disk.clone());
    let (before, once) = (AtomicBool::new(true), AtomicBool::new(true));
    disk.hook(move |op, name| {
        let records = watched.operations().iter().filter(|op| op.starts_with("write")).count() - 1;
        if op == "sync" && records == 12 && before.swap(false, Ordering::SeqCst) {
            let _ = go(&inner, &inner_steps[12]);
        }
        let pieces =
            watched.operations().iter().filter(|op| op.starts_with("write") && op.ends_with(".tmp")).count();
        if op == "write" && name.ends_with(".tmp") && pieces == 4 && once.swap(false, Ordering::SeqCst) {
            durable.store(2 * usize::from(go(&inner, &inner_steps[13]).is_ok()), Ordering::SeqCst);
            let _ = inner_steps[14..].iter().try_for_each(|step| go(&inner, step));
        }
        Ok(())
    });
    let done = steps[..12].iter().take_while(|step| go(&journal, step).is_ok()).count();
    disk.hook(|_, _| Ok(()));
    (states, done + inner_durable.load(Ordering::SeqCst))
}

fn go(journal: &Journal, step: &Step) -> Result<()> {
    match step {
        Step::Write(changes) => journal.write(changes),
        Step::Note(changes) => journal.write_unsynced(changes),
        Step::Sync => journal.sync(),
    }
}

#[test]
fn a_crash_while_a_snapshot_and_writers_run_loses_nothing_promised() {
    let complete = RamDisk::default();
    let (states, durable) = run_during_snapshot(&complete);
    assert_eq!(durable, 14, "writers went on during the snapshot: {:?}", complete.operations());
    assert_eq!(state_of(&open(&complete, SMALL).unwrap()), states[16]);
    let total = complete.operations().len();
    for k in 0..=total {
        let disk = RamDisk::default();
        disk.power_off_after(k);
        let (states, durable) = run_during_snapshot(&disk);
        check_all(&disk, &states[durable..], &format!("operation {k}"));
    }
}
