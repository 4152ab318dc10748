//! What a call goes through: a thread of the [`Workers`], the [`LockTable`], a permit of the [`Permits`].
//!
//! - A call has a thread from its start to its end. The configuration limits the number of threads; one call
//!   more is refused at once. The calls that need no storage have a thread of their own, so that a health
//!   check never waits for a cluster.
//! - It holds the locks of its objects while it works, and joins the same request if that is under way.
//! - It works while it holds a permit. A call that waits (for a lock, for the cluster to forget a dead
//!   client, for another controller) holds none. A bulkhead (one backend's work on one cluster, or the
//!   local disk) always gets a first permit, and never more than all but two: so clusters that hang never
//!   take the daemon with them.

mod call;
mod key;
mod lock_table;
#[cfg(test)]
mod lock_table_tests;
mod permits;
mod pool;
mod progress;
mod tickets;
mod workers;

pub use self::call::Call;
pub use self::key::{Identical, Key, KeySet};
pub use self::lock_table::{Guard, Held, LockTable, Locked, ObjectLocks};
pub use self::permits::{Limits, NoPermit, Permit, Permits, Want};
pub use self::progress::{Bulkhead, Progress, TICK};
pub use self::workers::Workers;
