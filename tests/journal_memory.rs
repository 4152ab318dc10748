//! The journal of a very large node, in a process of its own: only so can its memory be measured.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use cephlet::{Change, Journal, RealDisk, Table};

const ENTRIES: usize = 100_000;

#[test]
fn a_hundred_thousand_entries_take_less_than_40_mb() {
    let parent = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(&parent.path().join("journal")).unwrap());
    let journal = Journal::open(disk.clone(), |_| {}).unwrap();
    // In no order, each entry rewritten once: as it grows in real life, with snapshots on the way.
    for block in 0..2 * ENTRIES / 500 {
        let key = |n: usize| format!("{:060}", (block * 500 + n) * 7919 % ENTRIES);
        let changes: Vec<_> =
            (0..500).map(|n| Change::put(Table::Node, key(n), vec![n as u8; 110 + n % 20])).collect();
        journal.write(&changes).unwrap();
    }
    drop(journal);
    let journal = Journal::open(disk, |_| {}).unwrap();
    let peak = peak_memory_kb();
    assert_eq!(journal.len(Table::Node), ENTRIES);
    assert!(peak <= 40 << 10, "the process took {peak} kB at most");
}

/// VmHWM, see proc_pid_status(5).
fn peak_memory_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
