//! Network fences of csi-addons on a real cluster, which other tests use meanwhile: each test has addresses
//! of its own, of the networks for benchmarks (RFC 2544) and for documentation (RFC 3849).

use serde_json::Value;

use crate::shared::setup;
use crate::support::addons::Client;
use crate::support::{Code, Corner, Daemon, cluster, manual, refused};

/// A daemon as this user, which sees one corner of the cluster.
fn start(corner: &Corner, user: &str, services: &str) -> Daemon {
    setup(user, &["rbd"], &[&corner.namespace]).set("CEPHLET_SERVICES", services).start()
}

/// The prefixes of this test's addresses: of IPv4 up to the last byte, of IPv6 the first 48 bits.
fn own_addresses() -> (String, String) {
    let process = std::process::id();
    let third = process % 512;
    (format!("198.{}.{}.", 18 + third / 256, third % 256), format!("2001:db8:{:x}:", process % 0xffff + 1))
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
    let (four, six) = own_addresses();
    let listed = |daemon: &Daemon| {
        let fences = Client::of(daemon).fences().expect("list");
        fences.into_iter().filter(|it| it.starts_with(&four) || it.starts_with(&six)).collect::<Vec<_>>()
    };
    let asked = [format!("{four}7"), format!("{four}70/26"), format!("{}:9/64", six.to_uppercase())];
    let asked = asked.each_ref().map(String::as_str);
    let fenced = [format!("{four}7/32"), format!("{four}64/26"), format!("{six}:/64")];
    for _ in 0..3 {
        Client::of(&daemon).fence(&asked).expect("fence");
        assert_eq!(listed(&daemon), fenced);
        daemon.restart();
    }
    let entries = [blocklist(&four), blocklist(&six)].concat();
    assert_eq!(entries.len(), 3, "{entries:?}");
    assert!(entries.iter().all(|(_, until)| until.starts_with("2106-")), "{entries:?}");
    // Entries that another tool made, that end after a while, or that are spelt differently.
    let [client_of_one, for_a_day] = [format!("{four}8:0/42"), format!("{four}9")];
    for words in [
        &["add", &client_of_one][..],
        &["add", &for_a_day, "86400"],
        &["range", "add", &format!("{four}71/26"), "1e12"],
    ] {
        cluster().ceph(&[&["osd", "blocklist"], words].concat());
    }
    assert_eq!(listed(&daemon).len(), 3);
    let client = Client::of(&daemon);
    for _ in 0..2 {
        client.unfence(&[&fenced[1], &fenced[0], &format!("{four}8"), &for_a_day]).expect("unfence");
        assert_eq!(listed(&daemon), fenced[2..]);
    }
    let left: Vec<String> = blocklist(&four).into_iter().map(|(address, _)| address).collect();
    assert_eq!(left, [client_of_one.clone(), format!("{for_a_day}:0/0")], "they are not fences of ours");
    client.unfence(&[&fenced[2]]).expect("unfence");
    assert!(listed(&daemon).is_empty());
    for address in [&client_of_one, &for_a_day] {
        cluster().ceph(&["osd", "blocklist", "rm", address]);
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_fence_that_is_set_a_hundred_times_is_one_entry() {
    let corner = Corner::new();
    let daemon = start(&corner, "cephlet-fence", "controller");
    let (client, host) = (Client::of(&daemon), format!("{}7", own_addresses().0));
    for _ in 0..100 {
        client.fence(&[&host]).expect("fence");
    }
    assert_eq!(blocklist(&host).len(), 1);
    client.unfence(&[&host]).expect("unfence");
    assert_eq!(blocklist(&host).len(), 0);
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
    // Other tests may shut out single clients.
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
    let (own, _) = own_addresses();
    let network = format!("{own}128/26");
    refused(client.fence(&[&network]), Code::FAILED_PRECONDITION, &caps);
    assert!(blocklist(&format!("{own}128")).is_empty(), "UNSAFE: nobody here can lift it");
    cluster().ceph(&["osd", "blocklist", "range", "add", &network, "1e12"]);
    client.fence(&[&network]).expect("it is fenced");
    assert!(client.fences().expect("list").contains(&network));
    refused(client.unfence(&[&network]), Code::FAILED_PRECONDITION, &caps);
    cluster().ceph(&["osd", "blocklist", "range", "rm", &network]);
}

#[test]
fn a_host_that_is_gone_is_fenced_as_it_is_described() {
    let corner = Corner::new();
    let daemon = start(&corner, "cephlet-fence", "controller");
    let host = format!("{}7", own_addresses().0);
    let typed = manual::fence()[0].replace("10.0.0.7", &host);
    let [add, list, remove] = typed.lines().collect::<Vec<_>>().try_into().expect("three lines");
    daemon.type_in(add, &[]).expect("fence");
    assert!(daemon.type_in(list, &[]).expect("list").contains(&host));
    assert_eq!(blocklist(&host).len(), 1);
    daemon.type_in(remove, &[]).expect("lift it");
    assert!(!daemon.type_in(list, &[]).expect("list").contains(&host));
    assert_eq!(blocklist(&host).len(), 0);
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
