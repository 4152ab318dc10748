//! Keys of Ceph users: where they are found and what they look like. This module never shows a key.

use std::path::{Path, PathBuf};

use super::conf::Conf;
use crate::base64;
use crate::files::Files;
use crate::secrets::Secret;

/// Bytes before the secret itself: type, time of creation in two numbers, length (`CryptoKey::encode` in
/// Ceph's sources).
const HEADER: usize = 12;

/// Where a cluster's own key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyFile {
    /// A file with nothing but the key.
    Bare(PathBuf),
    /// A file with users and their keys.
    Keyring(PathBuf),
}

impl KeyFile {
    /// The key of `user`.
    pub(super) fn read(&self, files: &mut Files, user: &str) -> Result<Secret, String> {
        let (Self::Bare(path) | Self::Keyring(path)) = self;
        let text = Secret::new(files.read(path)?);
        let key = match self {
            Self::Bare(_) => Some(text.reveal().trim().to_string()),
            Self::Keyring(_) => {
                let keyring =
                    Conf::parse(text.reveal()).map_err(|what| format!("{}: {what}", path.display()))?;
                keyring.in_section(&format!("client.{user}"), "key").map(str::to_string)
            }
        };
        let key = Secret::new(key.ok_or_else(|| format!("{} has no key for client.{user}", path.display()))?);
        check(key.reveal()).map_err(|what| format!("{}: {what}", path.display()))?;
        Ok(key)
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        let (Self::Bare(path) | Self::Keyring(path)) = self;
        path
    }
}

/// Checks that a text is a key as Ceph writes it. Ceph's tools would repeat any other text in their messages.
pub(super) fn check(key: &str) -> Result<(), String> {
    let advice = "copy it once more with `ceph auth print-key client.USER`";
    let bytes = base64::decode(key).ok_or_else(|| format!("the key is not valid base64: {advice}"))?;
    let length =
        bytes.get(HEADER - 2..HEADER).map(|length| usize::from(u16::from_le_bytes([length[0], length[1]])));
    match length == Some(bytes.len().saturating_sub(HEADER)) && bytes.len() > HEADER {
        true => Ok(()),
        false => Err(format!("the key is cut short or not one of Ceph's: {advice}")),
    }
}

/// The result of a search for a key.
pub(super) enum Search {
    /// The key, and where it was found.
    Found(Secret, PathBuf),
    /// The tools find it by themselves, or need none.
    ByTools(&'static str),
    /// There is no key in these places.
    Nowhere(Vec<PathBuf>),
}

/// Looks for the key of `user` where Ceph does: the settings `key`, `keyfile` and `keyring` of the conf, else
/// the usual keyrings.
pub(super) fn search(files: &mut Files, conf: &Conf, conf_path: &Path, user: &str) -> Result<Search, String> {
    if conf.get(user, "auth_client_required").or_else(|| conf.get(user, "auth_supported")) == Some("none") {
        return Ok(Search::ByTools("not needed: the cluster asks for none"));
    }
    if let Some(key) = conf.get(user, "key") {
        check(key).map_err(|what| format!("{}: {what}", conf_path.display()))?;
        return Ok(Search::Found(Secret::new(key), conf_path.to_path_buf()));
    }
    let cluster = conf_path.file_stem().unwrap_or_default().to_string_lossy();
    let expand = |text: &str| {
        let pairs =
            [("cluster", &*cluster), ("name", &format!("client.{user}")), ("type", "client"), ("id", user)];
        pairs.iter().fold(text.to_string(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        })
    };
    if let Some(path) = conf.get(user, "keyfile").map(expand) {
        let file = KeyFile::Bare(path.into());
        return Ok(Search::Found(file.read(files, user)?, file.path().to_path_buf()));
    }
    let usual =
        "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring,/etc/ceph/keyring.bin";
    let places = expand(conf.get(user, "keyring").unwrap_or(usual));
    if places.contains('$') {
        return Ok(Search::ByTools("as Ceph finds it"));
    }
    let places: Vec<PathBuf> =
        places.split([',', ';', ' ']).filter(|it| !it.is_empty()).map(PathBuf::from).collect();
    // The first keyring that exists counts, as for Ceph (`KeyRing::from_ceph_context`).
    match places.iter().find(|path| files.exists(path)) {
        None => Ok(Search::Nowhere(places)),
        Some(path) => Ok(Search::Found(KeyFile::Keyring(path.clone()).read(files, user)?, path.clone())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    /// A key of the right form, which no user has.
    pub const KEY: &str = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==";

    #[test]
    fn keys_are_checked_and_never_shown() {
        assert_eq!(check(KEY), Ok(()));
        assert_eq!(check("AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g=="), Ok(()));
        let cut = &KEY[..KEY.len() - 4];
        for wrong in ["", "secret", "AQ!=", &KEY[1..], cut, &format!("{KEY}\n"), "AAAA"] {
            let what = check(wrong).unwrap_err();
            assert!(wrong.is_empty() || !what.contains(wrong.trim()), "{what}");
            assert!(what.contains("ceph auth print-key"), "{what}");
        }
    }

    #[test]
    fn keys_come_from_bare_files_and_keyrings() {
        let dir = tempfile::tempdir().unwrap();
        let (bare, keyring) = (dir.path().join("key"), dir.path().join("keyring"));
        fs::write(&bare, format!("{KEY}\n")).unwrap();
        fs::write(
            &keyring,
            format!("[client.web]\n\tkey = {KEY}\n\tcaps mon = \"profile rbd\"\n[client.other]\nkey=x\n"),
        )
        .unwrap();
        let mut files = Files::default();
        assert_eq!(KeyFile::Bare(bare.clone()).read(&mut files, "web").unwrap().reveal(), KEY);
        let keyring = KeyFile::Keyring(keyring);
        assert_eq!(keyring.read(&mut files, "web").unwrap().reveal(), KEY);
        let error = keyring.read(&mut files, "nobody").unwrap_err();
        assert!(error.ends_with("keyring has no key for client.nobody"), "{error}");
        assert!(keyring.read(&mut files, "other").unwrap_err().contains("not valid base64"));
        fs::remove_file(&bare).unwrap();
        assert!(KeyFile::Bare(bare).read(&mut files, "web").unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_search_goes_where_ceph_goes() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = dir.path().join("main.client.web.keyring");
        fs::write(&keyring, format!("[client.web]\nkey = {KEY}\n")).unwrap();
        let at = dir.path().join("main.conf");
        let search =
            |text: &str| super::search(&mut Files::default(), &Conf::parse(text).unwrap(), &at, "web");
        let place = dir.path().display();
        let found = search(&format!("keyring = /nowhere/$name,{place}/$cluster.$name.keyring")).unwrap();
        assert!(matches!(found, Search::Found(key, path) if key.reveal() == KEY && path == keyring));
        assert!(matches!(search("keyring = /nowhere/$host"), Ok(Search::ByTools("as Ceph finds it"))));
        assert!(matches!(search("auth client required = none"), Ok(Search::ByTools(_))));
        assert!(
            matches!(search("keyring = /nowhere/$id"), Ok(Search::Nowhere(at)) if at == [PathBuf::from("/nowhere/web")])
        );
        assert!(
            matches!(search(&format!("[client]\nkey = {KEY}")), Ok(Search::Found(_, path)) if path == at)
        );
    }
}
