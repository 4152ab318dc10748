//! ceph.conf and keyrings: sections of settings, as Ceph reads them (`ConfFile` in its sources).

use std::collections::BTreeMap;

/// The settings of a file, by section.
#[derive(Debug, Default)]
pub(super) struct Conf {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl Conf {
    /// Reads `text`.
    ///
    /// # Errors
    /// The number of a line that is neither a section nor a setting. The line is not shown: it may be part of
    /// a key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut conf = Self::default();
        let mut section = String::from("global");
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        for (number, line) in joined.lines().enumerate() {
            let line = without_comment(line).trim();
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name.trim().to_string();
            } else if let Some((name, value)) = line.split_once('=') {
                let value = value.trim().trim_matches(['"', '\'']).to_string();
                conf.sections.entry(section.clone()).or_default().insert(normal(name), value);
            } else if !line.is_empty() {
                return Err(format!("line {} is neither a [section] nor a setting with '='", number + 1));
            }
        }
        Ok(conf)
    }

    /// A setting for a client: from the most specific section that has it.
    pub(super) fn get(&self, user: &str, name: &str) -> Option<&str> {
        [&format!("client.{user}"), "client", "global"]
            .into_iter()
            .find_map(|section| self.in_section(section, name))
    }

    /// A setting of this very section.
    pub(super) fn in_section(&self, section: &str, name: &str) -> Option<&str> {
        self.sections.get(section)?.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// `mon host`, `mon-host` and `mon_host` are the same.
fn normal(name: &str) -> String {
    name.split([' ', '\t', '_', '-']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

/// The part before `#` or `;`, unless these are in quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let end = line.find(|letter: char| {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        quote.is_none() && matches!(letter, '#' | ';')
    });
    &line[..end.unwrap_or(line.len())]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_in_many_ways() {
        for name in ["mon host", "mon_host", "mon-host", "\tmon  host "] {
            let conf = Conf::parse(&format!("[global]\n{name} = 10.0.0.1\n")).unwrap();
            assert_eq!(conf.get("admin", "mon_host"), Some("10.0.0.1"), "{name}");
        }
    }

    #[test]
    fn comments_quotes_and_continued_lines() {
        let conf = Conf::parse(
            "# a\n; b\n[global] # c\nfsid = x ; d\nmon host = \"a#1\" # e\npath = a, \\\n b\nempty =\n",
        )
        .unwrap();
        let get = |name| conf.get("admin", name);
        assert_eq!((get("fsid"), get("mon_host")), (Some("x"), Some("a#1")));
        assert_eq!(get("path").map(|path| path.split_whitespace().collect::<String>()), Some("a,b".into()));
        assert_eq!(get("empty"), None);
    }

    #[test]
    fn the_most_specific_section_wins() {
        let conf = Conf::parse(
            "keyring = g\n[client]\nkeyring = c\n[client.web]\nkeyring = w\n[mon]\nkeyring = m\n",
        )
        .unwrap();
        assert_eq!((conf.get("web", "keyring"), conf.get("admin", "keyring")), (Some("w"), Some("c")));
        assert_eq!(conf.in_section("global", "keyring"), Some("g"));
    }

    #[test]
    fn a_broken_line_is_numbered_and_not_shown() {
        let error = Conf::parse("[client.a]\nAQDkey\n").unwrap_err();
        assert!(error.starts_with("line 2 ") && !error.contains("AQD"), "{error}");
    }
}
