//! Processes that outlive the daemon, even if a supervisor ends everything in the daemon's cgroup:
//! systemd.scope(5).

use std::ffi::OsString;
use std::path::Path;

use super::command::MemoryFile;
use super::{Cmd, Tool};

/// A directory that exists while systemd runs this machine: sd_booted(3).
pub(super) const BOOTED: &str = "/run/systemd/system";

/// systemd-run(1) makes a scope, enters it and becomes the program: same process, same descriptors.
const WORDS: [&str; 4] = ["--scope", "--quiet", "--collect", "--"];

/// `cmd`, whose tool is `program`, started in a scope of its own.
pub(super) fn in_scope(cmd: &Cmd, program: &Path) -> Cmd {
    let mut args: Vec<OsString> = WORDS.map(OsString::from).into();
    args.push(program.into());
    let before = args.len();
    args.extend(cmd.args.iter().cloned());
    let files = cmd
        .files
        .iter()
        .map(|file| MemoryFile { argument: file.argument + before, contents: file.contents.clone() });
    Cmd { tool: Tool::SystemdRun, args, files: files.collect(), ..cmd.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::*;
    use crate::secrets::Secret;

    #[test]
    fn the_command_comes_after_the_scope() {
        let cmd = Cmd::new(Tool::RbdNbd, Class::Change).memory_file("--keyfile", Secret::new("k")).arg("map");
        let scoped = in_scope(&cmd, Path::new("/usr/bin/rbd-nbd"));
        let words = "systemd-run --scope --quiet --collect -- /usr/bin/rbd-nbd --keyfile /proc/self/fd/3 map";
        assert_eq!((scoped.to_string().as_str(), scoped.class), (words, Class::Change));
        assert_eq!(scoped.args[scoped.files[0].argument], "/proc/self/fd/3");
        assert_eq!(scoped.memory_files().collect::<Vec<_>>(), ["k"]);
    }
}
