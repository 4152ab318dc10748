//! The descriptions of these locks: one JSON value with a version, for instance
//! `{"deletion":{"controller":"0000aaaa"},"version":1}`. Only the description is JSON: the cluster compares
//! tags and cookies by their bytes, so these are fixed words.
//!
//! A volume with a description of a later version counts as in use: it is neither changed nor removed.

use serde_json::{Value, json};

use crate::backend::ceph::locks::LockHolder;
use crate::backend::creation_record::{VERSION, read_shared};
use crate::error::{Kind, Result};

/// The description of a lock of this kind.
pub(crate) fn write(kind: &str, said: Value) -> String {
    json!({ "version": VERSION, kind: said }).to_string()
}

/// What the holder's description says of this kind; None if it says nothing, or is not cephlet's.
///
/// # Errors
/// Precondition: a later version has written it.
pub(crate) fn read(holder: &LockHolder, kind: &str) -> Result<Option<Value>> {
    match read_shared::<Value>(&holder.description) {
        Ok(text) => Ok(text.get(kind).cloned()),
        Err(error) if error.kind() == Kind::Internal => Ok(None),
        Err(error) => Err(error.context(format_args!("the lock that {:?} holds on it", holder.cookie))),
    }
}

/// The text under `key`; empty if there is none.
pub(crate) fn word<'a>(said: &'a Value, key: &str) -> &'a str {
    said.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn holder(description: &str) -> LockHolder {
        let (cookie, description) = ("n1".into(), description.into());
        LockHolder {
            cookie,
            description,
            shared: None,
            client: "client.7".into(),
            address: "10.0.0.7:0/7".into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_by_its_kind() {
        let text = write("deletion", json!({ "controller": "0000aaaa" }));
        assert_eq!(text, r#"{"deletion":{"controller":"0000aaaa"},"version":1}"#);
        let said = read(&holder(&text), "deletion").unwrap().unwrap();
        assert_eq!((word(&said, "controller"), word(&said, "x")), ("0000aaaa", ""));
        assert_eq!(read(&holder(&text), "client").unwrap(), None);
    }

    #[test]
    fn a_later_version_is_refused_and_what_is_no_cephlet_says_nothing() {
        let error = read(&holder(r#"{"version":2,"lease":{}}"#), "deletion").unwrap_err();
        assert!(error.kind() == Kind::Precondition && error.message().contains("later cephlet"), "{error}");
        for other in ["", "by hand", "{}", r#"{"deletion":{}}"#] {
            assert_eq!(read(&holder(other), "deletion").unwrap(), None, "{other}");
        }
    }
}
