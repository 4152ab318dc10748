//! A controller waits for the work of another one, and never takes it for what a killed command left.

use super::delete::with_volume;
use super::*;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;

/// Far more steps than any of these requests takes.
const STEPS: u64 = 12;

/// A controller that waits for others as long as the product does.
fn patient(cluster: &FakeCluster) -> Rbd {
    patient_controller(cluster, ONE, Timing { orphan_name_grace: SOON, ..timing() })
}

#[test]
fn an_image_that_another_makes_is_not_lost() {
    for step in 1..STEPS {
        let cluster = FakeCluster::new();
        let (at, new) = (cluster.at(), wanted("a", GIB, None));
        let image = NewImage { name: &new.object, size: GIB, layout: &Layout::default(), metadata: &[] };
        cluster.fail_at(1, Fault::HalfMade);
        cluster.on(&at).create(&image).unwrap_err();
        let (made, request) = (Arc::new(parking_lot::Mutex::new(None)), new.clone());
        let theirs = Arc::clone(&made);
        cluster.on_step(step, move |cluster| {
            *theirs.lock() = Some(create(&controller(cluster, TWO), &request).unwrap());
        });
        let ours = create(&patient(&cluster), &new).unwrap();
        let theirs = made.lock().take().expect("nobody but the other can make it");
        assert_eq!(ours.id, theirs.id, "step {step}");
    }
}

/// No client waits for as long as the other controller may take, but for half of that.
#[test]
fn the_claim_of_a_dead_controller_ends_though_each_request_gives_up_sooner() {
    const ATTEMPTS: usize = 100;
    let (cluster, two, source) = with_volume(1);
    cluster.crash_at(2, Fault::After);
    snapshot(&two, &source, "s").unwrap_err();
    cluster.restart();
    let grace = Duration::from_millis(500);
    let ours = patient_controller(&cluster, ONE, Timing { snapshot_claim_grace: grace, ..timing() });
    let take = |_| {
        let begun = Instant::now();
        let hurried = Call::new("test", move || begun.elapsed() > grace / 2);
        ours.snapshots().create(&hurried, &request(&source, "s")).ok()
    };
    assert!((0..ATTEMPTS).find_map(take).is_some());
}

#[test]
fn a_copy_that_another_renames_is_not_lost() {
    for step in 1..STEPS {
        let cluster = FakeCluster::new();
        let at = cluster.at();
        let two = controller(&cluster, TWO);
        let source = create(&two, &wanted("source", GIB, None)).unwrap().id;
        let new = wanted("copy", 0, Some(Origin::Volume(source)));
        let theirs = create(&two, &new).unwrap();
        let temporary = names::temporary(&new.object, TWO, "zyxw7654");
        cluster.on(&at).rename(&new.object, &temporary).unwrap();
        cluster.fail_at(1, Fault::HalfMade);
        cluster.on(&at).rename(&temporary, &new.object).unwrap_err();
        let object = new.object.clone();
        cluster.on_step(step, move |cluster| {
            cluster.here().remove_name(&object).unwrap();
            cluster.here().rename(&temporary, &object).unwrap();
        });
        let ours = create(&patient(&cluster), &new).unwrap();
        assert_eq!(ours.id, theirs.id, "step {step}");
    }
}

#[test]
fn what_a_killed_creation_left_is_removed_after_the_grace() {
    let cluster = FakeCluster::new();
    let new = wanted("a", GIB, None);
    let image = NewImage { name: &new.object, size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.fail_at(1, Fault::HalfMade);
    cluster.here().create(&image).unwrap_err();
    let grace = Duration::from_millis(20);
    let rbd = patient_controller(&cluster, ONE, Timing { orphan_name_grace: grace, ..timing() });
    let begun = Instant::now();
    create(&rbd, &new).unwrap();
    assert!(begun.elapsed() >= grace, "it was removed at once");
}

#[test]
fn what_another_made_in_place_of_a_killed_creation_is_not_removed() {
    let mut met = 0;
    for step in 1..STEPS {
        let cluster = FakeCluster::new();
        let new = wanted("a", GIB, None);
        let image = NewImage { name: &new.object, size: GIB, layout: &Layout::default(), metadata: &[] };
        cluster.fail_at(1, Fault::HalfMade);
        cluster.here().create(&image).unwrap_err();
        let (made, request) = (Arc::new(parking_lot::Mutex::new(None)), new.clone());
        let theirs = Arc::clone(&made);
        cluster.on_step(step, move |cluster| {
            *theirs.lock() = create(&controller(cluster, TWO), &request).ok();
        });
        let ours = create(&controller(&cluster, ONE), &new).unwrap();
        if let Some(theirs) = made.lock().take() {
            met += 1;
            assert_eq!(ours.id, theirs.id, "UNSAFE: step {step}: the other's is gone");
        }
    }
    assert!(met > 2, "the other one was never first");
}

#[test]
fn what_another_is_making_in_place_of_a_killed_creation_is_not_removed() {
    let (cluster, new) = (FakeCluster::new(), wanted("a", GIB, None));
    let image = NewImage { name: &new.object, size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.fail_at(1, Fault::HalfMade);
    cluster.here().create(&image).unwrap_err();
    cluster.forget_steps();
    let (made, request) = (Arc::new(parking_lot::Mutex::new(None)), new.clone());
    let theirs = Arc::clone(&made);
    // Each time of waiting is two looks.
    let look = 5;
    cluster.on_step(look, move |cluster| {
        cluster.here().remove(&request.object).unwrap();
        *theirs.lock() = Some(create(&controller(cluster, TWO), &request).unwrap());
    });
    let times = Timing { orphan_name_grace: Duration::from_millis(500), poll: SOON, ..timing() };
    let ours = create(&patient_controller(&cluster, ONE, times), &new).unwrap();
    let steps = cluster.steps();
    assert!(steps[3].starts_with("lock BareName") && steps[4].starts_with("info"), "{steps:#?}");
    assert_eq!(ours.id, made.lock().take().unwrap().id, "UNSAFE: the other's is gone: {steps:#?}");
}
