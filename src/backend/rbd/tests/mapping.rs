//! A node that maps images for writing, while controllers give them to other nodes. Directories that look
//! like sysfs play the part of the kernel.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::mapping_lost::lost;
use super::publish::{block, given, publish, refused, scene, unpublish};
use super::*;
use crate::backend::NodeContext;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind;
use crate::exec::{Class, CommandError, Helper, Tool, Why};

const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::HalfMade];

/// Maps and unmaps as the kernel does; each mapping is a client of its own.
struct FakeKernel {
    sysfs: PathBuf,
    cluster: FakeCluster,
    /// The last number of its address.
    machine: u32,
    mapped: AtomicU32,
    /// How long a map takes.
    slow: Mutex<Duration>,
}

impl FakeKernel {
    fn map(&self, image: &Value) -> Value {
        std::thread::sleep(*self.slow.lock());
        let number = 400 + self.mapped.fetch_add(1, Ordering::Relaxed);
        let address = format!("10.0.0.{}:0/{number}", self.machine);
        let text = |field: &str| image[field].as_str().unwrap().to_string();
        let options: Vec<&str> =
            image["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let read_only = image["read_only"].as_bool().unwrap();
        let config = format!("10.0.0.1:6789 name=csi,{} rbd {} -", options.join(","), text("name"));
        let has_own_client = options.contains(&"noshare");
        let values = [
            ("pool", text("pool")),
            ("name", text("name")),
            ("image_id", text("image_id")),
            ("current_snap", "-".into()),
            ("client_id", format!("client{number}")),
            ("client_addr", address.clone()),
            ("config_info", config),
        ];
        let device = self.sysfs.join(format!("bus/rbd/devices/{number}"));
        fs::create_dir_all(&device).unwrap();
        values.iter().for_each(|(name, value)| fs::write(device.join(name), value).unwrap());
        let disk = self.sysfs.join(format!("block/rbd{number}"));
        fs::create_dir_all(&disk).unwrap();
        fs::write(disk.join("ro"), if read_only { "1" } else { "0" }).unwrap();
        if !read_only {
            self.cluster.watch(&self.cluster.at(), &text("name"), &address);
        }
        json!({"Ok": {
            "number": number, "pool": text("pool"), "namespace": "", "name": text("name"), "fsid": "",
            "image_id": text("image_id"), "snapshot": "-", "client": format!("client{number}"), "address": address,
            "monitors": ["10.0.0.1:6789"], "has_own_client": has_own_client, "read_only": read_only,
        }})
    }

    fn unmap(&self, image: &Value) -> Value {
        let device = self.sysfs.join(format!("bus/rbd/devices/{}", image["number"]));
        fs::remove_dir_all(device).unwrap();
        self.cluster.unwatch(image["address"].as_str().unwrap());
        json!({"Ok": "Done"})
    }
}

impl Helper for FakeKernel {
    fn ask(
        &self,
        _: &Call,
        _: &str,
        _: Class,
        request: &[u8],
        _: Option<&Arc<File>>,
    ) -> Result<Vec<u8>, CommandError> {
        if self.cluster.is_dead() {
            return Err(Why::NotFound { tool: Tool::Rbd, searched: Vec::new() }.of("rbd"));
        }
        let request: Value = serde_json::from_slice(request).unwrap();
        let reply = match &request["MapRbd"]["image"] {
            Value::Null => self.unmap(&request["UnmapRbd"]["image"]),
            image => self.map(image),
        };
        Ok(reply.to_string().into_bytes())
    }
}

/// A machine on which a node's daemon is started, again and again.
pub(crate) struct Host {
    dir: tempfile::TempDir,
    cluster: FakeCluster,
    kernel: Arc<FakeKernel>,
}

impl Host {
    pub(crate) fn new(cluster: &FakeCluster) -> Self {
        Self::of(cluster, 7)
    }

