//! Tests of `node`, on directories that look like sysfs and /proc. The kernel and the tools are tried in the
//! virtual machine.

#![allow(clippy::unwrap_used)]

mod nbd;
mod usable;

use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::backend::Reason;
use crate::clusters::{Cluster, Credentials, Monitor};
use crate::error::Kind;
use crate::exec::fake::{FakeHelper, FakeRunner};
use crate::exec::{Cmd, CommandError, Output, Tool};
use crate::secrets::Secret;
use crate::sys::byte_lock::ByteLock;
use crate::topology::Labels;

const FSID: &str = "9fe80cc8-5ab8-4f68-acd1-df900f7b4b22";
const COOKIE: &str = "cephlet/main/vms/n1/web/1081c73c7e97";

struct Node {
    dir: tempfile::TempDir,
    helper: Arc<FakeHelper>,
    runner: Arc<FakeRunner>,
    mapper: Mapper,
    access: ClusterAccess,
    call: Call,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sys/bus/rbd/devices", "sys/block", "proc"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let (helper, runner) = (Arc::new(FakeHelper::default()), Arc::new(FakeRunner::default()));
        let mapper = Mapper::below(dir.path(), Kernel::new(helper.clone()), runner.clone());
        Self {
            dir,
            helper,
            runner,
            mapper,
            access: access(&[Some("10.0.0.1:6789")]),
            call: Call::internal("test"),
        }
    }

    fn image(&self) -> Image<'_> {
        let cluster = &self.access.cluster;
        Image { cluster, pool: "vms", namespace: "n1", name: "web", id: Some("1081c73c7e97") }
    }

    fn map(&self, options: &MapOptions) -> Result<BlockDevice> {
        self.map_while(options, &|| Ok(Some("1081c73c7e97".into())))
    }

    fn map_while(&self, options: &MapOptions, id_now: IdNow<'_>) -> Result<BlockDevice> {
        let (access, image, found) = (&self.access, self.image(), self.find()?);
        let (image, found) = (&image, found.as_ref());
        self.mapper.map(&self.call, &MapRequest { access, image, options, found, id_now })
    }

    fn find(&self) -> Result<Option<BlockDevice>> {
        self.mapper.find(&self.image())
    }

    fn write(&self, path: &str, values: &[(&str, &str)]) {
        write(&self.dir.path().join(path), values);
    }

    /// Writes what the kernel shows of an image it has mapped. The test's machine has no such device.
    fn kernel_maps(&self, number: u32, name: &str, id: &str) {
        let device = format!("sys/bus/rbd/devices/{number}");
        self.write(
            &device,
            &[("pool", "vms"), ("pool_ns", "n1"), ("name", name), ("image_id", id), ("current_snap", "-")],
        );
        let config = ("config_info", "10.0.0.1:6789 name=csi,key=client.csi vms web -");
        self.write(&device, &[("cluster_fsid", FSID), ("client_id", "client7"), config]);
        self.write(&format!("sys/block/rbd{number}"), &[("ro", "0"), ("size", "2048"), ("dev", "254:0")]);
    }

    fn nbd_connects(&self, number: u32, cookie: &str) {
        connect(&self.dir.path().join("sys"), number, cookie);
    }

    fn runs(&self, process: u32, arguments: &[&str]) {
        let name = arguments[0].rsplit('/').next().unwrap();
        self.write(&format!("proc/{process}"), &[("comm", name)]);
        fs::write(self.dir.path().join(format!("proc/{process}/cmdline")), arguments.join("\0") + "\0")
            .unwrap();
    }

    /// The helper's next request must be to map with these monitors and options. It fails with `errno`.
    fn expect_map(&self, monitors: &str, options: &[&str], errno: i32) {
        let image = json!({
            "monitors": monitors, "user": "csi", "key": "AQBkey==", "options": options, "pool": "vms", "namespace": "n1",
            "name": "web", "image_id": "1081c73c7e97", "fsid": Value::Null, "read_only": false, "former": [],
        });
        let reply = json!({"Err": {"action": "map it", "errno": errno, "text": ""}}).to_string();
        self.helper.expect(in_order(&image), reply);
    }
}

fn write(directory: &Path, values: &[(&str, &str)]) {
    fs::create_dir_all(directory).unwrap();
    values.iter().for_each(|(name, value)| fs::write(directory.join(name), format!("{value}\n")).unwrap());
}

