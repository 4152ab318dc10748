//! Trees of CephFS that are mounted, whichever client has mounted them: how they answer, and their unmount.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dispatch::Call;
use crate::error::{Kind, Result};
use crate::exec::Class;
use crate::kernel::{HelperRequest, Kernel};
use crate::sys::ceph::{ask_server, unmount_forced, write_out};
use crate::sys::mount::{self, Unmounted};
use crate::sys::mountinfo::{Mount, Mounts};

/// How long an MDS may take for an answer before it counts as silent.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a tree may write out what it holds before its MDS is asked whether it is there: another MDS takes
/// over within half of that.
const WRITING_OUT: Duration = Duration::from_secs(60);

/// How a mounted tree answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    /// Its MDS answers.
    Answers,
    /// Its MDS has not answered, and may yet.
    Silent,
    /// Every access fails with this errno, until it is mounted anew.
    Failed(i32),
}

impl Kernel {
    /// How the tree that is mounted at `path` answers.
    ///
    /// # Errors
    /// Those of asking a helper.
    pub fn look_at_tree(&self, call: &Call, path: &Path) -> Result<Tree> {
        let step = format!("look whether {} answers", path.display());
        match self.ask(call, &step, Class::Question, &HelperRequest::LookAtTree { path: path.into() }) {
            // ceph-fuse lets a process wait that cannot be killed.
            Err(error) if error.kind() == Kind::Timeout => Ok(Tree::Silent),
            found => found,
        }
    }
}

/// Serves the request.
pub(in crate::kernel) fn look_at(path: &Path) -> Tree {
    let path = path.to_path_buf();
    match within(ANSWER, move || ask_server(&path)) {
        None => Tree::Silent,
        Some(Ok(())) => Tree::Answers,
        Some(Err(error)) => Tree::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Unmounts the topmost mount at `target`, a tree or not. A dead one in use is detached. The last mount of a
/// tree whose MDS does not answer is unmounted by force. If the MDS answers, the tree stays until all that it
/// holds is written out: force would drop the rest.
///
/// # Errors
/// Those of umount2(2); EAGAIN: it still writes out what it holds.
///
/// A plain umount2(2) takes the mount out of the tree of mounts first, and waits for the servers then; so it
/// could not be forced any more.
pub(in crate::kernel) fn unmount(target: &Path) -> io::Result<Unmounted> {
    unmount_after(WRITING_OUT, target)
}

fn unmount_after(limit: Duration, target: &Path) -> io::Result<Unmounted> {
    let mounts = Mounts::read()?;
    let Some(tree) = mounts.find_at(target).filter(|mount| mount.is_ceph()) else {
        return mount::ensure_unmounted(target);
    };
    let (is_last, path) = (mounts.of_file_system(tree.device).count() == 1, target.to_path_buf());
    if is_last && within(limit, move || write_out(&path).and_then(|()| ask_server(&path))).is_none() {
        return match look_at(target) {
            Tree::Answers => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Tree::Silent | Tree::Failed(_) => unmount_forced(target).map(|()| Unmounted::Forced),
        };
    }
    match mount::unmount(target) {
        Ok(()) => Ok(Unmounted::Done),
        Err(busy) if busy.raw_os_error() == Some(libc::EBUSY) => match look_at(target) {
            Tree::Failed(_) => give_up(target, tree).map(|()| Unmounted::Detached),
            Tree::Answers | Tree::Silent => Err(busy),
        },
        Err(_) => mount::ensure_unmounted(target),
    }
}

/// Detaches a dead tree in use. Its users would keep the process of ceph-fuse. The kernel's client goes with
/// its last user; forced, it was seen to hang then (Linux 6.1).
fn give_up(target: &Path, tree: &Mount) -> io::Result<()> {
    match tree.fs_type.as_str() {
        "ceph" => mount::unmount_detached(target),
        _ => unmount_forced(target),
    }
}

/// Does work that can hang, but waits no longer than `limit` for it. What still hangs ends with this process.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(limit).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::sys::mount::Options;
    use crate::sys::scratch::in_private_mounts;

    /// Mounts a file system of ceph-fuse, whose process is this one and never answers.
    fn silent_tree(at: &Path) -> File {
        let process = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let fd = format!("fd={}", process.as_raw_fd());
        let options = Options::parse(&[&fd, "rootmode=40000", "user_id=0", "group_id=0"]);
        mount::mount(Path::new("ceph-fuse:/volumes/a/b"), at, "fuse.ceph-fuse", &options).unwrap();
        process
    }

    #[test]
    fn a_mount_of_ceph_fuse_is_recognised_when_its_process_is_gone_and_unmounted_in_use() {
        in_private_mounts(|dir| {
            drop(silent_tree(dir));
            let found = Mounts::read().unwrap().find_at(dir).unwrap().clone();
            assert_eq!(found.ceph_path(), Some("/volumes/a/b"));
            assert_eq!(look_at(dir), Tree::Failed(libc::ENOTCONN));
            let _user = rustix::fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            assert_eq!(unmount(dir).unwrap(), Unmounted::Detached);
            assert_ne!(Mounts::read().unwrap().find_at(dir), Some(&found));
        });
    }

    #[test]
    fn a_tree_that_does_not_take_what_is_written_out_is_unmounted_by_force() {
        in_private_mounts(|dir| {
            let _process = silent_tree(dir);
            let found = Mounts::read().unwrap().find_at(dir).unwrap().clone();
            assert_eq!(unmount_after(Duration::from_millis(10), dir).unwrap(), Unmounted::Forced);
            assert_ne!(Mounts::read().unwrap().find_at(dir), Some(&found));
        });
    }

    #[test]
    fn what_is_no_tree_answers_and_is_unmounted_as_ever() {
        in_private_mounts(|dir| {
            mount::mount(Path::new("scratch"), dir, "tmpfs", &Options::parse::<&str>(&[])).unwrap();
            assert_eq!(look_at(dir), Tree::Answers);
            assert_eq!(unmount_after(Duration::ZERO, dir).unwrap(), Unmounted::Done);
        });
    }
}
