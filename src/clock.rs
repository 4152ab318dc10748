//! Timestamps in UTC (ISO 8601), and the clock that all processes of one boot share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

const DAY: i64 = 86_400;

/// `2026-11-21T06:01:19Z`: the time in UTC to the second, as RFC 3339 writes it.
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = unix_seconds(time);
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let second = seconds.rem_euclid(DAY);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The time since boot, including suspended time. All processes of one boot see the same clock.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs().try_into().unwrap_or_default())
}

/// Whole seconds since 1970, rounded down, so that a time before 1970 is right as well.
fn unix_seconds(time: SystemTime) -> i64 {
    let whole = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since.as_secs()),
        Err(before) => -whole(before.duration().as_secs()) - i64::from(before.duration().subsec_nanos() > 0),
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years begin in March
/// here, so that the leap day is the last of its year (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", civil_from_days).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A time, to the second, as `ceph` prints it (`2026-11-21T08:32:30.332627+0000`), or rbd-mirror with TZ=UTC
/// (`2026-11-24 22:24:38`); None for any other text.
pub fn timestamp(text: &str) -> Option<SystemTime> {
    let numbers = text.get(..19)?.split(['-', 'T', ' ', ':']).map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let &[year, month, day, hour, minute, second] = numbers.as_slice() else { return None };
    instant([year, month, day], [hour, minute, second])
}

/// The time for a date (year, month, day) and a time of day (hours, minutes, seconds); None if a number is
/// out of range.
pub fn instant([year, month, day]: [u64; 3], [hour, minute, second]: [u64; 3]) -> Option<SystemTime> {
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_1970(year, month, day)?;
    Some(UNIX_EPOCH + Duration::from_secs(days * 86_400 + hour * 3_600 + minute * 60 + second))
}

/// Days from 1970-01-01, in years that begin in March, so that the leap day is the last of its year (Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil).
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn known_instants_are_right() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z", "a leap year though divisible by 100");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z", "2100 has no leap day");
        assert_eq!(at(1_795_240_879), "2026-11-21T06:01:19Z");
    }

    #[test]
    fn fractions_are_cut_and_times_before_1970_are_right() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1_999)), "1970-01-01T00:00:01Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_millis(1)), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut before = civil(-1);
        for day in 0..146_097 {
            let now = civil(day);
            let same_month = now == (before.0, before.1, before.2 + 1);
            let next_month = now.2 == 1 && (now.0 * 12 + now.1) == (before.0 * 12 + before.1 + 1);
            assert!(same_month || next_month, "{before:?} then {now:?}");
            before = now;
        }
    }
}
