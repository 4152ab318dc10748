//! CephFS volumes on nodes that are asked in CSI 0.1, as Mesos asks: without a stage.

use std::fs;

use super::files::Nodes;
use crate::cephfs_v0::shared_volume;
use crate::support::machine::is_mounted;
use crate::support::v0::*;

/// "NodePublishVolume", "NodeUnpublishVolume": idempotent, and one undoes the other. The daemon of the node
/// is killed in between.
#[test]
fn two_nodes_share_a_volume_in_protocol_0_1() {
    let mut it = Nodes::new();
    let controller = Client::of(&it.controller);
    let request = shared_volume(&it.group, "both");
    let many = request.volume_capabilities[0].clone();
    let id = controller.create(&request).expect("create").id;
    for node in 0..2 {
        let to = publish_to(&id, &format!("node-{}", node + 1), many.clone());
        let given = controller.controller_publish_volume(&to).expect("publish to the node");
        let target = it.path(node, "target");
        let mut at = publish(&id, &target.display().to_string(), many.clone());
        at.publish_volume_info = given.publish_volume_info;
        for _ in 0..2 {
            Client::of(&it.nodes[node]).publish(&at).expect("publish");
        }
        fs::write(target.join(format!("from-{node}")), "data").expect("write");
    }
    assert_eq!(fs::read_to_string(it.path(0, "target/from-1")).expect("read"), "data");
    it.nodes[1].kill9();
    it.nodes[1].restart();
    assert_eq!(fs::read_to_string(it.path(1, "target/from-0")).expect("read"), "data");
    for node in 0..2 {
        let target = it.path(node, "target");
        for _ in 0..2 {
            let back = unpublish(&id, &target.display().to_string());
            Client::of(&it.nodes[node]).node_unpublish_volume(&back).expect("unpublish");
        }
        assert!(!is_mounted(&target));
        it.nodes[node].assert_node_is_clean();
    }
    controller.controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back from all");
    it.delete(&id);
}
