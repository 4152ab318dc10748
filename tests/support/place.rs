//! A part of a shared cluster that one test has for itself: a namespace for images, or a group for
//! subvolumes. What is written for any place tests both backends.

use cephlet::proto::csi_v1 as wire;

use super::machine::Checksum;
use super::requests::{mount, publish_to};
use super::{Cluster, Corner, Group, MIB, Setup, await_that, object_of};

/// The size of volumes here, in MiB.
pub const MIBS: i64 = 8;

/// Such a part, as a test sees it.
pub trait Place: Sync {
    /// The tools whose commands change volumes, and the words of these commands.
    const TOOLS: &'static [&'static str];
    const CHANGES: &'static [&'static str];
    /// What the log has, one or the other, once a daemon that has just started has swept or could not.
    const SWEPT: &'static [&'static str];
    /// How many requests a test sends at once, and how many of their commands it kills at least.
    const REQUESTS: usize;
    const KILLS: usize;

    /// A place of its own for the caller.
    fn take() -> Self;

    /// The cluster that it is in.
    fn cluster(&self) -> &'static Cluster;

    /// The setup of one of several daemons that serve nothing else.
    fn setup_of(&self, number: usize) -> Setup;

    /// A volume of [`MIBS`].
    fn request(&self, name: &str) -> wire::CreateVolumeRequest;

    /// A publication that the volumes here allow.
    fn publication(&self, id: &str, node: &str) -> wire::ControllerPublishVolumeRequest;

    /// Writes content to a volume.
    fn fill(&self, id: &str);

    /// The checksum of the content of a volume, without the room that it has got since.
    fn content(&self, id: &str) -> Checksum;

    /// The size of a volume, as the cluster has it.
    fn size(&self, id: &str) -> i64;

    /// The names of everything that is a volume, however it came to be.
    fn volumes(&self) -> Vec<String>;

    /// Everything here except for random parts and times.
    fn shape(&self) -> Vec<String>;

    /// Waits for this shape: what nobody asks for any more may go in the background.
    fn await_shape(&self, wanted: &[String]);

    /// All that there is by name, so that leftovers show.
    fn remains(&self) -> Vec<String>;

    /// Waits until this remains, and nothing else.
    fn await_remains(&self, wanted: &[String]);

    /// Asserts that nothing is left: neither a volume nor anything that was made for one.
    fn assert_nothing(&self) {
        self.await_remains(&[]);
    }
}

impl Place for Corner {
    const TOOLS: &'static [&'static str] = &["rbd", "rados"];
    const CHANGES: &'static [&'static str] =
        &["import", "clone", "rename", "rm", "create", "resize", "set", "mv", "lock get", "lock break"];
    const SWEPT: &'static [&'static str] = &[" trash ls "];
    const REQUESTS: usize = 20;
    const KILLS: usize = 100;

    fn take() -> Self {
        Self::new()
    }

    fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    fn setup_of(&self, number: usize) -> Setup {
        Corner::setup_of(self, number)
    }

    fn request(&self, name: &str) -> wire::CreateVolumeRequest {
        self.volume(name, MIBS)
    }

    fn publication(&self, id: &str, node: &str) -> wire::ControllerPublishVolumeRequest {
        publish_to(id, node)
    }

    fn fill(&self, id: &str) {
        Corner::fill(self, id);
    }

    fn content(&self, id: &str) -> Checksum {
        self.checksum_of_first(MIBS * MIB, id)
    }

    fn size(&self, id: &str) -> i64 {
        self.rows()[object_of(id)]["size"].as_i64().expect("a size")
    }

    /// Leftovers of killed copies do not count.
    fn volumes(&self) -> Vec<String> {
        self.images().into_iter().filter(|name| name.starts_with("csi-vol-")).collect()
    }

    fn shape(&self) -> Vec<String> {
        Corner::shape(self)
    }

    fn await_shape(&self, wanted: &[String]) {
        Corner::await_shape(self, wanted);
    }

    fn remains(&self) -> Vec<String> {
        self.sorted_objects()
    }

    fn await_remains(&self, wanted: &[String]) {
        self.await_objects(wanted);
    }
}

impl Place for Group {
    const TOOLS: &'static [&'static str] = &["ceph", "rados"];
    const CHANGES: &'static [&'static str] =
        &["create", "clone", "rm", "resize", "setomapval", "rmomapkey", "lock get", "lock break"];
    const SWEPT: &'static [&'static str] = &[": its file systems are swept", "; the next sweep is in "];
    const REQUESTS: usize = 8;
    const KILLS: usize = 30;

    fn take() -> Self {
        Self::new()
    }

    fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    fn setup_of(&self, number: usize) -> Setup {
        Group::setup_of(self, number)
    }

    fn request(&self, name: &str) -> wire::CreateVolumeRequest {
        self.volume(name, MIBS)
    }

    fn publication(&self, id: &str, node: &str) -> wire::ControllerPublishVolumeRequest {
        let volume_capability = protobuf::MessageField::some(mount(""));
        wire::ControllerPublishVolumeRequest { volume_capability, ..publish_to(id, node) }
    }

    fn fill(&self, id: &str) {
        self.script("fill", &self.path(id));
    }

    fn content(&self, id: &str) -> Checksum {
        Checksum::told(&self.script("sum", &self.path(id)))
    }

    fn size(&self, id: &str) -> i64 {
        self.info(id)["bytes_quota"].as_i64().expect("a quota")
    }

    /// Those in the index that are whole.
    fn volumes(&self) -> Vec<String> {
        let is_volume = |(key, state): (String, String)| {
            (state == "whole" && !key.contains('@'))
                .then(|| key.rsplit('/').next().unwrap_or_default().to_string())
        };
        self.index().into_iter().filter_map(is_volume).collect()
    }

    fn shape(&self) -> Vec<String> {
        Group::shape(self)
    }

    /// What killed requests have left goes a day later.
    fn await_shape(&self, wanted: &[String]) {
        self.let_a_day_pass();
        await_that("UNSAFE: it has another shape", || {
            let is = Group::shape(self);
            if is == wanted { Ok(()) } else { Err(format!("{is:#?}\nwanted {wanted:#?}")) }
        });
    }

    fn remains(&self) -> Vec<String> {
        Group::shape(self)
    }

    fn await_remains(&self, wanted: &[String]) {
        Place::await_shape(self, wanted);
    }
}

impl Group {
    /// Makes the entries of what was being made older by a day, and waits until a controller that has just
    /// started has swept it.
    fn let_a_day_pass(&self) {
        if self.script("age", &self.name) == "0" {
            return;
        }
        let _sweeper = self.setup_of(9).start();
        await_that("UNSAFE: it is not swept", || {
            let left: Vec<_> = self.index().into_iter().filter(|(_, state)| state == "making").collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }
}
