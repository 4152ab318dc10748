//! Copies of images: by sharing their blocks (FICLONE, ioctl_ficlone(2)) or byte by byte without their holes
//! (lseek(2), SEEK_DATA).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::changing;

/// Bytes between two calls of `go_on`. A disk writes them in well under a second.
const CHUNK: u64 = 16 << 20;

/// Size of the buffer if the kernel cannot copy by itself.
const BUFFER: usize = 1 << 20;

/// How a reflink ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reflink {
    /// The target has the source's content and shares its blocks.
    Cloned,
    /// These two files, or their file system, cannot share blocks: the data must be copied.
    Unsupported,
}

/// Makes `to` a copy of `from` that shares its blocks: at once, and all or nothing.
///
/// # Errors
/// Those of FICLONE: ENOSPC, EIO.
pub fn reflink(from: &File, to: &File) -> io::Result<Reflink> {
    match changing("reflink", || ioctl_ficlone(to, from)) {
        Ok(()) => Ok(Reflink::Cloned),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            Ok(Reflink::Unsupported)
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies the data of `from` into `to`, which must be empty; holes stay holes. `go_on` gets the number of
/// bytes copied so far, about every 16 MiB, and its error stops the copy.
///
/// # Errors
/// Those of reading and writing, and the error of `go_on`. `to` is useless then.
pub fn copy_sparse(from: &File, to: &File, mut go_on: impl FnMut(u64) -> io::Result<()>) -> io::Result<u64> {
    let length = from.metadata()?.len();
    changing("set length of copy", || to.set_len(length))?;
    let (mut copied, mut offset) = (0, 0);
    while let Some(extent) = next_data(from, offset, length)? {
        offset = extent.start;
        while offset < extent.end {
            go_on(copied)?;
            let chunk = (extent.end - offset).min(CHUNK);
            changing("copy chunk", || copy_chunk(from, to, offset, chunk))?;
            offset += chunk;
            copied += chunk;
        }
    }
    go_on(copied)?;
    Ok(copied)
}

/// The next range from `offset` on that is not a hole; none if only holes follow. Ends at `length` at the
/// latest.
///
/// # Errors
/// Those of lseek(2).
pub(super) fn next_data(file: &File, offset: u64, length: u64) -> io::Result<Option<std::ops::Range<u64>>> {
    if offset >= length {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if start >= length {
        return Ok(None);
    }
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..end.min(length)))
}

fn copy_chunk(from: &File, to: &File, offset: u64, length: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (offset, offset);
    let end = offset + length;
    while read_at < end {
        let wanted = usize::try_from(end - read_at).map_err(io::Error::other)?;
        match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), wanted) {
            // Some file systems return 0, although there is data, if they cannot copy by themselves.
            Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return copy_by_hand(from, to, read_at, end);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, mut offset: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    while offset < end {
        let wanted = usize::try_from(end - offset).map_or(BUFFER, |left| left.min(BUFFER));
        from.read_exact_at(&mut buffer[..wanted], offset)?;
        to.write_all_at(&buffer[..wanted], offset)?;
        offset += wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::file::create_new;
    use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// 64 MiB with data at three places.
    fn sparse(path: &Path) -> File {
        let file = create_new(path).unwrap();
        file.set_len(64 << 20).unwrap();
        for offset in [0, 20 << 20, (64 << 20) - 3] {
            file.write_all_at(b"abc", offset).unwrap();
        }
        file
    }

    fn same(one: &File, other: &File) -> bool {
        let read = |file: &File| {
            let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        read(one) == read(other)
    }

    #[test]
    fn a_copy_is_the_same_and_as_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (sparse(&dir.path().join("from")), create_new(&dir.path().join("to")).unwrap());
        let copied = copy_sparse(&from, &to, |_| Ok(())).unwrap();
        assert!(same(&from, &to));
        assert!(copied < 1 << 20, "{copied} bytes copied");
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20, "the copy has holes");
    }

    #[test]
    fn nothing_but_a_hole_is_copied_too() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) =
            (create_new(&dir.path().join("from")).unwrap(), create_new(&dir.path().join("to")).unwrap());
        from.set_len(1 << 40).unwrap();
        assert_eq!(copy_sparse(&from, &to, |_| Ok(())).unwrap(), 0);
        assert_eq!(to.metadata().unwrap().len(), 1 << 40);
    }

    #[test]
    fn a_copy_stops_between_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) =
            (create_new(&dir.path().join("from")).unwrap(), create_new(&dir.path().join("to")).unwrap());
        from.write_all_at(&vec![7; 40 << 20], 0).unwrap();
        let mut asked = Vec::new();
        let result = copy_sparse(&from, &to, |copied| {
            asked.push(copied);
            if copied >= CHUNK { Err(io::Error::from_raw_os_error(libc::ECANCELED)) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert_eq!(asked, [0, CHUNK]);
    }

    #[test]
    fn a_copy_by_hand_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (sparse(&dir.path().join("from")), create_new(&dir.path().join("to")).unwrap());
        copy_by_hand(&from, &to, 0, 64 << 20).unwrap();
        assert!(same(&from, &to));
    }

    #[test]
    fn a_source_that_got_shorter_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) =
            (create_new(&dir.path().join("from")).unwrap(), create_new(&dir.path().join("to")).unwrap());
        assert_eq!(copy_chunk(&from, &to, 0, 4096).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn xfs_and_btrfs_share_blocks() {
        in_private_mounts(|dir| {
            for (fs_type, bytes) in [("xfs", 320 << 20), ("btrfs", 128 << 20)] {
                let image = LoopImage::new(bytes);
                mkfs(fs_type, image.device());
                let mount = image.mount(fs_type, dir);
                let from = sparse(&mount.path().join("from"));
                let to = create_new(&mount.path().join("to")).unwrap();
                assert_eq!(reflink(&from, &to).unwrap(), Reflink::Cloned, "{fs_type}");
                assert!(same(&from, &to));
            }
        });
    }

    #[test]
    fn where_blocks_cannot_be_shared_that_is_the_answer() {
        in_private_mounts(|dir| {
            let image = LoopImage::new(16 << 20);
            mkfs("ext4", image.device());
            let mount = image.mount("ext4", dir);
            let from = create_new(&mount.path().join("from")).unwrap();
            let to = create_new(&mount.path().join("to")).unwrap();
            assert_eq!(reflink(&from, &to).unwrap(), Reflink::Unsupported, "the file system cannot");
            let elsewhere = create_new(&dir.join("to")).unwrap();
            assert_eq!(reflink(&from, &elsewhere).unwrap(), Reflink::Unsupported, "another file system");
        });
    }
}
