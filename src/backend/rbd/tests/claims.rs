//! A registered name means one volume, for every controller, in any order of requests, and after any crash.

use super::delete::delete;
use super::impatient_controller as controller;
use super::topology::{three_zones, wanted_in};
use super::*;
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::{Deleted, Interrupted};
use crate::error::Kind;

const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::HalfMade];

/// Repeats a request as long as other controllers keep it from being done.
fn insist<T>(cluster: &FakeCluster, act: impl Fn() -> Result<T>) -> T {
    for _ in 0..20 {
        match act() {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
        cluster.advance(Duration::from_secs(60));
    }
    panic!("it does not end: {}", cluster.dump());
}

/// The pools that have the image of the volume, and the pool of the claim.
fn places(cluster: &FakeCluster, new: &NewVolume) -> (Vec<String>, Option<String>) {
    let dump = cluster.dump();
    let images = dump.lines().filter_map(|line| {
        let (path, _) = line.strip_prefix("image ")?.split_once(' ')?;
        let (pool, name) = path.split_once('/')?;
        (name == new.object).then(|| pool.to_string())
    });
    let named = format!("\\\"name\\\":\\\"{}\\\"", new.name);
    let claims: Vec<&str> =
        dump.lines().filter(|line| line.starts_with("claim ") && line.contains(&named)).collect();
    let pool_of = |line: &&str| Some(line.rsplit_once(" shared \"")?.1.trim_end_matches('"').to_string());
    let mut pools: Vec<String> = claims.iter().filter_map(pool_of).collect();
    pools.dedup();
    assert!(pools.len() <= 1, "{dump}");
    (images.collect(), pools.pop())
}

/// Asserts that a volume is where its name is claimed for, or nowhere.
#[track_caller]
fn assert_one_at_most(cluster: &FakeCluster, new: &NewVolume) {
    let (images, claim) = places(cluster, new);
    assert!(images.len() <= 1, "UNSAFE: two images\n{}", cluster.dump());
    assert!(images.is_empty() || claim == images.first().cloned(), "UNSAFE:\n{}", cluster.dump());
}

#[track_caller]
fn assert_nothing_left(cluster: &FakeCluster, rbd: &Rbd) {
    do_jobs(rbd);
    cluster.advance(Duration::from_secs(700));
    assert_eq!(without_free_names(&cluster.dump()), "");
}

#[test]
fn a_repeated_request_finds_its_volume_whatever_is_preferred_now() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let made = create(&rbd, &wanted_in("a", &["1"], &[])).unwrap();
    cluster.forget_steps();
    let again = create(&rbd, &wanted_in("a", &["2"], &[])).unwrap();
    assert_eq!(
        (again.id, again.topology, cluster.steps().len()),
        (made.id.clone(), made.topology.clone(), 1)
    );
    for (zone, tag) in [("2", TWO), ("9", ONE)] {
        let again = create(&controller(&cluster, tag), &wanted_in("a", &[zone], &["3", "1"])).unwrap();
        assert_eq!((&again.id, &again.topology), (&made.id, &made.topology));
    }
    assert_one_at_most(&cluster, &wanted_in("a", &[], &[]));
    assert_eq!(delete(&controller(&cluster, TWO), &made.id).unwrap(), Deleted::Gone);
    assert_nothing_left(&cluster, &rbd);
}

#[test]
fn a_volume_that_is_where_it_may_not_be_is_no_answer() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    create(&rbd, &wanted_in("a", &["1"], &[])).unwrap();
    let wanted = wanted_in("a", &[], &["2", "3"]);
    for rbd in [&rbd, &controller(&cluster, TWO)] {
        let error = create(rbd, &wanted).unwrap_err();
        assert_eq!(error.kind(), Kind::AlreadyExists);
        assert!(error.message().contains("zone=1") && error.message().contains("\"one\""), "{error}");
    }
    // A node of zone 3 has taken over the zone of the volume, and says so.
    let mut taken = wanted;
    let requirement = taken.topology.as_mut().unwrap();
    requirement.requisite[1].insert(format!("{PLUGIN}/takes.zone.1"), "true".to_string());
    assert_eq!(create(&rbd, &taken).unwrap().id.place.pool, "one");
}

