//! System calls behind safe functions: the only place with `unsafe`. Errors keep their errno.

pub mod crash;
pub mod process;
pub mod socket;