    /// Another machine, which has this number.
    pub(super) fn of(cluster: &FakeCluster, machine: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sys/bus/rbd/devices", "sys/block", "proc"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let (sysfs, cluster) = (dir.path().join("sys"), cluster.clone());
        let kernel = FakeKernel {
            sysfs,
            cluster: cluster.clone(),
            machine,
            mapped: AtomicU32::new(0),
            slow: Mutex::default(),
        };
        Self { dir, cluster, kernel: Arc::new(kernel) }
    }

    pub(crate) fn daemon(&self) -> Rbd {
        self.daemon_with(timing())
    }

    pub(super) fn daemon_with(&self, timing: Timing) -> Rbd {
        let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
        let monitors = crate::clusters::parse_monitors("10.0.0.1").unwrap();
        let named = Cluster { credentials: Some(credentials), monitors, ..Cluster::named("ceph") };
        let kernel = Kernel::new(Arc::clone(&self.kernel) as Arc<dyn Helper>);
        let mapper = Mapper::below(self.dir.path(), kernel, Arc::new(FakeRunner::default()));
        let number = self.kernel.machine;
        let machine = Machine { id: format!("machine {number}"), boot: format!("boot of {number}") };
        let who = (Identity { machine, ..identity("n1", TWO) }, true, timing);
        let (clusters, tool) = (Arc::new(Clusters::of([named])), Arc::new(self.cluster.clone()));
        Rbd::new(clusters, tool, mapper, who, background(&self.cluster, TWO))
    }

    /// Has each map take this long from now on.
    fn slow_down(&self, by: Duration) {
        *self.kernel.slow.lock() = by;
    }

    /// The addresses of the clients that are mapped for writing.
    pub(crate) fn clients(&self) -> Vec<String> {
        let devices = fs::read_dir(self.dir.path().join("sys/bus/rbd/devices")).unwrap().flatten();
        devices.map(|device| fs::read_to_string(device.path().join("client_addr")).unwrap()).collect()
    }
}

pub(super) fn attach_in(
    call: &Call,
    rbd: &Rbd,
    id: &VolumeId,
    told: &Map,
    capability: &Capability,
) -> Result<PathBuf> {
    let (volume, secrets) = (Map::new(), Secrets::default());
    let context =
        NodeContext { volume: &volume, publish: told, secrets: &secrets, capability, read_only: false };
    let found = rbd.node().attached(id)?;
    let attached = rbd.node().attach(call, id, found.as_ref(), &context, &|_| Ok(()));
    let device = attached?.device()?.clone();
    Ok(device.path)
}

pub(super) fn attach(rbd: &Rbd, id: &VolumeId, told: &Map, mode: Mode) -> Result<PathBuf> {
    attach_in(&call(), rbd, id, told, &block(mode))
}

pub(super) fn detach(rbd: &Rbd, id: &VolumeId) {
    rbd.node().detach(&call(), id, crate::backend::PublishedBy::Controller, &Secrets::default()).unwrap();
}

pub(super) fn is_shut_out(cluster: &FakeCluster, address: &str) -> bool {
    cluster.blocklist().iter().any(|entry| entry.address == address)
}

#[test]
fn a_life_takes_six_processes_more_at_its_begin_and_two_at_its_end() {
    let it = scene();
    let (host, before) = (Host::new(&it.cluster), it.cluster.dump());
    let node = host.daemon();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.cluster.advance(Duration::from_secs(61));
    it.methods();
    let path = attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
    assert_eq!(it.methods(), ["info", "holders", "watchers", "lock", "holders", "holders"]);
    assert_eq!(attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap(), path);
    assert!(it.methods().is_empty(), "what is known is not asked");
    // After a restart the daemon remembers nothing.
    assert_eq!(attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter).unwrap(), path);
    assert_eq!(it.methods(), ["holders", "watchers", "holders", "holders"]);
    detach(&node, &it.id);
    assert_eq!(it.methods(), ["holders", "unlock"]);
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert_eq!(it.methods(), ["holders", "unlock", "holders"]);
    assert_eq!((it.cluster.dump(), it.cluster.blocklist()), (before, vec![]));
}

