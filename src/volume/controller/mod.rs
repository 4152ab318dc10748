//! The controller's operations: requests to the storage, independent of the node that uses the volume.

mod create;
mod delete;
mod health;
pub(crate) mod inspect;
pub(crate) mod list;
mod named;
mod publish;
mod snapshot;
