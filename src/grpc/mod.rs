//! gRPC on a unix socket. Only this module knows grpcio and the generated messages.

pub mod active_calls;
pub mod addons;
pub mod bridge;
pub mod operator;
pub mod path;
pub mod proto;
pub mod status;
pub mod v0;
pub mod v1;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;
use grpcio::{ChannelBuilder, Environment, ServerBuilder, ServerCredentials, Service, ServiceBuilder};

use crate::error::{Error, Result};
use crate::grpc::bridge::Bridge;
use crate::grpc::operator::Settings;
use crate::sys::flock::FileLock;
use crate::sys::socket::{self, Listener};
use crate::sys::{crash, file};
use crate::volume::Operations;

/// How many calls gRPC keeps room for before they are read: more only cost memory.
const SLOTS: usize = 128;

/// The most bytes of a request: some dozen times what the fields of one may have together. As many calls as
/// may wait are in memory with their requests.
const LONGEST_REQUEST: i32 = 256 << 10;

/// gRPC, being served at a socket.
pub struct Server {
    server: grpcio::Server,
    socket: PathBuf,
    /// Told once every call has been answered; from [`Server::drain`] on.
    drained: Option<Receiver<()>>,
    // The socket's name is ours while this lives.
    _lock: FileLock,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "server at {}", self.socket.display())
    }
}

impl Server {
    /// Binds `socket`, for its owner only from the first moment, and begins to serve.
    ///
    /// gRPC unlinks whatever lies at the path, even the socket of a daemon that is alive. So `lock`, the file
    /// that stands for the socket's name, is locked first, and only a socket that nobody answers at is given
    /// up.
    pub fn open(socket: &Path, lock: &Path, services: Vec<Service>) -> Result<Self> {
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
        let builder = services.into_iter().fold(builder, ServerBuilder::register_service);
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
        Ok(Self { server, socket: socket.to_path_buf(), drained: None, _lock: lock })
    }

    /// Where it is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Takes no more calls and waits for those under way. False if some still are at the deadline.
    pub fn drain(&mut self, deadline: Instant) -> bool {
        let server = &mut self.server;
        let drained = self.drained.get_or_insert_with(|| finished(server.shutdown()));
        drained.recv_deadline(deadline).is_ok()
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

/// Waits for gRPC's shutdown on a thread of its own: the future has no deadline.
fn finished(done: grpcio::ShutdownFuture) -> Receiver<()> {
    let (sender, receiver) = crossbeam_channel::bounded(2);
    let wait = move || {
        let _ = futures_executor::block_on(done);
        // Once for each of the two who ask.
        let _ = (sender.send(()), sender.send(()));
    };
    // Without a thread nobody reports the end, and the deadline decides.
    let _ = std::thread::Builder::new().name("shutdown".into()).spawn(wait);
    receiver
}

/// Locks a file that only its owner can open, so that nobody else can keep the daemon from starting.
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

/// All services of this copy of the plugin `name`.
pub fn services(
    bridge: &Bridge,
    name: &str,
    operations: &Arc<Operations>,
    controller: bool,
    settings: Settings,
) -> Vec<Service> {
    let node = operations.serves_node;
    let mut services = v0_services(bridge, name, operations, controller, node);
    services.extend(addons_services(bridge, name, operations, controller));
    services.extend(v1_services(bridge, name, operations, controller, node));
    let operator = operator::Operator { operations: Arc::clone(operations), settings };
    let operator = Arc::new(operator);
    let builder = ServiceBuilder::new();
    services.push(proto::cephlet_operator_v1::register_operator(builder, bridge, &operator).build());
    services
}

/// The services of CSI v1 that this copy serves.
fn v1_services(
    bridge: &Bridge,
    name: &str,
    operations: &Arc<Operations>,
    controller: bool,
    node: bool,
) -> Vec<Service> {
    use proto::csi_v1 as wire;
    let identity = v1::identity::Identity { name: name.to_string(), operations: Arc::clone(operations) };
    let mut services =
        vec![wire::register_identity(ServiceBuilder::new(), bridge, &Arc::new(identity)).build()];
    if controller {
        let service = Arc::new(v1::controller::Controller { operations: Arc::clone(operations) });
        services.push(wire::register_controller(ServiceBuilder::new(), bridge, &service).build());
        let groups = Arc::new(v1::group_controller::GroupController);
        services.push(wire::register_group_controller(ServiceBuilder::new(), bridge, &groups).build());
    }
    if node {
        let service = Arc::new(v1::node::Node { operations: Arc::clone(operations) });
        services.push(wire::register_node(ServiceBuilder::new(), bridge, &service).build());
    }
    services
}

/// The services of CSI 0.1, on the same socket. What this copy does not serve says so.
fn v0_services(
    bridge: &Bridge,
    name: &str,
    operations: &Arc<Operations>,
    controller: bool,
    node: bool,
) -> Vec<Service> {
    use proto::csi as wire;
    let identity = Arc::new(v0::identity::Identity { name: name.to_string() });
    let controller =
        Arc::new(v0::controller::Controller { operations: Arc::clone(operations), served: controller });
    let node = Arc::new(v0::node::Node { operations: Arc::clone(operations), served: node });
    vec![
        wire::register_identity(ServiceBuilder::new(), bridge, &identity).build(),
        wire::register_controller(ServiceBuilder::new(), bridge, &controller).build(),
        wire::register_node(ServiceBuilder::new(), bridge, &node).build(),
    ]
}

/// The services of csi-addons.
fn addons_services(
    bridge: &Bridge,
    name: &str,
    operations: &Arc<Operations>,
    controller: bool,
) -> Vec<Service> {
    use proto::{fence, identity, replication};
    let operations = || Arc::clone(operations);
    let who = addons::identity::Identity { name: name.to_string(), controller, operations: operations() };
    let fences = addons::fence::FenceController { operations: operations(), controller };
    let replicas = addons::replication::Controller { operations: operations() };
    let mut services = vec![
        identity::register_identity(ServiceBuilder::new(), bridge, &Arc::new(who)).build(),
        fence::register_fence_controller(ServiceBuilder::new(), bridge, &Arc::new(fences)).build(),
    ];
    if controller {
        let builder = ServiceBuilder::new();
        services.push(replication::register_controller(builder, bridge, &Arc::new(replicas)).build());
    }
    services
}
