//! What the bridge guarantees for every service: a defect costs one call, and a call that waits holds no
//! worker. The service here is made for these tests, behind a real server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grpcio::{CallOption, Channel, ChannelBuilder, Environment, RpcStatusCode, ServiceBuilder};
use protobuf::Message;

use super::{self as bridge, Asked, Bridge, Caller, raw_method};
use crate::dispatch::{Call, Key, LockTable, Workers};
use crate::error::{Error, Result};
use crate::grpc::Server;
use crate::grpc::active_calls::ActiveCalls;
use crate::grpc::proto::{Rpc, csi_v1 as wire};
use crate::volume::lock_keys::LockSet;

/// A deadline that only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a call that waits pauses.
const PAUSE: Duration = Duration::from_millis(5);

/// Work on a volume, named "VOLUME: WORK". By its WORK it panics before it has the volume's lock or with the
/// lock, waits until the gate is open, or is refused with a long message; else it is done at once. A volume
/// whose name begins with "far" lies in another cluster.
#[derive(Default)]
struct Volumes {
    gate: AtomicBool,
    /// What was done or failed, in its order.
    done: Mutex<Vec<String>>,
}

impl Volumes {
    fn work(&self, call: &Call, name: &str) -> Result<()> {
        assert!(!name.ends_with("with the lock"), "on purpose, with the lock");
        if name.ends_with("wait") && !self.gate.load(Ordering::SeqCst) {
            let open = || Ok(self.gate.load(Ordering::SeqCst).then_some(()));
            call.wait_for("waiting for the gate", PATIENCE, PAUSE, open)
                .inspect_err(|error| self.done.lock().unwrap().push(format!("{name}: {error}")))?;
        }
        if name.ends_with("at length") {
            return Err(Error::precondition(format!("what happened{}what to do", "ä".repeat(20_000))));
        }
        self.done.lock().unwrap().push(name.to_string());
        Ok(())
    }
}

/// The service for these volumes.
struct Service(Arc<Volumes>);

impl Service {
    fn locked(
        &self,
        caller: Caller<'_, wire::CreateVolumeGroupSnapshotResponse>,
        name: String,
    ) -> bridge::Answer {
        assert!(!name.ends_with("before"), "on purpose, before the lock");
        let keys = vec![Key::from(name.split(':').next().unwrap())];
        let cluster = Some(if name.starts_with("far") { "far" } else { "local" }.to_string());
        let locks = LockSet { subject: name.clone(), cluster, keys };
        caller.run(locks, name, |call, name| self.0.work(call, name).map(|()| Default::default()))
    }
}

impl wire::GroupController for Service {
    fn group_controller_get_capabilities(
        &self,
        (caller, _): Asked<wire::GroupControllerGetCapabilitiesRequest>,
    ) -> bridge::Answer {
        caller.reply(Default::default())
    }

    fn create_volume_group_snapshot(
        &self,
        (caller, request): Asked<wire::CreateVolumeGroupSnapshotRequest>,
    ) -> bridge::Answer {
        self.locked(caller, request.name)
    }

    fn delete_volume_group_snapshot(
        &self,
        _: Asked<wire::DeleteVolumeGroupSnapshotRequest>,
    ) -> bridge::Answer {
        Err(Error::unimplemented("not here"))
    }

    fn get_volume_group_snapshot(&self, _: Asked<wire::GetVolumeGroupSnapshotRequest>) -> bridge::Answer {
        Err(Error::unimplemented("not here"))
    }
}

/// What was logged.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what is logged, and shows it.
struct Log;

impl Log {
    /// Logs panics from now on.
    fn panics() -> impl Drop {
        log::set_logger(&Log).unwrap();
        log::set_max_level(log::LevelFilter::Error);
        let before = Hook(Some(std::panic::take_hook()));
        crate::logging::log_panics();
        before
    }
}

/// A panic hook.
type PanicHook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync>;

/// The panic hook of the other tests, put back when this is dropped.
struct Hook(Option<PanicHook>);