/// The controller that claimed the name has died and never comes back.
#[test]
fn a_claim_that_suits_nobody_gives_way() {
    let strict = |mut new: NewVolume| {
        new.parameters.insert("topologyAccess".to_string(), "strict".to_string());
        new
    };
    let drawn = wanted_in("a", &[], &["1", "1", "2"]);
    for (first, later, expected) in [
        (wanted_in("a", &["1"], &[]), wanted_in("a", &[], &["2"]), Some("two")),
        (wanted_in("a", &["1"], &[]), wanted_in("a", &[], &["9"]), None),
        (drawn.clone(), strict(drawn.clone()), Some("one")),
    ] {
        let cluster = three_zones();
        cluster
            .set_room("two", FreeSpace { available: u64::from(expected == Some("two")) << 40, full: false });
        // The steps before: the pools, their room, the claim.
        cluster.crash_at(4, Fault::Before);
        create(&controller(&cluster, ONE), &first).unwrap_err();
        cluster.restart();
        assert_eq!(places(&cluster, &first), (Vec::new(), Some("one".to_string())));
        let rbd = controller(&cluster, TWO);
        let Some(pool) = expected else {
            assert_eq!(create(&rbd, &later).unwrap_err().kind(), Kind::NoSpace);
            assert_nothing_left(&cluster, &rbd);
            continue;
        };
        let made = create(&rbd, &later).unwrap();
        assert_eq!((made.id.place.pool.as_str(), made.topology.len()), (pool, 2), "it says where it is");
        assert_one_at_most(&cluster, &later);
    }
}

#[test]
fn where_nothing_can_be_made_the_share_of_a_dead_controller_stays() {
    let cluster = three_zones();
    let new = wanted_in("a", &[], &["1"]);
    // The steps before: the pools, the claim.
    cluster.crash_at(3, Fault::Before);
    create(&controller(&cluster, ONE), &new).unwrap_err();
    cluster.restart();
    cluster.set_room("one", FreeSpace { available: 0, full: true });
    let before = cluster.dump();
    assert_eq!(create(&controller(&cluster, TWO), &new).unwrap_err().kind(), Kind::NoSpace);
    assert_eq!(cluster.dump(), before);
    assert_eq!(
        create(&controller(&cluster, TWO), &wanted_in("a", &["2"], &["2"])).unwrap().id.place.pool,
        "two"
    );
}

/// A large image exists until its removal ends, but the name of the volume is free meanwhile.
#[test]
fn a_late_deletion_of_what_is_retained_spares_the_claim_of_its_successor() {
    for tag in [ONE, TWO, "0000cccc"] {
        let cluster = three_zones();
        let new = wanted_in("a", &["1"], &[]);
        let large = NewVolume { size: SizeRange { required: 8 * GIB, limit: 0 }, ..new.clone() };
        let first = create(&controller(&cluster, ONE), &large).unwrap().id;
        assert_eq!(delete(&controller(&cluster, ONE), &first).unwrap(), Deleted::Gone);
        assert!(cluster.dump().contains("csi-held-"), "{}", cluster.dump());
        let second = create(&controller(&cluster, TWO), &new).unwrap().id;
        delete(&controller(&cluster, tag), &first).unwrap();
        assert_one_at_most(&cluster, &new);
        assert_eq!(places(&cluster, &new).0, [second.place.pool], "{tag}");
    }
}

#[test]
fn two_controllers_meet_at_one_place() {
    for step in 1.. {
        let cluster = three_zones();
        let (other, made) = (wanted_in("a", &["2"], &[]), Arc::new(parking_lot::Mutex::new(None)));
        let kept = Arc::clone(&made);
        cluster.on_step(step, move |cluster| *kept.lock() = create(&controller(cluster, TWO), &other).ok());
        let new = wanted_in("a", &["1"], &[]);
        let first = insist(&cluster, || create(&controller(&cluster, ONE), &new));
        let Some(second) = made.lock().take() else { return assert!(step > 3) };
        assert_eq!((first.id, first.topology), (second.id, second.topology), "step {step}");
        assert_one_at_most(&cluster, &new);
    }
}

#[test]
fn a_creation_that_dies_at_any_step_is_gone_on_with_at_its_place() {
    for (tag, fault) in [ONE, TWO].into_iter().flat_map(|tag| FAULTS.map(|fault| (tag, fault))) {
        for step in 1.. {
            let cluster = three_zones();
            let new = wanted_in("a", &["1"], &[]);
            cluster.crash_at(step, fault);
            drop(create(&controller(&cluster, ONE), &new));
            if cluster.fault_pending() {
                assert!(step > 4);
                break;
            }
            cluster.restart();
            let again = wanted_in("a", &["2"], &[]);
            let made = insist(&cluster, || create(&controller(&cluster, tag), &again));
            assert_one_at_most(&cluster, &new);
            // The claim is step 3, after the pools and their room.
            let was_claimed = step > 3 || (step == 3 && fault != Fault::Before && fault != Fault::HalfMade);
            let expected = if was_claimed { "one" } else { "two" };
            assert_eq!(made.id.place.pool, expected, "{tag} {fault:?} at step {step}");
            let rbd = controller(&cluster, tag);
            assert_eq!(insist(&cluster, || delete(&rbd, &made.id)), Deleted::Gone);
            assert_nothing_left(&cluster, &rbd);
        }
    }
}

