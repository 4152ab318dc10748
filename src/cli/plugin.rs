//! The daemon as the command line sees it: any rpc, on the daemon's socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grpcio::{CallOption, ChannelBuilder, EnvBuilder};
use protobuf::Message;

use crate::error::{Error, Kind, Result};
use crate::grpc::bridge::raw_method;
use crate::grpc::proto::Rpc;
use crate::grpc::status;

/// A peer that answers requests: the daemon, or its substitute in tests.
pub trait Plugin {
    /// Sends an encoded request to the rpc at this path; gives the encoded reply.
    ///
    /// # Errors
    /// The error of the rpc.
    fn send(&self, path: &'static str, request: Vec<u8>) -> Result<Vec<u8>>;
}

impl dyn Plugin + '_ {
    /// Calls the rpc that the request belongs to.
    ///
    /// # Errors
    /// The error of the rpc.
    pub fn ask<Q: Rpc>(&self, request: &Q) -> Result<Q::Reply> {
        let failed = |error: protobuf::Error| Error::internal(format!("{}: {error}", Q::PATH));
        let reply = self.send(Q::PATH, request.write_to_bytes().map_err(failed)?)?;
        Q::Reply::parse_from_bytes(&reply).map_err(failed)
    }

    /// Asks for all pages of a list. `page` is the request for the page at a token; `take` takes its reply,
    /// and returns the token of the next page.
    ///
    /// # Errors
    /// That of the first page that is refused.
    pub fn ask_all<Q: Rpc>(
        &self,
        page: impl Fn(String) -> Q,
        mut take: impl FnMut(Q::Reply) -> String,
    ) -> Result<()> {
        let mut token = take(self.ask(&page(String::new()))?);
        while !token.is_empty() {
            token = take(self.ask(&page(token))?);
        }
        Ok(())
    }
}

/// A connection to the daemon.
pub struct Client {
    client: grpcio::Client,
    timeout: Option<Duration>,
}

impl Client {
    /// Connects to the daemon at `socket`. Each call may take `timeout`; without one it takes as long as the
    /// daemon works.
    ///
    /// UNAVAILABLE if no daemon answers at the socket. This is tested before gRPC connects, whose own message
    /// for it is hard to read.
    pub fn connect(socket: &Path, timeout: Option<Duration>) -> Result<Self> {
        UnixStream::connect(socket).map_err(|error| no_answer(socket, &error))?;
        let environment = Arc::new(EnvBuilder::new().cq_count(1).build());
        let channel = ChannelBuilder::new(environment)
            .default_authority("localhost")
            .connect(&format!("unix:{}", socket.display()));
        Ok(Self { client: grpcio::Client::new(channel), timeout })
    }
}

/// UNAVAILABLE: the socket cannot be connected to.
pub(super) fn no_answer(socket: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "run it as root",
        _ => {
            "is it running, and are --socket or CSI_ENDPOINT right? (cephlet config --check shows what is wrong \
             with the settings in this environment)"
        }
    };
    let refused = Error::io(format_args!("no daemon answers at {}", socket.display()), error);
    refused.with_kind(Kind::Unavailable).hint(hint)
}

impl Plugin for Client {
    fn send(&self, path: &'static str, request: Vec<u8>) -> Result<Vec<u8>> {
        let options = CallOption::default();
        let options = match self.timeout {
            Some(timeout) => options.timeout(timeout),
            None => options,
        };
        let reply = self.client.unary_call(&raw_method(path), &request, options);
        reply.map(|bytes| bytes.to_vec()).map_err(|failure| status::error(path, failure))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_socket_without_a_daemon_is_unavailable_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let absent = Client::connect(&socket, None).err().unwrap();
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let stale = Client::connect(&socket, None).err().unwrap();
        for error in [absent, stale] {
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(
                error.message().starts_with(&format!("no daemon answers at {}: ", socket.display())),
                "{error}"
            );
        }
    }
}
