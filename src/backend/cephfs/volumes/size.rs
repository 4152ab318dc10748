//! How the size of a volume is chosen. `df` shows quotas in blocks of 4 MiB (`CEPH_BLOCK` of the kernel's
//! client), rounded down, so sizes are rounded up to such blocks where the limit allows it.

use crate::csi::SizeRange;
use crate::error::{Error, Result};

/// What `df` can show, in bytes.
const BLOCK: u64 = 4 << 20;
/// The size of a volume if no size is asked for, in bytes.
const DEFAULT: u64 = 1 << 30;
/// The largest size in bytes: quotas are signed 64-bit numbers.
pub(crate) const LARGEST: u64 = i64::MAX as u64 / BLOCK * BLOCK;

/// The size of a new volume, which is never less than that of its `source`.
pub(crate) fn of_new(range: &SizeRange, source: Option<u64>) -> Result<u64> {
    if let Some(source) = source.filter(|source| *source > range.required) {
        return match range.admits(source) {
            true => Ok(source),
            false => Err(Error::out_of_range(format!(
                "its source has {source} bytes, more than limit_bytes {}, and a copy is never smaller",
                range.limit
            ))),
        };
    }
    match (range.required, range.limit) {
        (0, 0) => Ok(DEFAULT),
        (0, limit) if limit < BLOCK => Ok(limit),
        (0, limit) => Ok(DEFAULT.min(limit / BLOCK * BLOCK)),
        (required, _) => at_least(required, range),
    }
}

/// The size of a volume of `present` bytes after an expansion; never less than `present`.
pub(crate) fn of_expanded(range: &SizeRange, present: u64) -> Result<u64> {
    if range.required > present {
        return at_least(range.required, range);
    }
    match range.admits(present) {
        true => Ok(present),
        false => Err(Error::out_of_range(format!(
            "it has {present} bytes already, more than limit_bytes {}, and never shrinks",
            range.limit
        ))),
    }
}

fn at_least(required: u64, range: &SizeRange) -> Result<u64> {
    if required > LARGEST {
        return Err(Error::out_of_range(format!(
            "{required} bytes are more than it can have, which is at most {LARGEST}: ask for less"
        )));
    }
    let rounded = required.next_multiple_of(BLOCK);
    Ok(if range.admits(rounded) { rounded } else { required })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn new(required: u64, limit: u64) -> Result<u64, Kind> {
        of_new(&SizeRange { required, limit }, None).map_err(|error| error.kind())
    }

    fn expanded(required: u64, limit: u64, present: u64) -> Result<u64, Kind> {
        of_expanded(&SizeRange { required, limit }, present).map_err(|error| error.kind())
    }

    #[test]
    fn sizes_are_what_df_can_show_within_the_limit() {
        assert_eq!(new(0, 0), Ok(DEFAULT));
        assert_eq!(new(0, 9 << 20), Ok(8 << 20));
        assert_eq!(new(0, 1000), Ok(1000));
        assert_eq!(new(1, 0), Ok(BLOCK));
        assert_eq!(new(BLOCK + 1, 0), Ok(2 * BLOCK));
        assert_eq!(new(BLOCK + 1, BLOCK + 5), Ok(BLOCK + 1));
        assert_eq!(new(LARGEST, 0), Ok(LARGEST));
        assert_eq!(new(LARGEST + 1, 0), Err(Kind::OutOfRange));
    }

    #[test]
    fn a_copy_is_never_smaller_than_its_source() {
        let copy = |required, limit| of_new(&SizeRange { required, limit }, Some(3 * BLOCK));
        assert_eq!((copy(0, 0).unwrap(), copy(4 * BLOCK, 0).unwrap()), (3 * BLOCK, 4 * BLOCK));
        assert_eq!(copy(BLOCK, 2 * BLOCK).unwrap_err().kind(), Kind::OutOfRange);
    }

    #[test]
    fn volumes_never_shrink() {
        assert_eq!(expanded(BLOCK, 0, 3 * BLOCK), Ok(3 * BLOCK));
        assert_eq!(expanded(3 * BLOCK + 1, 0, 3 * BLOCK), Ok(4 * BLOCK));
        assert_eq!(expanded(BLOCK, 2 * BLOCK, 3 * BLOCK), Err(Kind::OutOfRange));
    }
}
