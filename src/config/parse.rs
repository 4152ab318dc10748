//! The text of each kind of variable. An error says what is allowed.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::config::{BackendName, Services};
use crate::ids;
use crate::topology::Labels;

type Parsed<T> = Result<T, String>;

/// A socket's path fits sun_path with its NUL (unix(7)).
const MAX_SOCKET: usize = 107;

/// `unix:///path`, `unix://path`, `unix:path` or a bare path. A path without a leading slash is taken below
/// `/`, as agents that write `unix://csi/csi.sock` mean it.
pub fn endpoint(text: &str) -> Parsed<PathBuf> {
    const ALLOWED: &str = "allowed is the path of a unix socket that ends in .sock: \
                           unix:///run/cephlet/csi.sock, or the path alone";
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    if path.is_empty() || path.contains("://") || !path.ends_with(".sock") {
        return Err(ALLOWED.to_string());
    }
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.len() > MAX_SOCKET {
        return Err(format!("a socket's path has at most {MAX_SOCKET} bytes, this one has {}", path.len()));
    }
    self::path(&path)
}

/// An absolute path without `.` and `..`.
pub fn path(text: &str) -> Parsed<PathBuf> {
    let plain = |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    let path = Path::new(text);
    match path.is_absolute() && path.components().all(plain) {
        true => Ok(path.to_path_buf()),
        false => Err("allowed is an absolute path without '..'".to_string()),
    }
}

/// Directories joined by `:`; an empty text means the usual ones.
pub fn search_path(text: &str) -> Parsed<Vec<PathBuf>> {
    text.split(':').filter(|part| !part.is_empty()).map(path).collect()
}

/// A node ID that the IDs of volumes can carry.
pub fn node_id(text: &str) -> Parsed<String> {
    ids::refuse_node(text).map(|()| text.to_string())
}

/// A reverse domain name of at most 63 characters that starts and ends with a letter (CSI, "GetPluginInfo").
pub fn plugin_name(text: &str) -> Parsed<String> {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    let inside = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    match bytes.len() <= 63 && inside && ends(bytes.first()) && ends(bytes.last()) && text.contains('.') {
        true => Ok(text.to_string()),
        false => Err(String::from(
            "allowed is a reverse domain name (org.example.csi) of at most 63 letters, digits, '-' and '.', \
             beginning and ending with a letter",
        )),
    }
}

/// Whether a text is made of letters, digits, `-`, `_` and `.` alone, and not empty.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(plain)
}

/// A short name.
pub fn instance(text: &str) -> Parsed<String> {
    match text.len() <= 63 && is_name(text) {
        true => Ok(text.to_string()),
        false => Err("allowed are up to 63 letters, digits, '-', '_' and '.'".to_string()),
    }
}

/// `controller`, `node` or both.
pub fn services(text: &str) -> Parsed<Services> {
    let mut services = Services::default();
    for part in text.split(',').map(str::trim) {
        match part {
            "controller" => services.controller = true,
            "node" => services.node = true,
            _ => return Err("allowed are controller, node, or controller,node".to_string()),
        }
    }
    Ok(services)
}

/// Of `local`, `rbd` and `cephfs`; an empty text means `local`, and `rbd` if a cluster is set up.
pub fn backends(text: &str) -> Parsed<Option<BTreeSet<BackendName>>> {
    let name = |part: &str| match part.trim() {
        "local" => Ok(BackendName::Local),
        "rbd" => Ok(BackendName::Rbd),
        "cephfs" => Ok(BackendName::CephFs),
        _ => Err("allowed are local, rbd and cephfs, with commas between them".to_string()),
    };
    if text.is_empty() { Ok(None) } else { text.split(',').map(name).collect::<Parsed<_>>().map(Some) }
}

/// An absolute path, or nothing.
pub fn optional_path(text: &str) -> Parsed<Option<PathBuf>> {
    if text.is_empty() { Ok(None) } else { path(text).map(Some) }
}

/// The path of a file that the node exporter reads, or nothing.
pub fn metrics_file(text: &str) -> Parsed<Option<PathBuf>> {
    match optional_path(text)? {
        Some(path) if path.extension().is_none_or(|ending| ending != "prom") => Err(String::from(
            "allowed is the path of a file that ends in .prom: the node exporter of Prometheus reads no other",
        )),
        path => Ok(path),
    }
}

/// A Ceph user, with or without `client.`; Ceph's own `--id` takes it without.
pub fn ceph_user(text: &str) -> Parsed<String> {
    let user = text.strip_prefix("client.").unwrap_or(text);
    check_user(user).map(|()| user.to_string())
}

/// Refuses a text that cannot be a user without `client.`. A user is one word, is no option, and has no
/// character of the kernel's list of options.
pub fn check_user(user: &str) -> Result<(), String> {
    let plain = |letter: char| {
        !letter.is_whitespace()
            && !letter.is_control()
            && !matches!(letter, ',' | '=' | '"' | '\'' | '[' | ']')
    };
    match !user.is_empty()
        && user.len() <= 128
        && !user.starts_with('-')
        && !user.starts_with("client.")
        && user.chars().all(plain)
    {
        true => Ok(()),
        false => Err(String::from("allowed is the name of a Ceph user, without 'client.'")),
    }
}

