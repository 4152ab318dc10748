//! A directory of tools for a daemon: each notes its start and becomes the real one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::stub::install;
use crate::support::{Scratch, await_that};

/// What a node has without a Ceph package.
const PLAIN: [&str; 8] =
    ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "e2fsck", "resize2fs", "xfs_growfs", "btrfs", "modprobe"];
/// What Ceph's packages bring.
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
                "#!/bin/sh\necho {tool} >> {}\nexec {} \"$@\"\n",
                this.log().display(),
                real.display()
            );
            install(&this.0.join(tool), &script);
        }
        fs::write(this.log(), "").expect("an empty log");
        this
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
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

    /// The tools that were started since this was asked last, in order.
    pub fn started(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).expect("the log");
        fs::write(self.log(), "").expect("an empty log");
        log.lines().map(String::from).collect()
    }
}
