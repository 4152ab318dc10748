//! Network fences of csi-addons on a real cluster, which other tests use meanwhile: each test has addresses
//! of its own, of the networks for documentation (RFC 5737, RFC 3849).

use serde_json::Value;

use crate::shared::setup;
use crate::support::addons::Client;
use crate::support::{Code, Corner, Daemon, cluster, refused};

/// A daemon as this user, which sees one corner of the cluster.
fn start(corner: &Corner, user: &str, services: &str) -> Daemon {
    setup(user, &["rbd"], &[&corner.namespace]).set("CEPHLET_SERVICES", services).start()
}

/// The entries of the blocklist with this text in them, each with the date of its end.
fn blocklist(part: &str) -> Vec<(String, String)> {
    let dump: Value = serde_json::from_str(&cluster().ceph(&["osd", "dump", "--format=json"])).expect("JSON");
    let lists = ["blocklist", "range_blocklist"].map(|list| dump[list].as_object().expect(list).clone());
    let entries = lists.into_iter().flatten().filter(|(address, _)| address.contains(part));
    let mut entries: Vec<(String, String)> =
        entries.map(|(address, until)| (address, until.as_str().expect("a date").to_string())).collect();
    entries.sort();
    entries
}

#[test]
fn a_fence_lasts_until_it_is_lifted() {
    let corner = Corner::new();
    let mut daemon = start(&corner, "cephlet-fence", "controller");
    let listed = |daemon: &Daemon| {
        let fences = Client::of(daemon).fences().expect("list");
        fences
            .into_iter()
            .filter(|it| it.contains("198.51.100.") || it.contains("2001:db8:1:"))
            .collect::<Vec<_>>()
    };
    let asked = ["198.51.100.7", "198.51.100.70/26", "2001:DB8:1::9/64"];
    for _ in 0..3 {
        Client::of(&daemon).fence(&asked).expect("fence");
        assert_eq!(listed(&daemon), ["198.51.100.7/32", "198.51.100.64/26", "2001:db8:1::/64"]);
        daemon.restart();
    }
    let entries = [blocklist("198.51.100."), blocklist("2001:db8:1:")].concat();
    assert_eq!(entries.len(), 3, "{entries:?}");
    assert!(entries.iter().all(|(_, until)| until.starts_with("2106-")), "{entries:?}");
    // What others have shut out, or only for a while, or written otherwise.
    for words in [
        &["add", "198.51.100.8:0/42"][..],
        &["add", "198.51.100.9", "86400"],
        &["range", "add", "198.51.100.71/26", "1e12"],
    ] {
        cluster().ceph(&[&["osd", "blocklist"], words].concat());
    }
    assert_eq!(listed(&daemon).len(), 3);
    let client = Client::of(&daemon);
    for _ in 0..2 {
        client
            .unfence(&["198.51.100.64/26", "198.51.100.7/32", "198.51.100.8", "198.51.100.9"])
            .expect("unfence");
        assert_eq!(listed(&daemon), ["2001:db8:1::/64"]);
    }
    let left: Vec<String> = blocklist("198.51.100.").into_iter().map(|(address, _)| address).collect();
    assert_eq!(left, ["198.51.100.8:0/42", "198.51.100.9:0/0"], "they are not fences of ours");
    client.unfence(&["2001:db8:1::/64"]).expect("unfence");
    assert!(listed(&daemon).is_empty());
}

#[test]
fn the_cluster_itself_is_not_fenced() {
    let corner = Corner::new();
    let daemon = start(&corner, "cephlet-fence", "controller");
    let client = Client::of(&daemon);
    let allowed = [("clusterID", "ceph"), ("allowSelf", "true")];
    for cidrs in [&["127.0.0.1"][..], &["203.0.113.5", "127.0.0.0/8"]] {
        let message = refused(client.fence_with(&allowed, cidrs), Code::FAILED_PRECONDITION, &["127.0.0.1"]);
        assert!(message.contains("a monitor"), "{message}");
    }
    for (parameters, cidrs, says) in [
        (&[][..], &[][..], "cidrs"),
        (&[], &["203.0.113.5/33"], "203.0.113.5/33"),
        (&[], &["203.0.113.5", "::/0"], "::/0"),
        (&[("clusterID", "other")], &["203.0.113.5"], "other"),
        (&[("clusterId", "ceph")], &["203.0.113.5"], "clusterID"),
    ] {
        refused(client.fence_with(parameters, cidrs), Code::INVALID_ARGUMENT, &[says]);
    }
    // Single clients are other tests' business.
    let fenced = ["127.0.0.1:0/0", "cidr:127.", "203.0.113.5"].map(blocklist).concat();
    assert_eq!(fenced, [], "UNSAFE: it is shut out");
    assert_eq!(client.fence_clients(), Ok(vec![(cluster().fsid(), vec!["127.0.0.1/32".to_string()])]));
}

/// Every user of RBD may fence a network, and none may lift it.
#[test]
fn a_user_who_could_not_lift_a_fence_sets_none() {
    let corner = Corner::new();
    let daemon = start(&corner, "cephlet", "controller");
    let client = Client::of(&daemon);
    let caps = ["client.cephlet", "allow command \"osd blocklist\""];
    refused(client.fence(&["203.0.113.64/26"]), Code::FAILED_PRECONDITION, &caps);
    assert!(blocklist("203.0.113.64").is_empty(), "UNSAFE: nobody here can lift it");
    cluster().ceph(&["osd", "blocklist", "range", "add", "203.0.113.64/26", "1e12"]);
    client.fence(&["203.0.113.64/26"]).expect("it is fenced");
    assert!(client.fences().expect("list").contains(&"203.0.113.64/26".to_string()));
    refused(client.unfence(&["203.0.113.64/26"]), Code::FAILED_PRECONDITION, &caps);
    cluster().ceph(&["osd", "blocklist", "range", "rm", "203.0.113.64/26"]);
}

#[test]
fn each_copy_offers_what_it_serves() {
    let corner = Corner::new();
    let [controller, node] = ["controller", "node"].map(|services| start(&corner, "cephlet-fence", services));
    let name = "org.cephlet.csi".to_string();
    let offered = [
        "CONTROLLER_SERVICE",
        "GET_CLIENTS_TO_FENCE",
        "GET_REPLICATION_DESTINATION_INFO",
        "NETWORK_FENCE",
        "VOLUME_REPLICATION",
    ];
    let offered = offered.map(String::from).to_vec();
    assert_eq!(Client::of(&controller).identity(), (name.clone(), offered));
    assert_eq!(Client::of(&node).identity(), (name, vec!["GET_CLIENTS_TO_FENCE".to_string()]));
    let client = Client::of(&node);
    assert!(client.is_ready() && client.fence_clients().is_ok());
    refused(client.fence(&["203.0.113.130"]), Code::UNIMPLEMENTED, &["controller"]);
    refused(client.unfence(&["203.0.113.130"]), Code::UNIMPLEMENTED, &["controller"]);
    refused(client.fences(), Code::UNIMPLEMENTED, &["controller"]);
}
