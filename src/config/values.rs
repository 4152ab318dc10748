//! What the values of variables mean. Every parser gives what is allowed, for the reader who wrote something else.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use log::LevelFilter;

use super::nearest::nearest;

/// A value, or what would have been one.
pub(super) type Parsed<T> = Result<T, String>;

/// Bytes of a path that `sockaddr_un` has room for, without the NUL: unix(7).
const SOCKET_PATH_MAX: usize = 107;

/// Bytes of a string that the CSI specification allows.
const STRING_MAX: usize = 128;

/// The unix socket that the daemon serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

impl Endpoint {
    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    /// The form that gRPC understands for sure: `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.0.display())
    }
}

/// What this copy of the daemon serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Volumes are made and removed here.
    Controller,
    /// Volumes are mounted here.
    Node,
}

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Loop files on this node's disk.
    Local,
}

/// Whether a volume for a single node may be published to a second target there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// It may, in the older access mode that leaves it open: Nomad counts on it.
    Lenient,
    /// It may not.
    Strict,
}

/// A value that is one of a few words.
pub(super) trait Word: Copy + Ord + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Word for Service {
    const WORDS: &'static [(&'static str, Self)] = &[("controller", Self::Controller), ("node", Self::Node)];
}

impl Word for Backend {
    const WORDS: &'static [(&'static str, Self)] = &[("local", Self::Local)];
}

/// `unix:///path`, `unix://path`, `unix:path` or `/path`. Nomad jobs often write two slashes where three are meant
/// (`unix://csi/csi.sock`), so a path after `unix:` starts at the root in any case.
pub(super) fn endpoint(value: &str) -> Parsed<Endpoint> {
    let rooted = value.strip_prefix("unix://").or_else(|| value.strip_prefix("unix:")).map(|path| format!("/{path}"));
    let path = rooted.as_deref().unwrap_or(value);
    if !path.starts_with('/') {
        return Err("must be a unix socket: unix:///path/name.sock, unix:/path/name.sock or /path/name.sock".into());
    }
    if !path.ends_with(".sock") {
        return Err("must end in .sock, so that nothing else is taken for a socket and replaced".into());
    }
    if let Some(odd) = path.chars().find(|c| !c.is_ascii_alphanumeric() && !"-._~/+,=:@!$&'()*;".contains(*c)) {
        return Err(format!("must not contain {odd:?}: gRPC's addresses leave no room for it"));
    }
    let path = directory(path)?;
    match path.as_os_str().len() {
        0..=SOCKET_PATH_MAX => Ok(Endpoint(path)),
        length => {
            Err(format!("has a path of {length} bytes, a unix socket's has at most {SOCKET_PATH_MAX}: choose a shorter one"))
        }
    }
}

/// An absolute path without `..`.
pub(super) fn directory(value: &str) -> Parsed<PathBuf> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return Err("must be an absolute path".into());
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("must not contain \"..\"".into());
    }
    if value.chars().any(char::is_control) {
        return Err("must not contain control characters".into());
    }
    // Without doubled and trailing slashes: paths are compared with what the kernel lists.
    Ok(path.components().collect())
}

/// Absolute paths with colons between them.
pub(super) fn directories(value: &str) -> Parsed<Vec<PathBuf>> {
    value.split(':').map(|one| directory(one).map_err(|wish| format!("is a list of directories, {one:?} {wish}"))).collect()
}

/// A whole number in a range.
pub(super) fn number(value: &str, range: RangeInclusive<usize>) -> Parsed<usize> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

/// A number with its unit, in a range.
pub(super) fn duration(value: &str, range: RangeInclusive<Duration>) -> Parsed<Duration> {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &value[..value.len() - unit.len()];
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let length = milliseconds.and_then(|unit| digits.parse::<u64>().ok()?.checked_mul(unit)).map(Duration::from_millis);
    length.filter(|length| range.contains(length)).ok_or_else(|| {
        format!("must be a number with its unit (500ms, 60s, 2m, 1h), from {:?} to {:?}", range.start(), range.end())
    })
}

/// A text that the specification's strings have room for.
pub(super) fn text(value: &str) -> Parsed<String> {
    if value.is_empty() || value.len() > STRING_MAX || value.chars().any(char::is_control) {
        return Err(format!("must have 1 to {STRING_MAX} bytes and no control characters"));
    }
    Ok(value.into())
}

/// A plugin's name: reverse domain name notation, 63 characters, a letter at both ends.
pub(super) fn plugin_name(value: &str) -> Parsed<String> {
    let letter = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphabetic());
    let good = value.len() <= 63
        && letter(value.bytes().next())
        && letter(value.bytes().last())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        && value.contains('.')
        && !value.contains("..");
    match good {
        true => Ok(value.into()),
        false => Err("must be a domain name in reverse order, like org.example.csi: letters, digits, '-' and dots, a letter at \
                      both ends, at most 63 characters"
            .into()),
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Parsed<T> {
    let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| format!("must be {}", listed(words, " or ")))
}

/// Some of a few words, with commas between them.
pub(super) fn words<T: Word>(value: &str) -> Parsed<BTreeSet<T>> {
    let found = value.split(',').map(|one| word(one.trim(), T::WORDS).map_err(|_| one));
    found.collect::<Result<_, _>>().map_err(|odd| match T::WORDS {
        [(only, _)] => format!("has {odd:?} in it: the only value there is is {only}"),
        words => format!("has {odd:?} in it: must be one or more of {}, with commas between them", listed(words, ", ")),
    })
}

