//! Lost nodes: no other node writes before their clients are shut out, and no other client is shut out.

use super::publish::{Scene, given, publish, refused, scene, unpublish};
use super::*;
use crate::backend::rbd::node_clients::{Client, write_down};
use crate::backend::rbd::publish::to_node::publish_here;
use crate::backend::rbd::publish::unpublish::unpublish_here;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind;

const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::HalfMade];
pub(super) const OURS: &str = "10.0.0.7:0/42";
/// More steps than a publication takes.
const STEPS: u64 = 16;
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A controller, or the daemon of a node.
pub(super) fn daemon(cluster: &FakeCluster, node: &str) -> Rbd {
    started(cluster, identity(node, TWO), true)
}

/// A daemon that shuts out no client.
pub(super) fn lenient(cluster: &FakeCluster, node: &str) -> Rbd {
    started(cluster, identity(node, TWO), false)
}

fn started(cluster: &FakeCluster, identity: Identity, fences: bool) -> Rbd {
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let clusters = Clusters::of([Cluster { credentials: Some(credentials), ..Cluster::named("ceph") }]);
    let who = (identity, fences, timing());
    Rbd::new(Arc::new(clusters), Arc::new(cluster.clone()), mapper(), who, background(cluster, TWO))
}

/// The node has mapped the image as it was told to: its client is recorded.
pub(super) fn maps(rbd: &Rbd, id: &VolumeId, told: &Map, address: &str) {
    let (call, image) = (call(), id.incarnation.clone().unwrap());
    let at = rbd.context.locate(&id.place, &Secrets::default()).unwrap();
    let client = Client::of(&rbd.context.identity, &told["publication"], address);
    write_down(&rbd.context.pool(&call, &at), &image, &client).unwrap();
}

/// The node has unmapped the image.
fn gives_back(rbd: &Rbd, id: &VolumeId) {
    rbd.node().detach(&call(), id, crate::backend::PublishedBy::Controller, &Secrets::default()).unwrap();
}

pub(super) fn is_shut_out(cluster: &FakeCluster, address: &str) -> bool {
    cluster.blocklist().iter().any(|entry| entry.address == address)
}

#[test]
fn a_node_that_has_not_given_a_volume_back_is_shut_out_for_years() {
    let it = scene();
    let node = daemon(&it.cluster, "n1");
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.watch(OURS);
    maps(&node, &it.id, &told, OURS);
    it.watch("10.0.0.9:0/1");
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    let [entry] = it.cluster.blocklist().try_into().expect("one entry, and none for who is not ours");
    assert_eq!(entry.address, OURS);
    assert!(
        entry.until > std::time::SystemTime::now() + 5 * YEAR,
        "UNSAFE: it ends while the mapping may live"
    );
    it.cluster.unwatch("10.0.0.9:0/1");
    it.publish("n2", Mode::SingleNodeWriter, false).unwrap();
    // A client that is shut out already is not shut out again.
    it.cluster.forget_steps();
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert!(!it.methods().contains(&"shut_out".to_string()));
}

#[test]
fn an_entry_is_never_made_shorter_and_a_short_one_longer() {
    for (time, is_kept) in [(50 * YEAR, true), (Duration::from_secs(3600), false)] {
        let it = scene();
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
        it.cluster.shut_out_for(OURS, time);
        let before = it.cluster.blocklist();
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
        let [entry] = it.cluster.blocklist().try_into().expect("one entry");
        assert_eq!(before == [entry.clone()], is_kept, "{entry:?}");
        assert!(entry.until > std::time::SystemTime::now() + 5 * YEAR, "UNSAFE: {entry:?}");
    }
}

#[test]
fn ordinary_lives_leave_nothing() {
    let it = scene();
    let node = daemon(&it.cluster, "n1");
    let before = it.cluster.dump();
    for life in 0..5 {
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        maps(&node, &it.id, &told, &format!("10.0.0.7:0/{life}"));
        gives_back(&node, &it.id);
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
        it.cluster.advance(Duration::from_secs(61));
        assert_eq!(it.cluster.dump(), before);
    }
    assert_eq!(it.cluster.blocklist(), []);
}

