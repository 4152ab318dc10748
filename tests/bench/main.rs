//! The key figures, measured on this machine in this run. They are printed beside their target values, but
//! never asserted, as machines differ.
//!
//! `packaging/cargo test --test bench`, or one part of it: `packaging/cargo test --test bench -- rbd`

#![allow(clippy::disallowed_methods, reason = "the rules are the product's")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]

#[path = "../support/mod.rs"]
mod support;

mod cephfs;
mod load;
mod process;
mod rbd;
mod sites;

use std::time::Instant;

use load::{all_at_once, create, percentile, timed};
use process::{
    HangingTools, Started, commands_by_rpc, fdatasync_seconds, megabytes, resident, resident_at_most,
};
use support::{Daemon, MIB, Setup, requests};

/// How many callers there are where the figure says "16 callers".
const CALLERS: usize = 16;

/// Prints a figure.
fn figure(name: &str, value: impl std::fmt::Display, wanted: &str) {
    println!("{name:<58} {value:>14}   {wanted}");
}

fn main() {
    println!("{:<58} {:>14}   should be", "figure", "measured");
    let part = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| part.as_ref().is_none_or(|part| part == name);
    if wanted("local") {
        local();
    }
    if wanted("rbd") {
        rbd::measure();
    }
    if wanted("cephfs") {
        cephfs::measure();
    }
    if wanted("sites") {
        sites::measure();
    }
}

fn local() {
    binary();
    memory_and_creates();
    many_callers();
    probe_under_load();
    show(&commands_by_rpc());
    many_volumes();
}

/// Names of volumes to ask for.
fn names(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{what}-{number}")).collect()
}

/// A daemon that logs what a daemon in production logs.
fn daemon() -> Daemon {
    Setup::new().set("CEPHLET_LOG", "info").start()
}

fn binary() {
    let bytes = std::fs::metadata(env!("CARGO_BIN_EXE_cephlet")).unwrap().len();
    figure(
        "binary, as tests link it; packaging/build's is smaller",
        format!("{:.2} MB", bytes as f64 / 1e6),
        "≤ 6 MB",
    );
}

fn memory_and_creates() {
    let started = Instant::now();
    let daemon = daemon();
    let ready = started.elapsed();
    figure("start to accepting, empty journal", format!("{:.1} ms", ready.as_secs_f64() * 1e3), "≤ 15 ms");
    figure("resident, idle", megabytes(resident(&daemon)), "≤ 6 MB");

    let sync = fdatasync_seconds(daemon.scratch().path("sync").as_path());
    let names = names("volume", 1000);
    let seconds = all_at_once(&daemon, CALLERS, &names, create);
    let rate = names.len() as f64 / seconds;
    figure("CreateVolume, 16 callers, durable", format!("{rate:.0} /s"), "≥ 1000 /s");
    figure("one fdatasync of a 4 KiB append, same disk", format!("{:.0} µs", sync * 1e6), "");
    figure("creates per fdatasync time", format!("{:.2}", rate * sync), "");
    figure("resident after 1000 creates, 16 callers", megabytes(resident(&daemon)), "≤ 12 MB");

    let seconds = all_at_once(&daemon, CALLERS, &names, create);
    figure(
        "the same requests again, 16 callers",
        format!("{:.0} /s", names.len() as f64 / seconds),
        "≥ 5000 /s",
    );
    let client = daemon.client();
    let one = timed(200, |number| client.create(&requests::volume(&format!("single-{number}"))).unwrap());
    figure("CreateVolume, one caller, median", format!("{:.2} ms", percentile(&one, 50) * 1e3), "");
}

/// The time and memory of calls that wait for each other.
fn many_callers() {
    for (callers, wanted) in [(64, "≤ 13 MB"), (256, "≤ 24 MB")] {
        // The calls for one disk may fill half of the queue.
        let daemon = Setup::new().set("CEPHLET_LOG", "info").set("CEPHLET_QUEUE", "512").start();
        let names = names("volume", 8 * callers);
        let seconds = all_at_once(&daemon, callers, &names, create);
        let rate = names.len() as f64 / seconds;
        figure(&format!("CreateVolume, {callers} callers, durable"), format!("{rate:.0} /s"), "");
        let most = megabytes(resident_at_most(&daemon));
        figure(&format!("resident at most, {callers} callers"), most, wanted);
    }
}

/// Start-up and lists with many volumes in the local directory.
fn many_volumes() {
    const VOLUMES: usize = 100_000;
    let mut daemon = Setup::new().set("CEPHLET_LOG", "warn").start();
    let names = names("volume", VOLUMES);
    let seconds = all_at_once(&daemon, CALLERS, &names, |client, name| {
        client.create(&requests::volume_as(name, MIB, requests::block())).unwrap();
    });
    figure(
        "creates while 100 000 volumes come to be, 16 callers",
        format!("{:.0} /s", VOLUMES as f64 / seconds),
        "",
    );
    assert!(daemon.terminate().success());
    let started = Instant::now();
    daemon.restart();
    let ready = started.elapsed();
    figure(
        "start to accepting, 100 000 volumes on record",
        format!("{:.0} ms", ready.as_secs_f64() * 1e3),
        "≤ 1000 ms",
    );
    figure("resident, 100 000 volumes on record", megabytes(resident(&daemon)), "≤ 40 MB");
    let client = daemon.client();
    let page = timed(5, |_| client.list_volumes(&requests::page(1000, "")).unwrap());
    figure(
        "ListVolumes, first 1000 of 100 000, median",
        format!("{:.0} ms", percentile(&page, 50) * 1e3),
        "",
    );
    let capacity = timed(3, |_| client.get_capacity(&Default::default()).unwrap());
    figure(
        "GetCapacity with 100 000 volumes, median",
        format!("{:.0} ms", percentile(&capacity, 50) * 1e3),
        "",
    );
}

/// Prints how many processes each rpc starts.
fn show(started: &[Started]) {
    println!("\n{:<58} {:>14}   own helpers", "processes per rpc", "foreign");
    for (rpc, tools, helpers) in started {
        println!("{rpc:<58} {tools:>14}   {helpers}");
    }
    println!();
}

/// Probe while 64 creates run and every tool hangs.
fn probe_under_load() {
    let tools = HangingTools::new(&["mkfs.ext4"]);
    let daemon = tools.daemon();
    let stuck = load::stage_in_background(&daemon, 4);
    // CEPHLET_TOOLS lets so many tools run without a deadline.
    tools.await_started(3);
    let stop = load::create_in_background(&daemon, 64);
    let client = daemon.client();
    let times = timed(2000, |_| client.probe(&Default::default()).unwrap());
    drop(stop);
    let p99 = percentile(&times, 99);
    figure("Probe, 64 creates running, every tool hanging, p99", format!("{:.2} ms", p99 * 1e3), "≤ 20 ms");
    tools.release();
    stuck.into_iter().for_each(|thread| thread.join().unwrap());
}