fn connect(sysfs: &Path, number: u32, cookie: &str) {
    let values = [("pid", "40"), ("backend", cookie), ("ro", "0"), ("size", "2048"), ("dev", "43:0")];
    write(&sysfs.join(format!("block/nbd{number}")), &values);
}

/// The request as the helper gets it: fields in the order of the struct, which a JSON map does not keep.
fn in_order(image: &Value) -> Vec<u8> {
    let fields = [
        "monitors",
        "user",
        "key",
        "options",
        "pool",
        "namespace",
        "name",
        "image_id",
        "fsid",
        "read_only",
        "former",
    ]
    .map(|field| format!("\"{field}\":{}", image[field]));
    format!("{{\"MapRbd\":{{\"image\":{{{}}}}}}}", fields.join(",")).into_bytes()
}

/// A cluster with one monitor for each of these addresses of version 1; all offer version 2.
fn access(v1: &[Option<&str>]) -> ClusterAccess {
    let monitor = |v1: &Option<&str>| Monitor { v2: Some("10.0.0.1:3300".into()), v1: v1.map(Into::into) };
    let cluster = Cluster { monitors: v1.iter().map(monitor).collect(), ..Cluster::named("main") };
    ClusterAccess {
        cluster: Arc::new(cluster),
        credentials: Credentials { user: "csi".into(), key: Some(Secret::new("AQBkey==")) },
        bulkhead: "main".into(),
    }
}

/// The same cluster, perhaps with another fsid or at another monitor.
fn cluster(fsid: Option<&str>, monitor: &str) -> Cluster {
    let monitors = vec![Monitor { v2: None, v1: Some(monitor.into()) }];
    Cluster { monitors, fsid: fsid.map(Into::into), ..Cluster::named("main") }
}

fn options(mounter: Mounter) -> MapOptions {
    MapOptions { mounter, options: Vec::new(), read_only: false, features: BTreeSet::new() }
}

/// The tool's name, and the arguments by which it reaches the cluster.
fn reaching(access: &ClusterAccess, tool: Tool) -> Vec<String> {
    let command = access.command(tool, crate::exec::Class::Change).to_string();
    command.split(' ').map(|word| word.trim_matches('"').to_owned()).collect()
}

fn expect_tool(node: &Node, tool: Tool, words: &[&str], status: i32, stderr: &str) {
    let mut argv = reaching(&node.access, tool);
    argv.extend(words.iter().map(ToString::to_string));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    node.runner.expect_failure(&argv, status, stderr);
}

#[test]
fn what_is_mapped_is_found_without_asking_anybody() {
    let node = Node::new();
    assert_eq!(node.mapper.find(&node.image()).unwrap(), None);
    node.kernel_maps(4, "name before", "1081c73c7e97");
    node.kernel_maps(3, "web", "another");
    for mounter in [Mounter::Kernel, Mounter::Nbd] {
        let device = node.map(&options(mounter)).unwrap();
        assert_eq!((device.path.as_path(), device.image.as_str()), (Path::new("/dev/rbd4"), "1081c73c7e97"));
    }
}

#[test]
fn without_an_id_the_name_and_the_cluster_tell() {
    let node = Node::new();
    node.kernel_maps(3, "web", "another");
    let by_name = |fsid: Option<&str>, monitor| {
        let image = Image { cluster: &cluster(fsid, monitor), id: None, ..node.image() };
        node.mapper.find(&image).unwrap().map(|device| device.image)
    };
    assert_eq!(by_name(None, "10.0.0.1:6789").as_deref(), Some("another"));
    assert_eq!(by_name(None, "10.9.9.9:6789"), None);
    assert_eq!(by_name(Some(FSID), "10.9.9.9:6789").as_deref(), Some("another"), "its monitors have moved");
    assert_eq!(by_name(Some("f"), "10.0.0.1:6789"), None);
}

/// Only an operator maps an image twice; cephlet does not.
#[test]
fn an_image_that_is_mapped_twice_is_refused() {
    let node = Node::new();
    node.kernel_maps(3, "web", "1081c73c7e97");
    node.nbd_connects(2, COOKIE);
    for refused in [node.find().map(drop), node.map(&options(Mounter::Kernel)).map(drop)] {
        let error = refused.expect_err("UNSAFE: two devices with a cache each");
        assert_eq!(error.kind(), Kind::Precondition);
        assert!(error.message().contains("/dev/rbd3 and as /dev/nbd2"), "{error}");
    }
}

