//! A domain: its syntax, and the keys of the segments that stand for it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The longest name of a key and the longest value, in bytes (CSI specification, `Topology.segments`).
const LONGEST: usize = 63;

/// How the name of a key begins that stands for a domain that was taken over.
const TAKES: &str = "takes.";

/// The value of that key.
pub const TAKEN: &str = "true";

/// The label that names the only node that can reach a volume.
pub const NODE_LABEL: &str = "node";

/// The key of a segment, as the orchestrator sees it.
pub fn segment_key(plugin: &str, name: &str) -> String {
    format!("{plugin}/{name}")
}

/// A domain: a label with a value, such as `zone=eu-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    label: String,
    value: String,
}

impl Domain {
    /// The domain of this label and this value.
    ///
    /// # Errors
    /// What is wrong with them, for their author. The label may have no dot, although CSI allows it: the key
    /// of a takeover would be ambiguous.
    pub fn new(label: &str, value: &str) -> Result<Self, String> {
        check("the label", label, "-_")?;
        check("the value", value, "-_.")?;
        if label.eq_ignore_ascii_case(NODE_LABEL) {
            return Err(format!("the label {label:?} is taken: it names the node of a local volume"));
        }
        let domain = Self { label: label.to_string(), value: value.to_string() };
        match domain.takeover_name().len() {
            ..=LONGEST => Ok(domain),
            _ => Err(format!(
                "\"{domain}\" is too long: label and value may have {} characters together, so that others \
                 can take the domain over",
                LONGEST - TAKES.len() - ".".len()
            )),
        }
    }

    /// What kind of domain it is: `zone`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Which one of its kind: `eu-1`.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The key of the segment of nodes and pools in this domain; its value is that of the domain.
    pub fn key(&self, plugin: &str) -> String {
        segment_key(plugin, &self.label)
    }

    /// The key of the segment of a node that has taken this domain over; its value is [`TAKEN`].
    pub fn takeover_key(&self, plugin: &str) -> String {
        segment_key(plugin, &self.takeover_name())
    }

    fn takeover_name(&self) -> String {
        format!("{TAKES}{}.{}", self.label, self.value)
    }

    /// The domain that was taken over, if `key` is the key of a takeover.
    pub fn taken_over(plugin: &str, key: &str) -> Option<Self> {
        let name = key.strip_prefix(plugin)?.strip_prefix('/')?.strip_prefix(TAKES)?;
        let (label, value) = name.split_once('.')?;
        Self::new(label, value).ok()
    }
}

/// The first name that repeats an earlier one. To CSI, keys that differ only in the case of their letters are
/// the same.
pub(super) fn repeated<T: AsRef<str>>(names: &[T]) -> Option<&str> {
    let mut seen = BTreeSet::new();
    names.iter().map(AsRef::as_ref).find(|name| !seen.insert(name.to_ascii_lowercase()))
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.label, self.value)
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is no domain: write it as label=value, zone=eu-1"))?;
        Self::new(label.trim(), value.trim())
    }
}

/// Checks that a text is a name by CSI's rules, with only `marks` beside letters and digits.
fn check(what: &str, text: &str, marks: &str) -> Result<(), String> {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inside = text.chars().all(|letter| letter.is_ascii_alphanumeric() || marks.contains(letter));
    match inside && is_end(bytes.first()) && is_end(bytes.last()) && bytes.len() <= LONGEST {
        true => Ok(()),
        false => Err(format!(
            "{what} {text:?}: allowed are up to {LONGEST} letters, digits and any of '{marks}', beginning \
             and ending with a letter or digit"
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_two_keys() {
        let domain: Domain = " zone = eu-1.a_b ".parse().unwrap();
        assert_eq!((domain.label(), domain.value()), ("zone", "eu-1.a_b"));
        assert_eq!(domain.to_string(), "zone=eu-1.a_b");
        assert_eq!(domain.key("org.x"), "org.x/zone");
        let key = domain.takeover_key("org.x");
        assert_eq!(key, "org.x/takes.zone.eu-1.a_b");
        assert_eq!(Domain::taken_over("org.x", &key), Some(domain));
        assert_eq!(Domain::taken_over("org.x", "org.x/zone"), None);
        assert_eq!(Domain::taken_over("org", &key), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = "x".repeat(LONGEST + 1);
        for (text, what) in [
            ("zone", "\"zone\" is no domain"),
            ("=a", "the label \"\""),
            ("zone=", "the value \"\""),
            ("a.b=c", "the label \"a.b\""),
            ("-a=b", "the label \"-a\""),
            ("a=b_", "the value \"b_\""),
            ("a=b=c", "the value \"b=c\""),
            ("zöne=a", "the label \"zöne\""),
            ("zone=a b", "the value \"a b\""),
            ("Node=a", "names the node of a local volume"),
            (&format!("{long}=a"), "up to 63"),
            (&format!("a={long}"), "up to 63"),
        ] {
            let error = text.parse::<Domain>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn every_domain_can_be_taken_over() {
        let fits: Domain = format!("zone={}", "x".repeat(52)).parse().unwrap();
        assert_eq!(fits.takeover_key("p").len(), "p/".len() + LONGEST);
        let error = format!("zone={}", "x".repeat(53)).parse::<Domain>().unwrap_err();
        assert!(error.contains("56 characters together"), "{error}");
    }
}
