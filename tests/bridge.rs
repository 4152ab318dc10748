//! What the bridge promises every service, whatever that does: a defect costs one call, a stream goes as far
//! as its client reads. The services here are made for the purpose, behind a real door.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cephlet::error::{Error, Result};
use cephlet::grpc::Door;
use cephlet::grpc::active_calls::Running;
use cephlet::grpc::bridge::{Bridge, Plan};
use cephlet::grpc::proto::csi_v1 as wire;
use cephlet::grpc::stream::Chunks;
use cephlet::locks::{Key, Locks};
use cephlet::workers::{Bulkhead, Load, Pool};
use futures_executor::block_on_stream;
use grpcio::{CallOption, Channel, ChannelBuilder, Environment, RpcStatusCode, ServiceBuilder};

/// A deadline that only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many as make a reply of 48 KiB.
const REPLY_BLOCKS: usize = 4096;

/// How many replies an endless stream has made.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Makes as many replies as the request's `max_results`, none of them before it is wanted; fails after the
/// last if the snapshot is "broken", panics if it is "defect".
struct Stream;

impl wire::SnapshotMetadata for Stream {
    fn get_metadata_allocated(
        &self,
        request: wire::GetMetadataAllocatedRequest,
    ) -> Result<Chunks<wire::GetMetadataAllocatedResponse>> {
        let reply = |number| {
            MADE.fetch_add(1, Ordering::SeqCst);
            let block_metadata =
                vec![wire::BlockMetadata { byte_offset: i64::MAX, ..Default::default() }; REPLY_BLOCKS];
            Ok(wire::GetMetadataAllocatedResponse {
                volume_capacity_bytes: i64::from(number),
                block_metadata,
                ..Default::default()
            })
        };
        let replies = (0..request.max_results).map(reply);
        Ok(match request.snapshot_id.as_str() {
            "broken" => Box::new(replies.chain([Err(Error::no_space("the end"))])),
            "defect" => Box::new(replies.chain(std::iter::once_with(|| panic!("on purpose")))),
            _ => Box::new(replies),
        })
    }

    fn get_metadata_delta(
        &self,
        _: wire::GetMetadataDeltaRequest,
    ) -> Result<Chunks<wire::GetMetadataDeltaResponse>> {
        Err(Error::unimplemented("not here"))
    }
}

/// Panics with the volume's lock held, or before, as the name says; else it answers.
struct Volumes;

fn locked<R: Send + 'static>(name: String, answer: R) -> Result<Plan<R>> {
    assert_ne!(name, "before", "on purpose, before the lock");
    let keys = vec![Key::from("the volume")];
    let work = {
        let name = name.clone();
        move |_: &cephlet::call::Call| {
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

/// Keeps what is logged.
struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOG.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// An open door with these services behind it.
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
        let stream =
            wire::register_snapshot_metadata(ServiceBuilder::new(), &bridge, &Arc::new(Stream)).build();
        let volumes =
            wire::register_group_controller(ServiceBuilder::new(), &bridge, &Arc::new(Volumes)).build();
        let door = Door::open(&socket, vec![stream, volumes]).unwrap();
        let environment = Arc::new(Environment::new(1));
        let channel = ChannelBuilder::new(environment).use_local_subchannel_pool(true);
        let channel = channel.connect(&format!("unix:{}", socket.display()));
        Self { channel, pool, running, _door: door, _directory: directory }
    }

    /// Asks for a stream; gives what came of it: the replies' numbers, and how it ended.
    fn stream(&self, snapshot_id: &str, replies: i32) -> (Vec<i64>, std::result::Result<(), RpcStatusCode>) {
        let mut numbers = Vec::new();
        for reply in block_on_stream(self.begin(snapshot_id, replies)) {
            match reply {
                Ok(reply) => numbers.push(reply.volume_capacity_bytes),
                Err(grpcio::Error::RpcFailure(status)) => return (numbers, Err(status.code())),
                Err(other) => panic!("not an answer: {other}"),
            }
        }
        (numbers, Ok(()))
    }

    fn begin(
        &self,
        snapshot_id: &str,
        replies: i32,
    ) -> grpcio::ClientSStreamReceiver<wire::GetMetadataAllocatedResponse> {
        let request = wire::GetMetadataAllocatedRequest {
            snapshot_id: snapshot_id.into(),
            max_results: replies,
            ..Default::default()
        };
        let client = wire::SnapshotMetadataClient::new(self.channel.clone());
        client.get_metadata_allocated(&request, CallOption::default().timeout(PATIENCE)).unwrap()
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
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Error);
    cephlet::logging::log_panics();
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
    for part in
        ["tests/bridge.rs:", "on purpose, before the lock", "on purpose, with the lock", "thread \"worker "]
    {
        assert!(lines.iter().any(|line| line.contains(part)), "{part:?} is missing in {lines:?}");
    }
}

#[test]
fn a_stream_ends_with_its_last_reply_its_error_or_its_defect() {
    let house = House::open();
    assert_eq!(house.stream("", 3), (vec![0, 1, 2], Ok(())));
    assert_eq!(house.stream("", 0), (vec![], Ok(())));
    // An error may overtake replies that are still on their way.
    assert_eq!(house.stream("broken", 2).1, Err(RpcStatusCode::RESOURCE_EXHAUSTED));
    assert_eq!(house.stream("defect", 1).1, Err(RpcStatusCode::INTERNAL));
    house.await_rest();
}

#[test]
fn a_client_that_stops_reading_holds_no_worker_and_little_memory() {
    let house = House::open();
    // More than there are workers, each with more to say than anybody keeps for it.
    let unread: Vec<_> = (0..8).map(|_| house.begin("", i32::MAX)).collect();
    let mut before = 0;
    let end = Instant::now() + PATIENCE;
    // They come to rest when what gRPC keeps for a client that does not read is full.
    while MADE.load(Ordering::SeqCst) != before || before == 0 || house.pool.load().running > 0 {
        assert!(Instant::now() < end, "replies are still made");
        before = MADE.load(Ordering::SeqCst);
        (0..100).for_each(|_| house.lock("well").unwrap());
    }
    assert_eq!(house.running.len(), 8);
    assert!(before < 1000, "{before} replies of 48 KiB wait somewhere");
    house.lock("well").unwrap();
    drop(unread);
    house.await_rest();
}
