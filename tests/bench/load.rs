//! Callers: many at once, one by one, or in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::support::{Client, Daemon, requests};

/// Creates a volume that takes the default size.
pub fn create(client: &Client, name: &str) {
    client.create(&requests::volume_as(name, 0, requests::block())).unwrap();
}

/// Lets `callers` clients, each with a connection of its own, ask for every name once; returns the seconds
/// that this took.
pub fn all_at_once(
    daemon: &Daemon,
    callers: usize,
    names: &[String],
    ask: impl Fn(&Client, &str) + Sync,
) -> f64 {
    let clients: Vec<Client> = (0..callers).map(|_| daemon.client()).collect();
    clients.iter().for_each(|client| drop(client.probe(&Default::default()).unwrap()));
    share(&clients, names, ask)
}

/// Lets the callers ask for every name once, each on its own thread; returns the seconds that this took.
pub fn share<C: Sync>(callers: &[C], names: &[String], ask: impl Fn(&C, &str) + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        for caller in callers {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    ask(caller, name);
                }
            });
        }
    });
    started.elapsed().as_secs_f64()
}

/// The seconds of each of `times` calls, one after the other.
pub fn timed<T>(times: usize, mut ask: impl FnMut(usize) -> T) -> Vec<f64> {
    let measure = |number| {
        let started = Instant::now();
        ask(number);
        started.elapsed().as_secs_f64()
    };
    (0..times).map(measure).collect()
}

/// The value below which `percent` of all values lie.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Calls in the background, which end when this is dropped.
pub struct Background {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Keeps `callers` creations in progress.
pub fn create_in_background(daemon: &Daemon, callers: usize) -> Background {
    let stop = Arc::new(AtomicBool::new(false));
    let caller = |number: usize| {
        let (client, stop) = (daemon.client(), Arc::clone(&stop));
        thread::spawn(move || {
            for count in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                create(&client, &format!("background-{number}-{count}"));
            }
        })
    };
    let threads = (0..callers).map(caller).collect();
    Background { stop, threads }
}

/// Stages `count` new volumes at once; the calls are still under way when this returns.
pub fn stage_in_background(daemon: &Daemon, count: usize) -> Vec<JoinHandle<()>> {
    let stage = |number: usize| {
        let (client, path) = (daemon.client(), daemon.text(&format!("stage-{number}")));
        let volume = client.create(&requests::volume(&format!("stuck-{number}"))).unwrap();
        let request = requests::stage(&volume.volume_id, &path, requests::mount("ext4"));
        thread::spawn(move || drop(client.node_stage_volume(&request)))
    };
    (0..count).map(stage).collect()
}
