//! Reading the values of options: sizes, times, access modes, pairs, secrets.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use protobuf::well_known_types::timestamp::Timestamp;

use crate::cli::failure::{CliError, CliResult};
use crate::cli::plugin::Plugin;
use crate::cli::syntax::{Given, Opt, option};
use crate::clock::rfc3339;
use crate::config;
use crate::error::Error;
use crate::grpc::proto::csi_v1 as wire;
use crate::topology::Domains;
use crate::volume::request::Mode;

/// The most bytes that secrets may have. They are a handful of keys; a longer file is not the intended one.
const MOST_SECRETS: u64 = 64 * 1024;

/// A size in bytes. K, M, G, T and P are powers of 1024, with or without an `i` or `iB` behind them, as for
/// `truncate` and systemd.
pub fn size(option: &str, text: &str) -> CliResult<i64> {
    let refused = |why: &str| CliError::usage(format!("--{option} {text}: {why}"));
    let (count, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let no_size = |_| refused("a size is a number of bytes, or one with K, M, G, T or P, like 10G");
    let count: i64 = count.parse().map_err(no_size)?;
    let factor = match unit {
        "" | "B" => 1,
        "K" | "Ki" | "KiB" => 1 << 10,
        "M" | "Mi" | "MiB" => 1 << 20,
        "G" | "Gi" | "GiB" => 1 << 30,
        "T" | "Ti" | "TiB" => 1 << 40,
        "P" | "Pi" | "PiB" => 1 << 50,
        "KB" | "MB" | "GB" | "TB" | "PB" => {
            return Err(refused("leave the B out: K, M, G, T and P are powers of 1024"));
        }
        _ => return Err(refused("the units are K, M, G, T and P, powers of 1024")),
    };
    count.checked_mul(factor).ok_or_else(|| refused("more than any volume can have"))
}

/// The size an option gives; None if it was not given.
pub fn optional_size(given: &Given, option: &str) -> CliResult<Option<i64>> {
    given.value(option).map(|text| size(option, text)).transpose()
}

/// A time: in the form of a variable, or a number of seconds.
pub fn duration(option: &str, text: &str) -> CliResult<Duration> {
    let unit = if text.ends_with(|last: char| last.is_ascii_digit()) { "s" } else { "" };
    config::duration(&format!("{text}{unit}"))
        .map_err(|what| CliError::usage(format!("--{option} {text}: {what}")))
}

/// A point in time, for people and programs: in UTC, as ISO 8601 has it.
pub fn date(time: &Timestamp) -> Option<String> {
    let since = Duration::from_secs(u64::try_from(time.seconds).ok()?);
    UNIX_EPOCH.checked_add(since).map(rfc3339)
}

/// The names of all access modes.
pub const MODES: [&str; Mode::WORDS.len()] = {
    let mut names = [""; Mode::WORDS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Mode::WORDS[at].1;
        at += 1;
    }
    names
};

/// An access mode; single-node-writer if none was given.
pub fn mode(given: &Given) -> CliResult<Mode> {
    let Some(name) = given.value("mode") else { return Ok(Mode::SingleNodeWriter) };
    let refused = || CliError::usage(format!("--mode {name}: the modes are {}", MODES.join(", ")));
    Mode::from_word(name).ok_or_else(refused)
}

/// The pairs that a repeated option gives.
pub fn pairs(given: &Given, option: &str) -> CliResult<HashMap<String, String>> {
    let mut pairs = HashMap::new();
    for text in given.all(option) {
        let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) =
            pair.ok_or_else(|| CliError::usage(format!("--{option} {text}: write KEY=VALUE")))?;
        if pairs.insert(key.to_string(), value.to_string()).is_some() {
            return Err(CliError::usage(format!("--{option} gives {key} twice")));
        }
    }
    Ok(pairs)
}

