//! Stand-ins for external tools, in a directory that CEPHLET_TOOL_PATH can name.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};

use super::Scratch;
use super::machine::{run, text};
use super::notify::timeout;

/// The daemon's own list of directories, behind the stubs.
pub const BEHIND: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A tool that writes how far it is, says on a FIFO that it was started, and waits on another one until it is
/// released; then it becomes the real tool.
pub struct Hanging {
    directory: PathBuf,
    started: fs::File,
    go: fs::File,
}

impl Hanging {
    /// Replaces `tool`. Only the first start hangs.
    pub fn new(scratch: &Scratch, tool: &str) -> Self {
        Self::when(scratch, tool, "*")
    }

    /// The same, but only the first start hangs whose arguments match this pattern of the shell.
    pub fn when(scratch: &Scratch, tool: &str, arguments: &str) -> Self {
        let directory = scratch.dir("stubs");
        let [started, go] = ["started", "go"].map(|name| fifo(&directory.join(name)));
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in {arguments}) mkdir {dir}/once 2>/dev/null && {{ printf '\\rStand-in: 42%% complete...' >&2; echo $$ > {dir}/started; read word < {dir}/go; [ \
             $word = go ] || exit 1; }};; esac\n\
             PATH={BEHIND} exec {tool} \"$@\"\n",
            dir = directory.display()
        );
        install(&directory.join(tool), &script);
        Self { directory, started, go }
    }

    /// The value for CEPHLET_TOOL_PATH.
    pub fn tool_path(&self) -> String {
        format!("{}:{BEHIND}", self.directory.display())
    }

    /// Waits until the tool runs.
    pub fn await_start(&self) {
        let mut started = [PollFd::new(&self.started, PollFlags::IN)];
        let count = poll(&mut started, Some(&timeout())).expect("poll the FIFO");
        assert_eq!(count, 1, "the tool was not started");
        let mut byte = [0];
        (&self.started).read_exact(&mut byte).expect("the tool says that it runs");
    }

    /// Lets the tool go on.
    pub fn release(&self) {
        (&self.go).write_all(b"go\n").expect("tell the tool to go on");
    }

    /// Lets the tool fail, without having touched anything.
    pub fn fail(&self) {
        (&self.go).write_all(b"fail\n").expect("tell the tool to fail");
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // A tool that outlived its daemon must end without touching a device, which may be another test's by
        // now.
        self.fail();
    }
}

/// A FIFO, opened for both so that no open ever waits for the other side (fifo(7)).
pub fn fifo(path: &Path) -> fs::File {
    run("mkfifo", &[text(path)]);
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("open the FIFO").into()
}

/// Writes a script that can be run. Not in this process: a child that another test starts at that moment
/// would have the file open for writing too, and what is open for writing cannot be executed.
pub fn install(path: &Path, script: &str) {
    run("sh", &["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "install", text(path), script]);
}