impl Drop for Hook {
    fn drop(&mut self) {
        log::set_max_level(log::LevelFilter::Off);
        if let Some(hook) = self.0.take().filter(|_| !std::thread::panicking()) {
            std::panic::set_hook(hook);
        }
    }
}

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{}", record.args());
        LOG.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// The outcome of a call.
type Answer = std::result::Result<(), (RpcStatusCode, String)>;

/// A server with this service.
struct House {
    channel: Channel,
    workers: Arc<Workers>,
    locks: Arc<LockTable<super::Answer>>,
    running: Arc<ActiveCalls>,
    volumes: Arc<Volumes>,
    _door: Server,
    _directory: tempfile::TempDir,
}

impl House {
    fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let locks = LockTable::new(16, PATIENCE, Bridge::is_retryable);
        let workers = Arc::new(Workers::start(4, 16).unwrap());
        let running = Arc::new(ActiveCalls::beside(Arc::default()));
        let bridge = Bridge::new(Arc::clone(&workers), Arc::clone(&locks), Arc::clone(&running));
        let volumes = Arc::new(Volumes::default());
        let service = Arc::new(Service(Arc::clone(&volumes)));
        let service = wire::register_group_controller(ServiceBuilder::new(), &bridge, &service).build();
        let door = Server::open(&socket, &directory.path().join("lock"), service).unwrap();
        let environment = Arc::new(Environment::new(1));
        let channel = ChannelBuilder::new(environment).use_local_subchannel_pool(true);
        let channel = channel.connect(&format!("unix:{}", socket.display()));
        Self { channel, workers, locks, running, volumes, _door: door, _directory: directory }
    }

    /// Asks for work on a volume; gives the code and the message of the refusal.
    fn ask(&self, name: &str) -> Answer {
        self.ask_within(name, PATIENCE)
    }

    fn ask_within(&self, name: &str, deadline: Duration) -> Answer {
        ask(&self.channel, name, deadline)
    }

    /// Asks for work on a volume without waiting for it.
    fn begin(&self, name: &str) -> JoinHandle<Answer> {
        let (channel, name) = (self.channel.clone(), name.to_string());
        thread::spawn(move || ask(&channel, &name, PATIENCE))
    }

    /// Waits until `calls` calls are in the lock table behind those that have their locks.
    #[track_caller]
    fn await_queued(&self, calls: usize) {
        let end = Instant::now() + PATIENCE;
        while self.locks.waiting() != calls {
            assert!(Instant::now() < end, "{}", self.locks.waiting());
            thread::yield_now();
        }
    }

    /// Waits until `calls` calls are in progress and none of them works.
    #[track_caller]
    fn await_waiting(&self, calls: usize) {
        let end = Instant::now() + PATIENCE;
        while self.workers.load() != (calls, 0) {
            assert!(Instant::now() < end, "{:?}", self.workers.load());
            thread::yield_now();
        }
    }

    fn done(&self) -> Vec<String> {
        self.volumes.done.lock().unwrap().clone()
    }

    /// Waits until no call is in progress.
    #[track_caller]
    fn await_rest(&self) {
        let end = Instant::now() + PATIENCE;
        while self.running.in_progress() != 0 || self.workers.load() != (0, 0) {
            assert!(
                Instant::now() < end,
                "{} calls under way, {:?}",
                self.running.in_progress(),
                self.workers.load()
            );
            thread::yield_now();
        }
    }
}

fn ask(channel: &Channel, name: &str, deadline: Duration) -> Answer {
    let request = wire::CreateVolumeGroupSnapshotRequest { name: name.into(), ..Default::default() };
    let (request, options) = (request.write_to_bytes().unwrap(), CallOption::default().timeout(deadline));
    let method = raw_method(wire::CreateVolumeGroupSnapshotRequest::PATH);
    match grpcio::Client::new(channel.clone()).unary_call(&method, &request, options) {
        Ok(_) => Ok(()),
        Err(grpcio::Error::RpcFailure(status)) => Err((status.code(), status.message().to_string())),
        Err(other) => panic!("not an answer: {other}"),
    }
}

