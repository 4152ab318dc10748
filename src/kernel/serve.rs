//! The helper's side: one request, the system calls for it, one reply.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::backing::{self, Backing};
use super::failure::{Answer, During, SyscallFailure};
use super::{HelperReply, HelperRequest, ceph, rbd};
use crate::sys::copy::{Reflink, reflink};
use crate::sys::freeze::{self, Frozen};
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::mount::{self, Options};
use crate::sys::owner::{self, Owner, Sharing};
use crate::sys::superblock::{Content, Journal};
use crate::sys::{block, discard, file, loopdev, openers, statfs};

/// Serves one request. To be called in a helper process, which SIGTERM does not end.
pub fn handle(request: &[u8]) -> Vec<u8> {
    let reply = match serde_json::from_slice(request) {
        Ok(request) => serve(&request).unwrap_or_else(HelperReply::Failed),
        Err(error) => HelperReply::Failed(SyscallFailure {
            action: "read the request".into(),
            errno: None,
            text: error.to_string(),
        }),
    };
    // Replies contain nothing that JSON cannot express. The daemon takes an empty reply as broken.
    serde_json::to_vec(&reply).unwrap_or_default()
}

fn serve(request: &HelperRequest) -> Answer<HelperReply> {
    match request {
        HelperRequest::AttachLoop { image, read_only } => attach(image, *read_only),
        HelperRequest::DetachLoop { device } => detach(device).map(HelperReply::Detached),
        HelperRequest::GrowLoop { device } => loopdev::set_capacity(device.as_ref())
            .map(HelperReply::Bytes)
            .during(|| format!("grow {}", device.display())),
        HelperRequest::RefuseDiscard { device } => refuse_discard(device),
        HelperRequest::ReplayJournal { device } => replay_journal(device),
        HelperRequest::Identify { device, sparse_file } => look_at(device, sparse_file.as_deref()),
        HelperRequest::RemoveHalfMade { device, sparse_file } => {
            backing::remove_half_made(device, sparse_file.as_deref()).map(|()| HelperReply::Done)
        }
        HelperRequest::DeviceSize { device } => {
            let size = block::open(device.as_ref()).and_then(|device| block::size(&device));
            size.map(HelperReply::Bytes).during(|| format!("ask the size of {}", device.display()))
        }
        HelperRequest::Mount { source, target, fs_type, options, read_only } => {
            let options =
                if *read_only { Options::parse(options).read_only() } else { Options::parse(options) };
            mount_device(source, target, fs_type, &options)
        }
        HelperRequest::MountTree { tree, target } => ceph::serve(tree, target),
        HelperRequest::VerifyTree { tree, target } => ceph::verify(tree, target.as_ref()),
        HelperRequest::LookAtTree { path } => Ok(HelperReply::Tree(ceph::look_at(path.as_ref()))),
        HelperRequest::Bind { source, target, read_only } => bind(source, target, *read_only),
        HelperRequest::Unmount { target } => ceph::unmount(target.as_ref())
            .map(HelperReply::Unmounted)
            .during(|| format!("unmount {}", target.display())),
        HelperRequest::Statfs { path } => statfs::usage(path.as_ref())
            .map(HelperReply::Usage)
            .during(|| format!("ask how full {} is", path.display())),
        HelperRequest::Own { root, owner, sharing } => own(root.as_ref(), owner, *sharing),
        HelperRequest::IsShutDown { path } => mount::is_shut_down(path.as_ref())
            .map(HelperReply::ShutDown)
            .during(|| format!("look whether {} is shut down", path.display())),
        HelperRequest::CloneFrozen { mount_points, from, to } => {
            clone_frozen(mount_points, from.as_ref(), to.as_ref()).map(HelperReply::Cloned)
        }
        HelperRequest::Thaw { mount_point } => freeze::thaw(mount_point.as_ref())
            .map(HelperReply::Thawed)
            .during(|| format!("thaw {}", mount_point.display())),
        HelperRequest::IsClaimed { device } => block::is_claimed(device.as_ref())
            .map(HelperReply::Claimed)
            .during(|| format!("look whether {} is in use", device.display())),
        HelperRequest::Openers { device } => {
            openers::of(*device).map(HelperReply::Openers).during(|| format!("look who has {device} open"))
        }
        HelperRequest::Rbd(request) => rbd::serve(request).map(HelperReply::Rbd),
    }
}

/// First resets devices on which a former user has turned discard off, if possible.
fn attach(image: &OsStr, read_only: bool) -> Answer<HelperReply> {
    let _ = discard::restore_unused(discard::ONCE);
    let attached = loopdev::attach(image.as_ref(), read_only);
    attached.map(HelperReply::Attached).during(|| format!("attach {} to a loop device", image.display()))
}

/// Resets discard afterwards, so that the next user of the device finds it as it was.
fn detach(device: &LoopDevice) -> Answer<Detached> {
    let detached = loopdev::detach(device).during(|| format!("detach {}", device.path.display()))?;
    // If this fails, the next image takes more room than it needs; the detach has succeeded.
    let _ = discard::restore_unused(discard::PATIENTLY);
    Ok(detached)
}

