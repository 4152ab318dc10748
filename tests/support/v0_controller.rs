//! What CSI 0.1 demands of a controller and an outside test can see, for any backend. Each function names its
//! section; the macro at the end makes them tests.

use std::collections::{BTreeSet, HashMap};

use cephlet::proto::csi as wire;
use protobuf::{EnumOrUnknown, MessageField};

use super::requests::map;
use super::v0::*;
use super::{Code, Corner, Daemon, Setup, refused};

/// Parameters or attributes.
type Map = HashMap<String, String>;

/// A daemon with one backend.
pub struct Subject {
    pub client: Client,
    pub daemon: Daemon,
    /// The parameters of its volumes.
    pub parameters: Map,
    /// A node ID that no node can have.
    pub impossible_node: String,
    pub corner: Option<Corner>,
}

impl Subject {
    pub fn local() -> Self {
        let daemon = Daemon::start();
        let impossible_node = "node-2".to_string();
        Self { client: Client::of(&daemon), daemon, parameters: Map::new(), impossible_node, corner: None }
    }

    pub fn rbd() -> Self {
        let corner = Corner::new();
        let daemon = corner.start();
        Self::of_corner(corner, daemon)
    }

    fn of_corner(corner: Corner, daemon: Daemon) -> Self {
        let parameters = map(&[("pool", "rbd"), ("namespace", &corner.namespace)]);
        let impossible_node = "n".repeat(100);
        Self { client: Client::of(&daemon), daemon, parameters, impossible_node, corner: Some(corner) }
    }

    /// As [`rbd`](Self::rbd), with a daemon that has no key for the cluster.
    pub fn rbd_without_key() -> Self {
        let corner = Corner::new();
        let setup = corner.setup();
        let entry = format!("[cluster.main]\nmonitors = {:?}\n", corner.cluster.mon_vector());
        std::fs::write(setup.scratch.path("clusters.toml"), entry).expect("write the file");
        Self::of_corner(corner, setup.start())
    }

    /// A block volume of 8 MiB.
    pub fn volume(&self, name: &str) -> wire::CreateVolumeRequest {
        wire::CreateVolumeRequest { parameters: self.parameters.clone(), ..volume_as(name, mib(8), block()) }
    }

    #[track_caller]
    pub fn create(&self, name: &str) -> wire::VolumeInfo {
        self.client.create(&self.volume(name)).expect("create")
    }

    /// The ID of a deleted volume.
    #[track_caller]
    pub fn former(&self) -> String {
        let id = self.create("former").id;
        self.client.delete_volume(&delete(&id)).expect("delete");
        id
    }

    fn publish(&self, id: &str, node: &str) -> super::client::Answer<wire::ControllerPublishVolumeResponse> {
        self.client.controller_publish_volume(&publish_to(id, node, block()))
    }
}

/// "CreateVolume": idempotent; a compatible volume that exists is the answer.
pub fn the_same_creation_is_the_same_volume(it: &Subject) {
    let request = wire::CreateVolumeRequest { capacity_range: range(mib(8), mib(8)), ..it.volume("one") };
    let made = it.client.create(&request).expect("create");
    assert_eq!(made.capacity_bytes, mib(8), "required_bytes and limit_bytes specify an exact size");
    assert!(!made.id.is_empty() && made.id.len() <= 128);
    for compatible in [range(mib(8), mib(8)), range(mib(4), 0), range(0, mib(9))] {
        let request = wire::CreateVolumeRequest { capacity_range: compatible, ..request.clone() };
        assert_eq!(it.client.create(&request).expect("again"), made);
    }
    assert_eq!(it.client.list(), [made]);
}

/// "CreateVolume Errors": 6 for a name that is taken by something incompatible.
pub fn an_incompatible_creation_is_refused(it: &Subject) {
    let formatted =
        wire::CreateVolumeRequest { volume_capabilities: vec![block(), mount("xfs")], ..it.volume("one") };
    let made = it.client.create(&formatted).expect("create");
    let with = |pair| it.parameters.clone().into_iter().chain(map(&[pair])).collect();
    let wrong = [
        wire::CreateVolumeRequest { capacity_range: range(mib(301), 0), ..formatted.clone() },
        wire::CreateVolumeRequest { capacity_range: range(mib(4), mib(7)), ..formatted.clone() },
        wire::CreateVolumeRequest { volume_capabilities: vec![mount("ext4")], ..formatted.clone() },
        wire::CreateVolumeRequest {
            parameters: with(("csi.storage.k8s.io/fstype", "xfs")),
            ..formatted.clone()
        },
    ];
    for request in wrong {
        refused(it.client.create(&request), Code::ALREADY_EXISTS, &[]);
    }
    assert_eq!(it.client.list(), [made]);
}

