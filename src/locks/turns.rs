//! Waking calls one after another, outside of every mutex.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that wakes one call.
pub(super) type Task = Box<dyn FnOnce()>;

thread_local! {
    /// The wakes that came up while this thread was waking somebody; `None` while it is not.
    static LATER: RefCell<Option<VecDeque<Task>>> = const { RefCell::new(None) };
}

/// Runs the tasks in order. A task that frees a lock (its call was dropped at once: the pool has stopped) has
/// the next wake put behind this one instead of run inside it, or a long queue would be as many stack frames
/// deep. A task that panics is logged and the rest still runs: this may be the drop of a guard during another
/// panic.
pub(super) fn in_turn(tasks: impl Iterator<Item = Task>) {
    let Some(first) = begin(tasks) else { return };
    let mut next = Some(first);
    while let Some(task) = next {
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            log::error!(
                "a call panicked when its turn came; its lock is freed and the next one has its turn"
            );
        }
        next = LATER.with_borrow_mut(|later| {
            let task = later.as_mut().and_then(VecDeque::pop_front);
            if task.is_none() {
                *later = None;
            }
            task
        });
    }
}

/// Puts the tasks in this thread's queue. Gives the first one if it is the caller who has to work the queue
/// off.
fn begin(tasks: impl Iterator<Item = Task>) -> Option<Task> {
    LATER.with_borrow_mut(|later| {
        let busy = later.is_some();
        let queue = later.get_or_insert_default();
        queue.extend(tasks);
        if busy {
            return None;
        }
        let first = queue.pop_front();
        if first.is_none() {
            *later = None;
        }
        first
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn one(task: impl FnOnce() + 'static) -> impl Iterator<Item = Task> {
        std::iter::once(Box::new(task) as Task)
    }

    #[test]
    fn a_wake_inside_a_wake_runs_after_it() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (outer, inner) = (seen.clone(), seen.clone());
        in_turn(one(move || {
            in_turn(one(move || inner.borrow_mut().push("inner")));
            outer.borrow_mut().push("outer");
        }));
        assert_eq!(*seen.borrow(), ["outer", "inner"]);
    }

    #[test]
    fn a_panic_stops_nobody_else() {
        let seen = Rc::new(RefCell::new(0));
        let count = seen.clone();
        let tasks: [Task; 2] =
            [Box::new(|| panic!("on purpose")), Box::new(move || *count.borrow_mut() += 1)];
        in_turn(tasks.into_iter());
        assert_eq!(*seen.borrow(), 1);
        let count = seen.clone();
        in_turn(one(move || *count.borrow_mut() += 1));
        assert_eq!(*seen.borrow(), 2, "the thread must not be left in the state of waking");
    }
}
