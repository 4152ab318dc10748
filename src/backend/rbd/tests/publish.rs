//! Which nodes a volume is given to, and which not.

use super::*;
use crate::backend::Publication;
use crate::backend::rbd::publish::context::PublishContext;
use crate::backend::rbd::publish::to_node::publish_here;
use crate::backend::rbd::publish::unpublish::unpublish_here;
use crate::backend::rbd::tool::*;
use crate::csi::Mode::*;
use crate::error::Kind;
use crate::ids::DELETER;

/// A cluster with a volume and the controller that made it.
pub(super) struct Scene {
    pub cluster: FakeCluster,
    pub rbd: Rbd,
    pub id: VolumeId,
}

pub(super) fn scene() -> Scene {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let id = create(&rbd, &wanted("a", GIB, None)).unwrap().id;
    cluster.forget_steps();
    Scene { cluster, rbd, id }
}

pub(super) fn block(mode: Mode) -> Capability {
    Capability { access: Access::Block, mode }
}

pub(super) fn publish(rbd: &Rbd, id: &VolumeId, node: &str, mode: Mode, read_only: bool) -> Result<Map> {
    let publication = Publication { node: node.into(), capability: block(mode), read_only };
    rbd.publisher().publish(&call(), id, &publication, &Secrets::default())
}

pub(super) fn unpublish(rbd: &Rbd, id: &VolumeId, node: Option<&str>) -> Result<()> {
    rbd.publisher().unpublish(&call(), id, node, &Secrets::default()).map(drop)
}