fn listed<T>(words: &[(&str, T)], between: &str) -> String {
    words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(between)
}

/// env_logger's filter: `level`, `target=level` or `target`, with commas between them, and `/text` at the end. A target may be
/// any word, so only what looks like a mistyped level is refused where it stands alone.
pub(super) fn log_filter(value: &str) -> Parsed<String> {
    let directives = value.split('/').next().unwrap_or_default();
    for directive in directives.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (level, alone) = match directive.split_once('=') {
            Some((_, level)) => (level, false),
            None => (directive, true),
        };
        let known = LevelFilter::from_str(level).is_ok();
        let slip = nearest(level, ["off", "error", "warn", "warning", "info", "debug", "trace"]);
        if !known && (slip.is_some() || !alone) {
            return Err(format!(
                "has {level:?} in it: a level is off, error, warn, info, debug or trace, alone or as target=level"
            ));
        }
    }
    Ok(value.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_every_orchestrator() {
        for (value, path) in [
            ("unix:///csi/csi.sock", "/csi/csi.sock"),
            ("unix://csi/csi.sock", "/csi/csi.sock"),
            ("unix:/run/cephlet/csi.sock", "/run/cephlet/csi.sock"),
            ("unix:csi/csi.sock", "/csi/csi.sock"),
            ("/run/docker/plugins/cephlet.sock", "/run/docker/plugins/cephlet.sock"),
            ("unix:///tmp/mesos-csi-Ab12Cd/endpoint.sock", "/tmp/mesos-csi-Ab12Cd/endpoint.sock"),
            ("unix:////run//csi.sock", "/run/csi.sock"),
        ] {
            assert_eq!(endpoint(value).unwrap().path().to_str(), Some(path), "{value}");
        }
        assert_eq!(endpoint("/run/csi.sock").unwrap().to_string(), "unix:/run/csi.sock");
    }

    #[test]
    fn what_is_no_endpoint_is_told_why() {
        for (value, reason) in [
            ("tcp://0.0.0.0:10000", "must be a unix socket"),
            ("csi.sock", "must be a unix socket"),
            ("", "must be a unix socket"),
            ("unix:///run/csi", ".sock"),
            ("unix:///run/csi.sock/", ".sock"),
            ("unix:///run/../csi.sock", ".."),
            ("unix:///run/a b/csi.sock", "' '"),
            ("unix:///run/a%20b/csi.sock", "'%'"),
        ] {
            let problem = endpoint(value).unwrap_err();
            assert!(problem.contains(reason), "{value}: {problem}");
        }
    }

    #[test]
    fn a_socket_path_has_107_bytes_and_no_more() {
        let path = |length: usize| format!("/{}.sock", "x".repeat(length - 6));
        assert_eq!(endpoint(&path(107)).unwrap().path().as_os_str().len(), 107);
        assert!(endpoint(&path(108)).unwrap_err().contains("108 bytes"));
    }

    #[test]
    fn durations_have_a_unit() {
        let parse = |value| duration(value, Duration::from_millis(1)..=Duration::from_secs(3600));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
        for wrong in
            ["60", "s", "", "1.5s", "-1s", "60 s", "2h", "0s", "1d", "99999999999999999999s", "18446744073709551615h", "é"]
        {
            assert!(parse(wrong).unwrap_err().contains("60s"), "{wrong}");
        }
    }

    #[test]
    fn plugin_names_are_reversed_domains() {
        for good in ["org.cephlet.csi", "a.b", "io.x-y.Z9z"] {
            assert!(plugin_name(good).is_ok(), "{good}");
        }
        let long = format!("org.{}", "x".repeat(60));
        for wrong in ["", "csi", "org.cephlet.csi2", "1org.x", "org..x", "org.x.", ".org", "org_x.csi", "org/x.csi", &long] {
            assert!(plugin_name(wrong).is_err(), "{wrong}");
        }
        assert!(plugin_name(&long[..63]).is_ok());
    }

    #[test]
    fn lists_of_words() {
        assert_eq!(words("node"), Ok(BTreeSet::from([Service::Node])));
        assert_eq!(words("node, controller"), Ok(BTreeSet::from([Service::Controller, Service::Node])));
        assert!(words::<Service>("node,").is_err());
        assert!(words::<Service>("nodes").unwrap_err().contains("controller, node"));
        assert!(words::<Backend>("local,rbd").unwrap_err().contains("\"rbd\""));
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        assert_eq!(directory("/srv//volumes/"), Ok(PathBuf::from("/srv/volumes")));
        assert_eq!(directory("/srv/volumes/").unwrap().as_os_str(), "/srv/volumes");
        for wrong in ["", "srv", "./srv", "/srv/../etc", "/srv\n"] {
            assert!(directory(wrong).is_err(), "{wrong}");
        }
        assert_eq!(directories("/bin:/sbin"), Ok(vec!["/bin".into(), "/sbin".into()]));
        assert!(directories("/bin:").is_err());
    }

    #[test]
    fn log_filters() {
        for good in ["info", "DEBUG", "warn,cephlet::exec=trace", "grpcio=off,info", "cephlet", "info/volume"] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        for wrong in ["inof", "cephlet=verbose", "warning", "info,debg"] {
            assert!(log_filter(wrong).is_err(), "{wrong}");
        }
    }
}
