//! Two clusters that are mirrored to each other, and a controller at each.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cephlet::proto::{csi_v1, replication as wire};
use serde_json::Value;

use super::addons::{self, source};
use super::client::Answer;
use super::machine::{Checksum, text};
use super::requests::{block, map, volume_as};
use super::{Cluster, Daemon, Failure, MIB, Scratch, Setup, await_that, manual, object_of};

/// A cluster, and a controller of it that knows the name of the other cluster.
pub struct Site {
    pub cluster: Cluster,
    pub daemon: Daemon,
}

/// The clusters `main`, of site-a, and `backup`, of site-b.
pub fn sites() -> [Site; 2] {
    sites_with(|setup| setup)
}

/// The same with daemons that are set up differently.
pub fn sites_with(mut change: impl FnMut(Setup) -> Setup) -> [Site; 2] {
    let clusters = std::array::from_fn(|_| Cluster::start_site());
    pair(&clusters);
    let mut sites = clusters.into_iter().zip(manual::clusters_files());
    std::array::from_fn(|_| {
        let (cluster, written) = sites.next().expect("a site");
        let daemon = change(setup(&cluster, &written)).start();
        Site { cluster, daemon }
    })
}

/// Makes two clusters each other's peers, by the commands of cephlet-replication(7).
#[track_caller]
fn pair(clusters: &[Cluster; 2]) {
    let hands = Scratch::new();
    let blocks = manual::replication();
    let block = blocks.iter().find(|block| block.contains("bootstrap")).expect("what makes peers");
    for line in block.lines() {
        clusters[usize::from(line.contains("# at the second site"))].type_in(line, &hands.path(""));
    }
}

/// A controller with this clusters file, except for the description of the cluster.
#[track_caller]
fn setup(cluster: &Cluster, written: &str) -> Setup {
    let (conf, keyring) = (cluster.conf(), cluster.keyring("cephlet"));
    let own = format!(
        "conf = {:?}\nkeyring = {:?}\npools = [\"rbd\"]\nnamespaces = [\"\"]",
        text(&conf),
        text(&keyring)
    );
    let usual = "conf = \"/etc/ceph/ceph.conf\"";
    assert!(written.contains(usual), "{written}");
    let scratch = Arc::new(Scratch::new());
    let file = scratch.path("clusters.toml");
    fs::write(&file, written.replace(usual, &own)).expect("write the file");
    let setup = Setup::within(scratch).set("CEPHLET_CLUSTERS", file.display()).set("CEPHLET_BACKENDS", "rbd");
    setup.set("CEPHLET_SERVICES", "controller")
}

impl Site {
    pub fn volume(&self, name: &str, mib: i64) -> Answer<csi_v1::Volume> {
        self.daemon.client().create(&volume_as(name, mib * MIB, block()))
    }

    /// A csi-addons client of the controller.
    pub fn client(&self) -> addons::Client {
        addons::Client::of(&self.daemon)
    }

    /// Another controller of the same cluster.
    pub fn another_controller(&self) -> Daemon {
        let setup = Setup::new().set("CEPHLET_CLUSTERS", self.daemon.path("clusters.toml").display());
        setup.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_SERVICES", "controller").start()
    }

