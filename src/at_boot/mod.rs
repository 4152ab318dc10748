//! Volumes that are published again after a boot: two units of systemd for each path.
//!
//! A service publishes the volume when it starts, and unpublishes it when it stops. A mount unit of the path
//! requires it: `RequiresMountsFor=` of other units finds a mount unit, and no service. Each stops with the
//! other, so that the daemon's record says what systemd says.
//!
//! The mount unit tells whose the path is: it is written first and removed last, so that the repeated command
//! goes on after a crash.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, ProcessLimits, Processes, Runner, Tool, Tools};
use crate::sys::file;

/// Where an administrator's units are: systemd.unit(5).
const DIRECTORY: &str = "/etc/systemd/system";
/// A directory that exists while systemd runs this machine: sd_booted(3).
const BOOTED: &str = "/run/systemd/system";
/// By what a mount unit says that it is cephlet's, in the version that this one knows. systemd ignores such
/// sections. The volume is the last line.
const SECTION: &str = "\n[X-Cephlet]\n";
const FORMAT: &str = "Format=1\nVolume=";
/// What the service of a volume needs whose storage is reached over the network, until it has unpublished it.
const NETWORK: &str = "Wants=network-online.target\nAfter=network.target network-online.target\n";

/// The longest name of a file, and of a unit.
const LONGEST: usize = 255;

/// The units of a path, to be written: file and text of each, the mount unit first.
pub struct Units([(PathBuf, String); 2]);

impl Units {
    /// The units that run these command lines for a volume at an absolute path. Changes nothing.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where systemd does not run this machine, or the path has a mount unit of somebody
    /// else; INVALID_ARGUMENT for what no unit can say, or be called.
    pub fn new(path: &str, volume: &str, [publish, unpublish]: &[Vec<String>; 2]) -> Result<Self> {
        Self::within([BOOTED, DIRECTORY].map(Path::new), path, (volume, publish, unpublish))
    }

    fn within(
        [booted, directory]: [&Path; 2],
        path: &str,
        (volume, publish, unpublish): (&str, &[String], &[String]),
    ) -> Result<Self> {
        if !booted.is_dir() {
            return Err(Error::precondition(format!(
                "--at-boot needs systemd, which does not run this machine: publish the volume without it, by \
                 what starts services here ({} is not there)",
                booted.display()
            )));
        }
        let [mount, service] = files(directory, path);
        if name(&service).len() > LONGEST {
            return Err(Error::invalid(format!(
                "{path} is too long for --at-boot: {}, the name of its unit, has more than {LONGEST} bytes",
                name(&service)
            )));
        }
        if let (Some(_), None) = (read(&mount)?, owner(&mount)?) {
            return Err(Error::precondition(format!("{} is not cephlet's: move it away", mount.display())));
        }
        let line = |words: &[String]| {
            Ok::<_, Error>(words.iter().map(quoted).collect::<Result<Vec<_>>>()?.join(" "))
        };
        let parent = Path::new(path).parent().and_then(Path::to_str).unwrap_or("/");
        let text = include_str!("path.service").replace("@PARENT@", &quoted(parent)?);
        let text = text.replace("@PUBLISH@", &line(publish)?).replace("@UNPUBLISH@", &line(unpublish)?);
        let network = if volume.starts_with("local:") { "" } else { NETWORK };
        let text = text.replace("@NETWORK@", network).replace("@VOLUME@", &volume.replace('%', "%%"));
        Ok(Self([(mount, format!("{}Volume={volume}\n", include_str!("path.mount"))), (service, text)]))
    }

    /// Writes the units, enables them and starts them. What is published already stays so.
    ///
    /// # Errors
    /// Those of the file system and of systemctl(1). Repeated, it goes on.
    pub fn set_up(&self) -> Result<()> {
        for (file, text) in &self.0 {
            // systemd warns of units that others may not read.
            file::write_readable(file, text).map_err(failed("write", file))?;
        }
        // It reads all units again, too.
        systemctl(&["enable", "--now", &name(&self.0[0].0)])?;
        [Path::new(DIRECTORY), &Path::new(DIRECTORY).join("multi-user.target.wants")]
            .iter()
            .try_for_each(|directory| file::sync_dir(directory).map_err(failed("sync", directory)))
    }
}

