//! The controller's operations: what is asked of the storage, wherever the volume is used.

mod create;
mod delete;
mod expand;
pub(crate) mod inspect;
pub(crate) mod list;
mod publish;
mod snapshot;
