//! Many threads on few objects.

use std::collections::BTreeSet;

use super::*;

/// Every thread takes sets of up to three of six objects in every order; whoever finds an object in use, or
/// never ends, fails the test.
#[test]
fn sets_of_objects_in_any_order_never_lock_each_other_out() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let scene = Scene::patient();
    let used: Arc<[AtomicBool; 6]> = Arc::default();
    let (done, ends) = channel();
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (locks, used, done) = (&scene.locks, &used, done.clone());
            threads.spawn(move || {
                for round in 0..ROUNDS {
                    let (one, other) = ((thread + round) % 6, (thread * 5 + round * 7 + round / 6) % 6);
                    let set = [one, other, (thread * 3 + round * 11 + round / 36) % 6];
                    let (used, done) = (used.clone(), done.clone());
                    let wake = Box::new(move |turn: Turn<Answer>| done.send(work(&used, set, turn)).unwrap());
                    let keys = KeySet::new(set.map(|object| key(&object.to_string()))).unwrap();
                    locks.enter(Entry { keys, call: Call::internal("Test"), joinable: None, wake });
                }
            });
        }
        for _ in 0..THREADS * ROUNDS {
            assert_eq!(ends.recv_timeout(NEVER), Ok(true), "two calls had the same object");
        }
    });
    assert_eq!(scene.locks.holders().len() + scene.locks.parked(), 0);
}

/// Marks the objects as used while the guard lives; false if one already was.
fn work(used: &[AtomicBool; 6], set: [usize; 3], turn: Turn<Answer>) -> bool {
    let Turn::Go(guard) = turn else { return false };
    let objects = BTreeSet::from(set);
    let free = objects.iter().all(|object| !used[*object].swap(true, Ordering::SeqCst));
    thread::yield_now();
    objects.iter().for_each(|object| used[*object].store(false, Ordering::SeqCst));
    drop(guard);
    free
}