#[test]
fn readers_ask_for_the_number_of_snapshots_only() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let told = it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    it.methods();
    let node = host.daemon();
    for _ in 0..2 {
        attach(&node, &it.id, &told, Mode::MultiNodeReaderOnly).unwrap();
    }
    detach(&node, &it.id);
    assert_eq!(it.methods(), ["info"]);
}

/// The node stands still at each step of its work, while the volume is taken from it and given to another.
#[test]
fn a_node_that_stood_still_uses_no_volume_that_another_writes() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeSingleWriter] {
        let mut others = 0;
        for k in 1.. {
            let it = scene();
            let host = Host::new(&it.cluster);
            let node = host.daemon();
            let told = it.publish("n1", mode, false).unwrap();
            it.cluster.advance(Duration::from_secs(61));
            it.cluster.forget_steps();
            let (id, other) = (it.id.clone(), controller(&it.cluster, ONE));
            it.cluster.on_step(k, move |_| {
                unpublish(&other, &id, Some("n1")).unwrap();
                // This may be refused, as long as the image is mapped.
                let _ = publish(&other, &id, "n2", mode, false);
            });
            let attached = attach(&node, &it.id, &told, mode);
            if (it.cluster.steps().len() as u64) < k {
                attached.unwrap();
                break;
            }
            others += u32::from(given(&it.cluster) == ["n2"]);
            let writers =
                host.clients().into_iter().filter(|address| !is_shut_out(&it.cluster, address)).count();
            assert!(attached.is_err() || writers == 0, "UNSAFE: {mode:?} at step {k}: {attached:?}");
            // Nothing is left that keeps other nodes out.
            unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
            publish(&it.rbd, &it.id, "n2", mode, false).unwrap_or_else(|error| panic!("step {k}: {error}"));
        }
        assert!(others > 0, "the other one was never let in");
    }
}

/// The daemon dies at each step, perhaps with the image mapped.
#[test]
fn what_a_dead_daemon_has_mapped_is_used_only_if_it_is_still_published() {
    for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=12).map(move |k| (fault, k))) {
        let it = scene();
        let host = Host::new(&it.cluster);
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        it.cluster.advance(Duration::from_secs(61));
        it.cluster.crash_at(k, fault);
        let outcome = attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter);
        if it.cluster.fault_pending() {
            outcome.unwrap();
            continue;
        }
        it.cluster.restart();
        let path = attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter)
            .unwrap_or_else(|error| panic!("{fault:?} at {k}: {error}"));
        assert!(path.ends_with(format!("rbd{}", 400 + host.kernel.mapped.load(Ordering::Relaxed) - 1)));
        assert_eq!(host.clients().len(), 1, "{fault:?} at {k}");
        let client = &host.clients()[0];
        assert!(it.cluster.dump().contains(client), "UNSAFE: {fault:?} at {k}: nobody knows of {client}");
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
        assert!(is_shut_out(&it.cluster, client), "UNSAFE: {fault:?} at {k}: it writes on");
        refused(
            attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter),
            Kind::Unavailable,
            &[client, "shut out"],
        );
    }
}

#[test]
fn a_volume_that_was_given_to_another_is_not_even_mapped() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    // The old call still fails after another publication to this node, which is not the one of that call.
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    let late = attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter);
    refused(late, Kind::Precondition, &["\"n1\"", "publish it again"]);
    assert_eq!(host.kernel.mapped.load(Ordering::Relaxed), 0);
}

