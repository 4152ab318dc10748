//! How the size of a volume is chosen.
//!
//! Sizes are multiples of 4096. A loop device counts in sectors and drops what does not fill one (512 bytes);
//! with direct I/O or a 4 KiB sector size of the file system below, its last block must be whole; and the
//! kernel maps an RBD image of another size only in part. Sizes are rounded up to a multiple, and to the
//! least size that the volume's file system needs.

use crate::csi::SizeRange;
use crate::error::{Error, Result};

/// Every size is a multiple of this, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// The size of a volume if no size is asked for, in bytes.
const DEFAULT: u64 = 1 << 30;
/// The largest size in bytes: sizes travel as signed 64-bit numbers.
pub(super) const LARGEST: u64 = round_down(i64::MAX as u64);

/// The least size in bytes for which mkfs makes each file system, with the options that the node uses:
/// - ext4: mke2fs 1.47.0 makes one from 128 KiB, which has room for next to nothing; 1 MiB is usable.
/// - xfs: mkfs.xfs 6.1.0. Since xfsprogs 5.19 it refuses less than 300 MiB (mkfs/xfs_mkfs.c,
///   `validate_supported`).
/// - btrfs: mkfs.btrfs 6.2, "minimum size for each btrfs device is 114294784" (nodes of 16 KiB, metadata
///   twice).
const FILE_SYSTEMS: [(&str, u64); 3] = [("ext4", 1 << 20), ("xfs", 300 << 20), ("btrfs", 109 << 20)];

/// The bounds of a volume's size, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// The smallest volume that the backend makes.
    pub smallest: u64,
    /// The largest size of this volume.
    pub largest: u64,
    /// The file system that the volume will be formatted with, if any.
    pub fs_type: Option<&'a str>,
}

impl Bounds<'_> {
    /// The least size of a volume.
    pub fn least(&self) -> u64 {
        let of_file_system = FILE_SYSTEMS.iter().find(|(name, _)| self.fs_type == Some(name));
        of_file_system.map_or(0, |(_, least)| *least).max(self.smallest)
    }

    /// The size of a new volume, which is never less than that of its `source`.
    pub fn of_new(&self, range: &SizeRange, source: Option<u64>) -> Result<u64> {
        match (range.required, source) {
            (0, None) => self.within(range, DEFAULT.min(round_down(ceiling(range))), rounded),
            (required, Some(source)) if source > required => self.within(range, source, || {
                format!("its source has {source} bytes, and a copy is never smaller")
            }),
            (required, _) => self.within(range, required, rounded),
        }
    }

    /// The size of a volume of `present` bytes after an expansion; never less than `present`.
    pub fn of_expanded(&self, range: &SizeRange, present: u64) -> Result<u64> {
        match range.required <= present {
            true if range.admits(present) => Ok(present),
            true => self.within(range, present, || "it has them already and never shrinks".to_string()),
            false => self.within(range, range.required, rounded),
        }
    }

    fn within(&self, range: &SizeRange, wanted: u64, why: impl Fn() -> String) -> Result<u64> {
        let least = self.least();
        let size = wanted.max(least).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        if size > self.largest {
            return Err(Error::out_of_range(format!(
                "{wanted} bytes are more than it can have, which is at most {}: ask for less",
                self.largest
            )));
        }
        if size <= ceiling(range) {
            return Ok(size);
        }
        let why = match self.fs_type {
            Some(fs_type) if least > wanted => format!("{fs_type} needs at least {least}"),
            None if least > wanted => format!("a volume has at least {least}"),
            _ => why(),
        };
        let limit = range.limit;
        Err(Error::out_of_range(format!(
            "it would have {size} bytes ({why}), more than limit_bytes {limit}: raise the limit"
        )))
    }
}

fn rounded() -> String {
    format!("sizes are multiples of {BLOCK}")
}

fn ceiling(range: &SizeRange) -> u64 {
    if range.limit == 0 { u64::MAX } else { range.limit }
}

