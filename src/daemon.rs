//! The order of start-up and of shutdown.
//!
//! Start: signals → lock of the state directory → journal → backends → recovery → workers → socket → READY.
//! Stop: STOPPING → no new calls (the socket disappears) → calls in progress may end until the deadline →
//! remaining processes are killed and reaped → journal synced → lock released. Volumes stay mounted.

mod examine;
mod name;
mod numbers;
mod programs;
mod settings;
mod storage;
mod tag;

pub use examine::examine;
pub use settings::check;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::BegunRenames;
use crate::backend::ceph::Programs;
use crate::clusters::{ClusterSource, Clusters};
use crate::config::Config;
use crate::dispatch::{LockTable, ObjectLocks, Workers};
use crate::error::{Error, Result};
use crate::exec::{ProcessLimits, Processes, Tools};
use crate::grpc::active_calls::ActiveCalls;
use crate::grpc::bridge::{Answer, Bridge};
use crate::grpc::{Server, Services};
use crate::jobs::JobQueue;
use crate::journal::{Journal, RealDisk};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::metrics::Writer;
use crate::node_name::NodeName;
use crate::notify::Notifier;
use crate::signals::{Event, Signals};
use crate::sys::flock::FileLock;
use crate::topology::NodeTopology;
use crate::volume::Operations;

pub use self::name::rename_node;
use self::name::{own_name, remember_name};
use self::programs::programs;
use self::storage::{Background, backends, fencing};

/// How long the calls under way may take to end after SIGTERM. The unit's TimeoutStopSec is longer.
const DRAIN: Duration = Duration::from_secs(20);

/// How long to wait for the end of processes that still run after that.
const KILL: Duration = Duration::from_secs(5);

/// How long calls whose processes have ended may take to record what they did and to send the answer.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long the state directory may stay locked after a daemon died: a process that the daemon had just
/// forked holds the lock until its exec.
const DYING: Duration = Duration::from_secs(10);

/// How often to check whether the state directory is free.
const PAUSE: Duration = Duration::from_millis(20);

/// How often to check whether a file of settings has changed: a few stat calls.
const LOOK: Duration = Duration::from_secs(1);

/// The exit status of a daemon that ends so that the orchestrator asks the next daemon for its topology. It
/// is a failure (EX_TEMPFAIL of sysexits.h): supervisors that restart only after a failure must restart it.
pub const TOPOLOGY_CHANGED: u8 = 75;

