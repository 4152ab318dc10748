//! Remembers answers of a cluster, so that it need not be asked again. An answer may be forgotten at any
//! time: a full cache forgets everything, and keeps no order.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Result;

/// The most entries that are remembered.
const MAX_ENTRIES: usize = 8192;

/// Values by key: at most [`MAX_ENTRIES`], none of them older than the cache allows.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: Mutex<HashMap<K, (Instant, V)>>,
    max_age: Option<Duration>,
}

impl<K, V> Default for Cache<K, V> {
    /// A cache for values that never change.
    fn default() -> Self {
        Self { entries: Mutex::default(), max_age: None }
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    /// A cache for values that may change, and count for this long.
    pub fn for_at_most(max_age: Duration) -> Self {
        Self { max_age: Some(max_age), ..Self::default() }
    }

    /// The value that is remembered under a key.
    pub fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock();
        let (since, value) = entries.get(key)?;
        self.max_age.is_none_or(|age| since.elapsed() < age).then(|| value.clone())
    }

    /// Whether anything is remembered under a key.
    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The value that is remembered under a key, else the answer of `ask`, which is remembered from now on.
    pub fn get_or_ask(&self, key: K, ask: impl FnOnce() -> Result<V>) -> Result<V> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = ask()?;
        self.remember(key, value.clone());
        Ok(value)
    }

    /// Remembers a value.
    pub fn remember(&self, key: K, value: V) {
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(key, (Instant::now(), value));
    }

    /// Forgets the value under a key.
    pub fn forget(&self, key: &K) {
        self.entries.lock().remove(key);
    }
}

/// A cache whose values count for a minute.
#[derive(Debug)]
pub(crate) struct Brief<V>(pub Cache<String, V>);

impl<V: Clone> Default for Brief<V> {
    fn default() -> Self {
        Self(Cache::for_at_most(Duration::from_secs(60)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn what_is_too_old_is_asked_anew() {
        let (lasting, short) = (Cache::default(), Cache::for_at_most(Duration::ZERO));
        for cache in [&lasting, &short] {
            cache.remember("a", 1);
        }
        assert_eq!((lasting.get(&"a"), short.get(&"a")), (Some(1), None));
        assert_eq!(lasting.get_or_ask("a", || Ok(2)).unwrap(), 1);
        assert_eq!(short.get_or_ask("a", || Ok(2)).unwrap(), 2);
        assert!(lasting.get_or_ask("b", || Err(Error::unavailable("down"))).is_err());
        assert!(!lasting.contains(&"b"), "a failure is not remembered");
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        let cache = Cache::default();
        (0..MAX_ENTRIES + 7).for_each(|key| cache.remember(key, ()));
        assert_eq!(cache.entries.lock().len(), 7);
        assert!(cache.contains(&MAX_ENTRIES) && !cache.contains(&0));
    }
}
