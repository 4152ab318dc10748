//! How large images are made.

use crate::csi::SizeRange;
use crate::error::{Error, Result};

/// What a volume gets that was asked for without a size, in bytes.
const USUAL_SIZE: u64 = 1 << 30;
/// The kernel maps an image of another size only in part.
pub(crate) const SIZE_ALIGNMENT: u64 = 4096;

/// The size of a new volume whose source, if any, has `least` bytes.
pub(crate) fn size_of_new(range: &SizeRange, least: u64) -> Result<u64> {
    let wanted = match (range.required, range.limit) {
        (0, 0) => USUAL_SIZE,
        (0, limit) => USUAL_SIZE.min(limit / SIZE_ALIGNMENT * SIZE_ALIGNMENT),
        (required, _) => required,
    };
    aligned(range, wanted.max(least).max(1))
}

/// The size of a volume whose source has `least` bytes.
pub(crate) fn size_of_copy(range: &SizeRange, least: u64) -> Result<u64> {
    if range.limit > 0 && least > range.limit {
        return Err(Error::out_of_range(format!(
            "its source has {least} bytes, more than limit_bytes {}: raise the limit, a copy is never \
             smaller than its source",
            range.limit
        )));
    }
    size_of_new(&SizeRange { required: range.required.max(least), ..*range }, least)
}

/// The size that an expansion to `range` gives a volume of `present` bytes.
pub(crate) fn size_of_expanded(range: &SizeRange, present: u64) -> Result<u64> {
    if range.limit > 0 && present > range.limit {
        return Err(Error::out_of_range(format!(
            "it has {present} bytes already, more than limit_bytes {}; it is never made smaller",
            range.limit
        )));
    }
    if present >= range.required { Ok(present) } else { aligned(range, range.required) }
}

fn aligned(range: &SizeRange, wanted: u64) -> Result<u64> {
    let size = wanted.checked_next_multiple_of(SIZE_ALIGNMENT).filter(|size| i64::try_from(*size).is_ok());
    let size =
        size.ok_or_else(|| Error::out_of_range(format!("{wanted} bytes are more than an image can have")))?;
    if range.limit > 0 && size > range.limit {
        return Err(Error::out_of_range(format!(
            "it would have {size} bytes ({wanted} in multiples of {SIZE_ALIGNMENT}), more than limit_bytes \
             {}: raise the limit",
            range.limit
        )));
    }
    Ok(size)
}
