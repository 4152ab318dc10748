//! The door.

pub mod bridge;
pub mod proto;
pub mod stream;