/// The node cannot ask whether the volume is still published.
#[test]
fn without_tools_no_map_is_begun_for_an_old_call() {
    for (blind_map, is_mapped) in [(Duration::from_secs(30), true), (Duration::ZERO, false)] {
        let it = scene();
        let host = Host::new(&it.cluster);
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        it.cluster.take_tools_away();
        it.methods();
        let node = host.daemon_with(Timing { blind_map, ..timing() });
        let attached = attach(&node, &it.id, &told, Mode::SingleNodeWriter);
        assert_eq!((attached.is_ok(), host.clients().len()), (is_mapped, usize::from(is_mapped)));
        if !is_mapped {
            refused(attached, Kind::Unavailable, &["s old", "try again"]);
            // A mapping that exists is no new danger.
            attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter).unwrap();
            attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
        }
        assert!(it.methods().is_empty(), "nobody is asked");
        assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
    }
}

/// The map may have waited for its turn, or the machine may have stood still.
#[test]
fn without_tools_what_was_mapped_for_a_call_that_is_old_by_then_is_given_back() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.cluster.take_tools_away();
    let blind_map = Duration::from_secs(2);
    host.slow_down(blind_map);
    let node = host.daemon_with(Timing { blind_map, ..timing() });
    refused(attach(&node, &it.id, &told, Mode::SingleNodeWriter), Kind::Unavailable, &["s old", "try again"]);
    assert!(host.clients().is_empty(), "UNSAFE: it stays mapped");
}

#[test]
fn a_foreign_client_that_stays_keeps_a_single_writer_out() {
    for (mode, mirrored, is_let_in) in [
        (Mode::SingleNodeWriter, false, false),
        (Mode::SingleNodeWriter, true, true),
        (Mode::MultiNodeMultiWriter, false, true),
    ] {
        let it = scene();
        let host = Host::new(&it.cluster);
        let told = it.publish("n1", mode, false).unwrap();
        it.watch("10.0.0.9:0/1");
        if mirrored {
            it.cluster.set_mirrored(&it.cluster.at(), &it.id.object, MirrorState::Enabled, true);
        }
        let attached = attach(&host.daemon(), &it.id, &told, mode);
        assert_eq!(attached.is_ok(), is_let_in, "{mode:?}, mirrored: {mirrored}: {attached:?}");
        if !is_let_in {
            refused(attached, Kind::Precondition, &["10.0.0.9:0/1"]);
            assert!(host.clients().is_empty() && !it.cluster.dump().contains("10.0.0.7"), "nothing is left");
        }
    }
}

#[test]
fn what_is_mapped_goes_on_for_the_next_publication() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    let path = attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
    // The volume is taken back as by a controller that shuts out no client.
    let rows = it.cluster.here().holders(LockTarget::Header(&it.image())).unwrap();
    rows.iter().for_each(|row| {
        it.cluster.here().unlock(LockTarget::Header(&it.image()), row).unwrap();
    });
    let capability = block(Mode::MultiNodeMultiWriter);
    let publication = crate::backend::Publication { node: "n1".into(), capability, read_only: false };
    // A controller that shuts out no client publishes again before another one looks: the client stays.
    let off = super::fence::lenient(&it.cluster, "c");
    let again = off.publisher().publish(&call(), &it.id, &publication, &Secrets::default()).unwrap();
    assert_eq!(attach(&node, &it.id, &again, Mode::MultiNodeMultiWriter).unwrap(), path);
    assert_eq!(it.cluster.dump().matches("client of").count(), 1, "{}", it.cluster.dump());
    assert!(it.cluster.dump().contains(&again["publication"]));
}

#[test]
fn without_a_mark_in_its_options_a_client_may_be_shared_and_is_not_written_down() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let image = json!({
        "pool": "rbd", "name": it.id.object, "image_id": it.image(), "options": ["queue_depth=64"], "read_only": false,
    });
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    host.kernel.map(&image);
    attach(&host.daemon(), &it.id, &told, Mode::SingleNodeWriter).unwrap();
    let mut stale = told.clone();
    stale.insert("publication".to_string(), "0123456789abcdef".to_string());
    let late = attach(&host.daemon(), &it.id, &stale, Mode::SingleNodeWriter);
    refused(late, Kind::Precondition, &["not any more as it was"]);
    assert!(!it.cluster.dump().contains("10.0.0.7"), "{}", it.cluster.dump());
}
