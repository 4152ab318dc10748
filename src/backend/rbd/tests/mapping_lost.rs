//! Mappings that cannot be used any more: their client was shut out, or their image was replaced.

use super::mapping::{Host, attach, attach_in, detach, is_shut_out};
use super::publish::{block, given, refused, scene, unpublish};
use super::*;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::{NodeContext, PublishedBy};
use crate::error::Kind;

/// What the cluster says of the mapping.
pub(super) fn lost(node: &Rbd, id: &VolumeId, told: &Map) -> Result<Option<String>> {
    lost_for(node, id, &told["publication"], told)
}

/// The same for a mapping that was made for another publication than the current one.
fn lost_for(node: &Rbd, id: &VolumeId, publication: &str, told: &Map) -> Result<Option<String>> {
    let (volume, secrets, capability) = (Map::new(), Secrets::default(), block(Mode::SingleNodeWriter));
    let capability = &capability;
    let wanted =
        NodeContext { volume: &volume, publish: told, secrets: &secrets, capability, read_only: false };
    match node.node().attached(id)? {
        Some(attachment) => node.node().lost(&call(), id, (&attachment, publication), &wanted),
        None => Ok(None),
    }
}

#[test]
fn a_mapping_is_lost_when_its_client_is_shut_out() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    assert_eq!(lost(&node, &it.id, &told).unwrap(), None, "nothing is mapped");
    attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
    assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    let why = lost(&node, &it.id, &told).unwrap().expect("it is lost");
    assert!(why.contains("shut out") && why.contains(&host.clients()[0]), "{why}");
    let again = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    detach(&node, &it.id);
    attach(&node, &it.id, &again, Mode::SingleNodeWriter).unwrap();
    assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
}

/// Its entry in the blocklist has expired: the client could write, but has no watch.
#[test]
fn a_mapping_is_lost_when_its_client_does_not_watch_for_long() {
    for (lost_watch, is_lost) in [(Duration::from_secs(300), false), (Duration::ZERO, true)] {
        let it = scene();
        let host = Host::new(&it.cluster);
        let node = host.daemon_with(Timing { lost_watch, ..timing() });
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
        let client = &host.clients()[0];
        it.cluster.unwatch(client);
        let seen = lost(&node, &it.id, &told);
        match is_lost {
            true => assert!(seen.unwrap().expect("it is lost").contains(client)),
            false => refused(seen, Kind::Unavailable, &[client, "does not watch", "try again"]),
        }
        it.cluster.watch(&it.cluster.at(), &it.id.object, client);
        assert_eq!(lost(&node, &it.id, &told).unwrap(), None, "it is back by itself");
    }
}

#[test]
fn storage_that_does_not_answer_says_nothing() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
    it.cluster.crash_at(1, Fault::Before);
    assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
    assert!(!it.cluster.fault_pending(), "it was asked");
}

#[test]
fn a_mapping_of_an_image_that_was_replaced_is_lost() {
    for (mode, read_only) in [(Mode::SingleNodeWriter, false), (Mode::MultiNodeReaderOnly, true)] {
        let it = scene();
        let host = Host::new(&it.cluster);
        let node = host.daemon();
        let told = it.publish("n1", mode, read_only).unwrap();
        attach(&node, &it.id, &told, mode).unwrap();
        let replaced = Map::from([("imageId".to_string(), "beef".to_string())]);
        let replaced = told.clone().into_iter().chain(replaced).collect();
        assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
        let why = lost(&node, &it.id, &replaced).unwrap().expect("it is another image");
        assert!(why.contains("replaced"), "{why}");
    }
}

/// Without tools the node cannot tell whether its client was shut out since.
#[test]
fn without_tools_a_mapping_is_for_one_publication() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    attach(&node, &it.id, &told, Mode::SingleNodeWriter).unwrap();
    for (has_tools, is_lost) in [(true, false), (false, true)] {
        if !has_tools {
            it.cluster.take_tools_away();
        }
        assert_eq!(lost(&node, &it.id, &told).unwrap(), None);
        for earlier in ["0123456789abcdef", ""] {
            let seen = lost_for(&node, &it.id, earlier, &told).unwrap();
            assert_eq!(seen.is_some(), is_lost, "UNSAFE: mapped for {earlier:?}: {seen:?}");
        }
    }
}

