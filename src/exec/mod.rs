//! External commands and helper processes.

mod helper;
pub mod kernel;

pub use helper::{Class, CommandError, Helper};
