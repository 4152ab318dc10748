//! Two sites, each with a node of its own, and a writer: the examples of cephlet-replication(7).
//!
//! Both sites are in this machine, so the volume is mounted at one path for each.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};

use serde_json::Value;

use crate::support::machine::{mounts_below, text};
use crate::support::requests::*;
use crate::support::sites::{Site, sites_with};
use crate::support::{MIB, await_that, manual, object_of};

/// Writes numbered lines to a file on a volume, each of which is on the disk before the next one begins.
struct Writer {
    written: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// A writer that goes on after this many lines.
    fn start(site: &Site, lines: u64) -> Self {
        let (written, is_over) = (Arc::new(AtomicU64::new(lines)), Arc::new(AtomicBool::new(false)));
        let mut file = File::options().create(true).append(true).open(file(site)).expect("open the file");
        let (counted, told) = (written.clone(), is_over.clone());
        let thread = spawn(move || {
            while !told.load(Ordering::Relaxed) {
                writeln!(file, "{:08}", counted.load(Ordering::Relaxed)).expect("write a line");
                file.sync_all().expect("sync a line");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let writer = Self { written, is_over, thread };
        writer.goes_on();
        writer
    }

    fn lines(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits until more is written.
    #[track_caller]
    fn goes_on(&self) {
        let enough = self.lines() + 10;
        await_that("more is written", || match self.lines() {
            lines if lines >= enough => Ok(()),
            lines => {
                Err(format!("{lines} lines, {}", if self.thread.is_finished() { "ended" } else { "alive" }))
            }
        });
    }

    /// Stops it; returns how many lines there are.
    #[track_caller]
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("everything was written");
        self.written.load(Ordering::Relaxed)
    }
}

/// The path of the volume at a site, which the manual calls `/srv/web`.
fn mounted(site: &Site) -> PathBuf {
    site.daemon.path("web")
}

fn file(site: &Site) -> PathBuf {
    mounted(site).join("lines")
}

/// How many lines there are. Asserts that they are whole and in their order.
#[track_caller]
fn lines(site: &Site) -> u64 {
    let content = fs::read_to_string(file(site)).expect("read");
    let count = content.lines().count() as u64;
    let expected: String = (0..count).map(|number| format!("{number:08}\n")).collect();
    assert!(content == expected, "UNSAFE: {count} lines, and not those that were written:\n{content}");
    count
}

/// Types a command of the manual in at a site.
fn type_in(site: &Site, line: &str, id: &str) -> Result<String, String> {
    site.daemon.type_in(&line.replace("/srv/web", text(&mounted(site))), &[("id", id)])
}

/// Types in commands of the manual, each at the site that its comment begins with. A command is repeated if
/// its comment says so.
#[track_caller]
fn type_all_in<'a>(commands: impl Iterator<Item = &'a str>, main: &Site, backup: &Site, id: &str) {
    for line in commands {
        let (_, comment) = line.split_once('#').expect("a comment says where");
        let site = if comment.trim().starts_with("backup") { backup } else { main };
        if comment.contains("until it is up to date") {
            await_that(line, || match type_in(site, line, id)?.trim() {
                "up to date" => Ok(()),
                said => Err(said.to_string()),
            });
        } else if let Err(said) = type_in(site, line, id) {
            panic!("{line}: {said}");
        }
    }
}

/// Waits until the other site has what was written here.
#[track_caller]
fn await_copy(from: &Site, to: &Site, id: &str) {
    let said = from.cluster.rbd(&["mirror", "image", "snapshot", object_of(id)]);
    let snapshot: u64 =
        said.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a snapshot's number");
    await_that("it is copied", || {
        let listed = to.snapshots(id);
        let all: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
        let is_copy = |it: &Value| it["primary_snap_id"] == snapshot && it["complete"] == true;
        if all.iter().any(|it| is_copy(&it["namespace"])) { Ok(()) } else { Err(listed) }
    });
}

fn publish(site: &Site, id: &str) {
    type_in(site, "cephlet volume publish \"$id\" /srv/web", id).expect("publish");
}

/// The examples that are about a volume.
fn blocks() -> [String; 4] {
    let blocks = manual::replication().into_iter().filter(|block| block.contains("\"$id\""));
    blocks.collect::<Vec<_>>().try_into().expect("four examples")
}

/// The volume goes to the other site without a writer, and comes back; returns how many lines it has then.
#[track_caller]
fn goes_and_comes_back(main: &Site, backup: &Site, id: &str, mut written: u64) -> u64 {
    let [_, moves, ..] = blocks();
    for (from, to) in [(main, backup), (backup, main)] {
        type_all_in(moves.lines(), from, to, id);
        assert_eq!(lines(to), written, "UNSAFE: something acknowledged is missing");
        written = Writer::start(to, written).stop();
    }
    written
}

/// The first site is lost while the writer writes there, and the other one goes on for a while; returns how
/// many lines there are then.
#[track_caller]
fn is_lost_while_somebody_writes(main: &Site, backup: &Site, id: &str, written: u64) -> u64 {
    let [.., lost, _] = blocks();
    await_copy(main, backup, id);
    let writer = Writer::start(main, written);
    let gone = main.cluster.lose();
    type_all_in(lost.lines(), main, backup, id);
    let (taken_over, begun) = (lines(backup), writer.lines() + 1);
    assert!((written..=begun).contains(&taken_over), "UNSAFE: {written} lines were copied, not {taken_over}");
    let kept = Writer::start(backup, taken_over).stop();
    drop(gone);
    writer.goes_on();
    writer.stop();
    kept
}

#[test]
#[ignore = "long: tests/run --full"]
fn two_sites_work_as_they_are_described() {
    let [main, backup] = sites_with(|setup| setup.unset("CEPHLET_SERVICES"));
    let [begin, .., home] = blocks();
    let volume = main.daemon.client().create(&volume_as("page", 32 * MIB, mount("ext4"))).expect("create");
    let id = volume.volume_id;

    // The replication begins while the writer writes.
    publish(&main, &id);
    let writer = Writer::start(&main, 0);
    type_all_in(begin.lines().take(1), &main, &backup, &id);
    await_that("the copy arrives", || main.destination(&id).map_err(|refused| refused.message));
    type_all_in(begin.lines().skip(1), &main, &backup, &id);
    let written = goes_and_comes_back(&main, &backup, &id, writer.stop());

    // The lines that were written at the lost site meanwhile are given up.
    let kept = is_lost_while_somebody_writes(&main, &backup, &id, written);
    await_that("the first site answers", || main.info(&id).map(drop).map_err(|refused| refused.message));
    type_all_in(home.lines(), &main, &backup, &id);
    publish(&main, &id);
    assert_eq!(lines(&main), kept, "UNSAFE: it is not what the other site had");

    type_in(&main, "cephlet volume unpublish \"$id\" /srv/web", &id).expect("unpublish");
    type_in(&main, "cephlet volume delete \"$id\"", &id).expect("delete");
    for site in [&main, &backup] {
        let mounts = mounts_below(&site.daemon.path(""));
        assert!(mounts.is_empty(), "UNSAFE: still mounted: {mounts:?}");
        site.daemon.assert_well();
    }
}
