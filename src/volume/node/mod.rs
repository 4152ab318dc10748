//! The node's operations: they make a volume available at a path of this machine.

mod begun;
mod expand;
mod fault;
mod filesystem;
mod health;
pub(crate) mod looks;
mod lost;
pub(crate) mod mounts;
mod owner;
mod publish;
mod publish_unstaged;
pub(crate) mod record;
mod stage;
pub(crate) mod stats;
pub(crate) mod unstage;
