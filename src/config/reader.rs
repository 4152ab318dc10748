//! Takes variables out of an environment, keeps what came from where, and collects every mistake.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::nearest::nearest;
use super::values::Parsed;

/// Names that are ours: one that we do not know is a mistake.
const PREFIX: &str = "CEPHLET_";

/// Variables of ours that are not settings.
#[cfg(feature = "crash-points")]
const OTHERS: [&str; 1] = ["CEPHLET_CRASH_AT"];
#[cfg(not(feature = "crash-points"))]
const OTHERS: [&str; 0] = [];

/// A variable: its name and what it is for.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was set.
    Default,
    /// The variable itself was set.
    Environment,
    /// systemd's variable of this name was set.
    Systemd(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment => f.write_str("environment"),
            Self::Systemd(variable) => write!(f, "${variable}"),
        }
    }
}

/// A setting that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// Its value, as it would be written.
    pub value: String,
    /// Where the value came from.
    pub origin: Origin,
    /// What it is for.
    pub meaning: &'static str,
}

/// Something wrong with a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The variable.
    pub variable: String,
    /// What was found; none: it is not set.
    pub found: Option<String>,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}={found:?} {}", self.variable, self.problem),
            None => write!(f, "{} {}", self.variable, self.problem),
        }
    }
}

/// An environment that is being read.
#[derive(Debug)]
pub(super) struct Reader {
    variables: BTreeMap<String, Option<String>>,
    pub(super) settings: Vec<Setting>,
    pub(super) mistakes: Vec<Mistake>,
}

impl Reader {
    /// A reader of `variables`; a value that is no UTF-8 becomes a mistake once somebody asks for it.
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let known = variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok())));
        Self { variables: known.collect(), settings: Vec::new(), mistakes: Vec::new() }
    }

    /// The value of a variable. None if there is a mistake in it, or there is neither a value nor a default.
    pub(super) fn read<T>(
        &mut self,
        variable: &Variable,
        default: Option<(String, Origin)>,
        parse: impl FnOnce(&str) -> Parsed<T>,
    ) -> Option<T> {
        let (value, origin) = match self.variables.get(variable.name) {
            Some(Some(value)) => (value.clone(), Origin::Environment),
            Some(None) => return self.mistake(variable.name, None, "is not valid UTF-8"),
            None => match default {
                Some(default) => default,
                None => return self.mistake(variable.name, None, format!("is not set: {}", variable.meaning)),
            },
        };
        if value.is_empty() {
            return self.mistake(variable.name, None, "is set but empty: give it a value, or unset it to get the default");
        }
        match parse(&value) {
            Ok(parsed) => {
                self.settings.push(Setting { name: variable.name, value, origin, meaning: variable.meaning });
                Some(parsed)
            }
            Err(problem) => self.mistake(variable.name, Some(value), problem),
        }
    }

    /// A directory that systemd has made for the service: the first of the list in `name`.
    pub(super) fn systemd(&self, name: &'static str) -> Option<(String, Origin)> {
        let list = self.variables.get(name)?.as_ref()?;
        let first = list.split(':').next().filter(|first| !first.is_empty())?;
        Some((first.to_owned(), Origin::Systemd(name)))
    }

    /// A variable that is not ours and may be anything.
    pub(super) fn foreign(&self, name: &str) -> Option<String> {
        self.variables.get(name)?.clone().filter(|value| !value.is_empty())
    }

    /// Every variable with our prefix that is not in `known` is a mistake.
    pub(super) fn refuse_unknown(&mut self, known: &[&Variable]) {
        let names = || known.iter().map(|variable| variable.name).chain(OTHERS);
        let unknown: Vec<String> = self
            .variables
            .keys()
            .filter(|name| name.starts_with(PREFIX) && !names().any(|known| known == *name))
            .cloned()
            .collect();
        for name in unknown {
            let problem = match nearest(&name, names()) {
                Some(meant) => format!("is not a variable of cephlet; did you mean {meant}?"),
                None => String::from("is not a variable of cephlet; `cephlet config` lists those it has"),
            };
            self.mistake::<()>(&name, None, problem);
        }
    }

    /// Notes a mistake; there is no value then.
    pub(super) fn mistake<T>(&mut self, variable: &str, found: Option<String>, problem: impl Into<String>) -> Option<T> {
        self.mistakes.push(Mistake { variable: variable.into(), found, problem: problem.into() });
        None
    }
}
