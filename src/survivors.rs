//! Commands of an earlier daemon that still run: their objects stay locked until they have ended, so that
//! nothing is begun that they could undo.
//!
//! Calls for these objects wait as for any other call, and are told which command they wait for. A command
//! that has a deadline is ended when it has passed, as its own daemon would have done.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustix::process::Signal;

use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::Survivor;
use crate::locks::{Guard, Key, Locks};

/// From TERM to KILL.
const GRACE: Duration = Duration::from_secs(2);

/// The threads only wait.
const STACK: usize = 128 * 1024;

/// Keeps the lock of one object; more than one command may work on it.
type Held<A> = Arc<Guard<A>>;

/// A survivor that is to be ended when its time is over, and what is disconnected when it has ended.
struct Ending {
    survivor: Arc<Survivor>,
    after: Duration,
    ended: Receiver<()>,
}

/// Locks the objects of all `survivors` until each has ended. To be called before anybody else locks any.
///
/// # Errors
/// If there is no thread to be had, or the table is too small.
pub fn hold<A: Clone + Send + 'static>(survivors: Vec<Survivor>, locks: &Locks<A>) -> Result<()> {
    let mut held = HashMap::new();
    let mut endings = Vec::new();
    for survivor in survivors.into_iter().map(Arc::new) {
        let what = survivor.description();
        log::warn!(
            "{what} still runs; until it has ended these stay locked: {}",
            survivor.objects().join(", ")
        );
        let guards = lock(&survivor, &what, locks, &mut held)?;
        let ended = watch(Arc::clone(&survivor), what, guards)?;
        endings.extend(survivor.time_left().map(|after| Ending {
            survivor: Arc::clone(&survivor),
            after,
            ended,
        }));
    }
    end_in_time(endings)
}

/// Locks the objects of one, as far as another one has not locked them.
fn lock<A: Clone + Send + 'static>(
    survivor: &Survivor,
    what: &str,
    locks: &Locks<A>,
    held: &mut HashMap<String, Held<A>>,
) -> Result<Vec<Held<A>>> {
    let call = Call::internal("left by an earlier daemon");
    call.enter_step(what);
    let lock = |object: &String| {
        if let Some(guard) = held.get(object) {
            return Ok(Arc::clone(guard));
        }
        let guard = Arc::new(locks.lock(&call, Key::from(object.as_str()))?);
        held.insert(object.clone(), Arc::clone(&guard));
        Ok(guard)
    };
    survivor.objects().iter().map(lock).collect()
}

/// Waits on a thread for its end, and frees what it holds. The thread may wait for as long as the daemon
/// runs, and ends with it.
fn watch<A: Send + 'static>(
    survivor: Arc<Survivor>,
    what: String,
    guards: Vec<Held<A>>,
) -> Result<Receiver<()>> {
    let (alive, ended) = bounded::<()>(0);
    start("survivor", move || {
        match survivor.await_end() {
            Ok(()) => log::info!("{what} has ended; what it held is free"),
            // Better locked for ever than undone by it.
            Err(error) => {
                log::error!("{what}: its end cannot be waited for, its volumes stay locked: {error}");
                std::mem::forget(guards);
            }
        }
        drop(alive);
    })?;
    Ok(ended)
}

/// Ends each when its time is over, unless it has ended by then.
fn end_in_time(mut endings: Vec<Ending>) -> Result<()> {
    if endings.is_empty() {
        return Ok(());
    }
    endings.sort_by_key(|ending| ending.after);
    let begun = std::time::Instant::now();
    start("ending survivors", move || {
        for Ending { survivor, after, ended } in endings {
            if is_running(&ended, after.saturating_sub(begun.elapsed())) {
                end(&survivor, &ended);
            }
        }
    })
}

fn end(survivor: &Survivor, ended: &Receiver<()>) {
    log::warn!("{} is killed: its time is over", survivor.description());
    for signal in [Signal::TERM, Signal::KILL] {
        if let Err(error) = survivor.signal(signal) {
            log::error!("{} could not be signalled: {error}", survivor.description());
        }
        if !is_running(ended, GRACE) {
            return;
        }
    }
    log::warn!("{} cannot be killed; its volumes stay locked", survivor.description());
}

/// Whether it still runs after so long.
fn is_running(ended: &Receiver<()>, after: Duration) -> bool {
    ended.recv_timeout(after) == Err(RecvTimeoutError::Timeout)
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(body).map(drop).map_err(|error| Error::io("start a thread", &error))
}
