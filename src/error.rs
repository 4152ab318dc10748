//! The one error type of the daemon.
//!
//! A [`Kind`] is a meaning the CSI specification knows, not a gRPC code: only the gRPC layer turns kinds into
//! codes. The message tells an operator what happened, to which volume, and what to do. The cause keeps errno
//! or exit status.

use std::fmt;
use std::io;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the terms of the CSI specification ("Error Scheme").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A field is missing, malformed or too long.
    InvalidArgument,
    /// The volume, snapshot or path does not exist.
    NotFound,
    /// The name is taken by an object with other properties.
    AlreadyExists,
    /// Another operation on the same object holds it.
    Busy,
    /// The page token of a list request did not come from this plugin.
    BadToken,
    /// The object is in use or in the wrong state.
    Precondition,
    /// The object cannot be deleted, because there are snapshots that need it.
    HasSnapshots,
    /// The size cannot be provided.
    OutOfRange,
    /// The storage is full.
    NoSpace,
    /// The plugin or its storage cannot serve this now.
    Unavailable,
    /// A deadline passed before the work was done.
    Timeout,
    /// This plugin does not offer the operation.
    Unimplemented,
    /// The storage refused the credentials.
    Unauthenticated,
    /// Anything else: a defect, or a failure of the system below.
    Internal,
}

/// What lies below an error, kept for code that must tell causes apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A system call failed with this errno.
    Errno(i32),
    /// A command ended with this exit status.
    Exit(i32),
}

/// An error: kind, message and cause. Cheap enough to clone for every caller that joined the same operation.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    cause: Option<Cause>,
}

impl Error {
    /// An error of `kind`, with a message that names the object and the way out.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    /// A failed system call: `action` says what was tried and on what ("create /var/lib/…/image"). ENOSPC and
    /// EDQUOT become [`Kind::NoSpace`]; everything else is [`Kind::Internal`], unless the caller sets another
    /// kind.
    pub fn io(action: impl fmt::Display, cause: &io::Error) -> Self {
        let errno = cause.raw_os_error();
        let kind = match errno {
            Some(libc::ENOSPC | libc::EDQUOT) => Kind::NoSpace,
            _ => Kind::Internal,
        };
        Self { kind, message: format!("{action}: {cause}"), cause: errno.map(Cause::Errno) }
    }

    /// The refusal of a page's token that no list gave.
    pub fn bad_token(token: &str) -> Self {
        let text = format!("starting_token {token:?} is none of ours: begin the list again without one");
        Self::new(Kind::BadToken, text)
    }

    /// The refusal of a volume whose deletion would free nothing, because these snapshots need its storage.
    pub fn needed_by(snapshots: &[&str]) -> Self {
        let names = snapshots.join(", ");
        let text = format!("its storage cannot be freed, it has the snapshots {names}: delete them first");
        Self::new(Kind::HasSnapshots, text)
    }

    /// The same error with its cause attached.
    #[must_use]
    pub fn caused_by(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// The same error with another kind, for a caller who knows what an errno means here.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The same error, its message preceded by what was being done.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// The same error, its message followed by a hint for the operator.
    #[must_use]
    pub fn hint(mut self, text: impl fmt::Display) -> Self {
        self.message = format!("{}; {text}", self.message);
        self
    }

    /// What went wrong, in the terms of the specification.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The errno of the system call that failed, if one did.
    pub fn errno(&self) -> Option<i32> {
        match self.cause {
            Some(Cause::Errno(errno)) => Some(errno),
            _ => None,
        }
    }

    /// The exit status of the command that failed, if one did.
    pub fn exit_status(&self) -> Option<i32> {
        match self.cause {
            Some(Cause::Exit(status)) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Constructors that are named after the kind of the error.
macro_rules! shorthand {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(message: impl Into<String>) -> Self { Self::new(Kind::$kind, message) })*
        }
    };
}

shorthand! {
    /// [`Kind::InvalidArgument`]
    invalid => InvalidArgument;
    /// [`Kind::NotFound`]
    not_found => NotFound;
    /// [`Kind::AlreadyExists`]
    already_exists => AlreadyExists;
    /// [`Kind::Precondition`]
    precondition => Precondition;
    /// [`Kind::HasSnapshots`]
    has_snapshots => HasSnapshots;
    /// [`Kind::OutOfRange`]
    out_of_range => OutOfRange;
    /// [`Kind::NoSpace`]
    no_space => NoSpace;
    /// [`Kind::Unavailable`]
    unavailable => Unavailable;
    /// [`Kind::Timeout`]
    timeout => Timeout;
    /// [`Kind::Unimplemented`]
    unimplemented => Unimplemented;
    /// [`Kind::Unauthenticated`]
    unauthenticated => Unauthenticated;
    /// [`Kind::Internal`]
    internal => Internal;
}