/// A machine was replaced while it was cut off, and no controller has taken the volume back. The publication
/// is the node's, so it holds for both machines.
#[test]
fn another_machine_of_the_same_name_is_shut_out_before_data_is_touched() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter] {
        let it = scene();
        let (cut_off, new) = (Host::of(&it.cluster, 8), Host::of(&it.cluster, 9));
        let told = it.publish("n1", mode, false).unwrap();
        attach(&cut_off.daemon(), &it.id, &told, mode).unwrap();
        let client = cut_off.clients().remove(0);
        it.cluster.unwatch(&client);
        attach(&new.daemon(), &it.id, &told, mode).unwrap();
        assert!(is_shut_out(&it.cluster, &client), "UNSAFE: {mode:?}: two machines write");
        assert!(!is_shut_out(&it.cluster, &new.clients()[0]));
    }
}

#[test]
fn a_machine_of_the_same_name_that_is_well_is_not_shut_out() {
    let it = scene();
    let (first, second) = (Host::of(&it.cluster, 8), Host::of(&it.cluster, 9));
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    attach(&first.daemon(), &it.id, &told, Mode::SingleNodeWriter).unwrap();
    let client = first.clients().remove(0);
    refused(attach(&second.daemon(), &it.id, &told, Mode::SingleNodeWriter), Kind::Precondition, &[&client]);
    assert!(!is_shut_out(&it.cluster, &client) && second.clients().is_empty());
}

/// Without requests to a controller, nodes publish a volume to themselves, by their names.
#[test]
fn a_machine_that_comes_back_ends_no_publication_that_another_of_its_name_has_taken_over() {
    let it = scene();
    let (cut_off, new) = (Host::of(&it.cluster, 8), Host::of(&it.cluster, 9));
    let (first, second) = (cut_off.daemon(), new.daemon());
    attach(&first, &it.id, &Map::new(), Mode::SingleNodeWriter).unwrap();
    it.cluster.unwatch(&cut_off.clients()[0]);
    attach(&second, &it.id, &Map::new(), Mode::SingleNodeWriter).unwrap();
    for id in [&it.id, &VolumeId { incarnation: None, ..it.id.clone() }] {
        first.node().detach(&call(), id, PublishedBy::Node, &Secrets::default()).unwrap();
    }
    assert_eq!(given(&it.cluster), ["n1"], "UNSAFE: anybody may be let in beside it");
    second.node().detach(&call(), &it.id, PublishedBy::Node, &Secrets::default()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}

/// No controller is asked. The unmapping in the kernel was killed: its client is gone, but watches the image
/// until the cluster forgets it.
#[test]
fn a_node_waits_until_its_dead_client_is_forgotten() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon_with(Timing { dead_client: SOON, ..timing() });
    it.watch("127.0.0.1:0/1");
    let (call, cluster) = (call(), it.cluster.clone());
    let waiting = call.clone();
    let forgets = std::thread::spawn(move || {
        while !waiting.current_step().0.contains("to time out") {
            std::thread::yield_now();
        }
        cluster.unwatch("127.0.0.1:0/1");
    });
    attach_in(&call, &node, &it.id, &Map::new(), &block(Mode::SingleNodeWriter)).unwrap();
    forgets.join().unwrap();
    // The node does not wait for clients of other machines.
    let other = scene();
    other.watch("10.0.0.9:0/1");
    let host = Host::new(&other.cluster);
    let node = host.daemon();
    let call = super::call();
    let refusal = {
        let attached = attach_in(&call, &node, &other.id, &Map::new(), &block(Mode::SingleNodeWriter));
        assert!(!call.current_step().0.contains("to time out"));
        attached
    };
    refused(refusal, Kind::Precondition, &["10.0.0.9:0/1"]);
}

/// Readers are not shut out, and have no watch and no record: what they have read before is out of date.
#[test]
fn what_is_mapped_for_reading_is_for_one_publication() {
    let it = scene();
    let host = Host::new(&it.cluster);
    let node = host.daemon();
    let told = it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    attach(&node, &it.id, &told, Mode::MultiNodeReaderOnly).unwrap();
    let earlier = told["publication"].clone();
    it.methods();
    assert_eq!(lost_for(&node, &it.id, &earlier, &told).unwrap(), None);
    assert!(it.methods().is_empty(), "nobody is asked");
    unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
    let again = it.publish("n1", Mode::MultiNodeReaderOnly, true).unwrap();
    assert_eq!(lost_for(&node, &it.id, "", &again).unwrap(), None, "where the record is lost, nobody knows");
    let why = lost_for(&node, &it.id, &earlier, &again).unwrap();
    assert!(why.expect("UNSAFE: it reads what was there before").contains("earlier publication"));
}
