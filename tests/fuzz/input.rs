//! Samples that are changed at random.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::clusters::Credentials;
use crate::secrets::Secret;

/// Inputs that have crashed many parsers.
const INTERESTING: [&[u8]; 9] =
    [b"18446744073709551615", b"-1", b"\0", b"\xff", b"%", b"\\0", b"[[[[[[[[", b"\"", b"9999-99-99"];

/// Reads this many changed samples.
pub fn rounds(count: usize, samples: &[Vec<u8>], read: impl Fn(&[u8])) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    samples.iter().for_each(|sample| try_to_read(sample, &read));
    (0..count).for_each(|_| try_to_read(&random.changed(samples), &read));
}

/// Reads changed samples for a minute, different ones each time.
pub fn for_a_minute(samples: &[Vec<u8>], read: impl Fn(&[u8])) {
    let drawn = crate::sys::random::hex(8).unwrap();
    let mut random = Random(u64::from_str_radix(&drawn, 16).unwrap() | 1);
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        (0..100).for_each(|_| try_to_read(&random.changed(samples), &read));
    }
}

/// Shows the input that causes a panic.
fn try_to_read(input: &[u8], read: &impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| read(input))) {
        eprintln!("the input: b\"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

/// xorshift64: enough for changes at random, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }

    /// One of the samples with one to eight changes.
    fn changed(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut input = samples[self.below(samples.len())].clone();
        for _ in 0..=self.below(8) {
            let at = self.below(input.len() + 1);
            let end = at + self.below(input.len() - at + 1).min(64);
            match self.below(6) {
                0 => drop(input.drain(at..end)),
                1 => input.truncate(at),
                2 => drop(input.splice(at..end, INTERESTING[self.below(INTERESTING.len())].iter().copied())),
                3 => drop(input.splice(at..at, input[at..end].to_vec())),
                4 => {
                    let other = &samples[self.below(samples.len())];
                    let from = self.below(other.len() + 1);
                    let part = &other[from..other.len().min(from + 64)];
                    drop(input.splice(at..end, part.iter().copied()));
                }
                _ if at < input.len() => input[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        input
    }
}

/// A user of a cluster.
pub fn credentials() -> Credentials {
    Credentials { user: "csi".into(), key: Some(Secret::new("c2VjcmV0")) }
}
