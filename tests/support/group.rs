//! A subvolume group of a shared cluster for one test: no other test sees the subvolumes that a test makes
//! there, and leftovers show.

use std::fs;
use std::process::Output;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use serde_json::Value;

use super::corner::{entry, unused_name};
use super::requests::{map, mount, volume_as};
use super::{Cluster, Daemon, MIB, Scratch, Setup, await_that, cluster};

/// The file system of every cluster, and the pool with the objects that cephlet has there.
const FILE_SYSTEM: &str = "cephfs";
const OBJECTS: [&str; 4] = ["--pool", "fs-meta", "--namespace", "cephlet"];
const INDEX: &str = "cephlet.volumes";
/// What `rados` and `ceph` cannot do, or one by one only.
const SCRIPT: &str = include_str!("group.py");

/// A group of the file system `cephfs`.
pub struct Group {
    pub cluster: &'static Cluster,
    pub name: String,
}

impl Group {
    /// A group that the daemon makes when it needs it.
    pub fn new() -> Self {
        Self::of(cluster())
    }

    pub fn of(cluster: &'static Cluster) -> Self {
        Self { cluster, name: unused_name("g") }
    }

    /// The setup of a daemon, as the user for controllers. The cluster's name is `main`.
    pub fn setup(&self) -> Setup {
        self.setup_of(1)
    }

    /// The same for one of several daemons, which is node `node-N`.
    pub fn setup_of(&self, number: usize) -> Setup {
        self.setup_as(number, "cephlet-fs")
    }

