//! A namespace of a cluster's pool `rbd`, for one test: whatever is in it is that test's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::machine::text;
use super::{Cluster, Setup};

/// Objects that every namespace has once something was in it.
const FIXTURES: [&str; 4] = ["rbd_directory", "rbd_info", "rbd_children", "rbd_trash"];
/// A client that was killed is forgotten after 30 s, and what waited for that takes a while.
const CALM: Duration = Duration::from_secs(60);

/// A namespace.
pub struct Namespace<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
}

impl<'a> Namespace<'a> {
    /// Makes it.
    #[track_caller]
    pub fn new(cluster: &'a Cluster, name: &str) -> Self {
        cluster.rbd(&["namespace", "create", "--pool=rbd", "--namespace", name]);
        Self { cluster, name: name.to_string() }
    }

    /// Runs `rbd` in it.
    #[track_caller]
    pub fn rbd(&self, arguments: &[&str]) -> String {
        let namespace = format!("--namespace={}", self.name);
        self.cluster.rbd(&[&["--pool=rbd", &namespace], arguments].concat())
    }

    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Vec<Value> {
        serde_json::from_str(&self.rbd(&[arguments, &["--format=json"]].concat())).expect("JSON")
    }

    /// The images, by name: what `rbd ls -l` says of each.
    #[track_caller]
    pub fn images(&self) -> BTreeMap<String, Value> {
        let rows = self.ask(&["ls", "--long"]).into_iter().filter(|row| row["snapshot"].is_null());
        rows.map(|row| (word(&row["image"]), row)).collect()
    }

    /// The name of the only image.
    #[track_caller]
    pub fn only_image(&self) -> String {
        let mut names = self.images().into_keys();
        let (Some(name), None) = (names.next(), names.next()) else { panic!("{:?}", self.shape()) };
        name
    }

    /// Writes to an image what is told from zeros and from every other image.
    #[track_caller]
    pub fn fill(&self, image: &str) {
        self.rbd(&["bench", "--io-type=write", "--io-pattern=rand", "--io-size=4K", "--io-total=256K", "--image", image]);
    }

    /// The SHA-256 of the first `bytes` of an image.
    #[track_caller]
    pub fn checksum(&self, image: &str, bytes: i64) -> String {
        let script = "set -eo pipefail; rbd --pool=rbd --namespace=$1 export --no-progress $2 - | { head -c $3; cat >/dev/null; } | sha256sum";
        let output = self.cluster.command("bash").args(["-c", script, "sum", &self.name, image, &bytes.to_string()]).output();
        let output = output.expect("bash");
        assert!(output.status.success(), "export {image}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Everything that is in it, without what chance or time decide: images, snapshots, trash, objects.
    #[track_caller]
    pub fn shape(&self) -> Vec<String> {
        let mut labels = BTreeMap::new();
        let mut lines = Vec::new();
        for (name, row) in self.images() {
            let id = word(&row["id"]);
            let name = name.replace(&id, "ID");
            let parent = if row["parent"].is_null() { "" } else { ", a clone" };
            lines.push(format!("image {name}: {}{parent}", row["size"]));
            for snap in self.ask(&["snap", "ls", "--all", "--image-id", &id]) {
                let kind = word(&snap["namespace"]["type"]);
                let snap = if kind == "trash" { "trashed".to_string() } else { word(&snap["name"]) };
                lines.push(format!("snapshot {name}@{snap}"));
            }
            labels.insert(id, name);
        }
        for row in self.ask(&["trash", "ls", "--all"]) {
            lines.push(format!("trash {}", word(&row["name"])));
            labels.insert(word(&row["id"]), format!("trash-{}", word(&row["name"])));
        }
        lines.extend(self.objects().into_iter().map(|object| labelled(&object, &labels)));
        lines.sort();
        lines
    }

    /// The names of all objects but those that are there for good.
    #[track_caller]
    pub fn objects(&self) -> Vec<String> {
        let all = self.cluster.rados(&["--pool=rbd", &format!("--namespace={}", self.name), "ls"]);
        let mut names: Vec<String> = all.lines().filter(|name| !FIXTURES.contains(name)).map(String::from).collect();
        names.sort();
        names
    }

    /// Waits until this is what is in it: what was deleted may be purged in the background.
    #[track_caller]
    pub fn await_shape(&self, wanted: &[String]) {
        self.await_that(wanted, || self.shape());
    }

    /// Waits until there are these objects and no other, neither of what was forgotten nor of what is in the trash.
    #[track_caller]
    pub fn await_objects(&self, wanted: &[String]) {
        self.await_that(wanted, || self.objects());
    }

    #[track_caller]
    fn await_that(&self, wanted: &[String], look: impl Fn() -> Vec<String>) {
        let until = Instant::now() + CALM;
        loop {
            let is = look();
            if is == wanted {
                return;
            }
            assert!(Instant::now() < until, "namespace {}\nhas    {is:#?}\nwanted {wanted:#?}", self.name);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Setup {
    /// Has the daemon serve one namespace, as one of the cluster's users.
    pub fn in_namespace(self, namespace: &Namespace<'_>, user: &str) -> Self {
        let (conf, keyring) = (namespace.cluster.conf(), namespace.cluster.keyring(user));
        let (conf, keyring, name) = (text(&conf), text(&keyring), &namespace.name);
        let file = self.scratch.path("clusters.toml");
        let toml = format!(
            "[cluster.ceph]\nconf = {conf:?}\nuser = {user:?}\nkeyring = {keyring:?}\npools = [\"rbd\"]\nnamespaces = [{name:?}]\n"
        );
        std::fs::write(&file, toml).expect("write the file of clusters");
        self.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_CLUSTERS", file.display())
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// An object's name with the image's name in place of its id. Snapshots are counted, not named, by the ids that are in names.
fn labelled(object: &str, labels: &BTreeMap<String, String>) -> String {
    let mut parts: Vec<String> = object.split('.').map(String::from).collect();
    if let [kind, _, last] = parts.as_mut_slice()
        && kind == "rbd_object_map"
    {
        *last = "SNAP".into();
    }
    let parts = parts.into_iter().map(|part| labels.get(&part).cloned().unwrap_or(part));
    format!("object {}", parts.collect::<Vec<_>>().join("."))
}
