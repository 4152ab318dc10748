//! Clients that have a volume mounted when it is deleted, or when its publication ends.

use std::sync::atomic::{AtomicBool, Ordering};

use super::copies::make;
use super::shares::{reader, sharing, with_snapshot};
use super::*;
use crate::dispatch::Call;

const LOST: (u64, &str) = (41, "cephlet/n1");
const OTHER: (u64, &str) = (42, "cephlet/n2");
const STRANGER: (u64, &str) = (43, "admins-host");

pub(super) fn unpublish(context: &Context, id: &VolumeId, node: &str) -> Result<Unpublished> {
    context.unpublish(&call(), id, Some(node), &Secrets::default())
}

/// A publication by which the node writes, beside others as the mode says.
fn writer(node: &str, mode: Mode) -> Publication {
    Publication { node: node.into(), capability: Capability { mode, ..capability() }, read_only: false }
}

/// The same for any number of nodes that write.
fn share(context: &Context, id: &VolumeId, node: &str) -> Result<Map> {
    context.publish(&call(), id, &writer(node, Mode::MultiNodeMultiWriter), &Secrets::default())
}

#[test]
fn a_volume_that_a_client_has_mounted_without_a_publication_is_not_deleted() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let id = create(&ours, "a", 8).unwrap().id;
    cluster.mount_by(&[STRANGER]);
    let refused = delete(&ours, &id).unwrap_err();
    assert!(refused.kind() == Kind::Precondition && refused.message().contains("admins-host"), "{refused}");
    cluster.mount_by(&[]);
    publish(&ours, &id, "n1").unwrap();
    assert_eq!(unpublish(&ours, &id, "n1").unwrap(), Unpublished::Done);
    assert_eq!(delete(&ours, &id).unwrap(), Deleted::Gone);
    assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()));
}

#[test]
fn the_mounts_of_a_lost_node_are_shut_out_and_no_others() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let id = create(&ours, "a", 8).unwrap().id;
    share(&ours, &id, "n1").unwrap();
    share(&ours, &id, "n2").unwrap();
    cluster.mount_by(&[LOST, OTHER, STRANGER]);
    assert_eq!(unpublish(&ours, &id, "n1").unwrap(), Unpublished::Done);
    assert_eq!(cluster.clients(), [42, 43]);
}

#[test]
fn the_clients_of_a_source_are_no_matter_to_a_volume_that_shares_its_snapshot() {
    let (cluster, source, taken) = with_snapshot();
    let ours = controller(&cluster, ONE);
    let shared = make(&ours, &sharing("b", &taken)).unwrap().id;
    share(&ours, &source, "n1").unwrap();
    cluster.mount_by(&[LOST, STRANGER]);
    let publication = Publication { node: "n2".into(), capability: reader(), read_only: true };
    ours.publish(&call(), &shared, &publication, &Secrets::default()).unwrap();
    assert_eq!(unpublish(&ours, &shared, "n2").unwrap(), Unpublished::Done);
    assert_eq!(delete(&ours, &shared).unwrap(), Deleted::Gone);
    assert_eq!(cluster.clients(), [41, 43], "UNSAFE: a client of the source was shut out");
}

#[test]
fn a_second_writer_is_refused_and_keeps_nothing_even_if_its_client_has_given_up() {
    let alone = Mode::MultiNodeSingleWriter;
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        let (ours, theirs) = (controller(&cluster, ONE), controller(&cluster, TWO));
        let id = create(&ours, "a", 8).unwrap().id;
        let has_given_up = Arc::new(AtomicBool::new(false));
        cluster.before_step(step, {
            let (id, has_given_up) = (id.clone(), Arc::clone(&has_given_up));
            move || {
                let _ = theirs.publish(&call(), &id, &writer("n2", alone), &Secrets::default());
                has_given_up.store(true, Ordering::Relaxed);
            }
        });
        let gone = Arc::clone(&has_given_up);
        let call = Call::new("test", move || gone.load(Ordering::Relaxed));
        let published = ours.publish(&call, &id, &writer("n1", alone), &Secrets::default());
        if !has_given_up.load(Ordering::Relaxed) {
            return assert!(published.is_ok() && step > 1, "{published:?}");
        }
        let _ = unpublish(&ours, &id, if published.is_ok() { "n1" } else { "n2" });
        publish(&ours, &id, "n3").unwrap_or_else(|refusal| panic!("before step {step}: {refusal}"));
    }
}

