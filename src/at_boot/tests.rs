//! The units, as systemd's own tools see them.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::Kind;
use std::process::Command;

const ODD: [&str; 9] = [
    "/",
    "/srv/web",
    "//srv//web/",
    "/.hidden/.x",
    "/a-b/c_d:e.f",
    "/with space ",
    "/per%cent $HOME \"q\" 'r' back\\slash",
    "/ünïcode/@home",
    "/a+b,c=d;e#f\\",
];

/// The units of a path, on a machine that has this directory for everything.
fn units(directory: &Path, path: &str) -> Result<Units> {
    units_of("v%1", directory, path)
}

fn units_of(volume: &str, directory: &Path, path: &str) -> Result<Units> {
    let words = ["/bin/true".to_string(), path.to_string()];
    Units::within([directory, directory], path, (volume, &words, &words))
}

fn written(directory: &Path, path: &str) -> [PathBuf; 2] {
    let Units(files) = units(directory, path).unwrap();
    files.map(|(file, text)| fs::write(&file, text).map(|()| file).unwrap())
}

#[test]
fn paths_are_escaped_as_systemd_escapes_them() {
    for path in ODD {
        let said = Command::new("systemd-escape").args(["--path", path]).output().unwrap();
        assert_eq!(escaped(path), String::from_utf8(said.stdout).unwrap().trim_end_matches('\n'), "{path}");
    }
}

#[test]
fn systemd_accepts_the_units_of_every_path() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("cephlet.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    // `systemd-analyze verify` takes a colon in the name of a file for the beginning of an alias.
    for path in ODD[1..].iter().filter(|path| !path.contains(':')) {
        let [mount, _] = written(directory.path(), path);
        let verified =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&mount).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        let about: Vec<_> = said.lines().filter(|line| line.contains(&escaped(path))).collect();
        assert!(verified.status.success() && about.is_empty(), "{path}: {said}");
    }
}

#[test]
fn a_volume_waits_for_the_network_unless_it_is_local() {
    let directory = tempfile::tempdir().unwrap();
    for (volume, waits) in [("rbd:main:rbd::web:10ab", true), ("local:n:::web:1", false)] {
        let Units([_, (_, service)]) = units_of(volume, directory.path(), "/srv/web").unwrap();
        assert_eq!(service.contains(NETWORK), waits, "{service}");
        assert!(service.contains("\nRequiresMountsFor=") && !service.contains('@'), "{service}");
    }
}

#[test]
fn a_host_without_systemd_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let refused = units(&directory.path().join("absent"), "/srv/web").err().unwrap();
    assert_eq!(refused.kind(), Kind::Precondition);
    assert!(refused.message().contains("systemd, which does not run this machine"), "{refused}");
}

#[test]
fn a_mount_unit_tells_its_volume_and_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let [mount, _] = written(directory.path(), "/srv/web");
    assert_eq!(owner(&mount).unwrap().as_deref(), Some("v%1"));
    let own = fs::read_to_string(&mount).unwrap();
    for (text, why) in [
        ("[Mount]\nWhat=/dev/sda\n".to_string(), "is not cephlet's"),
        (own.replace("Format=1", "Format=2"), "by a later cephlet"),
    ] {
        fs::write(&mount, text).unwrap();
        let refused = units(directory.path(), "/srv/web").err().unwrap();
        assert!(refused.kind() == Kind::Precondition && refused.message().contains(why), "{refused}");
    }
}

#[test]
fn a_path_is_refused_that_is_too_long_for_the_name_of_a_unit() {
    let directory = tempfile::tempdir().unwrap();
    let path = |length| format!("/{}", "x".repeat(length - "cephlet-publish@.service".len()));
    written(directory.path(), &path(LONGEST));
    let refused = units(directory.path(), &path(LONGEST + 1)).err().unwrap();
    assert_eq!(refused.kind(), Kind::InvalidArgument);
    assert!(refused.message().contains("is too long for --at-boot"), "{refused}");
}

#[test]
fn words_are_quoted_and_what_cannot_be_written_is_refused() {
    assert_eq!(quoted(r#"a "b" \ 5% $x"#).unwrap(), r#""a \"b\" \\ 5%% $x""#);
    assert_eq!(quoted("/srv/a\nb").unwrap_err().kind(), Kind::InvalidArgument);
}
