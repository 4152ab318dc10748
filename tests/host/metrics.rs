//! The daemon's numbers in a file for Prometheus (cephlet-metrics(7)). The file is written every 15 seconds
//! at most, so a test may wait that long for the second time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::machine::{exists, run, text};
use crate::support::requests::*;
use crate::support::scratch::fill_up;
use crate::support::stub::Hanging;
use crate::support::{Code, Daemon, Setup, TestVolume, await_that, refused};

const FILE: &str = "prom/cephlet.prom";

/// The numbers by their names and labels.
type Numbers = BTreeMap<String, f64>;

fn with_file(setup: Setup) -> Setup {
    setup.scratch.dir("prom");
    let file = setup.scratch.path(FILE);
    setup.set("CEPHLET_METRICS", file.display())
}

/// Reads a file, every line of which has the form and the place that Prometheus expects.
fn parse(text: &str) -> Numbers {
    let mut numbers = Numbers::new();
    let (mut name, mut kind) = ("", "");
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", of, _] => (name, kind) = (of, ""),
            ["#", "TYPE", of, what] => {
                assert!(of == name && kind.is_empty(), "{line}");
                kind = what;
            }
            _ => {
                let (series, value) = line.rsplit_once(' ').expect("a name and a value");
                let of = series.split('{').next().unwrap_or_default();
                let endings: &[&str] =
                    if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                assert!(endings.iter().any(|ending| of == format!("{name}{ending}")), "{name}: {line}");
                assert!(!series.contains('{') || series.ends_with("\"}"), "{line}");
                let value = value.parse().expect("a number");
                assert_eq!(numbers.insert(series.to_string(), value), None, "twice: {line}");
            }
        }
    }
    numbers
}

/// Waits until the file has this number; gives all of them.
#[track_caller]
fn await_number(daemon: &Daemon, series: &str, value: f64) -> Numbers {
    await_that(series, || {
        let text = fs::read_to_string(daemon.path(FILE)).map_err(|error| error.to_string())?;
        let numbers = parse(&text);
        if numbers.get(series) == Some(&value) { Ok(numbers) } else { Err(text) }
    })
}