/// Removes the units of a path, if they are for this volume. The volume must not be published there any more.
/// Returns the volume that they are for instead.
///
/// # Errors
/// FAILED_PRECONDITION if a later cephlet has written them; those of the file system and of systemctl(1).
/// Repeated, it goes on.
pub fn undo(path: &str, volume: &str) -> Result<Option<String>> {
    let files @ [mount, service] = &files(Path::new(DIRECTORY), path);
    match owner(mount)? {
        Some(own) if own == volume => {}
        other => return Ok(other),
    }
    let (mount, service) = (name(mount), name(service));
    systemctl(&["disable", &mount])?;
    // The service has begun to stop when the path was unmounted. It unpublishes once more, and no later
    // publishing may meet that. What is not loaded cannot be stopped, nor be forgotten as failed.
    for verb in ["stop", "reset-failed"] {
        let _ = systemctl(&[verb, &mount, &service]);
    }
    for file in files.iter().rev() {
        file::remove(file).map_err(failed("remove", file))?;
    }
    file::sync_dir(Path::new(DIRECTORY)).map_err(failed("sync", Path::new(DIRECTORY)))?;
    systemctl(&["daemon-reload"]).map(|()| None)
}

/// The files of the units of a path.
fn files(directory: &Path, path: &str) -> [PathBuf; 2] {
    let path = escaped(path);
    [format!("{path}.mount"), format!("cephlet-publish@{path}.service")].map(|name| directory.join(name))
}

/// The name of the unit in a file.
fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn failed<'a>(verb: &'a str, path: &'a Path) -> impl Fn(io::Error) -> Error + 'a {
    move |error| Error::io(format_args!("{verb} {}", path.display()), &error)
}

/// The text of a unit; None where there is no such file, or can be none.
fn read(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => {
            Ok(None)
        }
        read => read.map(Some).map_err(failed("read", file)),
    }
}

/// The volume that a mount unit is for; None if it is not cephlet's.
fn owner(mount: &Path) -> Result<Option<String>> {
    let text = read(mount)?.unwrap_or_default();
    let Some((_, own)) = text.split_once(SECTION) else { return Ok(None) };
    let later =
        || Error::precondition(format!("{} was written by a later cephlet: use that", mount.display()));
    own.trim_end().strip_prefix(FORMAT).map(|volume| Some(volume.to_string())).ok_or_else(later)
}

/// Runs systemctl(1). A start lasts as long as the publishing does.
fn systemctl(arguments: &[&str]) -> Result<()> {
    let processes = Processes::new(Tools::find(Vec::new()), ProcessLimits::new(1, Duration::MAX))
        .map_err(|error| Error::io("prepare for starting systemctl", &error))?;
    let command = Cmd::new(Tool::Systemctl, Class::Lasting).args(arguments);
    Ok(processes.run(&Call::internal("at boot"), &command).map(drop)?)
}

/// A path in the name of a unit, as `systemd-escape --path` makes it.
fn escaped(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let mut name = String::from(if parts.is_empty() { "-" } else { "" });
    for (at, byte) in parts.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at > 0 => name.push('.'),
            b':' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(byte.into()),
            _ => write!(name, "\\x{byte:02x}").expect("a string takes everything"),
        }
    }
    name
}

/// A word of a command line or of a list of paths: systemd.syntax(7). A control character can be in neither.
fn quoted(word: impl AsRef<str>) -> Result<String> {
    let word = word.as_ref();
    if word.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{word:?} has a control character, which no unit can have")));
    }
    Ok(format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")))
}

#[cfg(test)]
mod tests;