/// The controller dies at each step of the taking back, and gets no second request. Another controller then
/// publishes the volume, if need be after it has taken it back.
#[test]
fn wherever_the_controller_dies_the_next_writer_comes_after_the_fence() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter] {
        for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=20).map(move |k| (fault, k))) {
            let it = scene();
            let told = it.publish("n1", mode, false).unwrap();
            it.watch(OURS);
            maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
            it.cluster.advance(Duration::from_secs(61));
            it.cluster.crash_at(k, fault);
            let outcome = unpublish(&it.rbd, &it.id, Some("n1"));
            if it.cluster.fault_pending() {
                outcome.unwrap();
                continue;
            }
            it.cluster.restart();
            let other = controller(&it.cluster, TWO);
            let mut published = publish(&other, &it.id, "n2", mode, false);
            if published.is_err() {
                unpublish(&other, &it.id, Some("n1")).unwrap();
                published = publish(&other, &it.id, "n2", mode, false);
            }
            published.unwrap_or_else(|error| panic!("{mode:?}, {fault:?} at {k}: {error}"));
            let ended = !given(&it.cluster).contains(&"n1".to_string());
            assert!(
                !ended || is_shut_out(&it.cluster, OURS),
                "UNSAFE: {mode:?}, {fault:?} at {k}: two writers"
            );
        }
    }
}

/// The same, but the controller that publishes next dies.
#[test]
fn wherever_the_next_publishing_dies_the_fence_comes_first() {
    for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=20).map(move |k| (fault, k))) {
        let it = scene();
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        it.watch(OURS);
        maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
        it.cluster.advance(Duration::from_secs(61));
        // The first controller dies when the publication has ended.
        it.cluster.crash_at(4, Fault::Before);
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap_err();
        it.cluster.restart();
        assert!(given(&it.cluster).is_empty() && !is_shut_out(&it.cluster, OURS));
        it.cluster.crash_at(k, fault);
        let outcome = it.publish("n2", Mode::SingleNodeWriter, false);
        let done = it.cluster.fault_pending();
        it.cluster.restart();
        let is_given = !given(&it.cluster).is_empty();
        assert!(!is_given || is_shut_out(&it.cluster, OURS), "UNSAFE: {fault:?} at {k}: two writers");
        if done {
            outcome.unwrap();
            continue;
        }
        publish(&controller(&it.cluster, TWO), &it.id, "n2", Mode::SingleNodeWriter, false).unwrap();
        assert!(is_shut_out(&it.cluster, OURS), "UNSAFE: {fault:?} at {k}: two writers");
    }
}

/// While a volume is taken back, another controller gives it to the same node again, at each step.
#[test]
fn a_late_taking_back_does_not_hit_what_was_published_again() {
    const NEW: &str = "10.0.0.7:0/43";
    for k in 1..=12 {
        let it = scene();
        let node = daemon(&it.cluster, "n1");
        let told = it.publish("n1", Mode::MultiNodeMultiWriter, false).unwrap();
        maps(&node, &it.id, &told, OURS);
        let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
        it.cluster.on_step(k, move |_| {
            let again = publish(&other, &id, "n1", Mode::MultiNodeMultiWriter, false).unwrap();
            maps(&node, &id, &again, NEW);
        });
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
        let stands = !given(&it.cluster).is_empty();
        assert!(is_shut_out(&it.cluster, OURS), "UNSAFE: step {k}");
        let is_mapped = it.cluster.dump().contains(NEW);
        assert_eq!(is_shut_out(&it.cluster, NEW), is_mapped && !stands, "UNSAFE: step {k}");
    }
}

