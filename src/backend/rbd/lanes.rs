//! Lanes for what is done beside the calls, one for each cluster: what a cluster that hangs is to do keeps
//! back nothing but what it is to do itself. A lane has a thread while there is anything in it; what is in it
//! is done one thing at a time, the longest due first.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;
/// So many things may be put into a lane; what was there before is never dropped for them.
const MOST: usize = 4096;

/// What is left of a thing that was done, and the pause after which it is due.
pub(crate) type Rest<T> = Option<(Duration, T)>;
type Work<T> = dyn Fn(T) -> Rest<T> + Send + Sync;

/// What there is to do. Whoever drops it ends each thread behind the thing it does.
pub(crate) struct Lanes<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// By cluster. One that is empty and has nothing under way is not here.
    lanes: HashMap<String, Lane<T>>,
    /// None before the start.
    work: Option<Arc<Work<T>>>,
    stopped: bool,
}

struct Lane<T> {
    entries: Vec<Entry<T>>,
    has_thread: bool,
}

struct Entry<T> {
    due: Instant,
    /// As it reads: what reads the same is the same.
    text: String,
    thing: T,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        let state = State { lanes: HashMap::new(), work: None, stopped: false };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }
}

impl<T: Display + Send + 'static> Lanes<T> {
    /// From now on there are threads, which do things by `work`. What was added before waits for this.
    pub fn start(&self, work: impl Fn(T) -> Rest<T> + Send + Sync + 'static) {
        let mut state = self.0.state.lock();
        state.work = Some(Arc::new(work));
        let names: Vec<String> = state.lanes.keys().cloned().collect();
        names.iter().for_each(|name| self.0.attend(&mut state, name));
    }

    /// Puts a thing that is due after `pause` into the lane of a cluster, unless the same waits there
    /// already.
    pub fn add(&self, name: &str, pause: Duration, thing: T) {
        let text = thing.to_string();
        let mut state = self.0.state.lock();
        let lane = state.lanes.entry(name.to_string()).or_default();
        if lane.entries.iter().any(|entry| entry.text == text) {
            return;
        }
        if lane.entries.len() >= MOST {
            log::warn!("{text}: it is left undone, {MOST} other things wait for cluster {name:?}");
            return;
        }
        lane.entries.push(Entry { due: Instant::now() + pause, text, thing });
        self.0.attend(&mut state, name);
    }
}

impl<T: Display + Send + 'static> Shared<T> {
    /// Sees to it that the lane has a thread, and that it looks at what is in it.
    fn attend(self: &Arc<Self>, state: &mut State<T>, name: &str) {
        self.changed.notify_all();
        let Some(work) = state.work.clone() else { return };
        let Some(lane) = state.lanes.get_mut(name).filter(|lane| !lane.has_thread) else { return };
        let (shared, own) = (Arc::clone(self), name.to_string());
        let thread = thread::Builder::new()
            .name("rbd-lane".into())
            .stack_size(STACK)
            .spawn(move || shared.run(&own, &*work));
        lane.has_thread = thread.is_ok();
        if let Err(error) = thread {
            log::error!(
                "there is no thread for what cluster {name:?} is to do, which waits until more is added: \
                 {error}"
            );
        }
    }

    fn run(&self, name: &str, work: &Work<T>) {
        while let Some(Entry { text, thing, .. }) = self.next(name) {
            match catch_unwind(AssertUnwindSafe(|| work(thing))) {
                Ok(Some((pause, thing))) => self.put_back(name, pause, thing),
                Ok(None) => {}
                Err(_) => log::error!("{text}: cephlet has a defect, see above; it is left undone"),
            }
        }
    }

    /// What is due in a lane, once something is; None at the end, or when the lane is empty and gone.
    fn next(&self, name: &str) -> Option<Entry<T>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let lane = state.lanes.get_mut(name)?;
            match lane.first() {
                Some(first) if lane.entries[first].due <= Instant::now() => {
                    return Some(lane.entries.remove(first));
                }
                Some(first) => {
                    let due = lane.entries[first].due;
                    self.changed.wait_until(&mut state, due);
                }
                None => {
                    state.lanes.remove(name);
                    return None;
                }
            }
        }
    }

    /// However many there are.
    fn put_back(&self, name: &str, pause: Duration, thing: T) {
        let entry = Entry { due: Instant::now() + pause, text: thing.to_string(), thing };
        self.state.lock().lanes.entry(name.to_string()).or_default().entries.push(entry);
    }
}

