//! The domains of a node as its operator wrote them down: in CEPHLET_TOPOLOGY itself, or in a file.

use std::path::PathBuf;

use super::domain::{Domain, repeated};
use crate::files::Files;

/// Where a node's own domains are written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// These domains, outermost first.
    Given(Vec<Domain>),
    /// In this file.
    In(PathBuf),
}

impl Default for Labels {
    fn default() -> Self {
        Self::Given(Vec::new())
    }
}

impl Labels {
    /// Parses `region=eu,zone=eu-1,rack=r7`; the text is empty for a node without a place.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn given(text: &str) -> Result<Self, String> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        distinct(parts.map(str::parse).collect::<Result<_, _>>()?).map(Self::Given)
    }

    pub(super) fn read(&self, files: &mut Files) -> Result<Vec<Domain>, String> {
        match self {
            Self::Given(domains) => Ok(domains.clone()),
            Self::In(path) => {
                parse_lines(&files.read(path)?).map_err(|what| format!("{}: {what}", path.display()))
            }
        }
    }
}

/// One domain a line; `#` begins a comment. A file without domains is refused: it may be about to be written.
fn parse_lines(text: &str) -> Result<Vec<Domain>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let numbered = lines.enumerate().filter(|(_, line)| !line.is_empty());
    let parse = |(at, line): (usize, &str)| line.parse().map_err(|what| format!("line {}: {what}", at + 1));
    let domains = numbered.map(parse).collect::<Result<Vec<Domain>, _>>()?;
    if domains.is_empty() {
        return Err(String::from("it has no label: write label=value, one a line, the outermost first"));
    }
    distinct(domains)
}

fn distinct(domains: Vec<Domain>) -> Result<Vec<Domain>, String> {
    let labels: Vec<&str> = domains.iter().map(Domain::label).collect();
    match repeated(&labels) {
        None => Ok(domains),
        Some(twice) => Err(format!(
            "the label {twice:?} is there twice: a node has one value of it, and upper and lower case are the \
             same"
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(domains: &[Domain]) -> Vec<String> {
        domains.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn labels_keep_their_order() {
        let Labels::Given(domains) = Labels::given("region=eu, zone=eu-1,rack=r7").unwrap() else { panic!() };
        assert_eq!(texts(&domains), ["region=eu", "zone=eu-1", "rack=r7"]);
        assert_eq!(Labels::given(""), Ok(Labels::default()));
        let file = "# where it stands\n\nregion=eu\n  zone = eu-1   # the hall\nrack=r7\n";
        assert_eq!(texts(&parse_lines(file).unwrap()), ["region=eu", "zone=eu-1", "rack=r7"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("zone=a,", "\"\" is no domain"),
            ("zone=a,Zone=b", "\"Zone\" is there twice"),
            ("zone=", "the value \"\""),
        ] {
            let error = Labels::given(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        for (text, what) in [
            ("region=eu\n\nzone eu-1\n", "line 3: \"zone eu-1\" is no domain"),
            ("zone=a\nzone=b\n", "\"zone\" is there twice"),
            ("# nothing\n", "it has no label"),
        ] {
            let error = parse_lines(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