/// Runs the daemon until a signal, a fatal error or a change of the topology ends it.
pub fn run(config: &Config) -> ExitCode {
    crate::logging::start(&config.log, config.journal_stream.as_deref());
    match Daemon::start(config) {
        Ok(daemon) => daemon.serve(),
        Err(error) => {
            log::error!("cephlet cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Daemon {
    signals: Signals,
    notifier: Notifier,
    server: Server,
    workers: Arc<Workers>,
    locks: Arc<LockTable<Answer>>,
    jobs: Arc<JobQueue>,
    running: Arc<ActiveCalls>,
    processes: Arc<Processes>,
    programs: Programs,
    journal: Arc<Journal>,
    clusters: Arc<Clusters>,
    topology: Arc<NodeTopology>,
    numbers: Option<Writer>,
    ends_on_change: bool,
    _state: FileLock,
}

impl Daemon {
    fn start(config: &Config) -> Result<Self> {
        #[cfg(feature = "crash-points")]
        crate::sys::crash::arm(config.crash_at, &config.runtime_dir);
        // Before any thread starts, so that directories above targets get the modes of `mkdir -p`.
        crate::sys::process::set_usual_umask();
        // Before any thread starts, so that every thread has the signals blocked or handled.
        let signals = Signals::register().map_err(|error| Error::io("register signal handlers", &error))?;
        let notifier = Notifier::new(config.notify_socket.as_deref());
        let layout = Layout::new(config);
        let state = lock_state(&layout)?;
        let node = own_name(config, &layout)?;
        let journal = open_journal(&layout, &signals)?;
        let processes = start_processes(config)?;
        let programs = programs(config, &layout, &processes)?;
        let clusters = Arc::new(Clusters::load(ClusterSource::new(config)));
        let topology = Arc::new(open_topology(config, &clusters).map_err(Error::precondition)?);
        let locks = LockTable::new(config.lock_slots, config.lock_wait, Bridge::is_retryable);
        let object_locks: Arc<dyn ObjectLocks> = Arc::new(Arc::clone(&locks));
        let renames: Arc<dyn BegunRenames> = Arc::clone(&journal) as _;
        let background = (Arc::new(JobQueue::default()), Arc::clone(&object_locks), renames);
        let parts = (&journal, &processes, &programs);
        let operations = assemble(config, (layout, &node), parts, (&clusters, &topology), background)?;
        recover(config, &operations, &object_locks)?;
        remember_name(config, &operations.layout, &node)?;
        let jobs = Arc::clone(&operations.jobs);
        jobs.start();
        let running = Arc::new(ActiveCalls::beside(Arc::clone(&jobs)));
        running.watch().map_err(|error| Error::io("start a thread", &error))?;
        let workers = Arc::new(Workers::start(config.workers, config.queue)?);
        let numbers = numbers::start(config, (&workers, &locks, &running), (&processes, &operations))?;
        let bridge = Bridge::new(Arc::clone(&workers), Arc::clone(&locks), Arc::clone(&running));
        let lock = operations.layout.socket_lock(&config.endpoint);
        let settings = settings::in_force(config, programs.clone(), &clusters, &topology);
        let (name, controller) = (config.name.clone(), config.services.controller);
        let services = Services { name, operations: Arc::clone(&operations), controller, settings };
        let server = Server::open(&config.endpoint, &lock, services.behind(&bridge))?;
        Ok(Self {
            signals,
            notifier,
            server,
            workers,
            locks,
            jobs,
            running,
            processes,
            programs,
            journal,
            clusters,
            topology,
            numbers,
            ends_on_change: config.services.node && config.ends_on_topology_change,
            _state: state,
        })
    }

    fn serve(self) -> ExitCode {
        log::info!("cephlet {} serves at {}", env!("CARGO_PKG_VERSION"), self.server.socket().display());
        self.notifier.ready();
        let outcome = self.wait();
        self.notifier.stopping();
        self.stop();
        outcome
    }

    /// Waits for the end of the daemon. Meanwhile clusters and topology follow their files. A poisoned
    /// journal ends the daemon, as it could no longer keep what the daemon acknowledges.
    fn wait(&self) -> ExitCode {
        loop {
            let event = self.signals.next_within(LOOK);
            let again = event == Some(Event::Reload);
            match event {
                None => self.clusters.reload_if_changed(),
                Some(Event::Reload) => {
                    log::info!(
                        "clusters and topology are read again; other settings come from the environment: \
                         restart to change them"
                    );
                    self.clusters.reload();
                }
                Some(Event::Stop) => return ExitCode::SUCCESS,
                Some(Event::Fatal(reason)) => {
                    log::error!("cephlet goes down: {reason}");
                    return ExitCode::FAILURE;
                }
            }
            if self.topology.follow(self.clusters.takeover(), again) && self.ends_on_change {
                log::info!("cephlet ends to be started anew, so that the orchestrator asks for its topology");
                return ExitCode::from(TOPOLOGY_CHANGED);
            }
        }
    }

    fn stop(self) {
        log::info!(
            "no new calls; waiting up to {} s for {} under way",
            DRAIN.as_secs(),
            self.running.in_progress()
        );
        let mut server = self.server;
        // Calls and jobs may wait for longer than the time that the daemon has left.
        self.workers.end_pauses();
        self.jobs.stop();
        if !server.drain(Instant::now() + DRAIN) {
            log::warn!("{} calls are still under way: what they run is ended", self.running.in_progress());
        }
        // Calls that wait for a process are answered now, and so are the calls queued behind them. Only a
        // formatting goes on after that.
        self.programs.end();
        self.processes.shutdown(Instant::now() + KILL);
        self.locks.close(Error::unavailable("cephlet is stopping; send the request again when it is back"));
        if !self.workers.drain(Instant::now() + LAST_WORDS) {
            log::warn!(
                "{} calls are left where they are; repeated, they go on from there",
                self.workers.load().0
            );
        }
        server.close(Instant::now() + LAST_WORDS);
        self.running.stop();
        if let Err(error) = self.journal.sync() {
            log::error!("the journal could not be synced: {error}");
        }
        // The file would go on telling of calls and volumes.
        drop(self.numbers);
        log::info!("ended; volumes stay mounted");
    }
}

/// Locks the state directory; None while another process holds the lock.
fn try_lock_state(layout: &Layout) -> Result<Option<FileLock>> {
    let path = layout.state_lock();
    crate::sys::file::ensure_dir(layout.state_dir())
        .map_err(|error| Error::io(format!("create {}", layout.state_dir().display()), &error))?;
    crate::sys::file::open_lock(&path)
        .and_then(FileLock::try_exclusive)
        .map_err(|error| Error::io(format!("lock {}", path.display()), &error))
}

/// Locks the state directory, so that one daemon uses it at a time.
fn lock_state(layout: &Layout) -> Result<FileLock> {
    let until = Instant::now() + DYING;
    loop {
        match try_lock_state(layout)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => std::thread::sleep(PAUSE),
            None => {
                return Err(Error::precondition(format!(
                    "another cephlet uses the state directory {}: stop it, or give this one another \
                     CEPHLET_STATE_DIR",
                    layout.state_dir().display()
                )));
            }
        }
    }
}

fn open_journal(layout: &Layout, signals: &Signals) -> Result<Arc<Journal>> {
    let events = signals.sender();
    let disk = RealDisk::open(layout.state_dir())?;
    let journal = Journal::open(Arc::new(disk), move |error| events.fatal(error.to_string()))?;
    Ok(Arc::new(journal))
}

fn start_processes(config: &Config) -> Result<Arc<Processes>> {
    let tools = Tools::find(config.tool_path.clone());
    let processes = Processes::new(tools, ProcessLimits::new(config.tools, config.tool_timeout));
    processes.map(Arc::new).map_err(|error| Error::io("prepare for starting commands", &error))
}

fn open_topology(config: &Config, clusters: &Clusters) -> Result<NodeTopology, String> {
    let Config { name, topology, crush_location, .. } = config;
    NodeTopology::load(name, topology, crush_location.clone(), clusters.takeover())
}

fn assemble(
    config: &Config,
    (layout, node): (Layout, &NodeName),
    (journal, processes, programs): (&Arc<Journal>, &Arc<Processes>, &Programs),
    (clusters, topology): (&Arc<Clusters>, &Arc<NodeTopology>),
    background: Background,
) -> Result<Arc<Operations>> {
    let kernel = Kernel::new(Arc::clone(processes) as _);
    let boot_id = crate::sys::random::boot_id().map_err(|error| Error::io("read the boot id", &error))?;
    let jobs = Arc::clone(&background.0);
    Ok(Arc::new(Operations {
        backends: backends(
            config,
            (&layout, node),
            &kernel,
            (processes, programs),
            (clusters, topology),
            background,
        )?,
        fencing: fencing(config, programs.clone(), clusters),
        journal: Arc::clone(journal),
        looks: Default::default(),
        kernel,
        runner: Arc::clone(processes) as _,
        jobs,
        layout,
        instance: config.instance.clone(),
        node_id: config.node_id.clone(),
        topology: Arc::clone(topology),
        serves_node: config.services.node,
        in_container: config.in_container,
        stages: config.stages,
        boot_id,
        single_node_targets: config.single_node_targets,
    }))
}

fn recover(config: &Config, operations: &Arc<Operations>, locks: &Arc<dyn ObjectLocks>) -> Result<()> {
    if config.services.controller {
        operations.recover_controller(locks)?;
    }
    if config.services.node {
        operations.recover_node(locks)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Role;
    use crate::ids::Place;
    use crate::journal::ram::RamDisk;

    /// On a host whose /etc/ceph is missing at a start, RBD volumes are still mounted.
    #[test]
    fn rbd_is_there_before_its_cluster_is_and_is_not_offered() {
        let directory = tempfile::tempdir().unwrap();
        let set = |name: &str, value: std::ffi::OsString| (name.into(), value);
        let state = directory.path().join("state");
        let config = Config::from_variables(
            Role::Daemon,
            [set("CSI_ENDPOINT", "/run/x/csi.sock".into()), set("CEPHLET_STATE_DIR", state.clone().into())],
        )
        .unwrap();
        let layout = Layout::new(&config);
        let limits = ProcessLimits::new(config.tools, config.tool_timeout);
        let processes = Arc::new(Processes::new(Tools::find(Vec::new()), limits).unwrap());
        let kernel = Kernel::new(Arc::clone(&processes) as _);
        let clusters = Arc::new(Clusters::of([]));
        let settings = (&clusters, &Arc::default());
        let places = (&layout, &NodeName::new("n"));
        let locks = LockTable::<()>::new(1, config.lock_wait, |()| false);
        let journal = Journal::open(Arc::new(RamDisk::default()), |_| {}).unwrap();
        let background = (Arc::default(), Arc::new(locks) as _, Arc::new(journal) as _);
        let programs = Programs::new(Arc::clone(&processes) as _, None);
        let backends =
            backends(&config, places, &kernel, (&processes, &programs), settings, background).unwrap();
        let offered: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        assert_eq!(offered, ["local"]);
        assert_eq!(backends.for_parameters(&Default::default()).unwrap().name(), "local");
        let place = Place {
            backend: "rbd".into(),
            cluster: "ceph".into(),
            pool: "rbd".into(),
            namespace: String::new(),
        };
        assert!(backends.by_kind(&place).is_some(), "what is mounted could not be unmounted");
    }
}
