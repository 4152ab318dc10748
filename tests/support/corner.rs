//! A namespace of a shared cluster for one test: no other test sees the objects that a test makes there, and
//! leftovers show.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cephlet::proto::csi_v1 as wire;
use serde_json::Value;

use super::machine::{Checksum, text};
use super::requests::{block, map, volume_as};
use super::{Cluster, Daemon, LONG_PATIENCE, MIB, Scratch, Setup, cluster};

/// What RBD itself keeps in every pool and namespace.
const USUAL: [&str; 5] = ["rbd_directory", "rbd_info", "rbd_children", "rbd_trash", "rbd_task"];

/// A namespace of pool `rbd`.
pub struct Corner {
    pub cluster: &'static Cluster,
    pub namespace: String,
}

/// A name that nothing in the cluster has. Other tests have their own there, and process IDs are used again
/// in a long run.
pub fn unused_name(prefix: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock");
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{}-{:x}-{count}", std::process::id(), since.as_micros())
}

impl Corner {
    pub fn new() -> Self {
        Self::of(cluster())
    }

    /// A corner in another cluster than the shared one.
    pub fn of(cluster: &'static Cluster) -> Self {
        let namespace = unused_name("t");
        cluster.rbd(&["namespace", "create", &format!("rbd/{namespace}")]);
        Self { cluster, namespace }
    }

    /// The setup of a daemon that sees nothing else, as the user for controllers. The cluster's name is
    /// `main`.
    pub fn setup(&self) -> Setup {
        self.setup_of(1)
    }

