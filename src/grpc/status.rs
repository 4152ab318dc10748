//! The only place that names gRPC codes.

use grpcio::{RpcStatus, RpcStatusCode};

use crate::error::{Error, Kind};

/// The code of the CSI specification's error scheme for each kind. No wildcard: a new kind does not compile until somebody
/// picks its code.
pub fn code(kind: Kind) -> RpcStatusCode {
    match kind {
        Kind::InvalidArgument => RpcStatusCode::INVALID_ARGUMENT,
        Kind::NotFound => RpcStatusCode::NOT_FOUND,
        Kind::AlreadyExists => RpcStatusCode::ALREADY_EXISTS,
        Kind::Busy | Kind::BadToken => RpcStatusCode::ABORTED,
        Kind::Precondition => RpcStatusCode::FAILED_PRECONDITION,
        Kind::OutOfRange => RpcStatusCode::OUT_OF_RANGE,
        Kind::NoSpace => RpcStatusCode::RESOURCE_EXHAUSTED,
        Kind::Unavailable => RpcStatusCode::UNAVAILABLE,
        Kind::Timeout => RpcStatusCode::DEADLINE_EXCEEDED,
        Kind::Unimplemented => RpcStatusCode::UNIMPLEMENTED,
        Kind::Unauthenticated => RpcStatusCode::UNAUTHENTICATED,
        Kind::Internal => RpcStatusCode::INTERNAL,
    }
}

/// What the client is told.
pub fn status(error: &Error) -> RpcStatus {
    RpcStatus::with_message(code(error.kind()), error.message().to_string())
}

/// The code's name, for the log.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::InvalidArgument => "INVALID_ARGUMENT",
        Kind::NotFound => "NOT_FOUND",
        Kind::AlreadyExists => "ALREADY_EXISTS",
        Kind::Busy | Kind::BadToken => "ABORTED",
        Kind::Precondition => "FAILED_PRECONDITION",
        Kind::OutOfRange => "OUT_OF_RANGE",
        Kind::NoSpace => "RESOURCE_EXHAUSTED",
        Kind::Unavailable => "UNAVAILABLE",
        Kind::Timeout => "DEADLINE_EXCEEDED",
        Kind::Unimplemented => "UNIMPLEMENTED",
        Kind::Unauthenticated => "UNAUTHENTICATED",
        Kind::Internal => "INTERNAL",
    }
}

/// Whether asking the same again may end differently: a caller that joined then tries for itself.
pub fn is_retryable(kind: Kind) -> bool {
    let code = code(kind);
    [RpcStatusCode::UNAVAILABLE, RpcStatusCode::DEADLINE_EXCEEDED, RpcStatusCode::ABORTED].contains(&code)
}
