//! Many threads on few objects.

use super::*;

/// Every thread takes pairs of six objects in every order; whoever finds an object in use, or never ends,
/// fails the test.
#[test]
fn pairs_of_objects_in_any_order_never_lock_each_other_out() {
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
                    let pair = [(thread + round) % 6, (thread * 5 + round * 7 + round / 6) % 6];
                    let (used, done) = (used.clone(), done.clone());
                    let wake =
                        Box::new(move |turn: Turn<Answer>| done.send(work(&used, pair, turn)).unwrap());
                    let (key, also) = (key(&pair[0].to_string()), Some(key(&pair[1].to_string())));
                    locks.enter(Entry { key, also, call: Call::internal("Test"), joinable: None, wake });
                }
            });
        }
        for _ in 0..THREADS * ROUNDS {
            assert_eq!(ends.recv_timeout(NEVER), Ok(true), "two calls had the same object");
        }
    });
    assert_eq!(scene.locks.holders().len() + scene.locks.parked(), 0);
}

/// Marks both objects as used while the guard lives; false if one already was.
fn work(used: &[AtomicBool; 6], pair: [usize; 2], turn: Turn<Answer>) -> bool {
    let Turn::Go(guard) = turn else { return false };
    let objects = if pair[0] == pair[1] { &pair[..1] } else { &pair[..] };
    let free = objects.iter().all(|object| !used[*object].swap(true, Ordering::SeqCst));
    thread::yield_now();
    objects.iter().for_each(|object| used[*object].store(false, Ordering::SeqCst));
    drop(guard);
    free
}
