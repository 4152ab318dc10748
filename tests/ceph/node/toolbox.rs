//! A directory of tools for a daemon: each notes its start and becomes the real one.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::stub::{fifo, install};
use crate::support::{Scratch, await_that};

/// The tools of a node without a Ceph package.
const PLAIN: [&str; 8] =
    ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "e2fsck", "resize2fs", "xfs_growfs", "btrfs", "modprobe"];
/// The tools of Ceph's packages.
pub const CEPH: &[&str] = &["rbd", "rados", "ceph", "rbd-nbd"];

/// The directory.
pub struct Toolbox(PathBuf);

impl Toolbox {
    /// The tools that any node has, and these of Ceph's.
    pub fn new(scratch: &Scratch, ceph: &[&str]) -> Self {
        let this = Self(scratch.dir("tools"));
        for tool in PLAIN.iter().chain(ceph) {
            let real =
                ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(|directory| Path::new(directory).join(tool));
            let real =
                real.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{tool} is not installed"));
            let script = format!(
                "#!/bin/sh\necho {tool} >> {}\n[ ! -e {hook} ] || . {hook}\nexec {} \"$@\"\n",
                this.log().display(),
                real.display(),
                hook = this.hook().display(),
            );
            install(&this.0.join(tool), &script);
        }
        fs::write(this.log(), "").expect("an empty log");
        this
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The script that each tool runs before it becomes the real one, if the script is there.
    fn hook(&self) -> PathBuf {
        self.0.join("hook")
    }

    /// The value for CEPHLET_TOOL_PATH.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until the tool was started.
    #[track_caller]
    pub fn await_start(&self, tool: &str) {
        await_that("the tool is started", || match fs::read_to_string(self.log()).expect("the log") {
            log if log.lines().any(|line| line == tool) => Ok(()),
            log => Err(log),
        });
    }

    /// Makes a tool wait: the one with this number among those that start from now on, counted from 1.
    pub fn hold(&self, number: usize) -> Held {
        fs::write(self.log(), "").expect("an empty log");
        let [reached, go] = ["reached", "go"].map(|name| self.0.join(name));
        let held = Held { reached: fifo(&reached), go: fifo(&go), files: vec![self.hook(), reached, go] };
        let [hook, reached, go] = held.files.as_slice() else { unreachable!("three") };
        // There is no PATH here.
        let script = format!(
            "count=0; while read -r line; do count=$((count + 1)); done < {}\n\
             [ $count != {number} ] || {{ echo > {}; read word < {}; }}\n",
            self.log().display(),
            reached.display(),
            go.display(),
        );
        fs::write(hook, script).expect("write the hook");
        held
    }

    /// The tools that were started since this was asked last, in order.
    pub fn started(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).expect("the log");
        fs::write(self.log(), "").expect("an empty log");
        log.lines().map(String::from).collect()
    }
}

/// A tool that waits before it does anything, once it is reached; it goes on when this is dropped.
pub struct Held {
    reached: fs::File,
    go: fs::File,
    files: Vec<PathBuf>,
}

impl Held {
    /// Waits until the tool is started; false if `is_over` is true before.
    pub fn is_reached_before(&self, is_over: impl Fn() -> bool) -> bool {
        let step = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            let mut reached = [PollFd::new(&self.reached, PollFlags::IN)];
            match poll(&mut reached, Some(&step)).expect("poll the FIFO") {
                0 if is_over() => return false,
                0 => {}
                _ => return true,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (&self.go).write_all(b"go\n").expect("tell the tool to go on");
        for file in &self.files {
            fs::remove_file(file).expect("remove what held it");
        }
    }
}