    pub fn enable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        self.client().enable(id, parameters)
    }

    pub fn disable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        self.client().disable(id, parameters)
    }

    pub fn promote(&self, id: &str, force: bool, parameters: &[(&str, &str)]) -> Answer<()> {
        self.client().promote(id, force, parameters)
    }

    pub fn demote(&self, id: &str, force: bool) -> Answer<()> {
        self.client().demote(id, force)
    }

    /// Asks for a resync; returns whether the copy is ready.
    pub fn resync(&self, id: &str, force: bool) -> Answer<bool> {
        let asked = wire::ResyncVolumeRequest { replication_source: source(id), force, ..Default::default() };
        let reply = self.client().ask(&asked);
        reply.map(|it| it.ready)
    }

    /// The status by its name, and the whole reply.
    pub fn info(&self, id: &str) -> Answer<(String, wire::GetVolumeReplicationInfoResponse)> {
        let asked =
            wire::GetVolumeReplicationInfoRequest { replication_source: source(id), ..Default::default() };
        let reply = self.client().ask(&asked);
        reply.map(|it| (format!("{:?}", it.status.unwrap()), it))
    }

    pub fn destination(&self, id: &str) -> Answer<String> {
        let asked = wire::GetReplicationDestinationInfoRequest {
            replication_source: source(id),
            ..Default::default()
        };
        let reply = self.client().ask(&asked);
        let volume = |reply: wire::GetReplicationDestinationInfoResponse| {
            reply.replication_destination.volume().volume_id.clone()
        };
        reply.map(volume)
    }

    /// `rbd info` of a volume; None where there is no image.
    pub fn image(&self, id: &str) -> Option<Value> {
        let output = self.cluster.attempt("rbd", &["info", object_of(id), "--format", "json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Whether the image is primary; None where there is no image, or it is not mirrored.
    pub fn is_primary(&self, id: &str) -> Option<bool> {
        self.image(id)?["mirroring"]["primary"].as_bool()
    }

    /// Waits until a volume has arrived whole.
    #[track_caller]
    pub fn await_copy(&self, id: &str) {
        await_that("the copy arrives", || {
            let listed = self.snapshots(id);
            if listed.contains("\"complete\":true") { Ok(()) } else { Err(listed) }
        });
    }

    /// Waits until the demotion at the other site has arrived here, as the newest snapshot.
    #[track_caller]
    pub fn await_demotion(&self, id: &str) {
        self.await_newest(id, "demoted");
        self.await_word_of_demotion(id);
    }

    /// Waits until the other site has said that it is not primary any more.
    #[track_caller]
    pub fn await_word_of_demotion(&self, id: &str) {
        self.await_word(id, false);
    }

    /// Waits until the other site has said that it is primary.
    #[track_caller]
    pub fn await_word_of_primary(&self, id: &str) {
        self.await_word(id, true);
    }

    #[track_caller]
    fn await_word(&self, id: &str, is_primary: bool) {
        await_that("the other site says so", || {
            let status = self.cluster.rbd(&["mirror", "image", "status", object_of(id), "--format", "json"]);
            let (_, peers) = status.split_once("peer_sites").expect("its peers");
            if peers.contains("local image is primary") == is_primary { Ok(()) } else { Err(status) }
        });
    }

    /// Waits until nothing is on its way from the other site, where the volume was promoted.
    #[track_caller]
    pub fn await_promotion(&self, id: &str) {
        self.await_newest(id, "non-primary");
    }

    /// Waits until the newest of the mirror's snapshots is a whole copy of one in this state.
    #[track_caller]
    fn await_newest(&self, id: &str, state: &str) {
        await_that(&format!("what is {state} arrives"), || {
            let listed = self.snapshots(id);
            let all: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
            let newest = all.last().map(|it| it["namespace"].clone()).unwrap_or_default();
            let is_copy = newest["primary_mirror_uuid"].as_str().is_some_and(|uuid| !uuid.is_empty());
            match is_copy && newest["state"] == state && newest["complete"] == true {
                true => Ok(()),
                false => Err(listed),
            }
        });
    }

    /// Waits until a volume has what another one had.
    #[track_caller]
    pub fn await_content(&self, id: &str, content: &Checksum) {
        await_that("it is copied", || match self.checksum(id) == *content {
            true => Ok(()),
            false => Err("it is the former".to_string()),
        });
    }

    /// All snapshots of the volume's image, as JSON; empty where there is no image.
    pub fn snapshots(&self, id: &str) -> String {
        let listed = self.cluster.attempt("rbd", &["snap", "ls", "--all", object_of(id), "--format", "json"]);
        String::from_utf8_lossy(&listed.stdout).into()
    }

    /// Fills the first `mib` mebibytes with a byte.
    #[track_caller]
    pub fn fill(&self, id: &str, mib: u64, byte: u8) {
        let mut rbd = self.cluster.command("rbd");
        rbd.args(["import-diff", "--no-progress", "-", object_of(id)]).stdin(Stdio::piped());
        let mut rbd = rbd.spawn().expect("rbd");
        let mut stdin = rbd.stdin.take().expect("stdin is piped");
        stdin.write_all(b"rbd diff v1\n").expect("write the difference");
        for number in 0..mib {
            let bytes = [byte; MIB as usize];
            let offset = number * MIB as u64;
            let parts: [&[u8]; 4] = [b"w", &offset.to_le_bytes(), &(MIB as u64).to_le_bytes(), &bytes];
            stdin.write_all(&parts.concat()).expect("write the difference");
        }
        stdin.write_all(b"e").expect("write the difference");
        drop(stdin);
        assert!(rbd.wait().expect("its end").success());
    }

    /// The SHA-256 of all that is in a volume.
    #[track_caller]
    pub fn checksum(&self, id: &str) -> Checksum {
        let mut rbd = self.cluster.command("rbd");
        rbd.args(["export", "--no-progress", object_of(id), "-"]);
        let mut rbd = rbd.stdout(Stdio::piped()).spawn().expect("rbd");
        let content = rbd.stdout.take().expect("stdout is piped");
        let sum = Command::new("sha256sum").stdin(content).output().expect("sha256sum");
        assert!(rbd.wait().expect("its end").success(), "export {id}");
        Checksum::told(&String::from_utf8_lossy(&sum.stdout))
    }
}