/// The nodes that the volume is given to for good, by the dump.
pub(super) fn given(cluster: &FakeCluster) -> Vec<String> {
    let dump = cluster.dump();
    let node = |line: &str| Some(line.split_once(": ")?.1.split(' ').next()?.to_string());
    dump.lines()
        .filter(|line| line.starts_with("lock ") && line.contains(r#"\"stage\":\"given\""#))
        .filter_map(node)
        .collect()
}

impl Scene {
    pub fn publish(&self, node: &str, mode: Mode, read_only: bool) -> Result<Map> {
        publish(&self.rbd, &self.id, node, mode, read_only)
    }

    pub fn watch(&self, address: &str) {
        self.cluster.watch(&self.cluster.at(), &self.id.object, address);
    }

    pub fn remove(&self) {
        self.cluster.here().remove(&self.id.object).unwrap();
    }

    pub fn image(&self) -> String {
        self.id.incarnation.clone().unwrap()
    }

    /// The steps since the last time, by their methods.
    pub fn methods(&self) -> Vec<String> {
        let methods =
            self.cluster.steps().iter().map(|step| step.split(' ').next().unwrap().to_string()).collect();
        self.cluster.forget_steps();
        methods
    }
}

#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(outcome: Result<T>, kind: Kind, parts: &[&str]) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    parts.iter().for_each(|part| assert!(error.message().contains(part), "{error} should mention {part:?}"));
}

/// A second publication after a first one: node, mode, read-only, and the outcome.
type Case =
    ((&'static str, Mode, bool), (&'static str, Mode, bool), std::result::Result<(), (Kind, &'static str)>);

const TAKEN: Kind = Kind::Precondition;
const OTHER: Kind = Kind::AlreadyExists;

/// The first publication is for one node alone.
const AFTER_ONE_NODE: [Case; 13] = [
    (("n1", SingleNodeWriter, false), ("n1", SingleNodeWriter, false), Ok(())),
    (
        ("n1", SingleNodeWriter, false),
        ("n1", SingleNodeWriter, true),
        Err((OTHER, "reading and writing, not read-only")),
    ),
    (("n1", SingleNodeWriter, true), ("n1", SingleNodeWriter, true), Ok(())),
    (("n1", SingleNodeWriter, true), ("n1", SingleNodeWriter, false), Err((OTHER, "read-only"))),
    (("n1", SingleNodeWriter, true), ("n2", SingleNodeWriter, true), Err((TAKEN, "\"n1\""))),
    (
        ("n1", SingleNodeWriter, false),
        ("n1", SingleNodeSingleWriter, false),
        Err((OTHER, "for SingleNodeWriter")),
    ),
    (("n1", SingleNodeWriter, false), ("n2", SingleNodeWriter, false), Err((TAKEN, "\"n1\""))),
    (("n1", SingleNodeSingleWriter, false), ("n2", SingleNodeSingleWriter, false), Err((TAKEN, "\"n1\""))),
    (("n1", SingleNodeMultiWriter, false), ("n2", SingleNodeMultiWriter, false), Err((TAKEN, "\"n1\""))),
    (("n1", SingleNodeMultiWriter, false), ("n1", SingleNodeMultiWriter, false), Ok(())),
    (("n1", SingleNodeReaderOnly, false), ("n2", SingleNodeReaderOnly, false), Err((TAKEN, "\"n1\""))),
    (("n1", SingleNodeReaderOnly, false), ("n1", SingleNodeReaderOnly, true), Ok(())),
    (("n1", SingleNodeWriter, false), ("n2", MultiNodeReaderOnly, true), Err((TAKEN, "SingleNodeWriter"))),
];

/// The first publication lets other nodes in.
const AFTER_MANY_NODES: [Case; 9] = [
    (("n1", MultiNodeReaderOnly, true), ("n2", MultiNodeReaderOnly, true), Ok(())),
    (("n1", MultiNodeReaderOnly, true), ("n2", MultiNodeReaderOnly, false), Ok(())),
    (("n1", MultiNodeReaderOnly, true), ("n2", SingleNodeWriter, false), Err((TAKEN, "MultiNodeReaderOnly"))),
    (("n1", MultiNodeMultiWriter, false), ("n2", MultiNodeMultiWriter, false), Ok(())),
    (("n1", MultiNodeMultiWriter, false), ("n2", MultiNodeReaderOnly, true), Err((TAKEN, "\"n1\""))),
    (("n1", MultiNodeSingleWriter, false), ("n2", MultiNodeSingleWriter, true), Ok(())),
    (("n1", MultiNodeSingleWriter, true), ("n2", MultiNodeSingleWriter, false), Ok(())),
    (("n1", MultiNodeSingleWriter, false), ("n2", MultiNodeSingleWriter, false), Err((TAKEN, "for writing"))),
    (
        ("n1", MultiNodeSingleWriter, false),
        ("n1", MultiNodeSingleWriter, true),
        Err((OTHER, "not read-only")),
    ),
];

#[test]
fn a_second_publication_is_the_same_or_fits_or_is_refused() {
    for (first, second, outcome) in AFTER_ONE_NODE.into_iter().chain(AFTER_MANY_NODES) {
        let it = scene();
        it.publish(first.0, first.1, first.2).unwrap();
        it.cluster.advance(Duration::from_secs(61));
        let before = it.cluster.dump();
        let answer = it.publish(second.0, second.1, second.2);
        it.cluster.advance(Duration::from_secs(61));
        match outcome {
            Ok(()) => {
                answer.unwrap_or_else(|error| panic!("{first:?} then {second:?}: {error}"));
                let nodes = if first.0 == second.0 { 1 } else { 2 };
                assert_eq!(given(&it.cluster).len(), nodes, "{first:?} then {second:?}");
            }
            Err((kind, part)) => {
                refused(answer, kind, &[part, &it.id.to_string()]);
                assert_eq!(it.cluster.dump(), before, "{first:?} then {second:?} changed what was held");
            }
        }
    }
}

#[test]
fn a_block_device_and_a_file_system_are_not_the_same() {
    let it = scene();
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    let mount = Access::Mount { fs_type: "ext4".into(), flags: vec!["noatime".into()] };
    let capability = Capability { access: mount, mode: Mode::SingleNodeWriter };
    let publication = Publication { node: "n1".into(), capability, read_only: false };
    refused(
        it.rbd.publisher().publish(&call(), &it.id, &publication, &Secrets::default()),
        Kind::AlreadyExists,
        &["block", "mount:ext4"],
    );
}

#[test]
fn what_a_node_needs_is_in_the_context() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let mut new = wanted("a", GIB, None);
    let pairs = [
        ("mounter", "rbd-nbd"),
        ("mapOptions", "nbd:exclusive;krbd:notrim"),
        ("csi.storage.k8s.io/fstype", "xfs"),
    ];
    new.parameters = pairs.map(|(key, value)| (key.to_string(), value.to_string())).into();
    let id = create(&rbd, &new).unwrap().id;
    // Also from a controller that knows nothing yet.
    for rbd in [rbd, controller(&cluster, TWO)] {
        let map = publish(&rbd, &id, "n1", Mode::SingleNodeReaderOnly, false).unwrap();
        let context = PublishContext::from_map(&map).unwrap().unwrap();
        assert_eq!(Some(&context.image_id), id.incarnation.as_ref());
        assert!(context.features.contains("exclusive-lock") && context.read_only);
        assert_eq!(
            (context.mounter.name(), context.map_options, context.fs_type.as_deref()),
            ("rbd-nbd", vec!["exclusive".into()], Some("xfs"))
        );
    }
}

#[test]
fn an_image_made_by_hand_is_given_too() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let image = NewImage { name: "web", size: GIB, layout: &Default::default(), metadata: &[] };
    cluster.here().create(&image).unwrap();
    let id = VolumeId { place: place("rbd"), object: "web".into(), incarnation: None };
    let map = publish(&rbd, &id, "n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(map.get("mounter").map(String::as_str), Some("rbd"));
    assert_eq!(given(&cluster), ["n1"]);
    unpublish(&rbd, &id, None).unwrap();
    assert_eq!(given(&cluster), [""; 0]);
}

#[test]
fn a_foreign_client_blocks_a_single_writer_only() {
    for (mode, read_only, blocks) in [
        (Mode::SingleNodeWriter, false, true),
        (Mode::SingleNodeMultiWriter, false, true),
        (Mode::MultiNodeSingleWriter, false, true),
        (Mode::SingleNodeWriter, true, false),
        (Mode::SingleNodeReaderOnly, false, false),
        (Mode::MultiNodeMultiWriter, false, false),
    ] {
        let it = scene();
        it.watch("10.0.0.9:0/42");
        match blocks {
            true => {
                let before = it.cluster.dump();
                refused(
                    it.publish("n1", mode, read_only),
                    Kind::Precondition,
                    &["10.0.0.9:0/42", "unmap", "blocklist"],
                );
                assert_eq!(it.cluster.dump(), before);
            }
            false => drop(it.publish("n1", mode, read_only).unwrap()),
        }
    }
}

/// A node gave the volume up without unmapping the image, and another one reads it.
#[test]
fn a_foreign_client_blocks_a_single_writer_beside_readers_too() {
    let it = scene();
    it.publish("n1", Mode::MultiNodeSingleWriter, false).unwrap();
    it.watch("10.0.0.1:0/1");
    it.publish("n2", Mode::MultiNodeSingleWriter, true).unwrap();
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    it.cluster.advance(Duration::from_secs(61));
    let before = it.cluster.dump();
    let answer = it.publish("n3", Mode::MultiNodeSingleWriter, false);
    assert!(answer.is_err(), "UNSAFE: a second writer was let in");
    refused(answer, Kind::Precondition, &["10.0.0.1:0/1"]);
    assert_eq!(it.cluster.dump(), before);
    it.publish("n4", Mode::MultiNodeSingleWriter, true).unwrap();
    it.cluster.unwatch("10.0.0.1:0/1");
    it.publish("n3", Mode::MultiNodeSingleWriter, false).unwrap();
}

#[test]
fn the_nodes_own_mapping_does_not_block_a_repeat_but_the_next_node() {
    let it = scene();
    let first = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.watch("10.0.0.1:0/1");
    assert_eq!(it.publish("n1", Mode::SingleNodeWriter, false).unwrap(), first);
    // The node has given the volume up, but its image is still mapped.
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    refused(it.publish("n2", Mode::SingleNodeWriter, false), Kind::Precondition, &["10.0.0.1:0/1"]);
    it.cluster.unwatch("10.0.0.1:0/1");
    it.publish("n2", Mode::SingleNodeWriter, false).unwrap();
}

#[test]
fn a_volume_that_is_being_deleted_is_given_to_nobody() {
    let it = scene();
    let hold = LockRequest {
        cookie: DELETER.into(),
        description: r#"{"deletion":{"controller":"x"},"version":1}"#.into(),
        shared: None,
        seconds: Some(180),
    };
    it.cluster.here().lock(LockTarget::Header(&it.image()), &hold).unwrap();
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly] {
        refused(it.publish("n1", mode, false), Kind::Unavailable, &["\"delete\"", "deletion", "try again"]);
    }
    unpublish(&it.rbd, &it.id, None).unwrap();
    assert!(it.cluster.dump().contains("delete"), "it is not the unpublisher's to take");
}

#[test]
fn unknown_volumes_are_not_found() {
    let it = scene();
    let older = VolumeId { incarnation: Some("1f".into()), ..it.id.clone() };
    refused(
        publish(&it.rbd, &older, "n1", Mode::SingleNodeWriter, false),
        Kind::NotFound,
        &[&older.to_string()],
    );
    unpublish(&it.rbd, &older, Some("n1")).unwrap();
    let before = it.cluster.dump();
    it.remove();
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly] {
        refused(it.publish("n1", mode, false), Kind::NotFound, &[&it.id.to_string()]);
        assert_eq!(it.cluster.dump(), "", "before: {before}");
    }
}

