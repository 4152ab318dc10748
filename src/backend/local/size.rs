//! How large a local volume becomes.
//!
//! Sizes are multiples of 4096: a loop device counts in sectors and drops what does not fill one (512 bytes),
//! and with direct I/O or a 4 KiB sector size of the file system below, its last block must be whole. A size
//! that is not a multiple is rounded up.
//!
//! An image is sparse: all volumes together may be larger than the file system (overcommit, shown by the
//! capacity and by the condition of volumes). A single volume whose missing blocks alone are more than what
//! is free now is refused.

use crate::csi::SizeRange;
use crate::error::{Error, Result};

/// Every size is a multiple of this, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// The smallest volume, in bytes: no file system fits in less.
pub(super) const SMALLEST: u64 = 1 << 20;
/// The size of a volume for which none is asked, in bytes.
pub(super) const DEFAULT: u64 = 1 << 30;
/// Sizes travel as signed 64-bit numbers.
const LARGEST: u64 = i64::MAX as u64;

/// The size of a new volume; `source` is the size of what it is a copy of, which it cannot fall below.
pub(super) fn of_new(range: &SizeRange, source: Option<u64>) -> Result<u64> {
    let wanted = match (range.required, source) {
        (required, Some(source)) => required.max(source),
        (0, None) => DEFAULT.min(round_down(ceiling(range))),
        (required, None) => required,
    };
    within(range, wanted, || match source {
        Some(source) => format!("its source has {source} bytes, and "),
        None => String::new(),
    })
}

/// The size of a volume of `present` bytes that is to be expanded; never less than it has.
pub(super) fn of_expanded(range: &SizeRange, present: u64) -> Result<u64> {
    if range.required <= present && range.admits(present) {
        return Ok(present);
    }
    within(range, range.required.max(present), || {
        format!("the volume has {present} bytes already and never shrinks, and ")
    })
}

fn within(range: &SizeRange, wanted: u64, why: impl Fn() -> String) -> Result<u64> {
    let size = wanted.max(SMALLEST).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
    if size <= ceiling(range) {
        return Ok(size);
    }
    Err(Error::out_of_range(format!(
        "a local volume of {} to {} bytes cannot be: {}sizes are multiples of {BLOCK} and at least \
         {SMALLEST}, so the next is {size}; raise limit_bytes",
        range.required,
        ceiling(range),
        why(),
    )))
}

fn ceiling(range: &SizeRange) -> u64 {
    if range.limit == 0 { LARGEST } else { range.limit }
}

pub(super) fn round_down(size: u64) -> u64 {
    size / BLOCK * BLOCK
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn new(required: u64, limit: u64, source: Option<u64>) -> Result<u64, Kind> {
        of_new(&SizeRange { required, limit }, source).map_err(|error| error.kind())
    }

    fn expanded(required: u64, limit: u64, present: u64) -> Result<u64, Kind> {
        of_expanded(&SizeRange { required, limit }, present).map_err(|error| error.kind())
    }

    const MIB: u64 = 1 << 20;
    const TOO_LARGE: Result<u64, Kind> = Err(Kind::OutOfRange);

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
        assert_eq!(new(LARGEST, 0, None), TOO_LARGE, "rounding up passes what can be said");
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
}
