//! The sources that say in which domains pools are, and in which domains a volume is wanted.

use super::{ZONES, Zones, pool_of, told};
use crate::support::requests::delete;
use crate::support::{Code, object_of, refused};

/// The parameter comes before the clusters file, and that before the labels on the pools.
///
/// "Add the specified pools and their domain affinity in the StorageClass (or related constructs in
/// non-kubernetes COs), for the controller to choose from." "Also include a pool parameter in the
/// StorageClass for RBD based volumes, where the CSI OMap journal would be maintained. This can be one of
/// the subset of pools in the list of domain affinity based pools, or a more highly available cross-domain
/// pool." And its alternative: "use pool labels, to filter pools based on labels and their values".
#[test]
fn the_first_of_three_sources_that_speaks_counts() {
    let zones = Zones::new();
    let pool = |name: &str, zone: &str| {
        format!("[[cluster.main.pool]]\nname = {name:?}\ndomain = {{ zone = {zone:?} }}\n")
    };
    let lines = format!("pools = [\"rbd\"]\n{}{}", pool("zone-1", "a"), pool("zone-2", "b"));
    let (labels, file) = (zones.start(), zones.start_with(&lines));
    let labelled = labels.client().create(&zones.volume("labels", &[], &["zone-3"])).expect("create");
    assert_eq!(pool_of(&labelled), "zone-3");
    refused(
        file.client().create(&zones.volume("file", &[], &["zone-3"])),
        Code::RESOURCE_EXHAUSTED,
        &["zone=a (pool zone-1)"],
    );
    let of_file = file.client().create(&zones.volume("file", &[], &["b"])).expect("create");
    assert_eq!((pool_of(&of_file), of_file.accessible_topology.as_slice()), ("zone-2", &told("b")[..]));
    let text = r#"[{"poolName":"zone-1","dataPool":"zone-3","domainSegments":[{"domainLabel":"zone","value":"b"}]}]"#;
    let constrained = [("topologyConstrainedPools", text), ("pool", "zone-2")];
    let request = zones.volume_with("parameter", (&[], &["b"]), &constrained);
    let own = file.client().create(&request).expect("create");
    assert_eq!((pool_of(&own), own.accessible_topology.as_slice()), ("zone-1", &told("b")[..]));
    let spec = format!("zone-1/{}/{}", zones.namespace, object_of(&own.volume_id));
    assert!(zones.cluster.rbd(&["info", &spec]).contains("data_pool: zone-3"));
    // If a request has both, the pool is where the name is registered.
    let registry = zones.cluster.rados(&["--pool", "zone-2", "--namespace", &zones.namespace, "ls"]);
    assert!(registry.contains("cephlet.name."), "{registry}");
    let anywhere = zones.volume_with("anywhere", (&[], &[]), &constrained);
    let anywhere = file.client().create(&anywhere).expect("create");
    assert_eq!((pool_of(&anywhere), anywhere.accessible_topology.len()), ("zone-1", 0));
    for made in [labelled, of_file, own, anywhere] {
        labels.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    }
    zones.assert_empty();
}

#[test]
fn where_nothing_is_asked_for_a_volume_is_near_the_node_that_makes_it() {
    let zones = Zones::new();
    let text = ZONES.map(|zone| {
        let segments = format!(r#"[{{"domainLabel": "zone", "value": "{zone}"}}]"#);
        format!(r#"{{"poolName": "{zone}", "domainSegments": {segments}}}"#)
    });
    let constrained = format!("[{}]", text.join(","));
    let request = |name| zones.volume_with(name, (&[], &[]), &[("topologyConstrainedPools", &constrained)]);
    let copy = || zones.setup_with("").set("CEPHLET_TOPOLOGY", "zone=zone-2");
    let node = copy().start();
    let near = node.client().create(&request("near")).expect("create");
    assert_eq!((pool_of(&near), near.accessible_topology.as_slice()), ("zone-2", &told("zone-2")[..]));
    let controller = copy().set("CEPHLET_SERVICES", "controller").start();
    let anywhere = controller.client().create(&request("anywhere")).expect("create");
    assert_eq!(anywhere.accessible_topology.len(), 0, "where a controller is says nothing");
    for made in [near, anywhere] {
        node.client().delete_volume(&delete(&made.volume_id)).expect("delete");
    }
    zones.assert_empty();
}
