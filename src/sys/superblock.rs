//! What is on a device: nothing, one of our file systems, or something that must not be overwritten.
//!
//! In doubt a device is not to be overwritten. Data without a known signature is not blank. A file system
//! together with a signature outside its own area is foreign: a RAID member shows the file system inside it.
//! Inside its area all bytes are the file system's own data, even those of a signature: a tenant's file is no
//! reason to refuse the volume.
//!
//! Offsets and magics are those of the on-disk formats: Documentation/filesystems/ext4, xfs_format.h,
//! btrfs_tree.h, libblkid.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::copy::next_data;

/// Bytes at the beginning that contain all signatures at a fixed offset.
const HEAD: usize = 256 << 10;
/// Bytes at the end that contain the RAID signatures there.
pub(super) const TAIL: usize = 1 << 20;
/// How much of the beginning must be zero for a device without a sparse file to be blank.
pub(super) const BLANK_HEAD: u64 = 4 << 20;
/// Bytes that are read at once in a search for data.
const CHUNK: usize = 1 << 20;

/// A file system that can be mounted as a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsType {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FsType {
    /// The name that mount(2) and mkfs know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// Whether a file system must be mounted writable to replay its journal: else it lacks the last synced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Journal {
    /// There is nothing to replay, or no journal.
    Clean,
    /// The file system was in use when it was copied, or when its node failed.
    Dirty,
    /// The superblock does not show it: xfs.
    Unknown,
}

impl Journal {
    fn dirty_if(dirty: bool) -> Self {
        if dirty { Self::Dirty } else { Self::Clean }
    }
}

/// A file system, as its superblock describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// Its type.
    pub fs_type: FsType,
    /// How many bytes of the device it takes.
    pub bytes: u64,
    /// Whether the kernel found errors in it that were not repaired since. A journal that waits for its
    /// replay is no error.
    pub needs_check: bool,
    /// Whether its journal has to be replayed.
    pub journal: Journal,
}

/// What is on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Nothing: every byte that was looked at is zero.
    Blank,
    /// One of our file systems.
    FileSystem(FileSystem),
    /// Something else, with its name.
    Foreign(String),
}

/// A signature: the name, an offset where it may stand, its bytes.
type Signature = (&'static str, usize, &'static [u8]);

