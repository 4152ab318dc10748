//! Secrets: carried, compared, never shown.

use std::collections::BTreeMap;
use std::fmt;

/// A string that nobody prints: Debug and Display show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one place that hands it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The secrets of a request, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, Secret>);

impl Secrets {
    /// The secret of this name.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name)
    }

    /// How many bytes names and values have together, for the specification's limit.
    pub fn byte_len(&self) -> usize {
        self.0.iter().map(|(name, secret)| name.len() + secret.0.len()).sum()
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, secret)| (name, Secret(secret))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_a_secret() {
        let secrets: Secrets = [("userKey".to_string(), "AQBsesame".to_string())].into_iter().collect();
        let shown = format!("{secrets:?} {:?} {}", secrets.get("userKey"), Secret::from("AQBsesame".to_string()));
        assert!(shown.contains("userKey") && !shown.contains("sesame"), "{shown}");
        assert_eq!(secrets.byte_len(), "userKey".len() + "AQBsesame".len());
    }
}