/// The largest allowed size that is not more than `size`.
pub(super) const fn round_down(size: u64) -> u64 {
    size / BLOCK * BLOCK
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::csi;
    use crate::error::Kind;

    const MIB: u64 = 1 << 20;
    const LOCAL: Bounds<'_> = Bounds { smallest: MIB, largest: LARGEST, fs_type: None };
    const TOO_LARGE: Result<u64, Kind> = Err(Kind::OutOfRange);

    fn new(required: u64, limit: u64, source: Option<u64>) -> Result<u64, Kind> {
        LOCAL.of_new(&SizeRange { required, limit }, source).map_err(|error| error.kind())
    }

    fn expanded(required: u64, limit: u64, present: u64) -> Result<u64, Kind> {
        LOCAL.of_expanded(&SizeRange { required, limit }, present).map_err(|error| error.kind())
    }

    #[test]
    fn nothing_asked_is_the_default_within_the_limit() {
        assert_eq!(new(0, 0, None), Ok(DEFAULT));
        assert_eq!(new(0, 5 * MIB + 7, None), Ok(5 * MIB));
        assert_eq!(new(0, MIB - 1, None), TOO_LARGE);
    }

    #[test]
    fn sizes_are_rounded_up_within_the_limit() {
        assert_eq!(new(MIB, 0, None), Ok(MIB));
        assert_eq!(new(MIB + 1, 0, None), Ok(MIB + BLOCK));
        assert_eq!(new(MIB + 1, MIB + BLOCK, None), Ok(MIB + BLOCK));
        assert_eq!(new(MIB + 1, MIB + BLOCK - 1, None), TOO_LARGE);
        assert_eq!(new(1, 0, None), Ok(MIB));
        assert_eq!(new(1, 1000, None), TOO_LARGE);
        assert_eq!(new(LARGEST, 0, None), Ok(LARGEST));
        assert_eq!(new(i64::MAX as u64, 0, None), TOO_LARGE, "rounding up passes what can be said");
    }

    #[test]
    fn a_copy_is_never_smaller_than_its_source() {
        assert_eq!(new(0, 0, Some(3 * MIB)), Ok(3 * MIB));
        assert_eq!(new(MIB, 0, Some(3 * MIB)), Ok(3 * MIB));
        assert_eq!(new(5 * MIB, 0, Some(3 * MIB)), Ok(5 * MIB));
        assert_eq!(new(MIB, 2 * MIB, Some(3 * MIB)), TOO_LARGE);
        assert_eq!(new(0, 3 * MIB, Some(3 * MIB)), Ok(3 * MIB));
    }

    #[test]
    fn expanding_never_shrinks() {
        assert_eq!(expanded(MIB, 0, 3 * MIB), Ok(3 * MIB));
        assert_eq!(expanded(3 * MIB + 1, 0, 3 * MIB), Ok(3 * MIB + BLOCK));
        assert_eq!(expanded(MIB, 2 * MIB, 3 * MIB), TOO_LARGE);
        assert_eq!(expanded(0, 4 * MIB, 3 * MIB), Ok(3 * MIB));
        assert_eq!(expanded(4 * MIB - 1, 4 * MIB - 1, 3 * MIB), TOO_LARGE);
    }

    #[test]
    fn a_file_system_has_room_and_a_limit_that_leaves_none_is_refused_with_both() {
        let bounds = Bounds { fs_type: Some("xfs"), ..LOCAL };
        let new = |required, limit, source| bounds.of_new(&SizeRange { required, limit }, source);
        assert_eq!(new(MIB, 0, None).unwrap(), 300 * MIB);
        assert_eq!(new(0, 0, Some(MIB)).unwrap(), 300 * MIB);
        assert_eq!(new(0, 0, None).unwrap(), DEFAULT);
        let error = new(MIB, 300 * MIB - 1, None).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfRange);
        assert!(error.message().contains("xfs needs at least 314572800"), "{error}");
    }

    #[test]
    fn every_file_system_has_a_least_size() {
        for fs_type in csi::FILE_SYSTEMS {
            assert!(FILE_SYSTEMS.iter().any(|(name, _)| *name == fs_type), "{fs_type}");
        }
    }

    #[test]
    fn more_than_the_largest_is_refused_with_it() {
        let bounds = Bounds { largest: 8 * MIB, ..LOCAL };
        assert_eq!(bounds.of_new(&SizeRange { required: 8 * MIB, limit: 0 }, None).unwrap(), 8 * MIB);
        let larger = SizeRange { required: 8 * MIB + 1, limit: 0 };
        for error in [bounds.of_new(&larger, None), bounds.of_expanded(&larger, MIB)] {
            let error = error.unwrap_err();
            assert!(error.kind() == Kind::OutOfRange && error.message().contains("8388608"), "{error}");
        }
    }
}