#[test]
fn other_nodes_of_the_volume_go_on() {
    let it = scene();
    for (node, address) in [("n1", OURS), ("n2", "10.0.0.8:0/1")] {
        let told = it.publish(node, Mode::MultiNodeMultiWriter, false).unwrap();
        maps(&daemon(&it.cluster, node), &it.id, &told, address);
    }
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    it.publish("n3", Mode::MultiNodeMultiWriter, false).unwrap();
    assert!(is_shut_out(&it.cluster, OURS) && !is_shut_out(&it.cluster, "10.0.0.8:0/1"));
}

/// No check can prove that the client has no write left. The next mapping of its node is another client.
#[test]
fn a_node_that_comes_back_is_forgotten_and_its_client_stays_shut_out() {
    let it = scene();
    let before = it.cluster.dump();
    let node = daemon(&it.cluster, "n1");
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    maps(&node, &it.id, &told, OURS);
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    assert!(it.cluster.dump().contains("shut_out"), "it is not shut out again: {}", it.cluster.dump());
    gives_back(&node, &it.id);
    it.cluster.advance(Duration::from_secs(61));
    assert!(is_shut_out(&it.cluster, OURS), "UNSAFE: what it has kept goes through");
    assert_eq!(it.cluster.dump(), before);
    it.cluster.forget_steps();
    it.publish("n2", Mode::SingleNodeWriter, false).unwrap();
    assert!(!it.methods().contains(&"shut_out".to_string()), "it is gone");
}

/// No other machine can know that this machine has booted since.
#[test]
fn only_the_machine_itself_takes_back_what_was_mapped_before_its_boot() {
    let it = scene();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
    let booted = |machine: &str| {
        let identity = Identity {
            machine: Machine { id: machine.into(), boot: "the next boot".into() },
            ..identity("n1", ONE)
        };
        started(&it.cluster, identity, true)
    };
    gives_back(&booted("a machine of the same name"), &it.id);
    assert!(it.cluster.dump().contains(OURS), "UNSAFE: the node may be mapping it");
    gives_back(&booted("machine of n1"), &it.id);
    assert!(!it.cluster.dump().contains(OURS), "{}", it.cluster.dump());
}

/// A client owns the image's lock; returns its address.
fn own_lock(it: &Scene) -> String {
    let hold =
        LockRequest { cookie: "auto 1".into(), description: String::new(), shared: None, seconds: None };
    let owner = LockTarget::Owner(it.id.incarnation.as_deref().unwrap());
    it.cluster.here().lock(owner, &hold).unwrap();
    it.cluster.here().holders(owner).unwrap()[0].address.clone()
}

/// A node without Ceph's tools records no client.
#[test]
fn the_owner_of_the_lock_that_watches_no_more_is_shut_out() {
    // A daemon of rbd-mirror owns the lock of a copy; a primary's lock may have any owner.
    let roles = [(None, true), (Some(true), true), (Some(false), false)];
    let cases = roles.into_iter().flat_map(|role| [(false, role), (true, role)]);
    for (watches, (primary, is_shut_out_at_last)) in cases {
        let it = scene();
        it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        let address = own_lock(&it);
        if watches {
            it.watch(&address);
        }
        if let Some(primary) = primary {
            it.cluster.set_mirrored(&it.cluster.at(), &it.id.object, MirrorState::Enabled, primary);
        }
        unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
        let is_out = is_shut_out_at_last && !watches;
        assert_eq!(is_shut_out(&it.cluster, &address), is_out, "watches: {watches}, primary: {primary:?}");
        // The cluster forgets a client that is cut off after a while. Only then is the next writer let in.
        it.cluster.unwatch(&address);
        let (mode, read_only) = match is_shut_out_at_last {
            true => (Mode::SingleNodeWriter, false),
            false => (Mode::MultiNodeReaderOnly, true),
        };
        it.publish("n2", mode, read_only).unwrap();
        assert_eq!(
            is_shut_out(&it.cluster, &address),
            is_shut_out_at_last,
            "UNSAFE: primary: {primary:?}, it may come back and write"
        );
    }
}

