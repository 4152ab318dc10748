//! The operations on volumes, free of any protocol.

pub mod checks;
pub mod requests;