impl<T> Lane<T> {
    /// Where the longest due is.
    fn first(&self) -> Option<usize> {
        (0..self.entries.len()).min_by_key(|at| self.entries[*at].due)
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), has_thread: false }
    }
}

impl<T> Drop for Lanes<T> {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
impl<T: Display + Send + 'static> Lanes<T> {
    /// Does here what is due within `time`, and what is added meanwhile and due at once. There may be no
    /// threads.
    pub fn work_off(&self, time: Duration, work: impl Fn(T) -> Rest<T>) {
        let mut until = Instant::now() + time;
        loop {
            let due = self.take(until);
            if due.is_empty() {
                return;
            }
            for (name, thing) in due {
                if let Some((pause, thing)) = work(thing) {
                    self.0.put_back(&name, pause, thing);
                }
            }
            until = Instant::now();
        }
    }

    fn take(&self, until: Instant) -> Vec<(String, T)> {
        let mut taken = Vec::new();
        for (name, lane) in &mut self.0.state.lock().lanes {
            assert!(!lane.has_thread, "a thread does it");
            taken.extend(
                lane.entries
                    .extract_if(.., |entry| entry.due <= until)
                    .map(|entry| (name.clone(), entry.thing)),
            );
        }
        taken
    }

    /// In how much time each of the things is due.
    pub fn pauses(&self) -> Vec<Duration> {
        let state = self.0.state.lock();
        let entries = state.lanes.values().flat_map(|lane| &lane.entries);
        entries.map(|entry| entry.due.saturating_duration_since(Instant::now())).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::rbd::tests::{SOON, await_that};
    use std::sync::mpsc;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_lane_that_hangs_keeps_back_no_other() {
        let lanes = Lanes::default();
        let (done, all) = mpsc::channel();
        let (go, hanging) = mpsc::channel::<()>();
        let hanging = Mutex::new(hanging);
        lanes.add("away", NOW, "hang");
        lanes.add("away", SOON, "later");
        lanes.start(move |thing: &str| {
            if thing == "hang" {
                hanging.lock().recv().unwrap();
            }
            done.send(thing).unwrap();
            None
        });
        for thing in ["one", "two"] {
            lanes.add("other", NOW, thing);
            assert_eq!(all.recv_timeout(SOON).unwrap(), thing);
        }
        go.send(()).unwrap();
        assert_eq!(all.recv_timeout(SOON).unwrap(), "hang");
    }

    #[test]
    fn a_thread_ends_with_its_work_and_another_comes_with_more() {
        let lanes = Lanes::default();
        let (done, all) = mpsc::channel();
        lanes.start(move |left: u32| {
            done.send(left).unwrap();
            assert_ne!(left, 5, "a defect ends no thread");
            left.checked_sub(1).map(|left| (NOW, left))
        });
        for first in [2, 5, 1] {
            lanes.add("a", NOW, first);
            let last = if first == 5 { 5 } else { 0 };
            while all.recv_timeout(SOON).unwrap() != last {}
            await_that(|| lanes.0.state.lock().lanes.is_empty());
        }
    }

    #[test]
    fn threads_end_with_whoever_has_work_for_them() {
        let (lanes, alive) = (Lanes::default(), Arc::new(()));
        let kept = Arc::clone(&alive);
        lanes.start(move |_: u32| {
            let _ = &kept;
            None
        });
        lanes.add("a", SOON, 1);
        drop(lanes);
        await_that(|| Arc::strong_count(&alive) == 1);
    }

    #[test]
    fn the_same_waits_once_and_not_too_much_waits() {
        let lanes = Lanes::default();
        (0..MOST + 7).for_each(|number| lanes.add("a", NOW, number));
        lanes.add("a", NOW, 3);
        assert_eq!(lanes.pauses().len(), MOST);
        lanes.work_off(NOW, |number| Some((SOON, number)));
        assert_eq!(lanes.pauses().len(), MOST, "what is tried again is not dropped");
    }
}
