//! Tests of `jobs`.
#![allow(clippy::unwrap_used)]

use super::*;
use std::sync::mpsc;

const NOW: Duration = Duration::ZERO;
/// Long enough for anything that should happen soon, on the slowest machine.
const SOON: Duration = Duration::from_secs(300);

#[test]
fn each_is_tried_and_the_first_failure_is_given() {
    let mut tried = Vec::new();
    let outcome = try_each(1..=4, |number| {
        tried.push(number);
        match number {
            2 => Err(Error::unavailable("two")),
            4 => Err(Error::unavailable("four")),
            _ => Ok(()),
        }
    });
    assert_eq!(outcome.unwrap_err().message(), "two");
    assert_eq!(tried, [1, 2, 3, 4]);
    assert!(try_each([(), ()], Ok).is_ok());
}

#[track_caller]
fn await_that(happens: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !happens() {
        assert!(Instant::now() < end, "it has not happened within {SOON:?}");
        thread::yield_now();
    }
}

/// A job that sends its name when it is done.
fn say(to: &mpsc::Sender<&'static str>, what: &'static str) -> impl FnMut(&Call) -> Result<Requeue> + use<> {
    let to = to.clone();
    move |_| {
        to.send(what).unwrap();
        Ok(Requeue::Never)
    }
}

#[test]
fn a_lane_that_hangs_holds_up_no_other() {
    let queue = JobQueue::default();
    let (done, all) = mpsc::channel();
    let (go, hanging) = mpsc::channel::<()>();
    let mut last = say(&done, "hung");
    queue.add("away", "hang", NOW, move |call| {
        hanging.recv().unwrap();
        last(call)
    });
    queue.add("away", "later", SOON, say(&done, "later"));
    queue.start();
    for what in ["one", "two"] {
        queue.add("other", what, NOW, say(&done, what));
        assert_eq!(all.recv_timeout(SOON).unwrap(), what);
    }
    go.send(()).unwrap();
    assert_eq!(all.recv_timeout(SOON).unwrap(), "hung");
}

#[test]
fn a_thread_ends_with_its_work_and_another_comes_with_more() {
    let queue = JobQueue::default();
    queue.start();
    for first in [2, 5, 1] {
        let (done, all) = mpsc::channel();
        let mut left = first;
        queue.add("a", "count down", NOW, move |_| {
            done.send(left).unwrap();
            assert_ne!(left, 5, "a defect ends no thread");
            left -= 1;
            Ok(if left == 0 { Requeue::Never } else { Requeue::After(NOW) })
        });
        let last = if first == 5 { 5 } else { 1 };
        while all.recv_timeout(SOON).unwrap() != last {}
        await_that(|| queue.0.state.lock().lanes.is_empty());
    }
}

#[test]
fn threads_end_when_the_queue_is_stopped() {
    let (queue, alive) = (JobQueue::default(), Arc::new(()));
    let kept = Arc::clone(&alive);
    queue.start();
    queue.add("a", "wait", SOON, |_| Ok(Requeue::Never));
    let (begun, began) = mpsc::channel();
    queue.add("b", "until the end", NOW, move |call| {
        let _ = &kept;
        begun.send(()).unwrap();
        await_that(|| call.expired());
        Ok(Requeue::Never)
    });
    began.recv_timeout(SOON).unwrap();
    let shared = Arc::downgrade(&queue.0);
    queue.stop();
    drop(queue);
    await_that(|| Arc::strong_count(&alive) == 1 && shared.strong_count() == 0);
}

#[test]
fn a_job_that_fails_is_tried_again_later() {
    let queue = JobQueue::default();
    queue.add("a", "fail", NOW, |_| Err(Error::unavailable("the cluster is down")));
    queue.work_off(NOW);
    let waiting = queue.waiting();
    assert!(waiting.len() == 1 && waiting[0].1 > RETRY / 2, "{waiting:?}");
}

#[test]
fn a_job_that_is_refused_is_tried_again_ever_later() {
    let queue = JobQueue::default();
    queue.add("a", "refused", NOW, |_| Err(Error::precondition("there is no such pool")));
    for doublings in [0, 1, 2, 3, 4, 5, 6, 6] {
        let pause = RETRY * 2u32.pow(doublings);
        queue.work_off(100 * RETRY);
        let [(_, left)] = queue.waiting()[..] else { panic!("{:?}", queue.waiting()) };
        assert!(left > pause - RETRY / 2 && left <= pause, "{left:?} of {pause:?}");
    }
}

#[test]
fn a_job_that_is_added_while_it_runs_waits_once() {
    let queue = Arc::new(JobQueue::default());
    let adds = Arc::clone(&queue);
    queue.add("a", "again", NOW, move |_| {
        adds.add("a", "again", SOON, |_| Ok(Requeue::Never));
        Ok(Requeue::After(3 * SOON))
    });
    queue.work_off(NOW);
    let [(_, left)] = queue.waiting()[..] else { panic!("{:?}", queue.waiting()) };
    assert!(left <= SOON, "{left:?}");
}

#[test]
fn what_is_added_again_is_due_at_the_earlier_of_both() {
    let queue = JobQueue::default();
    let add = |pause| queue.add("a", "a", pause, |_| Ok(Requeue::Never));
    for (pause, due) in [(4 * SOON, 4 * SOON), (2 * SOON, 2 * SOON), (3 * SOON, 2 * SOON)] {
        add(pause);
        let waiting = queue.waiting();
        let [(_, left)] = waiting[..] else { panic!("{waiting:?}") };
        assert!(left <= due && left > due - SOON, "{left:?}");
    }
}

#[test]
fn a_name_waits_once_and_not_too_many_wait() {
    let queue = JobQueue::default();
    let add = |number: usize| {
        queue.add("a", number.to_string(), NOW, |_| Ok(Requeue::After(SOON)));
    };
    (0..MAX_JOBS + 7).for_each(add);
    add(3);
    assert_eq!(queue.waiting().len(), MAX_JOBS);
    queue.work_off(NOW);
    assert_eq!(queue.waiting().len(), MAX_JOBS, "what is put back is not refused");
}