/// The topologies of a repeated option with domains. Their keys begin with the name of the daemon's plugin.
pub fn topologies(plugin: &dyn Plugin, given: &Given, option: &str) -> CliResult<Vec<wire::Topology>> {
    let read = |text: &str| {
        text.parse::<Domains>().map_err(|what| CliError::usage(format!("--{option} {text}: {what}")))
    };
    let domains = given.all(option).map(read).collect::<CliResult<Vec<Domains>>>()?;
    if domains.is_empty() {
        return Ok(Vec::new());
    }
    let plugin = plugin.ask(&wire::GetPluginInfoRequest::default())?.name;
    let topology = |domains: &Domains| {
        let segments = domains.segments(&plugin).into_iter().collect();
        wire::Topology { segments, ..Default::default() }
    };
    Ok(domains.iter().map(topology).collect())
}

/// A path in the daemon's form: absolute, without a slash at its end. Symbolic links in the directories above
/// the last name are followed if the directories exist, so that the path is the one that the kernel shows for
/// the mount.
pub fn path(text: &str) -> CliResult<PathBuf> {
    let absolute =
        std::path::absolute(text).map_err(|error| CliError::usage(format!("the path {text:?}: {error}")))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_path_buf());
    Ok(parent.join(name))
}

/// A path as text, as messages carry it.
pub fn path_text(path: &Path) -> CliResult<String> {
    let text =
        path.to_str().ok_or_else(|| CliError::usage(format!("the path {} is not UTF-8", path.display())))?;
    Ok(text.to_string())
}

/// The option for credentials.
pub const SECRETS: Opt =
    option("secrets", "FILE", "credentials as lines of KEY=VALUE; - reads standard input");

