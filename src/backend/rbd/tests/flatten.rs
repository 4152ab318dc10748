//! Chains of clones: a copy that would have too many parents is flattened while it is made.

use parking_lot::Mutex;

use super::delete::delete;
use super::publish::publish;
use super::*;
use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::jobs::sweep::sweep_pool;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::dispatch::Workers;
use crate::error::Kind;

/// The most parents that an image has.
const PARENTS: usize = crate::backend::rbd::image::clone_source::MAX_PARENTS;

/// A volume with data, at the end of a chain of this many parents.
fn chain(cluster: &FakeCluster, rbd: &Rbd, parents: usize) -> VolumeId {
    let mut id = create(rbd, &wanted("0", GIB, None)).unwrap().id;
    cluster.write(&cluster.at(), &id.object, "data");
    for link in 1..=parents {
        id = create(rbd, &wanted(&link.to_string(), 0, Some(Origin::Volume(id)))).unwrap().id;
    }
    id
}

/// A cluster with a controller, a chain of the greatest permitted length, and a request to copy its end.
fn scene() -> (FakeCluster, Arc<Rbd>, NewVolume) {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let end = chain(&cluster, &rbd, PARENTS);
    assert!(!is_flat(&cluster, &end));
    cluster.forget_steps();
    (cluster, Arc::new(rbd), wanted("9", 0, Some(Origin::Volume(end))))
}

fn is_flat(cluster: &FakeCluster, id: &VolumeId) -> bool {
    cluster.here().info(ImageRef::Name(&id.object)).unwrap().unwrap().parent.is_none()
}

#[track_caller]
fn assert_whole(cluster: &FakeCluster, id: &VolumeId) {
    assert!(is_flat(cluster, id), "it has too many parents");
    assert_eq!(cluster.content(&cluster.at(), &id.object), "data", "UNSAFE: its data are gone");
    assert!(!cluster.dump().contains("csi-tmp-"), "{}", cluster.dump());
}