#[test]
fn a_defect_costs_one_call_and_frees_its_lock() {
    let _hook = Log::panics();
    let house = House::open();
    for name in ["volume: before", "volume: with the lock"] {
        let (code, message) = house.ask(name).unwrap_err();
        assert_eq!(code, RpcStatusCode::INTERNAL);
        assert!(message.contains("defect") && message.contains("on purpose"), "{message}");
        // More often than there are workers: no worker is lost, and the lock is free each time.
        for _ in 0..8 {
            assert!(house.ask(name).is_err());
            house.ask("volume: well").unwrap();
        }
    }
    house.await_rest();
    let lines = LOG.lock().unwrap();
    for part in [
        "src/grpc/bridge_tests.rs:",
        "on purpose, before the lock",
        "on purpose, with the lock",
        "thread \"worker",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part:?} is missing in {lines:?}");
    }
}

#[test]
fn calls_that_wait_hold_no_worker() {
    let house = House::open();
    // More than there are workers.
    let names: Vec<String> = (0..8).map(|number| format!("{number}: wait")).collect();
    let calls: Vec<_> = names.iter().map(|name| house.begin(name)).collect();
    house.await_waiting(8);
    house.ask("volume: well").unwrap();
    assert_eq!(house.done(), ["volume: well"]);
    house.volumes.gate.store(true, Ordering::SeqCst);
    calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
    let mut done = house.done();
    done[1..].sort();
    assert_eq!(done[1..], names);
    house.await_rest();
}

#[test]
fn a_cluster_that_hangs_does_not_fill_the_queue() {
    let house = House::open();
    let calls: Vec<_> = (0..40).map(|number| house.begin(&format!("{number}: wait"))).collect();
    // Each call waits or is refused.
    let end = Instant::now() + PATIENCE;
    while calls.iter().filter(|call| call.is_finished()).count() + house.workers.load().0 < 40 {
        assert!(Instant::now() < end, "{:?}", house.workers.load());
        thread::yield_now();
    }
    house.ask("far: well").expect("the queue is not only for the cluster that hangs");
    house.volumes.gate.store(true, Ordering::SeqCst);
    let answers: Vec<Answer> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    assert!(answers.iter().filter(|answer| answer.is_ok()).count() >= 8, "{answers:?}");
    for (code, message) in answers.into_iter().filter_map(Result::err) {
        assert_eq!(code, RpcStatusCode::UNAVAILABLE, "{message}");
    }
}

#[test]
fn a_long_message_arrives_with_its_code_its_beginning_and_its_end() {
    let house = House::open();
    let (code, message) = house.ask("volume: at length").unwrap_err();
    assert_eq!(code, RpcStatusCode::FAILED_PRECONDITION, "{message}");
    assert!(message.starts_with("what happened") && message.ends_with("what to do"), "{message}");
}

#[test]
fn a_call_that_waits_keeps_its_lock_and_those_that_joined_it() {
    let house = House::open();
    let first = house.begin("volume: wait");
    house.await_waiting(1);
    let joined = house.begin("volume: wait");
    house.await_queued(1);
    let behind = house.begin("volume: well");
    house.await_queued(2);
    house.volumes.gate.store(true, Ordering::SeqCst);
    for call in [first, joined, behind] {
        call.join().unwrap().unwrap();
    }
    assert_eq!(house.done(), ["volume: wait", "volume: well"]);
}

#[test]
fn a_deadline_that_passes_while_a_call_waits_ends_it() {
    let house = House::open();
    house.ask("early: well").expect("a call that connects");
    // Long enough for the call to reach the place where it waits.
    let (code, _) = house.ask_within("late: wait", Duration::from_secs(15)).unwrap_err();
    assert_eq!(code, RpcStatusCode::DEADLINE_EXCEEDED);
    house.await_rest();
    assert_eq!(
        house.done()[1..],
        ["late: wait: the client's deadline passed in step \"waiting for the gate\""]
    );
}

#[test]
fn calls_that_wait_are_answered_at_once_when_the_daemon_stops() {
    let house = House::open();
    let call = house.begin("volume: wait");
    house.await_waiting(1);
    house.workers.end_pauses();
    let (code, message) = call.join().unwrap().unwrap_err();
    assert_eq!(code, RpcStatusCode::UNAVAILABLE);
    assert!(message.contains("stopping"), "{message}");
    house.await_rest();
}