/// The secrets of `--secrets`: from a file, or from standard input for `-`. No message ever contains a
/// secret.
pub fn secrets(given: &Given) -> CliResult<HashMap<String, String>> {
    let Some(source) = given.value("secrets") else { return Ok(HashMap::new()) };
    let unreadable = |error: io::Error| Error::io(format!("read the secrets from {source}"), &error);
    let input: &mut dyn Read = match source {
        "-" => &mut io::stdin(),
        file => &mut File::open(file).map_err(unreadable)?,
    };
    let mut bytes = Vec::new();
    let length = input.take(MOST_SECRETS + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if length as u64 > MOST_SECRETS {
        return Err(CliError::usage(format!("--secrets {source}: longer than {MOST_SECRETS} bytes")));
    }
    let text = str::from_utf8(&bytes).map_err(|error| unreadable(io::Error::other(error)))?;
    parse_secrets(source, text)
}

/// Lines of `key=value`. Empty lines and lines that begin with `#` are skipped. The value is everything
/// behind the first `=`.
fn parse_secrets(source: &str, text: &str) -> CliResult<HashMap<String, String>> {
    let mut secrets = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| CliError::usage(format!("--secrets {source}: line {number} {why}"));
        let pair = line.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.ok_or_else(|| wrong("is not KEY=VALUE"))?;
        if secrets.insert(key.to_string(), value.to_string()).is_some() {
            return Err(wrong("gives a key for the second time"));
        }
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::commands::COMMANDS;
    use crate::cli::syntax::{Parsed, parse};

    fn given(line: &str) -> Given {
        match parse(COMMANDS, line.split_whitespace().map(Into::into).collect()).unwrap() {
            Parsed::Run(_, given) => given,
            Parsed::Help(_) => panic!("no command in {line:?}"),
        }
    }

    #[test]
    fn sizes_are_bytes_or_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1K", 1 << 10),
            ("3M", 3 << 20),
            ("10G", 10 << 30),
            ("10Gi", 10 << 30),
            ("10GiB", 10 << 30),
            ("2T", 2 << 40),
            ("1Pi", 1 << 50),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(size("size", text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_reason() {
        let refused = |text| size("size", text).unwrap_err().to_string();
        assert_eq!(refused("10GB"), "--size 10GB: leave the B out: K, M, G, T and P are powers of 1024");
        assert_eq!(refused("1.5G"), "--size 1.5G: the units are K, M, G, T and P, powers of 1024");
        assert_eq!(refused("8192P"), "--size 8192P: more than any volume can have");
        for text in ["", "G", "-1", "9223372036854775808", "ten"] {
            assert!(refused(text).contains("like 10G"), "{text}");
        }
    }

    #[test]
    fn times_are_seconds_minutes_or_hours() {
        let seconds = |text| duration("timeout", text).map(|time| time.as_secs());
        assert_eq!(seconds("90").unwrap(), 90);
        assert_eq!(seconds("90s").unwrap(), 90);
        assert_eq!(seconds("5m").unwrap(), 300);
        assert_eq!(seconds("2h").unwrap(), 7200);
        for text in ["", "0", "5d", "m", "-1"] {
            assert_eq!(seconds(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn modes_are_those_of_the_specification() {
        assert_eq!(mode(&given("volume create a")).unwrap(), Mode::SingleNodeWriter);
        assert_eq!(
            mode(&given("volume create a --mode multi-node-multi-writer")).unwrap(),
            Mode::MultiNodeMultiWriter
        );
        let refused = mode(&given("volume create a --mode rw")).unwrap_err().to_string();
        assert!(refused.starts_with("--mode rw: the modes are single-node-writer, "), "{refused}");
    }

    #[test]
    fn parameters_are_pairs_and_come_once() {
        let found =
            pairs(&given("volume create a --parameter pool=ssd --parameter x=a=b"), "parameter").unwrap();
        assert_eq!(found, HashMap::from([("pool".into(), "ssd".into()), ("x".into(), "a=b".into())]));
        for line in ["volume create a --parameter pool", "volume create a --parameter =x"] {
            assert!(pairs(&given(line), "parameter").unwrap_err().to_string().contains("KEY=VALUE"));
        }
        let twice =
            pairs(&given("volume create a --parameter x=1 --parameter x=2"), "parameter").unwrap_err();
        assert_eq!(twice.to_string(), "--parameter gives x twice");
    }

    #[test]
    fn paths_are_made_absolute_and_links_before_the_last_name_followed() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, directory.path().join("link")).unwrap();
        let through = format!("{}/link/target/", directory.path().display());
        assert_eq!(path(&through).unwrap(), real.join("target"));
        assert_eq!(path("/not/there").unwrap(), Path::new("/not/there"));
        assert!(path("here").unwrap().is_absolute());
        assert!(path("").is_err());
    }

    #[test]
    fn secrets_are_lines_whose_value_is_everything_behind_the_first_equals_sign() {
        let found = parse_secrets("-", "# Ceph\n\nuserID=admin\nuserKey=AQ==\n").unwrap();
        assert_eq!(
            found,
            HashMap::from([("userID".into(), "admin".into()), ("userKey".into(), "AQ==".into())])
        );
    }

    #[test]
    fn a_bad_line_of_secrets_is_named_and_not_shown() {
        for text in ["userID=a\nhunter2\n", "userID=a\nuserID=hunter2\n", "userID=a\n=hunter2\n"] {
            let refused = parse_secrets("/s", text).unwrap_err().to_string();
            assert!(
                refused.starts_with("--secrets /s: line 2 ") && !refused.contains("hunter2"),
                "{refused}"
            );
        }
    }

    #[test]
    fn secrets_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "k=v\n").unwrap();
        let line = format!("volume delete v --secrets {}", file.path().display());
        assert_eq!(secrets(&given(&line)).unwrap(), HashMap::from([("k".into(), "v".into())]));
        std::fs::write(file.path(), format!("k=v\n#{}", "x".repeat(MOST_SECRETS as usize - 5))).unwrap();
        assert_eq!(secrets(&given(&line)).unwrap(), HashMap::from([("k".into(), "v".into())]));
        std::fs::write(file.path(), format!("k=v\n{}", "é".repeat(MOST_SECRETS as usize / 2))).unwrap();
        let long = secrets(&given(&line)).unwrap_err();
        assert!(long.exit_code() == 2 && long.to_string().ends_with(": longer than 65536 bytes"), "{long}");
        let missing = secrets(&given("volume delete v --secrets /not/there")).unwrap_err();
        assert_eq!(missing.exit_code(), 1);
        assert!(missing.to_string().contains("read the secrets from /not/there"), "{missing}");
    }
}
