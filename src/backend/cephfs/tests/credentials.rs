//! A node without a key of its own.

use super::*;
use crate::backend::cephfs::node::{Node, ThisNode};
use crate::backend::{NodeDriver, PublishedBy};
use crate::exec::fake::{FakeHelper, FakeRunner};
use crate::kernel::Kernel;

/// Requests to unstage bring no key, so that the node would keep the volume for ever.
#[test]
fn a_node_without_a_key_lets_a_volume_go_that_it_has_published_to_itself() {
    let cluster = FakeFs::default();
    let id = create(&controller(&cluster, ONE), "web", 4).unwrap().id;
    let tools = (Arc::new(cluster.clone()) as _, Arc::new(cluster) as _);
    let identity = Identity { plugin: "cephlet.test".into(), tag: TWO.to_string(), fences: true };
    let clusters = Arc::new(Clusters::of([Cluster::named("main")]));
    let context = Context::new(clusters, tools, identity, Timing::default());
    let node = node(context);
    node.detach(&call(), &id, PublishedBy::Node, &Secrets::default()).unwrap();
    let refused = Secrets::from_iter([("userID", "csi")]);
    node.detach(&call(), &id, PublishedBy::Node, &refused).unwrap_err();
}

/// A node on which nothing is mounted.
pub(super) fn node(context: Context) -> Node {
    let here = ThisNode {
        name: "node7".into(),
        kernel: Kernel::new(Arc::new(FakeHelper::default())),
        in_container: false,
        mount_point: Box::new(|key| format!("/nonexistent/{key}").into()),
    };
    Node::new(Arc::new(context), Arc::new(FakeRunner::default()), here)
}
