//! Stand-in: replaced at the merge.

/// The replies of a stream.
pub type Chunks<R> = Box<dyn Iterator<Item = crate::error::Result<R>> + Send>;