#[test]
fn wherever_the_controller_dies_the_next_node_gets_the_volume_after_the_lost_one_is_shut_out() {
    for (step, fault) in (1..STEPS).flat_map(|step| FAULTS.map(|fault| (step, fault))) {
        let cluster = FakeFs::default();
        let dying = controller(&cluster, ONE);
        let id = create(&dying, "a", 8).unwrap().id;
        publish(&dying, &id, "n1").unwrap();
        cluster.mount_by(&[LOST, STRANGER]);
        cluster.fail_at(step, fault);
        let _ = unpublish(&dying, &id, "n1");
        cluster.restart();
        let again = controller(&cluster, TWO);
        if publish(&again, &id, "n2").is_ok() {
            assert_eq!(cluster.clients(), [43], "UNSAFE: {fault:?} at step {step}");
        }
        assert_eq!(unpublish(&again, &id, "n1").unwrap(), Unpublished::Done);
        publish(&again, &id, "n2").unwrap();
        assert_eq!(cluster.clients(), [43], "UNSAFE: {fault:?} at step {step}");
    }
}

#[test]
fn without_all_metadata_servers_a_volume_is_neither_deleted_nor_published_to_a_further_node() {
    let (active, standby) = ((0, "up:active"), (0, "up:standby-replay"));
    type Ranks<'a> = (&'a [u32], &'a [(i64, &'static str)]);
    let failed: [Ranks<'_>; 4] = [
        (&[0], &[]),
        (&[0], &[(-1, "up:standby")]),
        (&[0], &[(0, "up:replay"), standby]),
        (&[0, 1], &[active, standby]),
    ];
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let id = create(&ours, "a", 8).unwrap().id;
    cluster.mount_by(&[LOST]);
    let refuses = |what: &str| {
        for refusal in [delete(&ours, &id).unwrap_err(), publish(&ours, &id, "n2").unwrap_err()] {
            assert_eq!(refusal.kind(), Kind::Unavailable, "UNSAFE: {what}: {refusal}");
            assert!(refusal.message().contains("ceph fs status"), "{refusal}");
        }
    };
    for (ranks, daemons) in failed {
        cluster.serve_by(ranks, daemons);
        refuses(&format!("{ranks:?} {daemons:?}"));
    }
    cluster.serve_by(&[0, 1], &[active, standby, (1, "up:stopping")]);
    publish(&ours, &id, "n2").unwrap();
    assert_eq!(cluster.clients(), [0; 0]);
    assert_eq!(unpublish(&ours, &id, "n2").unwrap(), Unpublished::Done);
    cluster.end_servers();
    refuses("a server that has just ended");
}

#[test]
fn wherever_a_publication_is_interrupted_its_repeat_does_not_meet_a_lost_node() {
    for (step, fault) in (1..STEPS).flat_map(|step| FAULTS.map(|fault| (step, fault))) {
        let cluster = FakeFs::default();
        let dying = controller(&cluster, ONE);
        let id = create(&dying, "a", 8).unwrap().id;
        cluster.mount_by(&[LOST, STRANGER]);
        cluster.fail_at(step, fault);
        let _ = publish(&dying, &id, "n2");
        cluster.restart();
        publish(&controller(&cluster, TWO), &id, "n2").unwrap();
        assert_eq!(cluster.clients(), [43], "UNSAFE: {fault:?} at step {step}");
    }
}