/// "CreateVolume": fails if any capability is not supported, or all together are not. Nothing is made.
pub fn a_capability_that_is_not_supported_fails_the_creation(it: &Subject) {
    let without = |change: fn(&mut wire::VolumeCapability)| {
        let mut capability = mount("ext4");
        change(&mut capability);
        capability
    };
    let wrong = [
        vec![block(), mount("ntfs")],
        vec![mount_as("ext4", Mode::MULTI_NODE_MULTI_WRITER, &[]), block()],
        vec![mount("ext4"), mount("xfs")],
        vec![without(|it| it.access_type = None)],
        vec![without(|it| it.access_mode = MessageField::none())],
        vec![without(|it| it.access_mode.mut_or_insert_default().mode = EnumOrUnknown::from_i32(0))],
        vec![without(|it| it.access_mode.mut_or_insert_default().mode = EnumOrUnknown::from_i32(6))],
    ];
    for volume_capabilities in wrong {
        let request = wire::CreateVolumeRequest { volume_capabilities, ..it.volume("one") };
        refused(it.client.create(&request), Code::INVALID_ARGUMENT, &[]);
    }
    assert!(it.client.list().is_empty());
}

/// "CapacityRange", and "CreateVolume Errors": 11 for a range that cannot be had. Sizes are unsigned.
pub fn sizes_that_cannot_be_are_refused(it: &Subject) {
    let beyond = 1 << 63;
    for capacity_range in
        [range(beyond, 0), range(u64::MAX, u64::MAX), range(beyond - 1, 0), range(1, beyond)]
    {
        let request = wire::CreateVolumeRequest { capacity_range, ..it.volume("one") };
        refused(it.client.create(&request), Code::OUT_OF_RANGE, &[]);
    }
    let contradiction =
        wire::CreateVolumeRequest { capacity_range: range(mib(9), mib(8)), ..it.volume("one") };
    refused(it.client.create(&contradiction), Code::INVALID_ARGUMENT, &["limit_bytes"]);
    let nothing = wire::CreateVolumeRequest { capacity_range: range(0, 0), ..it.volume("one") };
    refused(it.client.create(&nothing), Code::INVALID_ARGUMENT, &["required_bytes", "limit_bytes"]);
    assert!(it.client.list().is_empty());
}

/// "DeleteVolume": idempotent; OK where there is no volume; the storage is released.
pub fn deleting_what_is_gone_succeeds(it: &Subject) {
    let id = it.create("one").id;
    for id in [id.as_str(), &id, "nobody's", &it.former()] {
        it.client.delete_volume(&delete(id)).expect("delete");
    }
    assert!(it.client.list().is_empty());
    if let Some(corner) = &it.corner {
        corner.await_empty();
    }
}

/// "DeleteVolume Errors": 9 for a volume in use.
pub fn a_published_volume_is_not_deleted(it: &Subject) {
    let id = it.create("one").id;
    it.publish(&id, "node-1").expect("publish");
    refused(it.client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["node-1"]);
    it.client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("take back");
    it.client.delete_volume(&delete(&id)).expect("delete");
}

/// "ControllerPublishVolume" and its errors: idempotent, 5 for an absent volume or node, 6 for a volume that
/// is published in another way.
pub fn a_volume_is_published_to_a_node_in_one_way(it: &Subject) {
    let former = it.former();
    let id = it.create("one").id;
    let info = it.publish(&id, "node-1").expect("publish");
    assert_eq!(it.publish(&id, "node-1").expect("again"), info);
    refused(it.publish(&former, "node-1"), Code::NOT_FOUND, &[&former]);
    refused(it.publish("nobody's", "node-1"), Code::NOT_FOUND, &["nobody's"]);
    refused(it.publish(&id, &it.impossible_node), Code::NOT_FOUND, &[&it.impossible_node]);
    let read_only =
        wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(&id, "node-1", block()) };
    refused(it.client.controller_publish_volume(&read_only), Code::ALREADY_EXISTS, &[]);
    let otherwise = publish_to(&id, "node-1", block_as(Mode::SINGLE_NODE_READER_ONLY));
    refused(it.client.controller_publish_volume(&otherwise), Code::ALREADY_EXISTS, &[]);
    let as_another = publish_to(&id, "node-1", mount("ext4"));
    refused(it.client.controller_publish_volume(&as_another), Code::ALREADY_EXISTS, &[]);
}