/// A volume in zone 3 with content.
fn source_of(cluster: &FakeCluster) -> VolumeId {
    let source = create(&controller(cluster, ONE), &wanted_in("source", &["3"], &[])).unwrap().id;
    cluster.write(&cluster.at_pool("three", ""), &source.object, "data");
    source
}

/// A request for a copy of it in this zone.
fn copy_in(zone: &str, source: &VolumeId) -> NewVolume {
    let source = wanted("x", 0, Some(Origin::Volume(source.clone()))).source;
    NewVolume { source, ..wanted_in("copy", &[zone], &["1", "2"]) }
}

fn assert_whole(cluster: &FakeCluster, made: &VolumeId) {
    let content = cluster.content(&cluster.at_pool(&made.place.pool, ""), &made.object);
    assert_eq!(content, "data", "UNSAFE: {}", cluster.dump());
}

#[test]
fn a_copy_in_another_pool_that_dies_at_any_step_is_whole_when_it_is_there() {
    for (tag, fault) in [ONE, TWO].into_iter().flat_map(|tag| FAULTS.map(|fault| (tag, fault))) {
        for step in 1.. {
            let cluster = three_zones();
            let source = source_of(&cluster);
            cluster.crash_at(step, fault);
            drop(create(&controller(&cluster, ONE), &copy_in("1", &source)));
            if cluster.fault_pending() {
                assert!(step > 10, "{step}");
                break;
            }
            cluster.restart();
            let again = copy_in("2", &source);
            let made = insist(&cluster, || create(&controller(&cluster, tag), &again)).id;
            assert_one_at_most(&cluster, &again);
            assert_whole(&cluster, &made);
            let rbd = controller(&cluster, tag);
            for id in [made, source] {
                assert_eq!(insist(&cluster, || delete(&rbd, &id)), Deleted::Gone);
            }
            // Half-made images are found by their names.
            let restarted = controller(&cluster, ONE);
            restarted.recover().unwrap();
            assert_nothing_left(&cluster, &restarted);
        }
    }
}

#[test]
fn two_controllers_that_copy_into_different_pools_meet_at_one_place() {
    for step in 1.. {
        let cluster = three_zones();
        let source = source_of(&cluster);
        let (other, made) = (copy_in("2", &source), Arc::new(parking_lot::Mutex::new(None)));
        let kept = Arc::clone(&made);
        cluster.on_step(step, move |cluster| *kept.lock() = Some(create(&controller(cluster, TWO), &other)));
        let new = copy_in("1", &source);
        let first = insist(&cluster, || create(&controller(&cluster, ONE), &new)).id;
        assert_one_at_most(&cluster, &new);
        assert_whole(&cluster, &first);
        match made.lock().take() {
            None => return assert!(step > 10, "{step}"),
            Some(Ok(second)) => assert_eq!(first, second.id, "step {step}"),
            Some(Err(error)) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
    }
}

#[test]
fn a_deletion_that_dies_at_any_step_leaves_no_claim_when_it_is_repeated() {
    for (tag, fault) in [ONE, TWO].into_iter().flat_map(|tag| FAULTS.map(|fault| (tag, fault))) {
        for step in 1.. {
            let cluster = three_zones();
            let made = create(&controller(&cluster, ONE), &wanted_in("a", &["1"], &[])).unwrap();
            cluster.crash_at(step, fault);
            drop(delete(&controller(&cluster, ONE), &made.id));
            if cluster.fault_pending() {
                assert!(step > 6);
                break;
            }
            cluster.restart();
            let rbd = controller(&cluster, tag);
            insist(&cluster, || delete(&rbd, &made.id));
            assert_nothing_left(&cluster, &rbd);
        }
    }
}

#[test]
fn an_interrupted_deletion_is_finished_at_the_next_start() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let made = create(&rbd, &wanted_in("a", &["1"], &[])).unwrap();
    let finish = || rbd.volumes().finish_deletion(&call(), &made.id, &Secrets::default()).unwrap();
    assert_eq!(finish(), Interrupted::Whole);
    assert_one_at_most(&cluster, &wanted_in("a", &[], &[]));
    // The steps before: the look at the claim, the deletion lock, the look at the image, its removal.
    cluster.crash_at(5, Fault::Before);
    delete(&rbd, &made.id).unwrap_err();
    cluster.restart();
    assert_eq!(places(&cluster, &wanted_in("a", &[], &[])), (Vec::new(), Some("one".to_string())));
    assert_eq!(finish(), Interrupted::Gone);
    assert_nothing_left(&cluster, &rbd);
}

