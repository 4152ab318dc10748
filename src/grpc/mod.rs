//! gRPC on a unix socket. Only this module knows grpcio and the generated messages.

pub mod active_calls;
mod addons;
pub mod bridge;
pub mod fields;
pub mod operator;
pub mod proto;
pub mod status;
mod v0;
mod v1;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use grpcio::{ChannelBuilder, Environment, ServerBuilder, ServerCredentials, Service, ServiceBuilder};

use crate::error::{Error, Result};
use crate::grpc::bridge::Bridge;
use crate::grpc::operator::Settings;
use crate::sys::flock::FileLock;
use crate::sys::socket::{self, Listener};
use crate::sys::{crash, file};
use crate::volume::Operations;

/// The number of calls for which gRPC keeps room before it reads them: more only cost memory.
const SLOTS: usize = 128;

/// The most bytes of a request: some dozen times the limit of all its fields together. All calls that wait
/// are in memory with their requests.
const LONGEST_REQUEST: i32 = 256 << 10;

/// gRPC, being served at a socket.
pub struct Server {
    server: grpcio::Server,
    socket: PathBuf,
    // Reserves the socket's name.
    _lock: FileLock,
}

impl Server {
    /// Binds `socket`, from the first moment for its owner only, and begins to serve.
    ///
    /// gRPC unlinks any file at the path, even the socket of a live daemon. So `lock`, the file that stands
    /// for the socket's name, is locked first, and only a socket without a listener is removed.
    pub fn open(socket: &Path, lock: &Path, services: Service) -> Result<Self> {
        let taken = || {
            Error::precondition(format!(
                "another daemon serves at {}: stop it, or give this one another CSI_ENDPOINT",
                socket.display()
            ))
        };
        let lock = try_lock(lock)?.ok_or_else(taken)?;
        clear_stale(socket, taken)?;
        let environment = Arc::new(Environment::new(1));
        let arguments = ChannelBuilder::new(Arc::clone(&environment));
        let arguments = arguments.max_receive_message_len(LONGEST_REQUEST).build_args();
        let builder = ServerBuilder::new(environment).channel_args(arguments).requests_slot_per_cq(SLOTS);
        let builder = builder.register_service(services);
        let failed =
            |error: grpcio::Error| Error::internal(format!("cannot serve at {}: {error}", socket.display()));
        let mut server = builder.build().map_err(failed)?;
        let umask = socket::Umask::set(0o177);
        crash::point("bind the socket");
        server
            .add_listening_port(format!("unix:{}", socket.display()), ServerCredentials::insecure())
            .map_err(failed)?;
        crash::point("socket bound");
        drop(umask);
        server.start();
        Ok(Self { server, socket: socket.to_path_buf(), _lock: lock })
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Takes no more calls and waits for those under way. False if some still are at the deadline.
    pub fn drain(&mut self, deadline: Instant) -> bool {
        // Can be repeated: gRPC answers each request for the shutdown.
        resolves_before(self.server.shutdown(), deadline)
    }

    /// Waits for the calls still under way until the deadline, cancels the rest and removes the socket.
    pub fn close(mut self, deadline: Instant) {
        if !self.drain(deadline) {
            log::warn!("calls are still under way and are cancelled");
            self.server.cancel_all_calls();
        }
        if let Err(error) = std::fs::remove_file(&self.socket)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!("the socket {} stays: {error}", self.socket.display());
        }
    }
}

/// Waits for a future. False if it has not resolved at the deadline.
fn resolves_before(future: impl Future, deadline: Instant) -> bool {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return false,
            left => thread::park_timeout(left),
        }
    }
    true
}

/// Locks a file that only its owner can open, so that no other user can keep the daemon from starting.
fn try_lock(path: &Path) -> Result<Option<FileLock>> {
    let lock = || {
        path.parent().map_or(Ok(()), file::ensure_dir)?;
        FileLock::try_exclusive(file::open_lock(path)?)
    };
    lock().map_err(|error| Error::io(format!("lock {}", path.display()), &error))
}

/// Removes a socket that a dead daemon left. Anything else at the path is left alone.
fn clear_stale(path: &Path, taken: impl Fn() -> Error) -> Result<()> {
    let listener =
        socket::probe(path).map_err(|error| Error::io(format!("look at {}", path.display()), &error))?;
    match listener {
        Listener::Absent => make_directory(path),
        Listener::Alive => Err(taken()),
        Listener::Refused => {
            crash::point("remove a stale socket");
            std::fs::remove_file(path)
                .map_err(|error| Error::io(format!("remove the stale socket {}", path.display()), &error))
        }
        Listener::Other => Err(Error::precondition(format!(
            "{} is there and is no socket: remove it, or set another CSI_ENDPOINT",
            path.display()
        ))),
    }
}

fn make_directory(socket: &Path) -> Result<()> {
    let Some(parent) = socket.parent() else { return Ok(()) };
    std::fs::create_dir_all(parent).map_err(|error| Error::io(format!("create {}", parent.display()), &error))
}

/// The server of all protocols: each of them is implemented in its own module.
pub struct Services {
    /// The plugin's name.
    pub name: String,
    /// What calls are turned into.
    pub operations: Arc<Operations>,
    /// Whether this daemon serves the controller.
    pub controller: bool,
    /// The daemon's settings.
    pub settings: Settings,
}

impl Services {
    /// Connects the services of this copy with `bridge`. CSI 0.1 itself refuses what this copy does not
    /// serve; for the other protocols gRPC answers UNIMPLEMENTED.
    pub fn behind(self, bridge: &Bridge) -> Service {
        use proto::{cephlet_operator_v1, csi, csi_v1, fence, identity, replication};
        let (all, this) = (ServiceBuilder::new(), Arc::new(self));
        let all = csi::register_identity(all, bridge, &this);
        let all = csi::register_controller(all, bridge, &this);
        let all = csi::register_node(all, bridge, &this);
        let all = csi_v1::register_identity(all, bridge, &this);
        let all = identity::register_identity(all, bridge, &this);
        let all = fence::register_fence_controller(all, bridge, &this);
        let mut all = cephlet_operator_v1::register_operator(all, bridge, &this);
        if this.controller {
            all = csi_v1::register_controller(all, bridge, &this);
            all = replication::register_controller(all, bridge, &this);
        }
        if this.operations.serves_node {
            all = csi_v1::register_node(all, bridge, &this);
        }
        all.build()
    }

    fn ensure_controller(&self) -> Result<()> {
        ensure_served("controller", self.controller)
    }

    fn ensure_node(&self) -> Result<()> {
        ensure_served("node", self.operations.serves_node)
    }
}

/// Refuses a service that this copy does not serve: gRPC by itself would give no reason.
fn ensure_served(service: &str, is_served: bool) -> Result<()> {
    let refusal = || {
        format!("this copy of cephlet does not serve the {service}: ask another one, or set CEPHLET_SERVICES")
    };
    is_served.then_some(()).ok_or_else(|| Error::unimplemented(refusal()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_is_awaited_until_it_resolves_or_the_deadline_passes() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (sender, receiver) = futures_channel::oneshot::channel();
        let waiter = thread::spawn(move || resolves_before(receiver, deadline));
        assert_eq!(sender.send(()), Ok(()));
        assert!(waiter.join().is_ok_and(|resolved| resolved));
        assert!(!resolves_before(std::future::pending::<()>(), Instant::now()));
    }
}