/// "ControllerUnpublishVolume" and its errors: idempotent, all nodes if none is named, 5 for an absent volume
/// or node.
pub fn a_volume_is_unpublished(it: &Subject) {
    let former = it.former();
    let id = it.create("one").id;
    let take =
        |id: &str, node: &str| it.client.controller_unpublish_volume(&unpublish_from(id, node)).map(drop);
    for node in ["node-1", ""] {
        take(&id, node).expect("it is not published");
        it.publish(&id, "node-1").expect("publish");
        for _ in 0..2 {
            take(&id, node).expect("take back");
        }
        it.client.delete_volume(&delete(&it.create("other").id)).expect("delete");
    }
    for node in ["node-1", ""] {
        refused(take(&former, node), Code::NOT_FOUND, &[&former]);
        refused(take("nobody's", node), Code::NOT_FOUND, &["nobody's"]);
    }
    refused(take(&id, &it.impossible_node), Code::NOT_FOUND, &[&it.impossible_node, &id]);
    it.client.delete_volume(&delete(&id)).expect("it is given to nobody");
}

/// "ValidateVolumeCapabilities": supported only if all of it is; 5 for an absent volume; a short message.
pub fn capabilities_are_validated(it: &Subject) {
    let formatted =
        wire::CreateVolumeRequest { volume_capabilities: vec![block(), mount("xfs")], ..it.volume("one") };
    let made = it.client.create(&formatted).expect("create");
    let ask = |capabilities: &[wire::VolumeCapability], attributes: &Map| {
        let request = wire::ValidateVolumeCapabilitiesRequest {
            volume_attributes: attributes.clone(),
            ..validate(&made.id, capabilities)
        };
        let reply = it.client.validate_volume_capabilities(&request).expect("validate");
        assert!(reply.message.len() <= 128 && reply.supported == reply.message.is_empty(), "{reply:?}");
        reply.supported
    };
    let (none, other) = (Map::new(), map(&[("fsType", "ext4")]));
    for attributes in [&none, &made.attributes] {
        assert!(ask(&[block(), mount("xfs"), mount("")], attributes));
        assert!(!ask(&[block(), mount("ext4")], attributes));
        assert!(!ask(&[mount_as("", Mode::MULTI_NODE_MULTI_WRITER, &[]), block()], attributes));
    }
    assert!(!ask(&[block()], &other), "those are not its attributes");
    // As for CreateVolume.
    let several = validate(&made.id, &[mount("xfs"), block(), mount("ext4")]);
    refused(
        it.client.validate_volume_capabilities(&several),
        Code::INVALID_ARGUMENT,
        &["\"xfs\"", "\"ext4\""],
    );
    for id in ["nobody's".to_string(), it.former()] {
        refused(it.client.validate_volume_capabilities(&validate(&id, &[block()])), Code::NOT_FOUND, &[&id]);
    }
}

