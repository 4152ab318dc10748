//! A volume and the way it is used, through the steps of its life on a node. Paths are names in the test's
//! directory.

use std::path::PathBuf;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use super::client::{Answer, Client};
use super::{Daemon, requests};

/// A volume under test.
pub struct TestVolume<'a> {
    daemon: &'a Daemon,
    pub client: Client,
    pub id: String,
    pub size: i64,
    pub capability: wire::VolumeCapability,
}

impl<'a> TestVolume<'a> {
    /// Creates a volume of `mib` MiB.
    #[track_caller]
    pub fn create(daemon: &'a Daemon, name: &str, mib: i64, capability: wire::VolumeCapability) -> Self {
        Self::make(daemon, requests::volume_as(name, mib * super::MIB, capability))
    }

    /// Creates the volume of this request.
    #[track_caller]
    pub fn make(daemon: &'a Daemon, request: wire::CreateVolumeRequest) -> Self {
        let client = daemon.client();
        let made =
            client.create(&request).unwrap_or_else(|error| panic!("create {}: {error:?}", request.name));
        Self {
            daemon,
            client,
            id: made.volume_id,
            size: made.capacity_bytes,
            capability: request.volume_capabilities[0].clone(),
        }
    }

    /// A small ext4 volume that is staged at `stage` and published at `target`.
    #[track_caller]
    pub fn in_use(daemon: &'a Daemon, name: &str) -> Self {
        let volume = Self::create(daemon, name, 32, requests::mount("ext4"));
        volume.stage("stage").expect("stage");
        volume.publish("stage", "target").expect("publish");
        volume
    }

    /// The file with its content.
    pub fn image(&self) -> PathBuf {
        let object = self.id.split(':').nth(4).expect("the ID names the object");
        self.daemon.local_dir().join("volumes").join(object).join("image")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.daemon.path(name)
    }

    pub fn stage(&self, staging: &str) -> Answer<()> {
        self.stage_as(staging, self.capability.clone())
    }

    pub fn stage_as(&self, staging: &str, capability: wire::VolumeCapability) -> Answer<()> {
        let request = requests::stage(&self.id, &self.daemon.text(staging), capability);
        self.client.node_stage_volume(&request).map(drop)
    }

    pub fn unstage(&self, staging: &str) -> Answer<()> {
        self.client.node_unstage_volume(&requests::unstage(&self.id, &self.daemon.text(staging))).map(drop)
    }

    pub fn publish(&self, staging: &str, target: &str) -> Answer<()> {
        self.publish_as(staging, target, self.capability.clone())
    }

    pub fn publish_as(&self, staging: &str, target: &str, capability: wire::VolumeCapability) -> Answer<()> {
        let (staging, target) = (self.daemon.text(staging), self.daemon.text(target));
        self.client.node_publish_volume(&requests::publish(&self.id, &staging, &target, capability)).map(drop)
    }

    pub fn publish_read_only(&self, staging: &str, target: &str) -> Answer<()> {
        let (staging, target) = (self.daemon.text(staging), self.daemon.text(target));
        let mut request = requests::publish(&self.id, &staging, &target, self.capability.clone());
        request.readonly = true;
        self.client.node_publish_volume(&request).map(drop)
    }

    pub fn unpublish(&self, target: &str) -> Answer<()> {
        self.client.node_unpublish_volume(&requests::unpublish(&self.id, &self.daemon.text(target))).map(drop)
    }

    pub fn stats(&self, at: &str) -> Answer<wire::NodeGetVolumeStatsResponse> {
        self.client.node_get_volume_stats(&requests::stats(&self.id, &self.daemon.text(at)))
    }

    /// Makes the volume larger; gives its size.
    pub fn expand(&self, size: i64) -> Answer<i64> {
        self.client
            .controller_expand_volume(&requests::expand(&self.id, size))
            .map(|reply| reply.capacity_bytes)
    }

    /// Lets device and file system follow; gives the device's size.
    pub fn node_expand(&self, at: &str, size: i64) -> Answer<i64> {
        let mut request = requests::node_expand(&self.id, &self.daemon.text(at));
        request.capacity_range = requests::range(size, 0);
        request.volume_capability = MessageField::some(self.capability.clone());
        self.client.node_expand_volume(&request).map(|reply| reply.capacity_bytes)
    }

    /// Undoes everything and deletes the volume.
    #[track_caller]
    pub fn retire(&self, targets: &[&str], stagings: &[&str]) {
        targets.iter().for_each(|target| self.unpublish(target).expect("unpublish"));
        stagings.iter().for_each(|staging| self.unstage(staging).expect("unstage"));
        self.client.delete_volume(&requests::delete(&self.id)).expect("delete");
    }
}
