//! When the file is written: at once at first, then only after a change, and not too often.

use std::time::{Duration, Instant};

/// The least time from one look to the next.
const PAUSE: Duration = Duration::from_secs(15);

/// The writer's memory of its last look.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When it was, and how many changes there were until then.
    pub(super) last: Option<(Instant, u64)>,
    /// Numbers may have changed since, although nothing was counted.
    pub(super) is_restless: bool,
}

impl Pace {
    /// How long to wait for the next look, at this time and after so many changes; None until the next
    /// change.
    pub(super) fn wait(&self, now: Instant, changes: u64) -> Option<Duration> {
        let Some((at, seen)) = self.last else { return Some(Duration::ZERO) };
        let left = PAUSE.saturating_sub(now.saturating_duration_since(at));
        (changes != seen || self.is_restless).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_look_comes_after_a_change_and_not_too_often() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        assert_eq!(pace.wait(begin, 0), Some(Duration::ZERO), "the first one");
        pace.last = Some((begin, 0));
        assert_eq!(pace.wait(begin + 1000 * SECOND, 0), None);
        assert_eq!(pace.wait(begin + 10 * SECOND, 1), Some(5 * SECOND));
        assert_eq!(pace.wait(begin + 15 * SECOND, 1), Some(Duration::ZERO));
        pace.last = Some((begin + 15 * SECOND, 1));
        assert_eq!(pace.wait(begin + 16 * SECOND, 1), None);
        assert_eq!(pace.wait(begin + 1000 * SECOND, 2), Some(Duration::ZERO), "a change after a long time");
    }

    #[test]
    fn what_is_under_way_is_looked_at_again() {
        let begin = Instant::now();
        let pace = Pace { last: Some((begin, 7)), is_restless: true };
        assert_eq!(pace.wait(begin + SECOND, 7), Some(14 * SECOND));
        assert_eq!(pace.wait(begin + 15 * SECOND, 7), Some(Duration::ZERO));
    }
}
