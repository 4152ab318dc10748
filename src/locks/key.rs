//! What is locked, and when two requests are the same.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

/// The whole name of an object: what a lock, a node record and a mount of the daemon are filed under.
/// Compared exactly.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    hash: NonZeroU64,
    text: Arc<str>,
}

impl<T: Into<Arc<str>>> From<T> for Key {
    fn from(text: T) -> Self {
        let text = text.into();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { hash: NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN), text }
    }
}

impl Key {
    /// A quick first comparison; good for this process only.
    pub(super) fn hash(&self) -> NonZeroU64 {
        self.hash
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
    fn keys_are_compared_whole() {
        assert_eq!(Key::from("rbd:main:vms::a"), Key::from("rbd:main:vms::a".to_string()));
        assert_ne!(Key::from("rbd:main:vms::a"), Key::from("rbd:main::vms:a"));
    }

    #[test]
    fn another_type_is_never_identical() {
        let number: Box<dyn Identical> = Box::new(7_u32);
        assert!(number.identical(&7_u32));
        assert!(!number.identical(&8_u32));
        assert!(!number.identical(&7_u64));
    }
}
