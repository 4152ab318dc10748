//! Numbers at random.

use std::time::{SystemTime, UNIX_EPOCH};

/// xorshift64: the same numbers from the same seed.
pub struct Dice(pub u64);

impl Dice {
    /// With a seed from the clock, which the log shows.
    pub fn random() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64) | 1;
        eprintln!("seed {seed:#x}");
        Self(seed)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("a small number")
    }
}
