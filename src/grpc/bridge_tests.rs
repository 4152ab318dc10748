//! What the bridge promises every service, whatever that does: a defect costs one call. The service here is
//! made for the purpose, behind a real door.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use grpcio::{CallOption, Channel, ChannelBuilder, Environment, RpcStatusCode, ServiceBuilder};

use super::{Bridge, Plan};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::grpc::Door;
use crate::grpc::active_calls::Running;
use crate::grpc::proto::csi_v1 as wire;
use crate::locks::{Key, Locks};
use crate::workers::{Bulkhead, Load, Pool};

/// A deadline that only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(60);

/// Panics with the volume's lock held, or before, as the name says; else it answers.
struct Volumes;

fn locked<R: Send + 'static>(name: String, answer: R) -> Result<Plan<R>> {
    assert_ne!(name, "before", "on purpose, before the lock");
    let keys = vec![Key::from("the volume")];
    let work = {
        let name = name.clone();
        move |_: &Call| {
            assert_ne!(name, "with the lock", "on purpose, with the lock");
            Ok(answer)
        }
    };
    Ok(Plan::new(name.clone(), work).within(Bulkhead::from("local")).locking(keys, name))
}

impl wire::GroupController for Volumes {
    fn group_controller_get_capabilities(
        &self,
        _: wire::GroupControllerGetCapabilitiesRequest,
    ) -> Result<Plan<wire::GroupControllerGetCapabilitiesResponse>> {
        Ok(Plan::now(Default::default()))
    }

    fn create_volume_group_snapshot(
        &self,
        request: wire::CreateVolumeGroupSnapshotRequest,
    ) -> Result<Plan<wire::CreateVolumeGroupSnapshotResponse>> {
        locked(request.name, Default::default())
    }

    fn delete_volume_group_snapshot(
        &self,
        _: wire::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<Plan<wire::DeleteVolumeGroupSnapshotResponse>> {
        Err(Error::unimplemented("not here"))
    }

    fn get_volume_group_snapshot(
        &self,
        _: wire::GetVolumeGroupSnapshotRequest,
    ) -> Result<Plan<wire::GetVolumeGroupSnapshotResponse>> {
        Err(Error::unimplemented("not here"))
    }
}

/// What was logged.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what is logged, and shows it.
struct Log;

impl Log {
    /// Has what panics logged from now on.
    fn panics() -> impl Drop {
        log::set_logger(&Log).unwrap();
        log::set_max_level(log::LevelFilter::Error);
        let before = Hook(Some(std::panic::take_hook()));
        crate::logging::log_panics();
        before
    }
}

/// Says what a panic does.
type PanicHook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync>;

/// What the other tests have a panic do; put back when it is dropped.
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

/// An open door with this service behind it.
struct House {
    channel: Channel,
    pool: Arc<Pool>,
    running: Arc<Running>,
    _door: Door,
    _directory: tempfile::TempDir,
}

impl House {
    fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let pool = Arc::new(Pool::start(4, 16, || 0).unwrap());
        let locks = Arc::new(Locks::new(16, PATIENCE, Bridge::is_retryable).unwrap());
        let running = Arc::new(Running::default());
        let bridge = Bridge::new(Arc::clone(&pool), locks, Arc::clone(&running));
        let volumes =
            wire::register_group_controller(ServiceBuilder::new(), &bridge, &Arc::new(Volumes)).build();
        let door = Door::open(&socket, vec![volumes]).unwrap();
        let environment = Arc::new(Environment::new(1));
        let channel = ChannelBuilder::new(environment).use_local_subchannel_pool(true);
        let channel = channel.connect(&format!("unix:{}", socket.display()));
        Self { channel, pool, running, _door: door, _directory: directory }
    }

    /// Asks for a locked volume; gives the code and the message of the refusal.
    fn lock(&self, name: &str) -> std::result::Result<(), (RpcStatusCode, String)> {
        let request = wire::CreateVolumeGroupSnapshotRequest { name: name.into(), ..Default::default() };
        let client = wire::GroupControllerClient::new(self.channel.clone());
        match client.create_volume_group_snapshot(&request, CallOption::default().timeout(PATIENCE)) {
            Ok(_) => Ok(()),
            Err(grpcio::Error::RpcFailure(status)) => Err((status.code(), status.message().to_string())),
            Err(other) => panic!("not an answer: {other}"),
        }
    }

    /// Waits until nothing is under way and nobody works.
    #[track_caller]
    fn await_rest(&self) {
        let end = Instant::now() + PATIENCE;
        let idle = Load { running: 0, queued: 0, parked: 0 };
        while !self.running.is_empty() || self.pool.load() != idle {
            assert!(Instant::now() < end, "{} calls under way, {:?}", self.running.len(), self.pool.load());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_defect_costs_one_call_and_frees_its_lock() {
    let _hook = Log::panics();
    let house = House::open();
    for name in ["before", "with the lock"] {
        let (code, message) = house.lock(name).unwrap_err();
        assert_eq!(code, RpcStatusCode::INTERNAL);
        assert!(message.contains("defect") && message.contains("on purpose"), "{message}");
        // More often than there are workers: none of them is lost, and the lock is free each time.
        for _ in 0..8 {
            assert!(house.lock(name).is_err());
            house.lock("well").unwrap();
        }
    }
    house.await_rest();
    let lines = LOG.lock().unwrap();
    for part in [
        "src/grpc/bridge_tests.rs:",
        "on purpose, before the lock",
        "on purpose, with the lock",
        "thread \"worker ",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part:?} is missing in {lines:?}");
    }
}
