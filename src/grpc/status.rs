//! The only place that names gRPC codes.

use grpcio::{RpcStatus, RpcStatusCode};

use crate::error::{Error, Kind};

/// Every code that the daemon sends, its name, and the kind that a client takes it for.
const CODES: [(RpcStatusCode, &str, Kind); 12] = [
    (RpcStatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT", Kind::InvalidArgument),
    (RpcStatusCode::NOT_FOUND, "NOT_FOUND", Kind::NotFound),
    (RpcStatusCode::ALREADY_EXISTS, "ALREADY_EXISTS", Kind::AlreadyExists),
    (RpcStatusCode::ABORTED, "ABORTED", Kind::Busy),
    (RpcStatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION", Kind::Precondition),
    (RpcStatusCode::OUT_OF_RANGE, "OUT_OF_RANGE", Kind::OutOfRange),
    (RpcStatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED", Kind::NoSpace),
    (RpcStatusCode::UNAVAILABLE, "UNAVAILABLE", Kind::Unavailable),
    (RpcStatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", Kind::Timeout),
    (RpcStatusCode::UNIMPLEMENTED, "UNIMPLEMENTED", Kind::Unimplemented),
    (RpcStatusCode::UNAUTHENTICATED, "UNAUTHENTICATED", Kind::Unauthenticated),
    (RpcStatusCode::INTERNAL, "INTERNAL", Kind::Internal),
];

/// The most bytes of a message. gRPC has 8 KiB for everything that ends a call; with more, its clients get
/// neither code nor message. It writes bytes other than plain ASCII as `%XX`.
const LONGEST_MESSAGE: usize = 2048;

/// The code of the CSI specification's error scheme for each kind. No wildcard, so that a new kind does not
/// compile without a code.
pub fn code(kind: Kind) -> RpcStatusCode {
    match kind {
        Kind::InvalidArgument => RpcStatusCode::INVALID_ARGUMENT,
        Kind::NotFound => RpcStatusCode::NOT_FOUND,
        Kind::AlreadyExists => RpcStatusCode::ALREADY_EXISTS,
        Kind::Busy | Kind::BadToken => RpcStatusCode::ABORTED,
        Kind::Precondition | Kind::HasSnapshots => RpcStatusCode::FAILED_PRECONDITION,
        Kind::OutOfRange => RpcStatusCode::OUT_OF_RANGE,
        Kind::NoSpace => RpcStatusCode::RESOURCE_EXHAUSTED,
        Kind::Unavailable => RpcStatusCode::UNAVAILABLE,
        Kind::Timeout => RpcStatusCode::DEADLINE_EXCEEDED,
        Kind::Unimplemented => RpcStatusCode::UNIMPLEMENTED,
        Kind::Unauthenticated => RpcStatusCode::UNAUTHENTICATED,
        Kind::Internal => RpcStatusCode::INTERNAL,
    }
}

/// The status sent to the client. The log has the whole message.
pub fn status(error: &Error) -> RpcStatus {
    RpcStatus::with_message(code(error.kind()), fitting(error.message()))
}

/// The message. A message that is too long loses its middle, as its beginning says what happened and its end
/// what to do about it.
fn fitting(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_string();
    }
    let half = LONGEST_MESSAGE / 2;
    let begins_character = |at: &usize| message.is_char_boundary(*at);
    let (begin, end) = ((0..=half).rfind(begins_character), (message.len() - half..).find(begins_character));
    format!("{} […] {}", &message[..begin.unwrap_or(0)], &message[end.unwrap_or(message.len())..])
}

/// The code's name, for the log.
pub fn name(kind: Kind) -> &'static str {
    let code = code(kind);
    CODES.iter().find(|row| row.0 == code).map_or("?", |row| row.1)
}

/// The error of a failed call, for cephlet's own client. A code that this daemon does not send is a defect,
/// and the message names it. For a service that is not served gRPC gives no reason.
pub fn error(rpc: &str, failure: grpcio::Error) -> Error {
    let grpcio::Error::RpcFailure(status) = failure else {
        return Error::internal(format!("{rpc}: {failure}"));
    };
    match CODES.iter().find(|row| row.0 == status.code()).map(|row| row.2) {
        Some(Kind::Unimplemented) if status.message().is_empty() => Error::unimplemented(format!(
            "the daemon does not serve {rpc}: CEPHLET_SERVICES leaves it out there, or it is a daemon of another \
             version"
        )),
        Some(kind) => Error::new(kind, status.message()),
        None => Error::internal(format!("{rpc}: {}: {}", status.code(), status.message())),
    }
}

/// Whether a repetition of the request may end differently: a caller that joined then tries for itself.
pub fn is_retryable(kind: Kind) -> bool {
    let code = code(kind);
    [RpcStatusCode::UNAVAILABLE, RpcStatusCode::DEADLINE_EXCEEDED, RpcStatusCode::ABORTED].contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_understands_every_code_that_the_daemon_sends() {
        for (code, _, kind) in CODES {
            let sent = status(&Error::new(kind, "why"));
            assert_eq!(sent.code(), code);
            let understood = error("probe", grpcio::Error::RpcFailure(sent));
            assert_eq!((understood.kind(), understood.message()), (kind, "why"));
        }
    }

    #[test]
    fn of_a_long_message_the_beginning_and_the_end_are_sent() {
        for filler in ["x", "%", "ä", "\u{1f600}", "\n"] {
            let long = format!("ä what happened{}what to do ö", filler.repeat(20_000));
            let sent = status(&Error::internal(long));
            let said = sent.message();
            assert!(said.starts_with("ä what happened") && said.ends_with("what to do ö"), "{said}");
            assert!(said.contains("[…]"), "{said}");
            assert!((LONGEST_MESSAGE - 10..LONGEST_MESSAGE + 10).contains(&said.len()), "{}", said.len());
        }
        let longest = "x".repeat(LONGEST_MESSAGE);
        assert_eq!(status(&Error::internal(longest.clone())).message(), longest);
    }

    #[test]
    fn what_has_no_code_of_its_own_is_sent_as_its_like() {
        for (kind, like, name_in_log) in [
            (Kind::BadToken, Kind::Busy, "ABORTED"),
            (Kind::HasSnapshots, Kind::Precondition, "FAILED_PRECONDITION"),
        ] {
            assert_eq!((code(kind), name(kind)), (code(like), name_in_log));
        }
    }

    #[test]
    fn a_service_that_is_not_served_is_named() {
        let failure = grpcio::Error::RpcFailure(RpcStatus::new(RpcStatusCode::UNIMPLEMENTED));
        let understood = error("/csi.v1.Node/NodeGetInfo", failure);
        assert_eq!(understood.kind(), Kind::Unimplemented);
        assert!(understood.message().contains("/csi.v1.Node/NodeGetInfo"), "{understood}");
    }

    #[test]
    fn a_code_that_the_daemon_does_not_send_keeps_its_name() {
        let failure =
            grpcio::Error::RpcFailure(RpcStatus::with_message(RpcStatusCode::CANCELLED, "gone".into()));
        assert_eq!(error("probe", failure).message(), "probe: 1-CANCELLED: gone");
    }
}
