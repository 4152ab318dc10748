//! Secrets: values that are compared and handed on, but never shown.

use std::collections::BTreeMap;
use std::fmt;

/// A value that is not shown: printed it is `***`.
///
/// It is not wiped from memory when it is dropped, as gRPC's buffers and the decoded message have copies that
/// cannot be wiped. A process that can read the memory of this one can read the secrets it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, only for the code that passes it to the storage.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The secrets of a request, by name. Names may be shown, values may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, Secret>);

impl Secrets {
    /// The secret of this name.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name)
    }

    /// Bytes of all names and values together: the specification limits them.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, secret)| name.len() + secret.0.len()).sum()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), Secret::new(value))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_never_shown() {
        let secret = Secret::new("AQBhunter2");
        let secrets: Secrets = [("userKey", "AQBhunter2")].into_iter().collect();
        let shown = format!("{secret:?} {secret:#?} {secrets:?} {secrets:#?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("userKey"), "names help to find mistakes: {shown}");
    }

    #[test]
    fn is_compared_by_value() {
        assert_eq!(Secret::new("a"), Secret::new("a"));
        assert_ne!(Secret::new("a"), Secret::new("b"));
        let secrets: Secrets = [("userID", "admin"), ("userKey", "k")].into_iter().collect();
        assert_eq!(secrets.get("userID").map(Secret::reveal), Some("admin"));
        assert_eq!(secrets.size(), 6 + 5 + 7 + 1);
    }
}