fn bind(source: &OsStr, target: &OsStr, read_only: bool) -> Answer<HelperReply> {
    let (source, target) = (Path::new(source), Path::new(target));
    let bound = if read_only { mount::bind_read_only(source, target) } else { mount::bind(source, target) };
    let manner = if read_only { " read-only" } else { "" };
    bound
        .map(|()| HelperReply::Done)
        .during(|| format!("bind {} on {}{manner}", source.display(), target.display()))
}

fn own(root: &Path, owner: &Owner, sharing: Option<Sharing>) -> Answer<HelperReply> {
    if !owner.is_none() {
        owner::give(root, owner).during(|| format!("give {} to its owner", root.display()))?;
    }
    if let Some(sharing) = sharing {
        let Sharing { gid, .. } = sharing;
        owner::share(root, sharing).during(|| format!("give {} to the group {gid}", root.display()))?;
    }
    Ok(HelperReply::Done)
}

fn look_at(device: &Backing, sparse_file: Option<&OsStr>) -> Answer<HelperReply> {
    let _held = device.hold()?;
    backing::identify(&device.path(), sparse_file).map(HelperReply::Identified)
}

fn refuse_discard(device: &Backing) -> Answer<HelperReply> {
    let _held = device.hold()?;
    let path = device.path();
    discard::refuse(&path)
        .map(|()| HelperReply::Done)
        .during(|| format!("turn discard off for {}", path.display()))
}

fn replay_journal(device: &Backing) -> Answer<HelperReply> {
    let _held = device.hold()?;
    let path = device.path();
    match backing::identify(&path, None)?.content {
        Content::FileSystem(found) if found.journal != Journal::Clean => {
            let fs_type = found.fs_type.name();
            mount::replay_journal(&path, fs_type)
                .map(|()| HelperReply::Done)
                .during(|| format!("replay the journal of the {fs_type} on {}", path.display()))
        }
        _ => Ok(HelperReply::Done),
    }
}

/// Mounts the very device that was checked, because it is held open.
fn mount_device(source: &Backing, target: &OsStr, fs_type: &str, options: &Options) -> Answer<HelperReply> {
    let _held = source.hold()?;
    let (source, target) = (source.path(), Path::new(target));
    mount::mount(&source, target, fs_type, options)
        .map(|()| HelperReply::Done)
        .during(|| format!("mount {} ({fs_type}) on {}", source.display(), target.display()))
}

/// All work that can fail or take time and needs no freeze is done before and after the freeze.
fn clone_frozen(mount_points: &[impl AsRef<Path>], from: &Path, to: &Path) -> Answer<Reflink> {
    let source = File::open(from).during(|| format!("open {}", from.display()))?;
    let target = file::create_new(to).during(|| format!("create {}", to.display()))?;
    let cloned = reflink_frozen(mount_points, &source, &target, to).and_then(|how| {
        if how == Reflink::Cloned {
            file::sync_file(&target).during(|| format!("sync {}", to.display()))?;
        }
        Ok(how)
    });
    if cloned != Ok(Reflink::Cloned) {
        let removed = file::remove(to).during(|| format!("remove {}", to.display()));
        return cloned.and_then(|how| removed.map(|_| how));
    }
    cloned
}

fn reflink_frozen(
    mount_points: &[impl AsRef<Path>],
    source: &File,
    target: &File,
    to: &Path,
) -> Answer<Reflink> {
    let volumes = file_systems(mount_points)?;
    let home = target.metadata().during(|| format!("stat {}", to.display()))?.dev();
    if let Some((mount_point, _)) = volumes.iter().find(|(_, device)| *device == home) {
        // The clone would wait for the thaw and the thaw for the clone, for ever.
        let deadlock = Err(io::Error::from_raw_os_error(libc::EDEADLK));
        return deadlock
            .during(|| format!("freeze {}, which holds {} itself", mount_point.display(), to.display()));
    }
    // On every way out of this function, the drop of `frozen` thaws the file systems.
    let frozen = freeze_all(&volumes)?;
    let cloned = reflink(source, target).during(|| format!("clone to {}", to.display()));
    for (mount_point, frozen) in frozen {
        frozen.thaw().during(|| {
            format!("thaw {} (it still hangs its writers: `fsfreeze --unfreeze` it)", mount_point.display())
        })?;
    }
    cloned
}

/// Each file system once, even if several of its mounts are named: a second freeze fails with EBUSY.
fn file_systems<P: AsRef<Path>>(mount_points: &[P]) -> Answer<Vec<(&Path, u64)>> {
    let mut found: Vec<(&Path, u64)> = Vec::new();
    for mount_point in mount_points.iter().map(AsRef::as_ref) {
        let device =
            std::fs::metadata(mount_point).during(|| format!("stat {}", mount_point.display()))?.dev();
        if !found.iter().any(|(_, seen)| *seen == device) {
            found.push((mount_point, device));
        }
    }
    Ok(found)
}

fn freeze_all<'a>(volumes: &[(&'a Path, u64)]) -> Answer<Vec<(&'a Path, Frozen)>> {
    let freeze = |(mount_point, _): &(&'a Path, u64)| {
        let frozen = Frozen::freeze(mount_point).during(|| format!("freeze {}", mount_point.display()))?;
        Ok((*mount_point, frozen))
    };
    volumes.iter().map(freeze).collect()
}