const SIGNATURES: &[Signature] = &[
    ("LUKS encryption", 0, b"LUKS\xba\xbe"),
    ("LUKS encryption", 16 << 10, b"SKUL\xba\xbe"),
    ("BitLocker encryption", 3, b"-FVE-FS-"),
    ("LVM physical volume", 0, b"LABELONE"),
    ("LVM physical volume", 512, b"LABELONE"),
    ("LVM physical volume", 1024, b"LABELONE"),
    ("LVM physical volume", 1536, b"LABELONE"),
    ("md RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    ("md RAID member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("Ceph BlueStore", 0, b"bluestore block device"),
    ("DRBD", 4096 - 4, b"\x83\x74\x02\x6b"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("swap", 4096 - 10, b"SWAP-SPACE"),
    ("suspended system", 4096 - 10, b"S1SUSPEND"),
    ("swap", 65536 - 10, b"SWAPSPACE2"),
    ("GPT partition table", 512, b"EFI PART"),
    ("GPT partition table", 4096, b"EFI PART"),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("FAT", 54, b"FAT12   "),
    ("FAT", 54, b"FAT16   "),
    ("FAT", 82, b"FAT32   "),
    ("squashfs", 0, b"hsqs"),
    ("cramfs", 0, b"\x45\x3d\xcd\x28"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("HFS+", 1024, b"H+\0\x04"),
    ("APFS", 32, b"NXSB"),
    ("NILFS2", 1024 + 6, b"\x34\x34"),
    ("JFS", 32768, b"JFS1"),
    ("ISO 9660", 32769, b"CD001"),
    ("UDF", 32769, b"BEA01"),
    ("ReiserFS", 65536 + 52, b"ReIsEr"),
    ("GFS2", 65536, b"\x01\x16\x19\x70\x00\x00\x00\x01"),
    ("unfinished btrfs", 65536 + 64, b"!BHRfS_M"),
    ("qcow2 image", 0, b"QFI\xfb"),
    ("VMDK image", 0, b"KDMV"),
];

/// Uberblocks of ZFS, one in each KiB, in the byte order of the machine that wrote them.
const ZFS_UBERBLOCKS: Range<usize> = 128 << 10..HEAD;
const ZFS_MAGICS: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];

/// Looks at a device, or a file, of `size` bytes. `sparse` is the file below the device, if there is one: all
/// its data outside of holes is read, so that blank is certain. Without it the first 4 MiB and the last MiB
/// decide.
///
/// # Errors
/// Those of reading.
pub fn identify(device: &File, size: u64, sparse: Option<&File>) -> io::Result<Content> {
    let head = read_range(device, 0..size.min(HEAD as u64))?;
    let tail_at = size.saturating_sub(TAIL as u64);
    let tail = read_range(device, tail_at..size)?;
    match classify(&head, &tail, size) {
        Content::Blank => {}
        content => return Ok(content),
    }
    let data = match sparse {
        Some(file) => first_data_outside_holes(device, size, file)?,
        None => first_data(device, 0..size.min(BLANK_HEAD))?
            .map_or_else(|| first_data(device, tail_at..size), |at| Ok(Some(at)))?,
    };
    Ok(data.map_or(Content::Blank, |at| Content::Foreign(format!("unknown data (byte {at} is not zero)"))))
}

/// Decides by signatures alone; blank here means that there is none. `tail` ends at `size`.
pub fn classify(head: &[u8], tail: &[u8], size: u64) -> Content {
    let ours: Vec<(FileSystem, Range<u64>)> =
        [parse_ext(head), parse_xfs(head), parse_btrfs(head)].into_iter().flatten().collect();
    let belongs_to_ours = |offset: u64| ours.iter().any(|(_, area)| area.contains(&offset));
    let mut names: Vec<&str> = foreign(head, tail, size)
        .filter(|(_, offset)| !belongs_to_ours(*offset))
        .map(|(name, _)| name)
        .collect();
    match (ours.as_slice(), names.is_empty()) {
        ([], true) => Content::Blank,
        ([(file_system, _)], true) => Content::FileSystem(file_system.clone()),
        _ => {
            names.extend(ours.iter().map(|(file_system, _)| file_system.fs_type.name()));
            names.dedup();
            Content::Foreign(names.join(" and "))
        }
    }
}

/// Every signature that is not one of our file systems, with its offset.
fn foreign<'a>(head: &'a [u8], tail: &'a [u8], size: u64) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    let fixed = SIGNATURES.iter().filter(|(_, at, magic)| bytes_at(head, *at, magic.len()) == Some(*magic));
    let fixed = fixed.map(|(name, at, _)| (*name, *at as u64));
    fixed
        .chain(mbr(head))
        .chain(ext_journal(head))
        .chain(unfinished_xfs(head))
        .chain(zfs(head))
        .chain(raid_at_end(tail, size))
}

/// A boot signature and at least one partition entry that makes sense; a boot sector alone is no partition
/// table.
fn mbr(head: &[u8]) -> Option<(&'static str, u64)> {
    let entries = head.get(446..510)?;
    let plausible = |entry: &[u8]| matches!(entry[0], 0 | 0x80) && entry[4] != 0 && entry[12..16] != [0; 4];
    let all_fit = entries.chunks(16).all(|entry| matches!(entry[0], 0 | 0x80));
    let found = bytes_at(head, 510, 2)? == b"\x55\xaa" && all_fit && entries.chunks(16).any(plausible);
    found.then_some(("MBR partition table", 446))
}

fn zfs(head: &[u8]) -> Option<(&'static str, u64)> {
    let mut slots = ZFS_UBERBLOCKS.step_by(1024);
    let found = slots.find(|at| {
        bytes_at(head, *at, 8).is_some_and(|bytes| ZFS_MAGICS.iter().any(|magic| magic == bytes))
    })?;
    Some(("ZFS", found as u64))
}

/// Version 1.0 stands 8 KiB before the end, rounded down to 4 KiB; version 0.90 in the last whole 64 KiB.
fn raid_at_end(tail: &[u8], size: u64) -> impl Iterator<Item = (&'static str, u64)> {
    let v10 = (size >> 9).checked_sub(16).map(|sector| (sector & !7) << 9);
    let v090 = (size & !0xffff).checked_sub(0x10000);
    let tail_at = size.saturating_sub(tail.len() as u64);
    [v10, v090].into_iter().flatten().filter_map(move |at| {
        let in_tail = usize::try_from(at.checked_sub(tail_at)?).ok()?;
        // 0.90 is in the byte order of its machine, 1.0 always little endian.
        let magic = bytes_at(tail, in_tail, 4)?;
        matches!(magic, b"\xfc\x4e\x2b\xa9" | b"\xa9\x2b\x4e\xfc").then_some(("md RAID member", at))
    })
}

const EXT_AT: usize = 1024;
const EXT_MAGIC: u16 = 0xef53;
const EXT_ERRORS: u16 = 2;
/// `s_error_count`: the kernel goes on counting from it, regardless of the state.
const EXT_ERROR_COUNT: usize = 0x194;
const EXT_HAS_JOURNAL: u32 = 0x4;
const EXT_NEEDS_RECOVERY: u32 = 0x4;
const EXT_JOURNAL_DEVICE: u32 = 0x8;
const EXT_64BIT: u32 = 0x80;
/// The features that ext3 may have: filetype, needs_recovery, meta_bg. With any other it is ext4.
const EXT3_INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
/// sparse_super, large_file, btree_dir.
const EXT3_RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;

fn ext_superblock(head: &[u8]) -> Option<&[u8]> {
    let sb = head.get(EXT_AT..EXT_AT + 1024)?;
    // 64 KiB is the largest block: 1024 << 6.
    (le16(sb, 56)? == EXT_MAGIC && le32(sb, 24)? <= 6 && le32(sb, 4)? != 0).then_some(sb)
}

fn parse_ext(head: &[u8]) -> Option<(FileSystem, Range<u64>)> {
    let sb = ext_superblock(head)?;
    let (compat, incompat, ro_compat) = (le32(sb, 92)?, le32(sb, 96)?, le32(sb, 100)?);
    if incompat & EXT_JOURNAL_DEVICE != 0 {
        return None;
    }
    let high = if incompat & EXT_64BIT != 0 { le32(sb, 336)? } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(le32(sb, 4)?);
    let bytes = blocks.checked_mul(1024 << le32(sb, 24)?)?;
    let fs_type = if incompat & !EXT3_INCOMPAT != 0 || ro_compat & !EXT3_RO_COMPAT != 0 {
        FsType::Ext4
    } else if compat & EXT_HAS_JOURNAL != 0 {
        FsType::Ext3
    } else {
        FsType::Ext2
    };
    let needs_check = le16(sb, 58)? & EXT_ERRORS != 0 || le32(sb, EXT_ERROR_COUNT)? != 0;
    let journal = Journal::dirty_if(incompat & EXT_NEEDS_RECOVERY != 0);
    // The first KiB is left to boot loaders.
    Some((FileSystem { fs_type, bytes, needs_check, journal }, EXT_AT as u64..bytes))
}

fn ext_journal(head: &[u8]) -> Option<(&'static str, u64)> {
    let incompat = le32(ext_superblock(head)?, 96)?;
    (incompat & EXT_JOURNAL_DEVICE != 0).then_some(("journal of an ext file system", EXT_AT as u64))
}

const XFS_MAGIC: &[u8] = b"XFSB";
/// `sb_inprogress`: mkfs did not end.
const XFS_IN_PROGRESS: usize = 126;
/// `sb_features_incompat`, and its flag for a necessary xfs_repair.
const XFS_INCOMPAT: usize = 216;
const XFS_NEEDS_REPAIR: u32 = 0x10;

fn parse_xfs(head: &[u8]) -> Option<(FileSystem, Range<u64>)> {
    if !head.starts_with(XFS_MAGIC) || *head.get(XFS_IN_PROGRESS)? != 0 {
        return None;
    }
    let bytes = be64(head, 8)?.checked_mul(u64::from(be32(head, 4)?))?;
    let is_v5 = head.get(101)? & 0xf == 5;
    let needs_check = is_v5 && be32(head, XFS_INCOMPAT)? & XFS_NEEDS_REPAIR != 0;
    Some((FileSystem { fs_type: FsType::Xfs, bytes, needs_check, journal: Journal::Unknown }, 0..bytes))
}

fn unfinished_xfs(head: &[u8]) -> Option<(&'static str, u64)> {
    (head.starts_with(XFS_MAGIC) && *head.get(XFS_IN_PROGRESS)? != 0).then_some(("unfinished xfs", 0))
}

const BTRFS_AT: usize = 64 << 10;

fn parse_btrfs(head: &[u8]) -> Option<(FileSystem, Range<u64>)> {
    let sb = head.get(BTRFS_AT..BTRFS_AT + 4096)?;
    if bytes_at(sb, 64, 8)? != b"_BHRfS_M" {
        return None;
    }
    // dev_item.total_bytes: the bytes of this device that it takes. A resize changes this number.
    let bytes = le64(sb, 201 + 8)?;
    // log_root: what was synced since the last commit.
    let journal = Journal::dirty_if(le64(sb, 96)? != 0);
    Some((FileSystem { fs_type: FsType::Btrfs, bytes, needs_check: false, journal }, BTRFS_AT as u64..bytes))
}

fn bytes_at(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes_at(bytes, at, N)?.try_into().ok()
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

fn read_range(device: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    device.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// The offset of the first byte in `range` that is not zero.
fn first_data(device: &File, range: Range<u64>) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK];
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
        device.read_exact_at(&mut buffer[..length], at)?;
        if let Some(found) = buffer[..length].iter().position(|byte| *byte != 0) {
            return Ok(Some(at + found as u64));
        }
        at += length as u64;
    }
    Ok(None)
}

#[expect(clippy::disallowed_methods, reason = "what is read next must be written")]
fn first_data_outside_holes(device: &File, size: u64, sparse: &File) -> io::Result<Option<u64>> {
    // Writes of earlier users of the device must have reached the file before its holes are read.
    rustix::fs::fsync(device)?;
    let mut offset = 0;
    while let Some(extent) = next_data(sparse, offset, size)? {
        offset = extent.end;
        if let Some(at) = first_data(device, extent)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
