//! The helper's side: one request, the system calls for it, one reply.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::backing::{self, Backing, Identified};
use super::failure::{Answer, During, SyscallFailure, reply};
use super::{HelperRequest, ceph, rbd};
use crate::sys::copy::{Reflink, reflink};
use crate::sys::freeze::{self, Frozen};
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::mount::{self, Options};
use crate::sys::owner::{self, Owner, Sharing};
use crate::sys::rbd::Bus;
use crate::sys::superblock::{Content, Journal};
use crate::sys::{block, discard, file, loopdev, openers, statfs};

/// Serves one request. To be called in a helper process, which SIGTERM does not end.
pub fn handle(request: &[u8]) -> Vec<u8> {
    match serde_json::from_slice(request) {
        Ok(request) => serve(&request),
        Err(error) => reply(Err::<(), _>(SyscallFailure {
            action: Some("read the request".into()),
            errno: None,
            text: error.to_string(),
        })),
    }
}

fn serve(request: &HelperRequest) -> Vec<u8> {
    match request {
        HelperRequest::AttachLoop { image, read_only } => reply(attach(image.as_ref(), *read_only)),
        HelperRequest::DetachLoop { device } => reply(detach(device)),
        HelperRequest::GrowLoop { device } => reply(loopdev::set_capacity(device.as_ref())),
        HelperRequest::RefuseDiscard { device } => reply(refuse_discard(device)),
        HelperRequest::ReplayJournal { device } => reply(replay_journal(device)),
        HelperRequest::Identify { device, sparse_file } => reply(look_at(device, sparse_file.as_deref())),
        HelperRequest::RemoveHalfMade { device, sparse_file } => {
            reply(backing::remove_half_made(device, sparse_file.as_deref()))
        }
        HelperRequest::DeviceSize { device } => {
            reply(block::open(device.as_ref()).and_then(|device| block::size(&device)))
        }
        HelperRequest::Mount { source, target, fs_type, options, read_only } => {
            let options = Options::parse(options);
            let options = if *read_only { options.read_only() } else { options };
            reply(mount_device(source, target, fs_type, &options))
        }
        HelperRequest::MountTree { tree, target } => reply(ceph::serve(tree, target.as_ref())),
        HelperRequest::VerifyTree { tree, target } => reply(ceph::verify(tree, target.as_ref())),
        HelperRequest::LookAtTree { path } => reply(Answer::Ok(ceph::look_at(path.as_ref()))),
        HelperRequest::Bind { source, target, read_only } => reply(bind(source, target, *read_only)),
        HelperRequest::Unmount { target } => reply(ceph::unmount(target.as_ref())),
        HelperRequest::Statfs { path } => reply(statfs::usage(path.as_ref())),
        HelperRequest::Own { root, owner, sharing } => reply(own(root.as_ref(), owner, *sharing)),
        HelperRequest::IsShutDown { path } => reply(mount::is_shut_down(path.as_ref())),
        HelperRequest::CloneFrozen { mount_points, from, to } => {
            reply(clone_frozen(mount_points, from.as_ref(), to.as_ref()))
        }
        HelperRequest::Thaw { mount_point } => reply(freeze::thaw(mount_point.as_ref())),
        HelperRequest::IsClaimed { device } => reply(block::is_claimed(device.as_ref())),
        HelperRequest::Openers { device } => reply(openers::of(*device)),
        HelperRequest::MapRbd { image } => reply(rbd::map(&Bus::default(), image)),
        HelperRequest::UnmapRbd { image } => reply(rbd::unmap(&Bus::default(), image)),
        HelperRequest::RefreshRbd { image } => reply(rbd::refresh(&Bus::default(), image)),
    }
}

/// First resets devices on which a former user has turned discard off, if possible.
fn attach(image: &Path, read_only: bool) -> io::Result<LoopDevice> {
    let _ = discard::restore_unused(discard::ONCE);
    loopdev::attach(image, read_only)
}

/// Resets discard afterwards, so that the next user of the device finds it as it was.
fn detach(device: &LoopDevice) -> io::Result<Detached> {
    let detached = loopdev::detach(device)?;
    // If this fails, the next image takes more room than it needs; the detach has succeeded.
    let _ = discard::restore_unused(discard::PATIENTLY);
    Ok(detached)
}

fn bind(source: &OsStr, target: &OsStr, read_only: bool) -> Answer<()> {
    let (source, target) = (Path::new(source), Path::new(target));
    let bound = if read_only { mount::bind_read_only(source, target) } else { mount::bind(source, target) };
    let manner = if read_only { " read-only" } else { "" };
    bound.during(|| format!("bind {} on {}{manner}", source.display(), target.display()))
}

fn own(root: &Path, owner: &Owner, sharing: Option<Sharing>) -> Answer<()> {
    if !owner.is_none() {
        owner::give(root, owner).during(|| format!("give {} to its owner", root.display()))?;
    }
    if let Some(sharing) = sharing {
        let Sharing { gid, .. } = sharing;
        owner::share(root, sharing).during(|| format!("give {} to the group {gid}", root.display()))?;
    }
    Ok(())
}

fn look_at(device: &Backing, sparse_file: Option<&OsStr>) -> Answer<Identified> {
    let _held = device.hold()?;
    backing::identify(&device.path(), sparse_file)
}

fn refuse_discard(device: &Backing) -> Answer<()> {
    let _held = device.hold()?;
    Ok(discard::refuse(&device.path())?)
}

fn replay_journal(device: &Backing) -> Answer<()> {
    let _held = device.hold()?;
    let path = device.path();
    match backing::identify(&path, None)?.content {
        Content::FileSystem(found) if found.journal != Journal::Clean => {
            let fs_type = found.fs_type.name();
            mount::replay_journal(&path, fs_type)
                .during(|| format!("replay the journal of the {fs_type} on {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Mounts the very device that was checked, because it is held open.
fn mount_device(source: &Backing, target: &OsStr, fs_type: &str, options: &Options) -> Answer<()> {
    let _held = source.hold()?;
    let (source, target) = (source.path(), Path::new(target));
    mount::mount(&source, target, fs_type, options)
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
