//! The topology of a node: what it reports to an orchestrator, and how that follows the operator's files. The
//! quotations are from Ceph-CSI's topology design.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::process::Signal;

use crate::support::machine::is_mounted;
use crate::support::{Daemon, Scratch, Setup, TestVolume};

const CHANGED: &str = "this node's topology is now ";

/// The segments in the answer to NodeGetInfo; None if it has no topology at all.
fn segments(daemon: &Daemon) -> Option<BTreeMap<String, String>> {
    let info = daemon.client().node_get_info(&Default::default()).expect("the node");
    info.accessible_topology.into_option().map(|topology| topology.segments.into_iter().collect())
}

/// The same in order, without the plugin's name in the keys and the node of local volumes.
fn told(daemon: &Daemon) -> Vec<String> {
    let segments = segments(daemon).expect("a topology");
    let name = |key: &str| key.strip_prefix("org.cephlet.csi/").expect("the plugin's name").to_string();
    let mut told: Vec<_> = segments.iter().map(|(key, value)| format!("{}={value}", name(key))).collect();
    told.retain(|segment| segment != "node=node-1");
    told
}

/// Whether the plugin says that volumes are not reachable from everywhere.
fn is_constrained(daemon: &Daemon) -> bool {
    let offered = daemon.client().get_plugin_capabilities(&Default::default()).expect("capabilities");
    format!("{offered:?}").contains("VOLUME_ACCESSIBILITY_CONSTRAINTS")
}

/// A daemon of zone eu-1 with a clusters file that has only this map of takeovers, or none yet.
fn in_eu_1(map: &str, change: impl FnOnce(Setup) -> Setup) -> Daemon {
    let scratch = Arc::new(Scratch::new());
    let file = scratch.replace("clusters.toml", &format!("[takeover]\n{map}"));
    let setup = Setup::within(scratch).set("CEPHLET_TOPOLOGY", "region=eu,zone=eu-1");
    change(setup.set("CEPHLET_CLUSTERS", file.display())).start()
}

fn take_over(daemon: &Daemon, map: &str) {
    daemon.scratch().replace("clusters.toml", &format!("[takeover]\n{map}"));
}

/// "Return the same in it's response to a NodeGetInfo request"; "an ordered list of domain labels to
/// advertise. The order of labels ensures hierarchical domain relationships." And "the CSI identity service
/// declares topology support by the CSI driver via the GetPluginCapabilities RPC".
#[test]
fn a_node_tells_where_it_is() {
    let daemon = Setup::new().set("CEPHLET_TOPOLOGY", "region=eu,zone=eu-1,rack=r7").start();
    assert_eq!(told(&daemon), ["rack=r7", "region=eu", "zone=eu-1"]);
    assert!(segments(&daemon).expect("a topology").contains_key("org.cephlet.csi/node"), "local volumes");
    let of_rbd = || {
        let setup = Setup::new().set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_NAME", "org.example.csi");
        setup.set("CEPHLET_CEPH_CONF", "/nonexistent/ceph.conf")
    };
    let nowhere = of_rbd().start();
    assert_eq!((segments(&nowhere), is_constrained(&nowhere)), (None, false));
    let somewhere = of_rbd().set("CEPHLET_TOPOLOGY", "zone=a").start();
    let zone = ("org.example.csi/zone".to_string(), "a".to_string());
    assert_eq!((segments(&somewhere), is_constrained(&somewhere)), (Some([zone].into()), true));
}

#[test]
fn labels_that_cannot_be_are_refused_at_start() {
    let scratch = Arc::new(Scratch::new());
    let broken = scratch.replace("labels", "region=eu\nzone eu-1\n");
    let long = format!("zone={}", "x".repeat(60));
    for (text, expected) in [
        ("eu-1", "\"eu-1\" is no domain: write it as label=value"),
        ("zone=", "the value \"\": allowed are up to 63 letters"),
        ("zone=${meta.zone}", "the value \"${meta.zone}\""),
        ("zo.ne=eu-1", "the label \"zo.ne\""),
        ("node=n1", "the label \"node\" is taken"),
        ("zone=a,ZONE=b", "the label \"ZONE\" is there twice"),
        (&long, "too long"),
        ("@labels", "allowed is an absolute path"),
        ("@/nonexistent/labels", "/nonexistent/labels: No such file"),
        (&format!("@{}", broken.display()), "labels: line 2: \"zone eu-1\" is no domain"),
    ] {
        let (_, said) = Setup::within(Arc::clone(&scratch)).set("CEPHLET_TOPOLOGY", text).fail();
        assert!(said.contains("CEPHLET_TOPOLOGY: ") && said.contains(expected), "{text}: {said}");
    }
    for (variable, wrong) in [("CEPHLET_TOPOLOGY_CHANGE", "stop"), ("CEPHLET_CRUSH_LOCATION", "zone=eu-1")] {
        let (code, said) = Setup::new().set(variable, wrong).fail();
        assert!(code == 2 && said.contains(&format!("{variable}: found {wrong:?}: allowed ")), "{said}");
    }
}