#[test]
fn no_claim_goes_for_what_is_made_beside_a_deletion() {
    // A volume that is made between the last look at the claim and its removal has none: claims are an index.
    const UNSEEN: u64 = 5;
    for step in (1..).filter(|step| *step != UNSEEN) {
        let cluster = three_zones();
        let first = create(&controller(&cluster, ONE), &wanted_in("a", &["1"], &[])).unwrap();
        let (new, made) = (wanted_in("a", &["2"], &[]), Arc::new(parking_lot::Mutex::new(None)));
        let (kept, other) = (Arc::clone(&made), new.clone());
        cluster.on_step(step, move |cluster| *kept.lock() = Some(create(&controller(cluster, TWO), &other)));
        insist(&cluster, || delete(&controller(&cluster, ONE), &first.id));
        let Some(second) = made.lock().take() else { return assert!(step > 6) };
        assert_one_at_most(&cluster, &new);
        let is_new = |second: &Volume| second.id.incarnation != first.id.incarnation;
        if let Some(second) = second.ok().filter(is_new) {
            assert_eq!(places(&cluster, &new).0, [second.id.place.pool], "step {step}: it is lost");
            // A repeated deletion of the first volume spares the second.
            assert_eq!(delete(&controller(&cluster, ONE), &first.id).unwrap(), Deleted::Absent);
            assert_one_at_most(&cluster, &new);
            assert_eq!(places(&cluster, &new).0.len(), 1);
        }
    }
}

#[test]
fn a_claim_that_was_taken_away_from_a_slow_creation_is_there_again() {
    let cluster = three_zones();
    let hasty = |tag: &str| {
        let timing = Timing { claim_grace: Duration::ZERO, ..timing() };
        patient_controller(&cluster, tag, timing)
    };
    let new = wanted_in("a", &["1"], &[]);
    let former = create(&hasty(TWO), &new).unwrap().id;
    delete(&hasty(TWO), &former).unwrap();
    let two = Arc::new(hasty(TWO));
    // The steps before: the pools, the claim.
    cluster.on_step(2, move |cluster| {
        assert_eq!(delete(&two, &former).unwrap(), Deleted::Absent);
        assert!(!cluster.dump().contains(" shared "), "{}", cluster.dump());
    });
    create(&hasty(ONE), &new).unwrap();
    assert_one_at_most(&cluster, &new);
}

#[test]
fn a_creation_that_fails_again_and_again_has_one_share() {
    let cluster = three_zones();
    let (rbd, new) = (controller(&cluster, ONE), wanted_in("a", &["1"], &[]));
    // The steps: the pools, their room, the claim, the image.
    for step in [4, 2, 2] {
        cluster.fail_at(step, Fault::Before);
        create(&rbd, &new).unwrap_err();
        assert_eq!(cluster.dump().lines().count(), 1, "{}", cluster.dump());
    }
    create(&rbd, &new).unwrap();
    assert_one_at_most(&cluster, &new);
}

#[test]
fn a_claim_under_which_nothing_can_be_made_is_given_back() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    cluster.set_room("one", FreeSpace { available: 0, full: true });
    let error = create(&rbd, &wanted_in("a", &[], &["1"])).unwrap_err();
    assert_eq!((error.kind(), cluster.dump().as_str()), (Kind::NoSpace, ""));
    assert_eq!(create(&rbd, &wanted_in("a", &["2"], &[])).unwrap().id.place.pool, "two");
    // A pool that is known by its label, but was removed.
    cluster.remove_pool("three");
    let error = create(&rbd, &wanted_in("b", &["3"], &[])).unwrap_err();
    assert!(error.message().contains("three") && !cluster.dump().contains("\"b\""), "{error}");
    assert_eq!(create(&rbd, &wanted_in("b", &["3", "2"], &[])).unwrap().id.place.pool, "two");
}

#[test]
fn a_claim_whose_pool_is_gone_says_how_to_free_the_name() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let new = wanted_in("a", &["1"], &[]);
    create(&rbd, &new).unwrap();
    cluster.remove_pool("one");
    let digits = crate::ids::volume_key(&new.object).unwrap();
    for rbd in [&rbd, &controller(&cluster, TWO)] {
        let error = create(rbd, &wanted_in("a", &["2"], &[])).unwrap_err();
        let command = format!("`rados --pool=rbd rm cephlet.name.{digits}` frees the name");
        assert!(error.message().contains(&command) && error.message().contains("\"one\""), "{error}");
    }
    cluster.remove_pool("rbd");
    cluster.add_pool("rbd");
    assert_eq!(create(&rbd, &wanted_in("a", &["2"], &[])).unwrap().id.place.pool, "two");
}