    /// The same as another user of the cluster.
    pub fn setup_as(&self, number: usize, user: &str) -> Setup {
        let scratch = Arc::new(Scratch::new());
        let file = scratch.path("clusters.toml");
        fs::write(&file, entry("main", self.cluster, user)).expect("write the file");
        let setup =
            Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "cephfs");
        setup.set("CEPHLET_NODE_ID", format!("node-{number}")).set("CEPHLET_INSTANCE", &self.name)
    }

    pub fn start(&self) -> Daemon {
        self.setup().start()
    }

    /// A volume here of `mib` MiB.
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
        let place = [("subvolumeGroup", self.name.as_str())];
        wire::CreateVolumeRequest {
            parameters: map(&[&place[..], parameters].concat()),
            ..volume_as(name, mib * MIB, mount(""))
        }
    }

    /// `cephfs:main:cephfs:GROUP:`
    pub fn prefix(&self) -> String {
        format!("cephfs:main:{FILE_SYSTEM}:{}:", self.name)
    }

    /// The names of all subvolumes, in order. A group that was not made has none.
    pub fn subvolumes(&self) -> Vec<String> {
        let listed = self.cluster.told(
            "ceph",
            &["fs", "subvolume", "ls", FILE_SYSTEM, "--group_name", &self.name, "--format=json"],
        );
        let listed: Value = match listed {
            Ok(listed) => serde_json::from_str(&listed).expect("JSON"),
            Err(failure) if failure.contains("does not exist") => return Vec::new(),
            Err(failure) => panic!("{failure}"),
        };
        let rows = listed.as_array().expect("a list").iter();
        let mut names: Vec<String> =
            rows.map(|row| row["name"].as_str().expect("a name").to_string()).collect();
        names.sort();
        names
    }

    /// `ceph fs subvolume info` of a volume, by its ID, or of a subvolume.
    #[track_caller]
    pub fn info(&self, name: &str) -> Value {
        let said = self.command("info", name, &["--format=json"]);
        serde_json::from_str(&said).expect("JSON")
    }

    /// A command of `ceph fs subvolume` about a subvolume.
    #[track_caller]
    pub fn command(&self, command: &str, name: &str, more: &[&str]) -> String {
        self.told(command, name, more).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// What such a command prints, or how it fails.
    fn told(&self, command: &str, name: &str, more: &[&str]) -> Result<String, String> {
        let name = name.rsplit(':').next().unwrap_or(name);
        let command: Vec<&str> = command.split(' ').collect();
        let words = [&["fs", "subvolume"], &command[..], &[FILE_SYSTEM, name]].concat();
        self.cluster.told("ceph", &[&words[..], more, &["--group_name", &self.name]].concat())
    }

    /// `rados` on the objects that cephlet has in the file system.
    #[track_caller]
    pub fn rados(&self, words: &[&str]) -> String {
        self.cluster.rados(&[&OBJECTS[..], words].concat())
    }

    /// The keys of the index that belong to this group.
    pub fn entries(&self) -> Vec<String> {
        let prefix = format!("{}/", self.name);
        let listed = self.cluster.told("rados", &[&OBJECTS[..], &["listomapkeys", INDEX]].concat());
        let listed = listed.unwrap_or_default();
        listed.lines().filter(|key| key.starts_with(&prefix)).map(str::to_string).collect()
    }

    /// These keys, with the states of their entries.
    pub fn index(&self) -> Vec<(String, String)> {
        self.script("index", &self.name).lines().filter_map(|line| line.split_once(' ')).map(own).collect()
    }

    /// Runs `group.py`.
    #[track_caller]
    pub fn script(&self, act: &str, of: &str) -> String {
        let output = self.cluster.command("/usr/bin/python3").args(["-c", SCRIPT, act, of]).output();
        let Output { status, stdout, stderr } = output.expect("python3");
        assert!(status.success(), "{act} {of}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).trim().to_string()
    }

    /// The path of a volume's root.
    #[track_caller]
    pub fn path(&self, id: &str) -> String {
        let info = self.info(id);
        let path = info["path"].as_str().expect("a path");
        let name = id.rsplit(':').next().unwrap_or(id);
        let uuid = path.strip_prefix(&format!("/volumes/{}/{name}/", self.name));
        assert!(
            uuid.is_some_and(|uuid| uuid.len() == 36),
            "UNSAFE: a half-made subvolume is a volume: {path}"
        );
        path.to_string()
    }

    /// Everything here except for random parts: subvolumes with their snapshots, the index, claims, and the
    /// objects with locks of volumes that are gone. That of a volume goes with it.
    #[track_caller]
    pub fn shape(&self) -> Vec<String> {
        let index = self.index();
        let mut lines: Vec<String> =
            index.iter().map(|(key, state)| format!("entry {}: {state}", without_drawn(key))).collect();
        for name in self.subvolumes() {
            let taken = match self.told("snapshot ls", &name, &["--format=json"]) {
                Ok(taken) => taken,
                // A command of a former daemon has just removed the subvolume.
                Err(failure) if failure.contains("does not exist") => continue,
                Err(failure) => panic!("{failure}"),
            };
            lines.push(format!("subvolume {}", without_drawn(&name)));
            let taken: Value = serde_json::from_str(&taken).expect("JSON");
            for snapshot in taken.as_array().expect("a list") {
                let snapshot = without_drawn(snapshot["name"].as_str().expect("a name"));
                lines.push(format!("snapshot {}@{snapshot}", without_drawn(&name)));
            }
        }
        let is_left = |name: &&String| !index.iter().any(|(key, _)| name.ends_with(key.as_str()));
        lines.extend(
            self.locks().iter().filter(is_left).map(|name| format!("object {}", without_drawn(name))),
        );
        lines.extend(self.script("claims", &self.name).lines().map(|name| format!("claim {name}")));
        lines.sort();
        lines
    }

    /// The objects with the locks of volumes of this group.
    fn locks(&self) -> Vec<String> {
        let of_group = format!("cephlet.vol.{}/", self.name);
        let all = self.rados(&["ls"]);
        all.lines().filter(|name| name.starts_with(&of_group)).map(str::to_string).collect()
    }

    /// Writes an entry of the index.
    #[track_caller]
    pub fn set_entry(&self, key: &str, value: &str) {
        self.rados(&["setomapval", INDEX, key, value]);
    }

    /// Removes an entry of the index.
    #[track_caller]
    pub fn remove_entry(&self, key: &str) {
        self.rados(&["rmomapkey", INDEX, key]);
    }

    /// Waits until nothing is left: no subvolume, no entry, no object of a volume of this group.
    #[track_caller]
    pub fn await_empty(&self) {
        await_that("UNSAFE: something is left", || match (self.subvolumes(), self.entries(), self.locks()) {
            (subvolumes, entries, objects)
                if subvolumes.is_empty() && entries.is_empty() && objects.is_empty() =>
            {
                Ok(())
            }
            left => Err(format!("{left:?}")),
        });
    }
}

fn own((key, state): (&str, &str)) -> (String, String) {
    (key.to_string(), state.to_string())
}

/// Names without the eight random digits at their ends: `GROUP/SUBVOLUME[@SNAPSHOT]`.
fn without_drawn(name: &str) -> String {
    let one = |name: &str| match name.rsplit_once('-') {
        Some((rest, drawn)) if name.contains("csi-") && drawn.len() == 8 => format!("{rest}-R"),
        _ => name.to_string(),
    };
    name.split('@').map(one).collect::<Vec<_>>().join("@")
}
