//! What is locked, and when two requests are the same.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The whole name of an object, for its lock. Keys are compared exactly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl<T: Into<Arc<str>>> From<T> for Key {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The objects of one operation: one or more, each once, sorted. All of them are locked, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

impl KeySet {
    /// The set of these keys; None if there are none.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Option<Self> {
        let mut keys: Vec<Key> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }
}

impl From<Key> for KeySet {
    fn from(key: Key) -> Self {
        Self(vec![key])
    }
}

impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|key| &*key.0).collect();
        f.write_str(&names.join(" and "))
    }
}

/// A request that can be compared with others: two are the same only if every field is equal, secrets
/// included. Any type with `PartialEq` is one.
pub trait Identical: Any + Send {
    /// Whether `other` is of the same type and equal.
    fn identical(&self, other: &dyn Identical) -> bool;
}

impl<T: Any + PartialEq + Send> Identical for T {
    fn identical(&self, other: &dyn Identical) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>().is_some_and(|other| self == other)
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
    fn a_set_has_each_key_once_and_in_one_order() {
        let set = |names: &[&'static str]| KeySet::new(names.iter().copied().map(Key::from));
        assert_eq!(set(&["b", "a", "c", "b", "a"]), set(&["c", "a", "b"]));
        assert_eq!(set(&["b", "a", "b"]).map(|set| set.to_string()).as_deref(), Some("a and b"));
        assert_eq!(set(&[]), None);
    }

    #[test]
    fn another_type_is_never_identical() {
        let number: Box<dyn Identical> = Box::new(7_u32);
        assert!(number.identical(&7_u32));
        assert!(!number.identical(&8_u32));
        assert!(!number.identical(&7_u64));
    }
}