/// "ListVolumes": never more than asked for, each volume once, with its size and attributes; 10 for an
/// invalid token.
pub fn volumes_are_listed_page_by_page(it: &Subject) {
    let made: BTreeSet<String> = (0..5).map(|number| it.create(&format!("v{number}")).id).collect();
    for size in [0, 1, 2, 5, 6, u32::MAX] {
        let (mut told, mut token) = (Vec::new(), String::new());
        loop {
            let reply = it.client.list_volumes(&page(size, &token)).expect("a page");
            assert!(size == 0 || reply.entries.len() <= size as usize);
            assert!(reply.entries.iter().all(|entry| entry.volume_info.capacity_bytes == mib(8)));
            told.extend(reply.entries.iter().map(|entry| entry.volume_info.id.clone()));
            token = reply.next_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!((told.len(), told.into_iter().collect::<BTreeSet<_>>()), (5, made.clone()), "{size}");
    }
    refused(it.client.list_volumes(&page(1, "nobody's")), Code::ABORTED, &["starting_token"]);
}

/// "GetCapacity": takes capabilities and parameters into account.
pub fn capacity_is_for_what_is_asked(it: &Subject) {
    let ask = |volume_capabilities: Vec<wire::VolumeCapability>, parameters: Map| {
        let request = wire::GetCapacityRequest { volume_capabilities, parameters, ..capacity() };
        it.client.get_capacity(&request).map(|reply| reply.available_capacity)
    };
    assert!(ask(vec![], it.parameters.clone()).expect("capacity") > mib(8));
    assert!(ask(vec![block(), mount("ext4")], it.parameters.clone()).expect("capacity") > mib(8));
    let unsupported = vec![block(), mount_as("ext4", Mode::MULTI_NODE_MULTI_WRITER, &[])];
    assert_eq!(ask(unsupported, it.parameters.clone()), Ok(0));
    // As for CreateVolume.
    let several = vec![mount("xfs"), block(), mount("ext4")];
    refused(ask(several, it.parameters.clone()), Code::INVALID_ARGUMENT, &["\"xfs\"", "\"ext4\""]);
    let with_xfs =
        it.parameters.clone().into_iter().chain(map(&[("csi.storage.k8s.io/fstype", "xfs")])).collect();
    refused(ask(vec![mount("ext4")], with_xfs), Code::INVALID_ARGUMENT, &["\"xfs\"", "\"ext4\""]);
    refused(ask(vec![], map(&[("nobody's", "x")])), Code::INVALID_ARGUMENT, &["nobody's"]);
}

/// "ControllerProbe", "ControllerGetCapabilities", "GetPluginInfo", "GetNodeID".
pub fn the_plugin_says_what_it_is(it: &Subject) {
    use wire::controller_service_capability::rpc::Type;
    it.client
        .controller_probe(&wire::ControllerProbeRequest { version: version(), ..Default::default() })
        .expect("healthy");
    let request = wire::ControllerGetCapabilitiesRequest { version: version(), ..Default::default() };
    let told = it.client.controller_get_capabilities(&request).expect("capabilities").capabilities;
    let told: Vec<Type> = told.iter().map(|capability| capability.rpc().type_.unwrap()).collect();
    assert_eq!(
        told,
        [Type::CREATE_DELETE_VOLUME, Type::PUBLISH_UNPUBLISH_VOLUME, Type::LIST_VOLUMES, Type::GET_CAPACITY]
    );
    let request = wire::NodeGetCapabilitiesRequest { version: version(), ..Default::default() };
    assert!(it.client.node_get_capabilities(&request).expect("capabilities").capabilities.is_empty());
    let info =
        it.client.get_plugin_info(&wire::GetPluginInfoRequest { version: version(), ..Default::default() });
    let info = info.expect("info");
    assert_eq!(
        (info.name.as_str(), info.vendor_version.as_str()),
        ("org.cephlet.csi", env!("CARGO_PKG_VERSION"))
    );
    let node = it
        .client
        .get_node_id(&wire::GetNodeIDRequest { version: version(), ..Default::default() })
        .expect("a node");
    assert_eq!(node.node_id, "node-1");
}

/// The longest node ID that may be configured is one that GetNodeID may tell.
pub fn longest_node_id_fits() {
    let daemon = Setup::new().set("CEPHLET_NODE_ID", "n".repeat(cephlet::MAX_NODE)).start();
    let client = Client::of(&daemon);
    let told = client
        .get_node_id(&wire::GetNodeIDRequest { version: version(), ..Default::default() })
        .expect("a node")
        .node_id;
    assert!(told.len() == cephlet::MAX_NODE && told.len() <= 128);
    let id = client.create(&volume_as("one", mib(8), block())).expect("create").id;
    client.controller_publish_volume(&publish_to(&id, &told, block())).expect("the node is known");
}

/// Makes tests of the functions above.
#[macro_export]
macro_rules! controller_tests {
    ($subject:path) => {
        $crate::controller_tests! { $subject:
            the_same_creation_is_the_same_volume, an_incompatible_creation_is_refused,
            a_capability_that_is_not_supported_fails_the_creation, sizes_that_cannot_be_are_refused,
            deleting_what_is_gone_succeeds, a_published_volume_is_not_deleted, a_volume_is_published_to_a_node_in_one_way,
            a_volume_is_unpublished, capabilities_are_validated, volumes_are_listed_page_by_page, capacity_is_for_what_is_asked,
            the_plugin_says_what_it_is,
        }
    };
    ($subject:path: $($test:ident,)*) => {
        $(#[test]
        fn $test() {
            let subject = $subject();
            $crate::support::v0_controller::$test(&subject);
            subject.daemon.assert_well();
        })*
    };
}
