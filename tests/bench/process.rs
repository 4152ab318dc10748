//! The daemon as a process: its memory, and what it starts.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use crate::support::{Client, Daemon, MIB, Scratch, Setup, requests, stub};

/// Resident memory in bytes (proc_pid_status(5), VmRSS).
pub fn resident(daemon: &Daemon) -> u64 {
    memory(daemon.pid(), "VmRSS:").unwrap()
}

/// The largest resident memory so far (VmHWM).
pub fn resident_at_most(daemon: &Daemon) -> u64 {
    memory(daemon.pid(), "VmHWM:").unwrap()
}

/// A line of proc_pid_status(5); None if the process is gone.
fn memory(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Resident memory of a process and everything below it, together. Pages that they share count for each.
pub fn resident_with_children(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let below = children.map(|text| {
        text.split_whitespace().filter_map(|it| it.parse().ok()).map(resident_with_children).sum::<u64>()
    });
    memory(pid, "VmRSS:").unwrap_or(0) + below.sum::<u64>()
}

/// Bytes as megabytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// How long one fdatasync after an append of 4 KiB takes, in seconds: the median of many.
pub fn fdatasync_seconds(path: &Path) -> f64 {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    let times = crate::load::timed(200, |_| {
        file.write_all(&[7; 4096]).unwrap();
        let started = Instant::now();
        file.sync_data().unwrap();
        started.elapsed().as_secs_f64()
    });
    crate::load::percentile(&times, 50)
}

/// How the log names foreign programs.
const TOOLS: [&str; 8] =
    ["`mkfs", "`e2fsck", "`resize2fs", "`xfs_growfs", "`btrfs", "`rbd", "`rados", "`ceph"];

/// An rpc, and what the daemon starts for it: foreign programs, and its own helpers.
pub type Started = (&'static str, usize, usize);

/// Counts the processes that the daemon logs for this call. The first word of `name` is the rpc.
pub fn started_by(daemon: &Daemon, name: &'static str, call: impl FnOnce()) -> Started {
    let rpc = format!("/{} ", name.split([' ', ',']).next().unwrap());
    let before = daemon.log.lines_with(&rpc).len();
    call();
    // A call's own line is its last, and has the call's number, by which other work does not count.
    let line = daemon.log.await_lines(&rpc, before + 1).pop().unwrap();
    let number = line.split_whitespace().nth(2).unwrap().to_string();
    let ended = daemon.log.lines_with(&format!("call {number}: `"));
    let is_process = |line: &&String| line.contains("` took ") && !line.ends_with(" in the session");
    let ended: Vec<&String> = ended.iter().filter(is_process).collect();
    let tools = ended.iter().filter(|line| TOOLS.iter().any(|tool| line.contains(tool))).count();
    (name, tools, ended.len() - tools)
}

/// The processes of each rpc of a volume's life.
pub fn commands_by_rpc() -> Vec<Started> {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut found = Vec::new();
    let mut count =
        |name: &'static str, rpc: &dyn Fn(&Client)| found.push(started_by(&daemon, name, || rpc(&client)));
    let request = requests::volume_as("life", 320 * MIB, requests::mount("xfs"));
    let volume = client.create(&request).unwrap().volume_id;
    let (stage, target) = (daemon.text("stage"), daemon.text("target"));
    let staged = requests::stage(&volume, &stage, requests::mount("xfs"));
    count("CreateVolume, again", &|client| drop(client.create(&request).unwrap()));
    count("ControllerPublishVolume", &|client| {
        drop(client.controller_publish_volume(&requests::publish_to(&volume, "node-1")).unwrap());
    });
    count("NodeStageVolume, first", &|client| drop(client.node_stage_volume(&staged).unwrap()));
    count("NodeStageVolume, again", &|client| drop(client.node_stage_volume(&staged).unwrap()));
    let published = requests::publish(&volume, &stage, &target, requests::mount("xfs"));
    count("NodePublishVolume", &|client| drop(client.node_publish_volume(&published).unwrap()));
    count("NodeGetVolumeStats", &|client| {
        drop(client.node_get_volume_stats(&requests::stats(&volume, &target)).unwrap())
    });
    count("ControllerExpandVolume", &|client| {
        drop(client.controller_expand_volume(&requests::expand(&volume, 640 * MIB)).unwrap())
    });
    count("NodeExpandVolume", &|client| {
        drop(client.node_expand_volume(&requests::node_expand(&volume, &target)).unwrap())
    });
    count("NodeUnpublishVolume", &|client| {
        drop(client.node_unpublish_volume(&requests::unpublish(&volume, &target)).unwrap())
    });
    count("NodeUnstageVolume", &|client| {
        drop(client.node_unstage_volume(&requests::unstage(&volume, &stage)).unwrap())
    });
    count("NodeStageVolume, formatted", &|client| drop(client.node_stage_volume(&staged).unwrap()));
    count("NodeUnstageVolume", &|client| {
        drop(client.node_unstage_volume(&requests::unstage(&volume, &stage)).unwrap())
    });
    count("ControllerUnpublishVolume", &|client| {
        drop(client.controller_unpublish_volume(&requests::unpublish_from(&volume, "node-1")).unwrap());
    });
    count("CreateSnapshot", &|client| {
        drop(client.create_snapshot(&requests::snapshot("life", &volume)).unwrap())
    });
    count("ListVolumes", &|client| drop(client.list_volumes(&requests::page(0, "")).unwrap()));
    count("GetCapacity", &|client| drop(client.get_capacity(&Default::default()).unwrap()));
    count("DeleteVolume", &|client| drop(client.delete_volume(&requests::delete(&volume)).unwrap()));
    found
}

/// Tools that hang until they are released, and then fail.
pub struct HangingTools {
    scratch: Scratch,
    started: File,
    go: File,
}

impl HangingTools {
    /// Stand-ins for these tools.
    pub fn new(names: &[&str]) -> Self {
        let scratch = Scratch::new();
        let [started, go] = ["started", "go"].map(|name| stub::fifo(&scratch.path(name)));
        let directory = scratch.dir("tools");
        for name in names {
            let (started, go) = (scratch.path("started"), scratch.path("go"));
            let script =
                format!("#!/bin/sh\necho > {}\nread line < {}\nexit 1\n", started.display(), go.display());
            stub::install(&directory.join(name), &script);
        }
        Self { scratch, started, go }
    }

    /// A daemon that finds only these tools.
    pub fn daemon(&self) -> Daemon {
        Setup::new()
            .set("CEPHLET_LOG", "info")
            .set("CEPHLET_TOOL_PATH", self.scratch.path("tools").display())
            .start()
    }

    /// Waits until `count` tools hang.
    pub fn await_started(&self, count: usize) {
        (&self.started).read_exact(&mut vec![0; count]).unwrap();
    }

    /// Releases all tools, also those that start later.
    pub fn release(&self) {
        (&self.go).write_all("\n".repeat(64).as_bytes()).unwrap();
    }
}
