//! The names and the texts of the units, in the grammar of systemd.unit(5) and systemd.syntax(7).

use std::fmt::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// The longest name of a unit, in bytes: systemd.unit(5).
const LONGEST: usize = 255;

/// The version of both files.
const FORMAT: &str = "1";

/// The service of a path, whose escaped form is its instance (`%i`).
///
/// It wants the daemon and does not require it: what requires it would stop, and so unpublish, with it.
/// The statuses are those of cephlet(8) that do not pass by themselves, and that of a program that is gone.
const SERVICE: &str = "\
# Written by `cephlet volume publish --at-boot`, and removed by `cephlet volume unpublish`.
[Unit]
Description=cephlet volume @VOLUME@ at %f
Documentation=man:cephlet(8)
Wants=cephlet.service
After=cephlet.service
RequiresMountsFor=@PARENT@
BindsTo=%i.mount

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=:@PUBLISH@
ExecStop=:@UNPUBLISH@
Restart=on-failure
RestartSec=30s
RestartPreventExitStatus=2 3 4 10 203
";

/// The mount unit of a path, whose escaped form is its name (`%p`).
///
/// A boot does not wait for it, as it is ordered before no target; what requires it waits. When it is started
/// the service has mounted the path, and all that mount(8) does is to give it the propagation that systemd
/// gives to every mount: it fails where nothing is mounted.
const MOUNT: &str = "\
# Written by `cephlet volume publish --at-boot`, and removed by `cephlet volume unpublish`.
[Unit]
Description=cephlet volume at %f, see cephlet-publish@%p.service
Documentation=man:cephlet(8)
DefaultDependencies=no
Conflicts=umount.target
Before=umount.target
Requires=cephlet-publish@%p.service
After=cephlet-publish@%p.service

[Mount]
What=none
Where=%f
Type=none
Options=shared

[Install]
WantedBy=multi-user.target
";

/// Whose a unit is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    /// It publishes this volume.
    Volume(&'a str),
    /// It is cephlet's, of a later version.
    Later,
    /// It is somebody else's.
    Other,
}

/// The units of a path.
pub(super) struct Units {
    path: String,
    escaped: String,
}

impl Units {
    /// The units of this absolute path.
    pub(super) fn of(path: &str) -> Result<Self> {
        let units = Self { path: path.to_string(), escaped: escaped(path) };
        match units.service().len() {
            ..=LONGEST => Ok(units),
            _ => Err(Error::invalid(format!(
                "the path {path} is too long for --at-boot: the name of a unit has at most {LONGEST} bytes"
            ))),
        }
    }

    /// The name of the mount unit.
    pub(super) fn mount(&self) -> String {
        format!("{}.mount", self.escaped)
    }

    /// The name of the service.
    pub(super) fn service(&self) -> String {
        format!("cephlet-publish@{}.service", self.escaped)
    }

    /// The text of the service, which runs these command lines.
    pub(super) fn service_text(
        &self,
        volume: &str,
        publish: &[String],
        unpublish: &[String],
    ) -> Result<String> {
        let parent = Path::new(&self.path).parent().and_then(Path::to_str).unwrap_or("/");
        let line = |words: &[String]| -> Result<String> {
            Ok(words.iter().map(|word| quoted(word)).collect::<Result<Vec<_>>>()?.join(" "))
        };
        let text = SERVICE
            .replace("@PARENT@", &quoted(parent)?)
            .replace("@PUBLISH@", &line(publish)?)
            .replace("@UNPUBLISH@", &line(unpublish)?);
        Ok(text.replace("@VOLUME@", &volume.replace('%', "%%")) + &owned(volume))
    }
}

/// The text of the mount unit, which is the same for every path.
pub(super) fn mount_text(volume: &str) -> String {
    MOUNT.to_string() + &owned(volume)
}

/// The section by which cephlet knows its units. systemd ignores those that begin with `X-`.
fn owned(volume: &str) -> String {
    format!("\n[X-Cephlet]\nFormat={FORMAT}\nVolume={volume}\n")
}

/// Whose a unit with this text is.
pub(super) fn owner(text: &str) -> Owner<'_> {
    let Some((_, section)) = text.split_once("\n[X-Cephlet]\n") else { return Owner::Other };
    let value = |key: &str| section.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("Format"), value("Volume")) {
        (Some(FORMAT), Some(volume)) => Owner::Volume(volume),
        _ => Owner::Later,
    }
}

/// A path in the name of a unit, as `systemd-escape --path` makes it.
fn escaped(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() {
        return "-".to_string();
    }
    let mut name = String::new();
    for (at, byte) in parts.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b':' | b'_' | b'.' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => write!(name, "\\x{byte:02x}").expect("a string takes everything"),
        }
    }
    name
}

/// A word of a command line or of a list of paths. A control character can be in neither.
fn quoted(word: &str) -> Result<String> {
    if word.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "{word:?} has a control character, which --at-boot cannot write into a unit"
        )));
    }
    Ok(format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
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

    #[test]
    fn paths_are_escaped_as_systemd_escapes_them() {
        for path in ODD {
            let said = Command::new("systemd-escape").args(["--path", path]).output().unwrap();
            assert_eq!(
                escaped(path),
                String::from_utf8(said.stdout).unwrap().trim_end_matches('\n'),
                "{path}"
            );
        }
    }

    #[test]
    fn systemd_accepts_the_units_of_every_path() {
        let directory = tempfile::tempdir().unwrap();
        let daemon = "[Service]\nExecStart=/bin/true\n";
        fs::write(directory.path().join("cephlet.service"), daemon).unwrap();
        // `systemd-analyze verify` takes a colon in the name of a file for the beginning of an alias.
        for path in ODD[1..].iter().filter(|path| !path.contains(':')) {
            let units = Units::of(path).unwrap();
            let words = ["/bin/true".to_string(), (*path).to_string()];
            let (service, mount) =
                (directory.path().join(units.service()), directory.path().join(units.mount()));
            fs::write(&service, units.service_text("v%1", &words, &words).unwrap()).unwrap();
            fs::write(&mount, mount_text("v%1")).unwrap();
            let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&mount).output();
            let verified = verified.unwrap();
            let said = String::from_utf8_lossy(&verified.stderr);
            let about: Vec<_> = said.lines().filter(|line| line.contains(&units.escaped)).collect();
            assert!(verified.status.success() && about.is_empty(), "{path}: {said}");
        }
    }

    #[test]
    fn a_unit_tells_its_volume() {
        let units = Units::of("/srv/web").unwrap();
        let text = units.service_text("local:n:::v:1", &["/x".into()], &["/y".into()]).unwrap();
        assert_eq!(owner(&text), Owner::Volume("local:n:::v:1"));
        assert_eq!(owner(&mount_text("v")), Owner::Volume("v"));
        assert_eq!(owner(&text.replace("Format=1", "Format=2")), Owner::Later);
        assert_eq!(owner("[Mount]\nWhat=/dev/sda\n"), Owner::Other);
    }

    #[test]
    fn words_are_quoted_and_what_cannot_be_written_is_refused() {
        assert_eq!(quoted(r#"a "b" \ 5% $x"#).unwrap(), r#""a \"b\" \\ 5%% $x""#);
        let refused = quoted("/srv/a\nb").unwrap_err();
        assert!(refused.message().contains("control character"), "{refused}");
        let long = Units::of(&format!("/{}", "a-".repeat(60))).err().unwrap();
        assert!(long.message().contains("too long"), "{long}");
    }
}