#[test]
fn taking_back_is_repeatable_and_takes_only_what_is_meant() {
    let it = scene();
    for node in ["n1", "n2", "n3"] {
        it.publish(node, Mode::MultiNodeReaderOnly, true).unwrap();
    }
    for _ in 0..2 {
        unpublish(&it.rbd, &it.id, Some("n2")).unwrap();
        assert_eq!(given(&it.cluster), ["n1", "n3"]);
    }
    unpublish(&it.rbd, &it.id, None).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
    it.remove();
    unpublish(&it.rbd, &it.id, None).unwrap();
    unpublish(&it.rbd, &VolumeId { incarnation: None, ..it.id.clone() }, None).unwrap();
    assert_eq!(it.cluster.dump(), "");
}

#[test]
fn taking_back_cleans_up_after_an_image_that_is_gone_and_finds_one_that_was_renamed() {
    let it = scene();
    it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    it.cluster.here().rename(&it.id.object, "csi-held-1").unwrap();
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
    it.cluster.here().remove("csi-held-1").unwrap();
    let hold = LockRequest { cookie: "n1".into(), description: "x".into(), shared: None, seconds: None };
    it.cluster.here().lock(LockTarget::Header(&it.image()), &hold).unwrap();
    assert!(it.cluster.dump().starts_with("object header"));
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert_eq!(it.cluster.dump(), "");
}