#[test]
fn labels_in_a_file_are_followed() {
    let scratch = Arc::new(Scratch::new());
    let file = scratch.replace("labels", "# outermost first\nregion=eu\n\nzone=eu-1\n");
    let setup = Setup::within(scratch).set("CEPHLET_TOPOLOGY", format!("@{}", file.display()));
    let daemon = setup.start();
    assert_eq!(told(&daemon), ["region=eu", "zone=eu-1"]);
    daemon.scratch().replace("labels", "region=eu\nzone=eu-2\n");
    let line = daemon.log.await_lines(CHANGED, 1).remove(0);
    assert!(line.contains("region=eu, zone=eu-2; it was region=eu, zone=eu-1"), "{line}");
    assert_eq!(told(&daemon), ["region=eu", "zone=eu-2"]);
    for (count, broken) in [(1, "region=eu\nzone\n"), (2, "")] {
        daemon.scratch().replace("labels", broken);
        daemon.log.await_lines("labels stay as they were", count);
        assert_eq!(told(&daemon), ["region=eu", "zone=eu-2"], "{broken:?}");
        assert!(
            daemon.setup.cephlet("config").contains("CEPHLET_TOPOLOGY: "),
            "{}",
            daemon.setup.cephlet("config")
        );
    }
    daemon.signal(Signal::HUP);
    daemon.log.await_lines("labels stay as they were", 3);
    daemon.scratch().replace("labels", "zone=eu-3\n");
    daemon.signal(Signal::HUP);
    daemon.log.await_lines(CHANGED, 2);
    assert_eq!(told(&daemon), ["zone=eu-3"]);
    assert!(daemon.setup.cephlet("config").contains("\nzone=eu-3\n"), "{}", daemon.setup.cephlet("config"));
    daemon.assert_well();
}

/// "The nodeplugins, in addition to advertizing their domains as read from the domain labels of the running
/// node, will also advertize the domains that they need to takeover. When a failed domain recovers, the
/// corresponding entry in the domain takeover map is deleted, resulting in a dynamic update to all
/// nodeplugins regarding the giveback of the said domain."
#[test]
fn a_domain_is_taken_over_and_given_back() {
    let daemon = in_eu_1("", |setup| setup);
    let own = ["region=eu", "zone=eu-1"];
    assert_eq!(told(&daemon), own);
    take_over(&daemon, "\"zone=eu-2\" = [\"zone=eu-1\", \"zone=eu-3\"]\n\"zone=eu-4\" = [\"zone=eu-3\"]\n");
    let line = daemon.log.await_lines(CHANGED, 1).remove(0);
    assert!(line.contains("zone=eu-2 (taken over by zone=eu-1)"), "{line}");
    let taken = ["region=eu", "takes.zone.eu-2=true", "zone=eu-1"];
    assert_eq!(told(&daemon), taken);
    assert!(daemon.setup.cephlet("config").contains("zone=eu-2 (taken over by zone=eu-1)"));
    let info = daemon.setup.cephlet("info");
    assert!(info.contains("zone=eu-2 ([takeover] in the clusters file)"), "{info}");
    for (count, broken) in [(1, "\"zone=eu-2\" = [\"eu-1\"]\n"), (2, "\"zone=eu-2\" = \"all\"\n")] {
        take_over(&daemon, broken);
        daemon.log.await_lines("the takeover map stays as it was", count);
        assert_eq!(told(&daemon), taken, "{broken}");
        assert!(
            daemon.setup.cephlet("config").contains("[takeover]: "),
            "{}",
            daemon.setup.cephlet("config")
        );
    }
    daemon.scratch().replace("clusters.toml", "[takeover\n");
    daemon.log.await_lines("expected a right bracket", 1);
    assert_eq!(told(&daemon), taken);
    take_over(&daemon, "");
    daemon.log.await_lines(CHANGED, 2);
    assert_eq!(told(&daemon), own);
    daemon.assert_well();
}

/// "'<source-domain-2>': ['all']"; "topology of a node is common across all ceph clusters that the
/// nodeplugin instance may interact with".
#[test]
fn all_nodes_but_its_own_take_a_domain_over() {
    let map = "\"zone=eu-2\" = [\"all\"]\n\"zone=eu-1\" = [\"all\"]\n";
    let daemon = in_eu_1(map, |setup| setup);
    assert_eq!(told(&daemon), ["region=eu", "takes.zone.eu-2=true", "zone=eu-1"]);
    let nowhere = in_eu_1(map, |setup| setup.unset("CEPHLET_TOPOLOGY"));
    assert_eq!(told(&nowhere), ["takes.zone.eu-1=true", "takes.zone.eu-2=true"]);
}

/// "As of now, kubernetes calls NodeGetInfo once and has no mechanism of updating this information without
/// a plugin restart."
#[test]
fn a_daemon_that_is_told_so_ends_when_its_topology_changes() {
    let mut daemon = in_eu_1("", |setup| setup.set("CEPHLET_TOPOLOGY_CHANGE", "exit"));
    TestVolume::in_use(&daemon, "web");
    take_over(&daemon, "\"zone=eu-2\" = [\"zone=eu-3\"]\n");
    daemon.signal(Signal::HUP);
    daemon.log.await_lines("are read again", 1);
    daemon.assert_well();
    take_over(&daemon, "\"zone=eu-2\" = [\"zone=eu-1\"]\n");
    assert_eq!(daemon.wait().code(), Some(75), "neither a success nor a mistake in the settings");
    daemon.manager.await_message("STOPPING=1");
    let changes = daemon.log.lines_with(CHANGED);
    assert!(changes.len() == 1 && changes[0].contains("zone=eu-2"), "not for the first map: {changes:?}");
    assert!(is_mounted(&daemon.path("target")), "volumes stay mounted");
    daemon.restart();
    assert_eq!(told(&daemon), ["region=eu", "takes.zone.eu-2=true", "zone=eu-1"]);
    daemon.assert_well();
}

/// A copy that only serves the controller is not asked for its topology.
#[test]
fn a_controller_does_not_end_for_the_topology_of_nodes() {
    let daemon = in_eu_1("", |setup| {
        setup.set("CEPHLET_TOPOLOGY_CHANGE", "exit").set("CEPHLET_SERVICES", "controller")
    });
    take_over(&daemon, "\"zone=eu-2\" = [\"all\"]\n");
    daemon.log.await_lines(CHANGED, 1);
    daemon.assert_well();
}