fn methods(cluster: &FakeCluster) -> String {
    let steps = cluster.steps();
    steps.iter().map(|step| step.split(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
}

/// The number of the creation's step that runs this command.
fn step_of(command: &str) -> u64 {
    let (cluster, rbd, new) = scene();
    create(&rbd, &new).unwrap();
    let is_meant = |step: &String| step.split(' ').next() == Some(command);
    cluster.steps().iter().position(is_meant).unwrap() as u64 + 1
}

#[test]
fn only_a_copy_that_would_be_too_deep_is_flattened() {
    let (cluster, rbd, new) = scene();
    let ninth = create(&rbd, &new).unwrap().id;
    let counts = "info ".repeat(PARENTS);
    let steps =
        "take_snapshot clone_image remove_snapshot all_metadata set_metadata info flatten rename info";
    assert_eq!(methods(&cluster), format!("info {counts}{steps}"));
    assert_whole(&cluster, &ninth);
    let tenth = create(&rbd, &wanted("10", 0, Some(Origin::Volume(ninth)))).unwrap().id;
    assert!(!is_flat(&cluster, &tenth), "its parent is flat");
    do_jobs_due_within(&rbd, timing().parent_check);
    assert!(rbd.context.jobs.queue.waiting().is_empty(), "{:?}", rbd.context.jobs.queue.waiting());
}

#[test]
fn a_copy_from_a_chain_that_was_shortened_is_not_flattened() {
    let (cluster, rbd, new) = scene();
    cluster.here().flatten(&volume_object("default", "4")).unwrap();
    assert!(!is_flat(&cluster, &create(&rbd, &new).unwrap().id));
}

#[test]
fn whatever_is_killed_the_copy_is_whole_or_not_there() {
    for fault in [Fault::Before, Fault::HalfMade, Fault::HalfMoved, Fault::After] {
        for k in 1.. {
            let (cluster, rbd, new) = scene();
            cluster.crash_at(k, fault);
            let first = create(&rbd, &new);
            if cluster.fault_pending() {
                assert!(k > 18, "it takes more steps");
                break;
            }
            assert!(first.is_err());
            cluster.restart();
            let rbd = controller(&cluster, ONE);
            let id = create(&rbd, &new).unwrap().id;
            sweep_pool(&rbd.context.pool(&call(), &cluster.at())).unwrap();
            assert_whole(&cluster, &id);
        }
    }
}

/// The final name opens the image before the directory has it. Until the directory has it, the sweep of the
/// controller that was killed removes the image.
#[test]
fn a_copy_that_another_controller_was_killed_renaming_outlives_the_sweeps_once_it_is_answered() {
    for fault in [Fault::HalfMade, Fault::HalfMoved] {
        let (cluster, rbd, new) = scene();
        cluster.crash_at(step_of("rename"), fault);
        create(&rbd, &new).unwrap_err();
        cluster.restart();
        let id = create(&controller(&cluster, TWO), &new).unwrap().id;
        for tag in [ONE, TWO] {
            let started = controller(&cluster, tag);
            started.recover().unwrap();
            do_jobs(&started);
        }
        let content = cluster.content(&cluster.at(), &id.object);
        assert_eq!(content, "data", "UNSAFE: {fault:?}: its data are gone");
    }
}

#[test]
fn a_failed_flatten_is_not_repeated_over_what_it_has_done() {
    let (cluster, rbd, new) = scene();
    cluster.fail_at(step_of("flatten"), Fault::HalfMade);
    create(&rbd, &new).unwrap_err();
    let id = create(&rbd, &new).unwrap().id;
    sweep_pool(&rbd.context.pool(&call(), &cluster.at())).unwrap();
    assert_whole(&cluster, &id);
}

/// No node can be given a volume that a controller has flattened, or is about to flatten.
#[test]
fn nobody_is_given_a_volume_that_is_flattened_later() {
    for k in 1..=18 {
        let (cluster, rbd, new) = scene();
        let id = VolumeId { place: new.place.clone(), object: new.object.clone(), incarnation: None };
        let (other, published) = (Arc::new(controller(&cluster, TWO)), Arc::new(Mutex::new(None)));
        let told = Arc::clone(&published);
        cluster.on_step(k, move |_| {
            *told.lock() = Some(publish(&other, &id, "node-1", Mode::SingleNodeWriter, false).is_ok());
        });
        let id = create(&rbd, &new).unwrap().id;
        let steps_after = cluster.steps().split_off(k as usize);
        if *published.lock() == Some(true) {
            assert!(
                !steps_after.iter().any(|step| step.starts_with("flatten ")),
                "UNSAFE: published after step {k}, and flattened then"
            );
        }
        do_jobs_due_within(&rbd, Duration::from_secs(7200));
        assert_eq!(cluster.steps().iter().filter(|step| step.starts_with("flatten ")).count(), 1);
        assert_whole(&cluster, &id);
    }
}

#[test]
fn a_second_controller_makes_the_same_copy_meanwhile() {
    let (cluster, rbd, new) = scene();
    let (theirs, request) = (Arc::new(Mutex::new(None)), new.clone());
    let told = Arc::clone(&theirs);
    cluster.on_step(step_of("flatten"), move |cluster| {
        *told.lock() = Some(create(&controller(cluster, TWO), &request).unwrap().id);
    });
    let ours = create(&rbd, &new).unwrap().id;
    assert_eq!(theirs.lock().take(), Some(ours.clone()));
    assert_whole(&cluster, &ours);
}

#[test]
fn a_full_pool_is_said_and_what_was_begun_is_removed_once_there_is_room() {
    let (cluster, rbd, new) = scene();
    let before = cluster.dump();
    let full = FreeSpace { available: 0, full: true };
    cluster.on_step(step_of("flatten") - 1, move |cluster| cluster.set_room("rbd", full));
    let error = create(&rbd, &new).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    cluster.add_pool("rbd");
    do_jobs_due_within(&rbd, timing().dead_client);
    assert_eq!(cluster.dump(), before);
    assert_whole(&cluster, &create(&rbd, &new).unwrap().id);
}

#[test]
fn it_is_finished_for_a_client_that_gives_up_meanwhile() {
    let (cluster, rbd, new) = scene();
    let gave_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = Arc::clone(&gave_up);
    cluster.on_step(step_of("flatten") - 1, move |_| told.store(true, std::sync::atomic::Ordering::Relaxed));
    let call = Call::new("test", move || gave_up.load(std::sync::atomic::Ordering::Relaxed));
    let made = rbd.volumes().create(&call, &new).unwrap().id;
    assert!(!call.expired(), "a command that has to wait for its turn would not be run");
    assert_whole(&cluster, &made);
    assert_eq!(create(&rbd, &new).unwrap().id, made);
}

#[test]
fn who_has_a_copy_flattened_is_no_worker_meanwhile() {
    let (cluster, rbd, new) = scene();
    let (call, workers) = (call(), Arc::new(Workers::start(4, 4).unwrap()));
    workers.begin(&call, Some("ceph".into())).unwrap();
    let (told, seen) = (Arc::clone(&workers), Arc::new(Mutex::new(None)));
    let sees = Arc::clone(&seen);
    cluster.on_step(step_of("flatten"), move |_| *sees.lock() = Some(told.load().1));
    rbd.volumes().create(&call, &new).unwrap();
    assert_eq!((seen.lock().take(), workers.load().1), (Some(0), 1));
}

#[test]
fn a_source_that_is_deleted_meanwhile_goes_with_its_last_clone() {
    let (cluster, rbd, new) = scene();
    let Some((_, Origin::Volume(source))) = new.source.clone() else { panic!("a copy of a volume") };
    cluster.on_step(step_of("flatten") - 1, move |cluster| {
        delete(&controller(cluster, TWO), &source).unwrap();
        assert!(cluster.dump().contains("csi-held-"), "{}", cluster.dump());
    });
    assert_whole(&cluster, &create(&rbd, &new).unwrap().id);
    do_jobs_due_within(&rbd, timing().parent_check);
    assert!(!cluster.dump().contains("csi-held-"), "{}", cluster.dump());
}