/// A whole number within bounds.
pub fn number(text: &str, least: usize, most: usize) -> Parsed<usize> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("allowed is a number from {least} to {most}"))
}

/// A duration with its unit: `500ms`, `60s`, `2m`, `1h`; at least a millisecond and at most a day.
pub fn duration(text: &str) -> Parsed<Duration> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let read =
        |(unit, factor): (&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor);
    let milliseconds = units.into_iter().find_map(read).filter(|total| (1..=86_400_000).contains(total));
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| "allowed is a duration with its unit, up to a day: 500ms, 60s, 2m, 1h".to_string())
}

/// One of two words, each with what it stands for.
pub fn either<T>(text: &str, words: [(&str, T); 2]) -> Parsed<T> {
    let refusal = format!("allowed are {} and {}", words[0].0, words[1].0);
    words.into_iter().find(|(word, _)| *word == text).map(|(_, meaning)| meaning).ok_or(refusal)
}

/// Whether it is `word`, and not `off`.
pub fn unless_off(text: &str, word: &'static str) -> Parsed<bool> {
    either(text, [(word, true), ("off", false)])
}

/// Labels, the outermost first, or `@` and the path of a file that has them.
pub fn topology(text: &str) -> Parsed<Labels> {
    match text.strip_prefix('@') {
        Some(file) => path(file).map(Labels::In),
        None => Labels::given(text),
    }
}

/// Buckets of the CRUSH map in the kernel's syntax (rbd(8), `crush_location`), or nothing.
pub fn crush_location(text: &str) -> Parsed<Option<String>> {
    let is_bucket =
        |part: &str| part.split_once(':').is_some_and(|(kind, name)| is_name(kind) && is_name(name));
    match text.is_empty() || text.split('|').all(is_bucket) {
        true => Ok(Some(text.to_string()).filter(|text| !text.is_empty())),
        false => Err("allowed are buckets as TYPE:NAME, joined by '|': zone:eu-1|rack:r7".to_string()),
    }
}

/// A filter in env_logger's syntax: levels, alone or for a module. env_logger itself would only warn of a
/// mistake.
pub fn log_filter(text: &str) -> Parsed<String> {
    let is_level = |word: &str| word.parse::<log::LevelFilter>().is_ok();
    let is_directive =
        |part: &str| part.split_once('=').map_or_else(|| is_level(part), |(_, level)| is_level(level));
    match text.split(',').all(is_directive) {
        true => Ok(text.to_string()),
        false => Err("allowed is error, warn, info, debug or trace, or a list like info,cephlet::exec=debug"
            .to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_come_in_four_forms() {
        for text in ["unix:///run/a.sock", "unix://run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            assert_eq!(endpoint(text).as_deref(), Ok(Path::new("/run/a.sock")), "{text}");
        }
        for text in [
            "",
            "unix://",
            "tcp://1.2.3.4:5",
            "/run/a",
            "/run/../a.sock",
            &format!("/{}.sock", "x".repeat(120)),
        ] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["60", "0s", "-1s", "1.5s", "25h", "s", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_topology_is_a_list_or_a_file() {
        assert_eq!(topology("@/etc/labels"), Ok(Labels::In("/etc/labels".into())));
        assert!(topology("@labels").is_err_and(|what| what.contains("absolute")));
        assert!(topology("zone=a").is_ok() && topology("zone=").is_err());
    }

    #[test]
    fn the_node_exporter_reads_what_ends_in_prom() {
        assert_eq!(metrics_file(""), Ok(None));
        assert_eq!(metrics_file("/var/x/cephlet.prom"), Ok(Some("/var/x/cephlet.prom".into())));
        for text in ["/var/x/cephlet", "/var/x/.prom", "cephlet.prom", "/var/x/cephlet.prom.new"] {
            assert!(metrics_file(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_crush_location_is_made_of_buckets() {
        assert_eq!(crush_location(""), Ok(None));
        assert_eq!(crush_location("zone:eu-1|rack:r7"), Ok(Some("zone:eu-1|rack:r7".into())));
        for text in ["zone=eu-1", "zone:", "zone:a|", "zone:a,rack:b", "zone:a:b"] {
            assert!(crush_location(text).is_err(), "{text}");
        }
    }

    #[test]
    fn plugin_names_are_reverse_domains() {
        assert!(plugin_name("org.cephlet.csi").is_ok());
        for text in [
            "csi",
            ".org.csi",
            "org.csi.",
            "org.csi1",
            "1org.csi",
            "org/csi.x",
            &format!("a.{}b", "x".repeat(64)),
        ] {
            assert!(plugin_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn node_ids_must_fit_the_ids_of_volumes() {
        let longest = "n".repeat(ids::MAX_NODE);
        let place = ids::Place {
            backend: "local".into(),
            cluster: longest.clone(),
            pool: String::new(),
            namespace: String::new(),
        };
        let object = ids::volume_object("default", "abcdefghijklmnop");
        let id = ids::VolumeId { place, object, incarnation: Some("0123456789abcdef".into()) };
        assert_eq!(id.to_string().len(), ids::MAX_ID);
        assert!(node_id(&longest).is_ok() && node_id(&format!("{longest}n")).is_err());
    }
}
