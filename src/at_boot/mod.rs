//! Volumes that are published again after a boot: two units of systemd for each path.
//!
//! A service publishes the volume when it starts, and unpublishes it when it stops. A mount unit of the path
//! requires it: `RequiresMountsFor=` of other units finds that, and no service. Each stops with the other, so
//! that the daemon's record never says other than what systemd says.
//!
//! A crash leaves at most files that the repeated command replaces or removes: the service's, which tells
//! whose the path is, is written first and removed last.

mod units;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, ProcessLimits, Processes, Runner, Tool, Tools};
use crate::sys::file;
use units::{Owner, Units};

/// Where an administrator's units are: systemd.unit(5).
const DIRECTORY: &str = "/etc/systemd/system";
/// A directory that exists while systemd runs this machine: sd_booted(3).
const BOOTED: &str = "/run/systemd/system";
/// For one command of systemctl, without the jobs that it waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A path at which a volume is to be published after each boot.
pub struct AtBoot {
    units: Units,
    directory: PathBuf,
}

impl AtBoot {
    /// Looks whether units can be written for this absolute path; changes nothing.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where systemd does not run this machine, or where the path has a mount unit of
    /// somebody else; INVALID_ARGUMENT for a path that no unit can have.
    pub fn prepare(path: &str) -> Result<Self> {
        Self::prepare_in(Path::new(BOOTED), Path::new(DIRECTORY), path)
    }

    fn prepare_in(booted: &Path, directory: &Path, path: &str) -> Result<Self> {
        if !booted.is_dir() {
            return Err(Error::precondition(format!(
                "--at-boot writes units for systemd, which does not run this machine ({} is not there): publish \
                 {path} without it, by what starts services here",
                booted.display()
            )));
        }
        let new = Self { units: Units::of(path)?, directory: directory.to_path_buf() };
        for file in new.files() {
            match read(&file)?.as_deref().map(units::owner) {
                None | Some(Owner::Volume(_)) => {}
                Some(Owner::Other) => return Err(not_ours(&file, "is not cephlet's")),
                Some(Owner::Later) => return Err(not_ours(&file, "was written by a later cephlet")),
            }
        }
        Ok(new)
    }

    /// Writes the units, with the command lines that publish and unpublish the volume, enables them and starts
    /// them. What is published already stays so.
    ///
    /// # Errors
    /// Those of the file system and of systemctl(1). Repeated, it goes on.
    pub fn set_up(&self, volume: &str, publish: &[String], unpublish: &[String]) -> Result<()> {
        let texts = [self.units.service_text(volume, publish, unpublish)?, units::mount_text(volume)];
        for (file, text) in self.files().iter().zip(texts) {
            file::write_whole(file, text)
                .map_err(|error| Error::io(format!("write {}", file.display()), &error))?;
        }
        // It reads all units again, too.
        Systemctl::new()?.run(&["enable", "--now", &self.units.mount()])?;
        synced(&self.directory.join("multi-user.target.wants"))?;
        synced(&self.directory)
    }

    /// The files of both units, the service's first.
    fn files(&self) -> [PathBuf; 2] {
        [self.units.service(), self.units.mount()].map(|name| self.directory.join(name))
    }
}

/// Removes the units of a path, if they are for this volume. The volume must not be published there any more.
/// Returns the volume that they are for instead.
///
/// # Errors
/// FAILED_PRECONDITION if a later cephlet has written them; those of the file system and of systemctl(1).
/// Repeated, it goes on.
pub fn undo(path: &str, volume: &str) -> Result<Option<String>> {
    // A path that no unit can have has none.
    let Ok(units) = Units::of(path) else { return Ok(None) };
    let [service, mount] = AtBoot { units, directory: DIRECTORY.into() }.files();
    match read(&service)?.as_deref().map(units::owner) {
        None | Some(Owner::Other) => return Ok(None),
        Some(Owner::Later) => return Err(not_ours(&service, "was written by a later cephlet")),
        Some(Owner::Volume(other)) if other != volume => return Ok(Some(other.to_string())),
        Some(Owner::Volume(_)) => {}
    }
    let systemctl = Systemctl::new()?;
    let names = [&mount, &service].map(|file| file.file_name().unwrap_or_default().to_string_lossy());
    if !file::is_absent(&mount) {
        systemctl.run(&["disable", &names[0]])?;
    }
    // The service has begun to stop when the path was unmounted. It unpublishes once more: no later publishing
    // may meet that.
    systemctl.run(&["stop", &names[0], &names[1]])?;
    for file in [&mount, &service] {
        file::remove(file).map_err(|error| Error::io(format!("remove {}", file.display()), &error))?;
    }
    synced(Path::new(DIRECTORY))?;
    systemctl.run(&["daemon-reload"])?;
    // A unit that has failed would be listed as such although its file is gone. One that has not is not loaded.
    let _ = systemctl.run(&["reset-failed", &names[0], &names[1]]);
    Ok(None)
}

/// Waits until the names in a directory are on disk.
fn synced(directory: &Path) -> Result<()> {
    file::sync_dir(directory).map_err(|error| Error::io(format!("sync {}", directory.display()), &error))
}

fn read(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("read {}", file.display()), &error)),
    }
}

fn not_ours(file: &Path, why: &str) -> Error {
    Error::precondition(format!("{} {why}: it is left alone; move it away first", file.display()))
}

/// systemctl(1).
struct Systemctl(Processes);

impl Systemctl {
    fn new() -> Result<Self> {
        let processes = Processes::new(Tools::find(Vec::new()), ProcessLimits::new(1, PATIENCE));
        processes.map(Self).map_err(|error| Error::io("prepare for starting systemctl", &error))
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        // A start lasts as long as the publishing does.
        let command = Cmd::new(Tool::Systemctl, Class::Lasting).args(arguments);
        self.0.run(&Call::internal("at boot"), &command)?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_host_without_systemd_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        let error = AtBoot::prepare_in(&absent, directory.path(), "/srv/web").err().unwrap();
        assert_eq!(error.kind(), Kind::Precondition);
        assert!(error.message().contains("systemd, which does not run this machine"), "{error}");
    }

    #[test]
    fn units_of_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let prepare = || AtBoot::prepare_in(directory.path(), directory.path(), "/srv/web");
        let unit = directory.path().join("srv-web.mount");
        assert!(prepare().is_ok());
        for (text, why) in [
            ("[Mount]\nWhat=/dev/sda\n".to_string(), "is not cephlet's"),
            (units::mount_text("v").replace("Format=1", "Format=2"), "a later cephlet"),
        ] {
            fs::write(&unit, text).unwrap();
            let error = prepare().err().unwrap();
            assert!(error.kind() == Kind::Precondition && error.message().contains(why), "{error}");
        }
        fs::write(&unit, units::mount_text("v")).unwrap();
        assert!(prepare().is_ok());
    }
}