#[test]
fn an_image_keeps_its_device_when_the_monitors_move() {
    let node = Node::new();
    node.kernel_maps(3, "web", "1081c73c7e97");
    let is_found = |fsid: Option<&str>| {
        let image = Image { cluster: &cluster(fsid, "10.9.9.9:6789"), ..node.image() };
        node.mapper.find(&image).unwrap().is_some()
    };
    assert!(is_found(None));
    assert!(!is_found(Some("f")), "the same id in another cluster");
}

#[test]
fn the_kernel_is_asked_with_the_monitors_it_can_speak_to() {
    let mut node = Node::new();
    node.expect_map("10.0.0.1:6789", &["queue_depth=64", "noshare", "mount_timeout=20"], libc::EIO);
    let deep = MapOptions { options: vec!["queue_depth=64".into()], ..options(Mounter::Kernel) };
    assert_eq!(node.map(&deep).unwrap_err().kind(), Kind::Unavailable);
    node.access = access(&[None]);
    node.expect_map("10.0.0.1:3300", &["noshare", "mount_timeout=20", "ms_mode=prefer-crc"], libc::EIO);
    node.map(&options(Mounter::Kernel)).unwrap_err();
    let given = ["ms_mode=secure", "noshare", "mount_timeout=5"];
    node.expect_map("10.0.0.1:3300", &given, libc::EIO);
    let given = given.map(String::from).to_vec();
    node.map(&MapOptions { options: given, ..options(Mounter::Kernel) }).unwrap_err();
}

#[test]
fn reads_are_near_where_the_cluster_or_the_volume_says_so() {
    let labels = Labels::given("zone=eu-1,rack=r7").unwrap();
    let topology = NodeTopology::load("p.q", &labels, None, Arc::default()).unwrap();
    let mut node = Node::new();
    let own = ["noshare", "mount_timeout=20"];
    let near = ["read_from_replica=localize", "crush_location=zone:eu-1|rack:r7"];
    let given = |mine: &[&str]| MapOptions {
        options: mine.iter().map(ToString::to_string).collect(),
        ..options(Mounter::Kernel)
    };
    let asked = |node: &Node, mine: &[&str], told: &[&str]| {
        node.expect_map("10.0.0.1:6789", told, libc::EIO);
        assert_eq!(node.map(&given(mine)).unwrap_err().kind(), Kind::Unavailable, "{mine:?}");
    };
    asked(&node, &near[..1], &[near[0], own[0], own[1]]);
    node.mapper.topology = Arc::new(topology);
    asked(&node, &[], &own);
    asked(&node, &near[..1], &[near[0], own[0], own[1], near[1]]);
    Arc::get_mut(&mut node.access.cluster).unwrap().read_affinity = true;
    asked(&node, &[], &[own[0], own[1], near[0], near[1]]);
    asked(&node, &["crush_location=host:h"], &["crush_location=host:h", own[0], own[1], near[0]]);
    asked(&node, &["read_from_replica=no"], &["read_from_replica=no", own[0], own[1]]);
}

#[test]
fn what_cannot_be_mapped_is_refused_before_anybody_is_asked() {
    let mut node = Node::new();
    let smuggled = MapOptions { options: vec!["secret=x".into()], ..options(Mounter::Kernel) };
    assert_eq!(node.map(&smuggled).unwrap_err().kind(), Kind::InvalidArgument);
    node.access.credentials.key = None;
    let error = node.map(&options(Mounter::Kernel)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthenticated);
    assert!(error.message().contains("CEPHLET_CEPH_KEYRING"), "{error}");
}

#[test]
fn a_kernel_without_the_driver_says_so() {
    let node = Node::new();
    fs::remove_dir_all(node.dir.path().join("sys/bus/rbd")).unwrap();
    node.runner.expect_failure(&["modprobe", "rbd"], 1, "modprobe: FATAL: Module rbd not found");
    let error = node.map(&options(Mounter::Kernel)).unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition);
    assert!(
        error.message().contains("Module rbd not found") && error.message().contains("mounter=rbd-nbd"),
        "{error}"
    );
}

#[test]
fn what_is_not_mapped_is_unmapped() {
    let node = Node::new();
    node.mapper.ensure_unmapped(&node.call, &node.image()).unwrap();
}

