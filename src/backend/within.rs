//! Looks at storage that may hang: a caller waits for them no longer than it can afford.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A look at storage.
pub type Look<T> = Box<dyn FnOnce() -> T + Send>;

/// Takes each look in a thread of its own: what it finds, or None if that takes longer than `patience`. Such
/// a look goes on in its thread.
pub fn found_within<N, T: Send + 'static>(
    patience: Duration,
    looks: impl IntoIterator<Item = (N, Look<T>)>,
) -> Vec<(N, Option<T>)> {
    let until = Instant::now() + patience;
    let begin = |(name, look): (N, Look<T>)| {
        let (sender, answer) = mpsc::channel();
        // The receiver of a late answer is gone.
        let look = move || drop(sender.send(look()));
        if let Err(error) = thread::Builder::new().name("look".into()).spawn(look) {
            log::warn!("storage cannot be looked at: {error}");
        }
        (name, answer)
    };
    let begun: Vec<_> = looks.into_iter().map(begin).collect();
    let left = || until.saturating_duration_since(Instant::now());
    begun.into_iter().map(|(name, answer)| (name, answer.recv_timeout(left()).ok())).collect()
}
