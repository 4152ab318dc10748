//! Volumes that are published without a stage, through CSI 0.1, at several targets.

use std::collections::HashMap;
use std::fs;

use cephlet::proto::csi as wire;

use super::scene::{Scene, device, devices};
use crate::support::client::Answer;
use crate::support::machine::{is_mounted, mounts_below, text};
use crate::support::v0::{self, Client, Mode, version};
use crate::support::{Code, refused, requests};

/// A volume of 16 MiB, and its daemons, used through CSI 0.1.
struct Unstaged {
    scene: Scene,
    id: String,
    capability: wire::VolumeCapability,
    told: HashMap<String, String>,
}

impl Unstaged {
    /// Makes the volume and gives it to the node.
    fn new(capability: wire::VolumeCapability) -> Self {
        let scene = Scene::new();
        let controller = Client::of(&scene.controller);
        let id =
            controller.create(&v0::volume_as("one", v0::mib(16), capability.clone())).expect("create").id;
        let request = v0::publish_to(&id, "node-1", capability.clone());
        let told =
            controller.controller_publish_volume(&request).expect("give it to the node").publish_volume_info;
        Self { scene, id, capability, told }
    }

    fn publish(&self, target: &str) -> Answer<()> {
        let request = v0::publish(&self.id, &self.scene.node.text(target), self.capability.clone());
        let request = wire::NodePublishVolumeRequest { publish_volume_info: self.told.clone(), ..request };
        match self.capability.has_block() {
            true => fs::write(&request.target_path, "").expect("make the target"),
            false => fs::create_dir_all(&request.target_path).expect("make the target"),
        }
        Client::of(&self.scene.node).node_publish_volume(&request).map(drop)
    }

    fn unpublish(&self, target: &str) {
        let request = v0::unpublish(&self.id, &self.scene.node.text(target));
        Client::of(&self.scene.node).node_unpublish_volume(&request).expect("unpublish");
    }

    /// The volume as v1 sees it, for checks in the kernel.
    fn volume(&self) -> super::scene::Volume {
        let (size, context, told) = (16 * crate::support::MIB, HashMap::new(), self.told.clone());
        super::scene::Volume { id: self.id.clone(), size, capability: requests::block(), context, told }
    }

    fn retire(self) {
        assert!(devices(&self.volume()).is_empty(), "UNSAFE: still mapped");
        let controller = Client::of(&self.scene.controller);
        controller
            .controller_unpublish_volume(&v0::unpublish_from(&self.id, "node-1"))
            .expect("take it from the node");
        controller.delete_volume(&v0::delete(&self.id)).expect("delete");
        self.scene.assert_clean();
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn many_targets_share_one_mapping_without_a_stage() {
    let mut it = Unstaged::new(v0::block_as(Mode::MULTI_NODE_MULTI_WRITER));
    for target in ["t1", "t2", "t3"] {
        it.publish(target).expect("publish");
    }
    let kernel = device(&it.volume());
    it.unpublish("t1");
    it.scene.node.kill9();
    it.scene.node.restart();
    it.publish("t2").expect("it is there");
    it.unpublish("t2");
    assert_eq!(device(&it.volume()), kernel, "t3 has it");
    it.unpublish("t3");
    it.retire();
}

/// "user_credentials … used to authenticate/authorize node unpublish request": a node without another key
/// locks a volume with this key, if no controller published it, and unlocks it with the same key. The node
/// remembers the key until it is restarted.
#[test]
#[ignore = "long: tests/run --full"]
fn a_node_locks_and_unlocks_with_the_key_of_the_request() {
    let mut scene = Scene::without_key();
    let id = Client::of(&scene.controller)
        .create(&v0::volume_as("one", v0::mib(16), v0::mount("ext4")))
        .expect("create")
        .id;
    let key = requests::map(&[("userID", "cephlet-node"), ("userKey", &scene.cluster().key("cephlet-node"))]);
    let target = scene.node.text("target");
    let bare = v0::publish(&id, &target, v0::mount("ext4"));
    refused(Client::of(&scene.node).publish(&bare), Code::UNAUTHENTICATED, &["userKey"]);
    let with_key = wire::NodePublishVolumeRequest { user_credentials: key.clone(), ..bare };
    let bare = v0::unpublish(&id, &target);
    let published = |scene: &Scene| {
        let got = scene.controller.client().controller_get_volume(&requests::get(&id)).expect("get");
        got.status.published_node_ids.clone()
    };
    assert!(published(&scene).is_empty());
    for is_restarted in [false, true] {
        Client::of(&scene.node).publish(&with_key).expect("publish");
        assert_eq!(published(&scene), ["node-1"]);
        if is_restarted {
            scene.node.kill9();
            scene.node.restart();
        }
        Client::of(&scene.node).node_unpublish_volume(&bare).expect("unpublish");
        assert_eq!(!published(&scene).is_empty(), is_restarted, "nobody has the key");
    }
    scene.node.log.await_lines("it stays so until", 1);
    Client::of(&scene.node).publish(&with_key).expect("publish once more");
    let with_key = wire::NodeUnpublishVolumeRequest { user_credentials: key, ..bare };
    for _ in 0..2 {
        Client::of(&scene.node).node_unpublish_volume(&with_key).expect("unpublish");
        assert!(published(&scene).is_empty());
    }
    let controller = Client::of(&scene.controller);
    controller.delete_volume(&v0::delete(&id)).expect("delete");
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_file_system_is_mapped_and_mounted_once() {
    let it = Unstaged::new(v0::mount("ext4"));
    it.publish("target").expect("publish");
    it.publish("target").expect("publish again");
    refused(it.publish("other"), Code::FAILED_PRECONDITION, &["target"]);
    let real = mounts_below(&it.scene.node.path("run"));
    assert_eq!((real.len(), real[0].source.as_str()), (1, text(&device(&it.volume()))));
    fs::write(it.scene.path("target/file"), "data").expect("write");
    it.unpublish("target");
    assert!(!is_mounted(&it.scene.path("target")) && it.scene.path("target").is_dir());
    let request = wire::NodeProbeRequest { version: version(), ..Default::default() };
    Client::of(&it.scene.node).node_probe(&request).expect("well");
    it.retire();
}
