//! What is locked, and when two requests are the same.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Between the parts of a key: no name of an object, pool or cluster can hold it.
const SEPARATOR: char = '\0';

/// The whole name of an object: what a lock, a node record and a mount of the daemon are filed under. Compared exactly.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    hash: NonZeroU64,
    text: Arc<str>,
}

impl Key {
    /// The key of an object. Parts that a backend does not have are empty.
    pub fn new(backend: &str, cluster: &str, pool: &str, namespace: &str, object: &str) -> Self {
        let parts = [backend, cluster, pool, namespace, object];
        let mut text = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
        for part in parts {
            text.push_str(part);
            text.push(SEPARATOR);
        }
        text.pop();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { hash: NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN), text: text.into() }
    }

    /// The whole key, its parts separated by NUL: unique, the same in every run, not for readers.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A quick first comparison; good for this process only.
    pub(super) fn hash(&self) -> NonZeroU64 {
        self.hash
    }
}

impl fmt::Display for Key {
    /// The parts that are not empty, as a path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.text.split(SEPARATOR).filter(|part| !part.is_empty());
        for (place, part) in parts.enumerate() {
            let slash = if place == 0 { "" } else { "/" };
            write!(f, "{slash}{part}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A request that can be told from others: two are the same only if every field is equal, secrets included.
/// Any type with `PartialEq` is one.
pub trait Identical: Any + Send {
    /// Whether `other` is of the same type and equal.
    fn identical(&self, other: &dyn Identical) -> bool;
    /// The request as its own type, for the comparison.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any + PartialEq + Send> Identical for T {
    fn identical(&self, other: &dyn Identical) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for dyn Identical {
    /// Says nothing: requests are never dumped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("request")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        assert_eq!(Key::new("rbd", "main", "vms", "", "a"), Key::new("rbd", "main", "vms", "", "a"));
        assert_ne!(Key::new("rbd", "main", "vms", "", "a"), Key::new("rbd", "main", "", "vms", "a"));
        assert_ne!(Key::new("rbd", "main", "a/b", "", "c"), Key::new("rbd", "main", "a", "b", "c"));
    }

    #[test]
    fn is_shown_as_a_path_of_the_parts_it_has() {
        assert_eq!(Key::new("local", "node-1", "", "", "csi-vol-1").to_string(), "local/node-1/csi-vol-1");
    }

    #[test]
    fn another_type_is_never_identical() {
        let number: Box<dyn Identical> = Box::new(7_u32);
        assert!(number.identical(&7_u32));
        assert!(!number.identical(&8_u32));
        assert!(!number.identical(&7_u64));
    }
}