/// The network of the owner comes back just when others look.
#[test]
fn an_owner_of_the_lock_that_watches_again_keeps_others_out() {
    for k in 1..=STEPS {
        let it = scene();
        let address = own_lock(&it);
        it.cluster.forget_steps();
        let (cluster, name) = (it.cluster.clone(), it.id.object.clone());
        let again = address.clone();
        it.cluster.on_step(k, move |_| cluster.watch(&cluster.at(), &name, &again));
        let published = it.publish("n2", Mode::SingleNodeWriter, false);
        let steps = it.methods();
        let last_look = steps.iter().rposition(|step| step == "watchers").unwrap();
        let was_seen = last_look >= usize::try_from(k).unwrap();
        assert!(published.is_err() || !was_seen, "UNSAFE: it writes too, back after step {k} of {steps:?}");
    }
}

#[test]
fn nobody_is_shut_out_where_that_is_off() {
    let it = scene();
    let rbd = lenient(&it.cluster, "controller");
    let told = publish(&rbd, &it.id, "n1", Mode::SingleNodeWriter, false).unwrap();
    maps(&lenient(&it.cluster, "n1"), &it.id, &told, OURS);
    it.watch(OURS);
    unpublish(&rbd, &it.id, Some("n1")).unwrap();
    refused(publish(&rbd, &it.id, "n2", Mode::SingleNodeWriter, false), Kind::Precondition, &[OURS]);
    assert_eq!(it.cluster.blocklist(), []);
}

#[test]
fn what_a_later_version_has_written_down_is_not_passed_over() {
    let it = scene();
    it.publish("n1", Mode::MultiNodeMultiWriter, false).unwrap();
    let hold = LockRequest {
        cookie: OURS.into(),
        description: r#"{"version":2,"client":{}}"#.into(),
        shared: Some("clients".into()),
        seconds: None,
    };
    let clients = it.image();
    it.cluster.here().lock(LockTarget::Clients(&clients), &hold).unwrap();
    refused(
        it.publish("n2", Mode::MultiNodeMultiWriter, false),
        Kind::Precondition,
        &[OURS, "later cephlet"],
    );
    assert_eq!(given(&it.cluster), ["n1"]);
}

/// The node releases the publication that it made itself, which is the only lock if the controller has none.
#[test]
fn a_controllers_publication_does_not_rest_on_the_nodes_own() {
    let it = scene();
    let capability = super::publish::block(Mode::SingleNodeWriter);
    let here = || publish_here(&it.rbd.context, &call(), &it.id, (&capability, false), &Secrets::default());
    let before = here().unwrap();
    it.watch(OURS);
    let told = it.publish("node7", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(told["publication"], before.publication, "what is mapped there stays what it is");
    assert_eq!(it.publish("node7", Mode::SingleNodeWriter, false).unwrap(), told);
    unpublish_here(&it.rbd.context, &call(), &it.id, &Secrets::default()).unwrap();
    it.cluster.unwatch(OURS);
    assert_eq!(given(&it.cluster), ["node7"], "UNSAFE: published, and free for others");
    refused(it.publish("n2", Mode::SingleNodeWriter, false), Kind::Precondition, &["\"node7\""]);
}

#[test]
fn an_image_without_an_exclusive_lock_is_for_readers() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let layout = Layout { features: Some(["layering".to_string()].into()), ..Layout::default() };
    let image = NewImage { name: "web", size: GIB, layout: &layout, metadata: &[] };
    cluster.here().create(&image).unwrap();
    let id = VolumeId { place: place("rbd"), object: "web".into(), incarnation: None };
    let before = cluster.dump();
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
        let parts = ["rbd:ceph:rbd::web", "`rbd feature enable rbd/web exclusive-lock`", "reading only"];
        refused(publish(&rbd, &id, "n1", mode, false), Kind::Precondition, &parts);
        assert_eq!(cluster.dump(), before, "bad input changes nothing");
        publish(&rbd, &id, "n1", mode, true).unwrap();
        unpublish(&rbd, &id, None).unwrap();
        cluster.advance(Duration::from_secs(61));
    }
}