#[test]
fn what_is_still_being_mapped_is_not() {
    let node = Node::new();
    let refused = |image: Image<'_>| {
        assert_eq!(node.mapper.ensure_unmapped(&node.call, &image).unwrap_err().kind(), Kind::Unavailable)
    };
    let command = node.mapper.lock(&node.call, &node.image()).unwrap();
    refused(node.image());
    refused(Image { id: None, ..node.image() });
    command.give_back().unwrap();
    node.mapper.ensure_unmapped(&node.call, &node.image()).unwrap();
}

#[test]
fn the_end_of_a_command_of_an_earlier_daemon_is_waited_for() {
    let mut node = Node::new();
    node.mapper.timing = NodeTiming::default();
    let command = node.mapper.lock(&node.call, &node.image()).unwrap();
    let ended_by = |command: ByteLock| {
        let waiting = node.call.clone();
        std::thread::spawn(move || {
            while !waiting.current_step().0.contains("was mapping") {
                std::thread::yield_now();
            }
            waiting.enter_step("it ends");
            command.give_back().unwrap();
        })
    };
    let ending = ended_by(command);
    node.mapper.ensure_unmapped(&node.call, &node.image()).unwrap();
    ending.join().unwrap();
    node.call.enter_step("once more");
    let ending = ended_by(node.mapper.lock(&node.call, &node.image()).unwrap());
    drop(node.mapper.lock(&node.call, &node.image()).unwrap());
    ending.join().unwrap();
}

#[test]
fn nobody_maps_beside_a_command_of_an_earlier_daemon() {
    let node = Node::new();
    let _command = node.mapper.lock(&node.call, &node.image()).unwrap();
    for mounter in [Mounter::Kernel, Mounter::Nbd] {
        assert_eq!(node.map(&options(mounter)).unwrap_err().kind(), Kind::Unavailable);
    }
    assert!(!node.mapper.is_absent(&node.image()).unwrap());
}

#[test]
fn a_device_without_its_watch_is_in_bad_condition() {
    let node = Node::new();
    node.kernel_maps(3, "web", "1081c73c7e97");
    let mapping = node.find().unwrap().unwrap();
    assert_eq!(node.mapper.condition(&mapping), None, "without debugfs nothing is known");
    node.write(
        &format!("sys/kernel/debug/ceph/{FSID}.client7"),
        &[("osdc", "REQUESTS 0 homeless 0\nLINGER REQUESTS\nBACKOFFS")],
    );
    let told = node.mapper.condition(&mapping).unwrap();
    assert!(told.reason == Reason::WatchLost && told.detail.contains("/dev/rbd3"), "{told}");
    let watch = "LINGER REQUESTS\n1\tosd0\t1.1\t1.4\t[0]/0\t[0]/0\te13\tn1/rbd_header.1081c73c7e97\t0x20\t0\tWC/0\nBACKOFFS";
    node.write(&format!("sys/kernel/debug/ceph/{FSID}.client7"), &[("osdc", watch)]);
    assert_eq!(node.mapper.condition(&mapping), None);
}

#[test]
fn a_read_only_device_is_not_for_writing() {
    let node = Node::new();
    node.kernel_maps(3, "web", "1081c73c7e97");
    node.write("sys/block/rbd3", &[("ro", "1")]);
    let error = node.map(&options(Mounter::Kernel)).unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.message().contains("/dev/rbd3"), "{error}");
    assert!(node.map(&MapOptions { read_only: true, ..options(Mounter::Kernel) }).unwrap().read_only);
}

#[test]
fn devices_of_volumes_are_listed_with_what_unmaps_them() {
    let node = Node::new();
    let volume = "csi-vol-web-abcdefghij234";
    node.kernel_maps(0, volume, "1081c73c7e97");
    node.kernel_maps(1, "disk-of-an-operator", "1081c73c7e98");
    node.nbd_connects(0, &format!("cephlet/main/vms/n1/{volume}/1081c73c7e97"));
    node.nbd_connects(1, "disk-of-an-operator");
    let devices = node.mapper.devices().unwrap();
    let listed: Vec<_> = devices.iter().map(|it| (it.object.as_str(), it.detach.as_str())).collect();
    let unmap = ["rbd device unmap /dev/rbd0", "rbd-nbd unmap /dev/nbd0"]
        .map(|unmap| format!("if no other cephlet on this host uses it: {unmap}"));
    assert_eq!(listed, [(volume, unmap[0].as_str()), (volume, unmap[1].as_str())]);
}
