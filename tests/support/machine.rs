//! The machine around the daemon: mounts, loop devices, tools.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use std::{fmt, fs};

use super::PATIENCE;

/// A line of /proc/self/mountinfo.
#[derive(Clone, Debug)]
pub struct Mount {
    pub point: PathBuf,
    pub options: String,
    pub fs_type: String,
    pub source: String,
}

/// All mounts at or below `path`, in the order in which they were made.
pub fn mounts_below(path: &Path) -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo is readable");
    text.lines().filter_map(parse).filter(|mount| mount.point.starts_with(path)).collect()
}

/// The mount at exactly `path`, the top one if there are several.
pub fn mount_at(path: &Path) -> Option<Mount> {
    mounts_below(path).into_iter().rfind(|mount| mount.point == path)
}

/// Whether something is mounted at `path`.
pub fn is_mounted(path: &Path) -> bool {
    mount_at(path).is_some()
}

/// proc_pid_mountinfo(5): optional fields end with a lone dash.
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (fs_type, source) = (right.next()?.to_string(), right.next()?.to_string());
    Some(Mount {
        point: PathBuf::from(left[4].replace("\\040", " ")),
        options: left[5].to_string(),
        fs_type,
        source,
    })
}

/// Loop devices whose file lies below `path`: device and file.
pub fn loops_below(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let devices = fs::read_dir("/sys/block").expect("/sys/block is readable").flatten();
    let backed = devices.filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let file = PathBuf::from(file.trim_end().trim_end_matches(" (deleted)"));
        file.starts_with(path).then(|| (Path::new("/dev").join(entry.file_name()), file))
    });
    backed.collect()
}

/// The devices that the kernel's RBD driver has mapped the image as.
pub fn rbd_devices(image: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/bus/rbd/devices").expect("the driver").flatten();
    let is_it = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim_end() == image)
    };
    entries
        .filter(is_it)
        .map(|entry| Path::new("/dev").join(format!("rbd{}", entry.file_name().display())))
        .collect()
}

/// A tool that is killed when it hangs. Its parent is `timeout`, not this process.
pub fn limited(time: Duration, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &time.as_secs().to_string(), program]);
    command
}

/// Runs a tool that must succeed; gives its output.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> String {
    run_within(PATIENCE, program, arguments)
}

/// The same with another timeout.
#[track_caller]
pub fn run_within(time: Duration, program: &str, arguments: &[&str]) -> String {
    let output = limited(time, program).args(arguments).output();
    let Output { status, stdout, stderr } = output.expect("timeout");
    assert!(status.success(), "{program} {arguments:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).trim().to_string()
}

/// A path as text; those of tests are always UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Everything below `path`: names, lengths and allocated blocks of files, to compare before and after. Mounts
/// are not entered.
pub fn picture(path: &Path) -> Vec<String> {
    let listing = run("find", &[text(path), "-xdev", "-printf", "%p %y %s %b\n"]);
    let mut lines: Vec<String> = listing.lines().map(String::from).collect();
    lines.sort();
    lines
}

/// The image files of all local volumes below `directory`.
pub fn images(directory: &Path) -> Vec<PathBuf> {
    run("find", &[text(directory), "-type", "f", "-name", "image"]).lines().map(PathBuf::from).collect()
}

/// The SHA-256 of some content. A wrong one means lost data, which `tests/run` forgives no test: an assertion
/// that fails prints it with the word UNSAFE.
#[derive(Clone, PartialEq, Eq)]
pub struct Checksum(String);

impl Checksum {
    /// The checksum in the output of `sha256sum`.
    pub fn told(said: &str) -> Self {
        Self(said.split(' ').next().unwrap_or_default().to_string())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UNSAFE: content {}", self.0)
    }
}

/// The SHA-256 of a file.
pub fn checksum(path: &Path) -> Checksum {
    Checksum::told(&run("sha256sum", &[text(path)]))
}

/// User, group and permissions of a file, links not followed.
pub fn owner(path: &Path) -> (u32, u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

/// Has an unprivileged process write a file into a directory, which need not be reachable for it.
pub fn write_as(user: u32, group: u32, directory: &Path, name: &str) -> bool {
    let script = "cd \"$1\" && exec setpriv --reuid $2 --regid $3 --clear-groups sh -c 'echo data > '$4";
    let (user, group) = (user.to_string(), group.to_string());
    let writer = limited(super::PATIENCE, "sh")
        .args(["-c", script, "write", text(directory), &user, &group, name])
        .stderr(std::process::Stdio::null())
        .status();
    writer.expect("setpriv: install Debian's package util-linux").success()
}

/// Whether something exists at a path, links not followed.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
