//! The name of this node, as its directories remember it.
//!
//! The name is part of the IDs of local volumes and of the node's records about them. Under another name all
//! of that would belong to another node, and mounted volumes would count as absent. So the state directory
//! and the directory of local volumes each have a file `node` with one JSON value:
//! `{"version":1,"node":"b","earlier":["a"]}`. A daemon does not start under another name.
//! [`NodeName::renamed`] keeps the earlier names, and an ID with any of them means the same volume.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::sys::file;

/// The first field of the IDs whose second field is the name of a node.
pub const LOCAL: &str = "local";

/// The name of the file in each directory.
pub const FILE: &str = "node";

/// The only version so far. A file with a higher version comes from a later release.
const VERSION: u32 = 1;

/// The present name and every earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    current: String,
    /// All names, in the order of their first use.
    all: Vec<String>,
}

/// The value in the file.
#[derive(Serialize, Deserialize)]
struct Remembered {
    version: u32,
    node: String,
    /// In the order of their first use. The present name is among them if the node has taken it back.
    earlier: Vec<String>,
}

impl NodeName {
    /// A node that never had another name.
    pub fn new(name: &str) -> Self {
        Self { current: name.to_string(), all: vec![name.to_string()] }
    }

    /// The present name.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// The first name. It stays the same through every renaming, so keys are made of it.
    pub fn first(&self) -> &str {
        self.all.first().map_or(&self.current, String::as_str)
    }

    /// Whether the node has this name or had it.
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|own| own == name)
    }

    /// The same node under a new name.
    #[must_use]
    pub fn renamed(&self, new: &str) -> Self {
        self.joined(&Self::new(new)).called(new)
    }

    /// The same node with the names of another directory as well.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let further = other.all.iter().filter(|name| !self.has(name));
        Self { current: self.current.clone(), all: self.all.iter().chain(further).cloned().collect() }
    }

    fn called(self, name: &str) -> Self {
        Self { current: name.to_string(), ..self }
    }

    /// The name in a file; None where there is no file.
    ///
    /// # Errors
    /// The file cannot be read or understood.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let wrong = |what: &str| {
            Error::internal(format!("{} {what}: restore it, nothing is changed until then", path.display()))
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format_args!("read {}", path.display()), &error)),
        };
        let Remembered { version, node, earlier } = serde_json::from_str(&text)
            .map_err(|error| wrong(&format!("does not hold the name of a node ({error})")))?;
        if version != VERSION {
            return Err(wrong(&format!("has version {version}, this release knows {VERSION} only")));
        }
        let (first, rest) = earlier.split_first().unwrap_or((&node, &[]));
        let all = rest.iter().fold(Self::new(first), |names, name| names.renamed(name));
        Ok(Some(all.renamed(&node)))
    }

    /// As [`NodeName::read`], for a daemon that is called `name`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where the file has another name.
    pub fn recall(path: &Path, name: &str) -> Result<Option<Self>> {
        let found = Self::read(path)?;
        match &found {
            Some(known) if known.current != name => Err(another(path, &known.current, name)),
            _ => Ok(found),
        }
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, path: &Path) -> Result<()> {
        let earlier = match self.all.split_last() {
            Some((last, earlier)) if *last == self.current => earlier,
            _ => &self.all,
        };
        let value = Remembered { version: VERSION, node: self.current.clone(), earlier: earlier.to_vec() };
        let text = serde_json::to_string(&value)
            .map_err(|error| Error::internal(format!("{} cannot be written: {error}", path.display())))?;
        file::write_whole(path, format!("{text}\n"))
            .map_err(|error| Error::io(format_args!("write {}", path.display()), &error))
    }

    /// The same at a start. A full disk does not prevent the start, as volumes can be deleted then.
    ///
    /// # Errors
    /// Those of writing, except for a full disk.
    pub fn write_if_room(&self, path: &Path) -> Result<()> {
        match self.write(path) {
            Err(error) if error.kind() == Kind::NoSpace => {
                log::warn!("the node's name is not remembered until the next start: {error}");
                Ok(())
            }
            outcome => outcome,
        }
    }
}

fn another(path: &Path, known: &str, name: &str) -> Error {
    Error::precondition(format!(
        "{} says that this node is {known:?}, and CEPHLET_NODE_ID (or the host name) says {name:?}: what is in \
         use here would count as another node's. Either keep the name: set CEPHLET_NODE_ID={known} and start \
         again; or give the node the new one while cephlet is stopped: `cephlet node rename {name:?}`, with the \
         settings of the daemon, then start again",
        path.display()
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn round_trip(name: &NodeName) -> (NodeName, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        name.write(&path).unwrap();
        (NodeName::read(&path).unwrap().unwrap(), fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn the_first_name_stays_first_whatever_the_node_is_called() {
        let a = NodeName::new("a");
        let b = a.renamed("b");
        let back = b.renamed("a");
        for (name, text) in [
            (&a, r#"{"version":1,"node":"a","earlier":[]}"#),
            (&b, r#"{"version":1,"node":"b","earlier":["a"]}"#),
            (&back, r#"{"version":1,"node":"a","earlier":["a","b"]}"#),
            (&back.renamed("c"), r#"{"version":1,"node":"c","earlier":["a","b"]}"#),
        ] {
            assert_eq!(round_trip(name), (name.clone(), format!("{text}\n")));
            assert_eq!(name.first(), "a");
        }
        assert!(back.has("a") && back.has("b") && !back.has("c"));
        assert_eq!(b.renamed("b"), b, "a renaming can be repeated");
    }

    #[test]
    fn what_a_later_release_wrote_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in [r#"{"version":2,"node":"a","earlier":[]}"#, "", "a", r#"{"version":1}"#] {
            fs::write(&path, text).unwrap();
            let refused = NodeName::recall(&path, "a").unwrap_err().to_string();
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