    /// The same for one of several daemons, which is node `node-N`.
    pub fn setup_of(&self, number: usize) -> Setup {
        let scratch = Arc::new(Scratch::new());
        let file = scratch.path("clusters.toml");
        let entry = entry("main", self.cluster, "cephlet");
        fs::write(&file, format!("{entry}pools = [\"rbd\"]\nnamespaces = [{:?}]\n", self.namespace))
            .expect("write the file");
        let setup =
            Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "rbd");
        setup.set("CEPHLET_NODE_ID", format!("node-{number}"))
    }

    pub fn start(&self) -> Daemon {
        self.setup().start()
    }

    /// A volume here of `mib` MiB, a block device.
    pub fn volume(&self, name: &str, mib: i64) -> wire::CreateVolumeRequest {
        self.volume_with(name, mib, &[])
    }

    /// The same with further parameters.
    pub fn volume_with(
        &self,
        name: &str,
        mib: i64,
        parameters: &[(&str, &str)],
    ) -> wire::CreateVolumeRequest {
        let place = [("pool", "rbd"), ("namespace", self.namespace.as_str())];
        wire::CreateVolumeRequest {
            parameters: map(&[&place[..], parameters].concat()),
            ..volume_as(name, mib * MIB, block())
        }
    }

    /// `rbd/NAMESPACE/name`; the name may be an ID of a volume.
    pub fn spec(&self, name: &str) -> String {
        format!("rbd/{}/{}", self.namespace, object_of(name))
    }

    /// `rbd/NAMESPACE`
    pub fn place(&self) -> String {
        format!("rbd/{}", self.namespace)
    }

    /// The names of all images, whatever they are, in order.
    pub fn images(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.cluster.rbd(&["ls", &self.place()]).lines().map(str::to_string).collect();
        names.sort();
        names
    }

    /// `rbd info` of an image or a volume.
    pub fn info(&self, name: &str) -> Value {
        self.json(&["info", &self.spec(name)])
    }

    /// What an `rbd` command prints as JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.try_json(arguments).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same of a command that may fail.
    pub fn try_json(&self, arguments: &[&str]) -> Result<Value, String> {
        let said = self.cluster.told("rbd", &[arguments, &["--format", "json"]].concat())?;
        serde_json::from_str(&said).map_err(|error| format!("{arguments:?}: {error}: {said}"))
    }

    /// Writes `bytes` into an image.
    #[track_caller]
    pub fn poke(&self, name: &str, offset: u64, bytes: &[u8]) {
        let mut rbd = self.cluster.command("rbd");
        rbd.args(["import-diff", "--no-progress", "-", &self.spec(name)]).stdin(Stdio::piped());
        let mut rbd = rbd.spawn().expect("rbd");
        let mut stdin = rbd.stdin.take().expect("stdin is piped");
        let length = u64::try_from(bytes.len()).expect("a length");
        let parts: [&[u8]; 6] =
            [b"rbd diff v1\n", b"w", &offset.to_le_bytes(), &length.to_le_bytes(), bytes, b"e"];
        stdin.write_all(&parts.concat()).expect("write the difference");
        drop(stdin);
        assert!(rbd.wait().expect("its end").success());
    }

    /// The SHA-256 of all that is in an image, or in one of its snapshots.
    #[track_caller]
    pub fn checksum(&self, name: &str) -> Checksum {
        let mut rbd = self.cluster.command("rbd");
        let spec = self.spec(name);
        let mut rbd =
            rbd.args(["export", "--no-progress", &spec, "-"]).stdout(Stdio::piped()).spawn().expect("rbd");
        let content = rbd.stdout.take().expect("stdout is piped");
        let sum = Command::new("sha256sum").stdin(content).output().expect("sha256sum");
        assert!(rbd.wait().expect("its end").success(), "export {spec}");
        Checksum::told(&String::from_utf8_lossy(&sum.stdout))
    }

    /// All objects except RBD's own directories and the objects of names without a claim.
    pub fn objects(&self) -> Vec<String> {
        let all = self.cluster.rados(&["--pool", "rbd", "--namespace", &self.namespace, "ls"]);
        let is_meant =
            |name: &&str| !USUAL.contains(name) && !is_free_name(self.cluster, &self.namespace, name);
        all.lines().filter(is_meant).map(str::to_string).collect()
    }

    /// Waits until nothing is left: no image, nothing in the trash, no object.
    #[track_caller]
    pub fn await_empty(&self) {
        let left =
            || (self.images(), self.cluster.rbd(&["trash", "ls", "--all", &self.place()]), self.objects());
        await_that("UNSAFE: something is left", || match left() {
            (images, trash, objects) if images.is_empty() && trash.is_empty() && objects.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
    }
}

/// Whether an object of the pool `rbd` stands for a name without a claim: it may stay.
pub fn is_free_name(cluster: &Cluster, namespace: &str, object: &str) -> bool {
    let words = ["--pool", "rbd", "--namespace", namespace, "lock", "info", object, "cephlet"];
    object.starts_with("cephlet.") && !cluster.rados(&words).contains("client.")
}

/// A cluster in the clusters file, with the key of one of its users.
pub fn entry(name: &str, cluster: &Cluster, user: &str) -> String {
    let (conf, keyring) = (cluster.conf(), cluster.keyring(user));
    format!("[cluster.{name}]\nconf = {:?}\nuser = {user:?}\nkeyring = {:?}\n", text(&conf), text(&keyring))
}

/// The image in the ID of a volume; other names are themselves.
pub fn object_of(id: &str) -> &str {
    if id.starts_with("rbd:") { id.split(':').nth(4).expect("the ID names the object") } else { id }
}

/// Waits for something that happens in the background.
#[track_caller]
pub fn await_that<T>(what: &str, mut happens: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + LONG_PATIENCE;
    loop {
        match happens() {
            Ok(found) => return found,
            Err(found) => assert!(Instant::now() < end, "{what}: {found}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A separate process that has an image open until this is dropped.
pub struct Open {
    process: Child,
    address: String,
}

impl Open {
    /// The client's address, as the cluster shows it.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Corner {
    /// Makes another process open an image.
    #[track_caller]
    pub fn hold_open(&self, name: &str) -> Open {
        let conf = self.cluster.dir().join("admin.conf");
        let mut rbd = Command::new("rbd");
        rbd.args(["watch", &self.spec(name)])
            .env("CEPH_CONF", conf)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let process = rbd.stderr(Stdio::null()).spawn().expect("rbd");
        let mut open = Open { process, address: String::new() };
        open.address = await_that("the image is open", || {
            let status = self.status(name);
            status["watchers"][0]["address"].as_str().map(str::to_string).ok_or_else(|| status.to_string())
        });
        open
    }

    /// `rbd status`
    pub fn status(&self, name: &str) -> Value {
        self.json(&["status", &self.spec(name)])
    }
}