#[test]
fn a_node_takes_for_itself_what_it_was_not_given_and_gives_only_that_back() {
    let it = scene();
    let capability = block(Mode::SingleNodeWriter);
    let here = |read_only| {
        publish_here(&it.rbd.context, &call(), &it.id, (&capability, read_only), &Secrets::default())
    };
    let context = here(false).unwrap();
    assert_eq!(context.image_id, it.image());
    assert_eq!(here(false).unwrap(), context);
    assert_eq!(given(&it.cluster), ["node7"]);
    refused(here(true), Kind::AlreadyExists, &["not read-only"]);
    refused(it.publish("n1", Mode::SingleNodeWriter, false), Kind::Precondition, &["\"node7\""]);
    unpublish_here(&it.rbd.context, &call(), &it.id, &Secrets::default()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
    it.publish("node7", Mode::SingleNodeWriter, false).unwrap();
    here(false).unwrap();
    unpublish_here(&it.rbd.context, &call(), &it.id, &Secrets::default()).unwrap();
    assert_eq!(given(&it.cluster), ["node7"], "the controller's to take back");
}

#[test]
fn publishing_takes_few_processes() {
    let it = scene();
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(it.methods(), ["holders", "lock", "info", "holders", "watchers", "holders", "lock"]);
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(it.methods(), ["holders", "info"]);
    it.cluster.advance(Duration::from_secs(61));
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    // The last step is needed only until a node has recorded a client.
    assert_eq!(it.methods(), ["holders", "unlock", "holders", "holders"]);
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert_eq!(it.methods(), ["holders", "info", "holders", "holders"]);
    it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    assert_eq!(it.methods(), ["holders", "holders", "lock", "info"]);
    let fresh = controller(&it.cluster, TWO);
    publish(&fresh, &it.id, "n2", Mode::MultiNodeReaderOnly, true).unwrap();
    assert_eq!(it.methods(), ["info", "metadata", "holders", "holders", "lock", "info"]);
}
