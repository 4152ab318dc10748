//! Stand-in for the helper's interface.

use crate::call::Call;
use crate::error::Error;

/// How long a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Asks and changes nothing.
    Question,
    /// Changes something and can be repeated.
    Change,
    /// Must not be broken off.
    Unbounded,
}

/// Why a helper gave no answer.
#[derive(Debug)]
pub struct CommandError(pub Error);

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        error.0
    }
}

/// Asks a helper.
pub trait Helper: Send + Sync {
    /// Has `request` served in another process and waits for the reply.
    ///
    /// # Errors
    /// Every way in which the helper did not answer.
    fn ask(&self, call: &Call, step: &str, class: Class, request: &[u8]) -> Result<Vec<u8>, CommandError>;
}