#[test]
fn the_file_has_what_happened() {
    let mut daemon = with_file(Setup::new()).start();
    let numbers = await_number(&daemon, "cephlet_calls_in_progress", 0.0);
    assert!(!numbers.keys().any(|series| series.starts_with("cephlet_calls_total")), "{numbers:?}");
    let client = daemon.client();
    (0..3).for_each(|_| assert!(client.is_ready()));
    refused(client.create(&volume("")), Code::INVALID_ARGUMENT, &[]);
    let one = TestVolume::in_use(&daemon, "one");
    TestVolume::create(&daemon, "two", 32, block());
    let absent = stage("absent", &daemon.text("stage-2"), mount("ext4"));
    refused(client.node_stage_volume(&absent), Code::NOT_FOUND, &[]);
    client.node_get_volume_stats(&stats(&one.id, &daemon.text("target"))).expect("stats");

    let last = "cephlet_calls_total{method=\"NodeGetVolumeStats\",code=\"OK\"}";
    await_number(&daemon, last, 1.0);
    // A lock is given back after the answer.
    let numbers = await_number(&daemon, "cephlet_locks_held", 0.0);
    let calls = numbers.iter().filter(|(series, _)| series.starts_with("cephlet_calls_total"));
    let expected = [
        ("CreateVolume", "INVALID_ARGUMENT", 1.0),
        ("CreateVolume", "OK", 2.0),
        ("NodeGetVolumeStats", "OK", 1.0),
        ("NodePublishVolume", "OK", 1.0),
        ("NodeStageVolume", "NOT_FOUND", 1.0),
        ("NodeStageVolume", "OK", 1.0),
        ("Probe", "OK", 3.0),
    ];
    let expected = expected.map(|(method, code, count)| {
        (format!("cephlet_calls_total{{method=\"{method}\",code=\"{code}\"}}"), count)
    });
    assert_eq!(calls.map(|(series, count)| (series.clone(), *count)).collect::<Vec<_>>(), expected);
    for (series, value) in [
        (concat!("cephlet_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
        ("cephlet_call_seconds_count{method=\"CreateVolume\"}", 3.0),
        ("cephlet_call_seconds_bucket{method=\"CreateVolume\",le=\"+Inf\"}", 3.0),
        ("cephlet_calls_in_progress", 0.0),
        ("cephlet_volumes{backend=\"local\",condition=\"normal\"}", 1.0),
    ] {
        assert_eq!(numbers.get(series), Some(&value), "{series}");
    }
    // By mkfs; the other figures depend on how a volume is made.
    assert!(numbers["cephlet_commands_total{cluster=\"local\",via=\"process\"}"] >= 1.0);
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    assert_eq!(fs::read_dir(daemon.path("prom")).expect("the directory").count(), 0, "a stop removes it");
}

#[test]
fn a_call_that_hangs_is_seen() {
    let setup = with_file(Setup::new());
    let stub = Hanging::new(&setup.scratch, "mkfs.ext4");
    let daemon = setup.with_tools(stub.tool_path()).start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    std::thread::scope(|scope| {
        let staging = scope.spawn(|| volume.stage("stage"));
        stub.await_start();
        let numbers = await_number(&daemon, "cephlet_permits_held{of=\"command\"}", 1.0);
        for series in
            ["cephlet_calls_in_progress", "cephlet_permits_held{of=\"worker\"}", "cephlet_locks_held"]
        {
            assert_eq!(numbers.get(series), Some(&1.0), "{series}");
        }
        let came = numbers["cephlet_oldest_call_start_time_seconds"];
        assert!(came >= numbers["cephlet_start_time_seconds"], "{numbers:?}");
        stub.release();
        staging.join().expect("the client").expect("stage");
    });
    volume.unstage("stage").expect("unstage");
}

#[test]
fn a_missing_directory_is_told() {
    let setup = with_file(Setup::new());
    fs::remove_dir(setup.scratch.path("prom")).expect("remove the directory");
    let checked = setup.command().args(["config", "--check"]).stdout(Stdio::piped()).output();
    let said = checked.expect("run cephlet").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("prom is no directory, so nothing is written"), "{said}");
    let daemon = setup.start();
    daemon.log.await_lines("prom/cephlet.prom cannot be written", 1);
    daemon.client().create(&volume("one")).expect("create");
    daemon.assert_well();
}

#[test]
fn a_daemon_without_room_for_the_file_works_on_and_writes_it_later() {
    let setup = with_file(Setup::new());
    let full = setup.scratch.small_disk("prom", "tmpfs", 1);
    let ballast = fill_up(&full);
    let daemon = setup.start();
    daemon.log.await_lines("prom/cephlet.prom cannot be written", 1);
    daemon.client().create(&volume("one")).expect("create");
    fs::remove_file(ballast).expect("remove the ballast");
    await_number(&daemon, "cephlet_calls_total{method=\"CreateVolume\",code=\"OK\"}", 1.0);
    assert_eq!(daemon.log.lines_with("cannot be written").len(), 1, "it is said once");
    assert_eq!(fs::read_dir(&full).expect("the directory").count(), 1, "nothing else is left");
}

#[test]
fn a_daemon_that_was_killed_leaves_a_file_that_the_next_replaces() {
    let mut daemon = with_file(Setup::new()).start();
    await_number(&daemon, "cephlet_calls_in_progress", 0.0);
    daemon.kill9();
    assert!(exists(&daemon.path(FILE)));
    fs::write(daemon.path(FILE), "of the one that was killed").expect("write");
    fs::write(daemon.path("prom/cephlet.prom.new"), "of the one that was killed").expect("write");
    daemon.restart();
    await_that("the next file", || match fs::read_to_string(daemon.path(FILE)).expect("the file") {
        old if old.starts_with("of ") => Err(old),
        new => Ok(parse(&new)),
    });
    assert!(!exists(&daemon.path("prom/cephlet.prom.new")));
}

#[test]
fn a_file_that_nobody_would_read_is_refused() {
    let (status, said) = Setup::new().set("CEPHLET_METRICS", "/var/lib/cephlet/numbers.txt").fail();
    assert_eq!(status, 2);
    assert!(said.contains("CEPHLET_METRICS") && said.contains(".prom"), "{said}");
}

/// What promtool says of its input, which it accepts.
fn promtool(arguments: &[&str], input: Option<&Path>) {
    let mut promtool = Command::new("promtool");
    if let Some(input) = input {
        promtool.stdin(fs::File::open(input).expect("the input"));
    }
    let found = promtool.args(arguments).output().expect("promtool: install Debian's package prometheus");
    let said = [found.stdout, found.stderr].concat();
    assert!(found.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// Its package is large.
#[test]
#[ignore = "rare: tests/run --full"]
fn prometheus_accepts_the_file_and_the_rules() {
    let daemon = with_file(Setup::new()).start();
    assert!(daemon.client().is_ready());
    await_number(&daemon, "cephlet_calls_total{method=\"Probe\",code=\"OK\"}", 1.0);
    promtool(&["check", "metrics"], Some(&daemon.path(FILE)));
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (rules, tests) = (daemon.path("cephlet.rules.yml"), daemon.path("cephlet.rules.test.yml"));
    for (from, to) in [
        ("packaging/prometheus/cephlet.rules.yml", &rules),
        ("tests/fixtures/cephlet.rules.test.yml", &tests),
    ] {
        run("cp", &[text(&checkout.join(from)), text(to)]);
    }
    promtool(&["check", "rules", text(&rules)], None);
    promtool(&["test", "rules", text(&tests)], None);
}
