//! The scripts with which shells complete command lines, run by those shells.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::cli::done;
use crate::support::daemon::binary;
use crate::support::machine::{run, text};
use crate::support::{Daemon, PATIENCE, Scratch, machine};

/// Completes each of these lines.
const BASH: &str = r#"
source "$1"
shift
for line; do
  COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
  read -ra COMP_WORDS <<<"$line"
  _cephlet
  echo "${COMPREPLY[*]}"
done
"#;

/// A folder with the program, by its name, and the script for a shell.
fn folder(scratch: &Scratch, shell: &str) -> String {
    symlink(binary(), scratch.path("cephlet")).expect("a link");
    let script = run(binary(), &["completion", shell]);
    fs::write(scratch.path("_cephlet"), script + "\n").expect("write the script");
    scratch.path("_cephlet").display().to_string()
}

/// A shell that finds the program and its daemon.
fn shell(name: &str, scratch: &Scratch, socket: &Path) -> Command {
    let mut command = machine::limited(PATIENCE, name);
    let path = std::env::var("PATH").expect("a path");
    // The variables of the tests are no settings of cephlet.
    command.env_clear().env("PATH", format!("{}:{path}", text(&scratch.path(""))));
    command.env("CSI_ENDPOINT", format!("unix://{}", socket.display()));
    command
}

#[track_caller]
fn lines(output: &Output) -> Vec<String> {
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && wrong.is_empty(), "{}: {said}{wrong}", output.status);
    said.lines().map(str::to_string).collect()
}

#[test]
fn bash_completes_commands_options_values_and_volumes() {
    let (daemon, scratch) = (Daemon::start(), Scratch::new());
    done(&daemon, "volume create web --size 32M");
    done(&daemon, "volume create Blog_2 --size 32M");
    let (script, page) = (folder(&scratch, "bash"), scratch.path("page"));
    fs::write(&page, "").expect("write a file");
    let begun = |path: &str| format!("cephlet volume publish web {path}");
    let cases = [
        ("cephlet vol".to_string(), "volume"),
        ("cephlet volume un".to_string(), "unpublish"),
        ("cephlet replication dis".to_string(), "disable"),
        ("cephlet volume create web --blo".to_string(), "--block"),
        ("cephlet volume create --fs xfs web --siz".to_string(), "--size"),
        ("cephlet volume create web --fs b".to_string(), "btrfs"),
        ("cephlet volume create web --fs=b".to_string(), "btrfs"),
        ("cephlet replication enable web --mode ".to_string(), "snapshot journal"),
        ("cephlet volume show w".to_string(), "web"),
        ("cephlet --json volume expand --size 64M w".to_string(), "web"),
        ("cephlet volume create copy --from-volume=w".to_string(), "web"),
        ("cephlet volume show B".to_string(), "Blog_2"),
        (begun(&text(&page)[..text(&page).len() - 1]), text(&page)),
        ("cephlet volume create w".to_string(), ""),
        ("cephlet no-command ".to_string(), ""),
    ];
    let output = shell("bash", &scratch, &daemon.path("csi.sock"))
        .args(["--norc", "-c", BASH, "bash", &script])
        .args(cases.iter().map(|(line, _)| line))
        .output();
    let found = lines(&output.expect("bash"));
    for ((line, right), found) in cases.iter().zip(&found) {
        assert_eq!(found, right, "{line}");
    }
    assert_eq!(found.len(), cases.len());
    for name in ["web", "Blog_2"] {
        done(&daemon, &format!("volume delete {name}"));
    }
}

/// Also if a daemon does not answer: whoever presses the key goes on writing after a second.
#[test]
fn without_an_answer_no_name_is_completed_and_nothing_said() {
    let scratch = Scratch::new();
    let silent = scratch.path("silent.sock");
    let _listener = UnixListener::bind(&silent).expect("bind");
    for socket in [silent, scratch.path("absent.sock")] {
        let output = shell(binary(), &scratch, &socket).args(["completion", "names"]).output();
        assert_eq!(lines(&output.expect("cephlet")), Vec::<String>::new(), "{}", socket.display());
    }
}

#[test]
#[ignore = "needs zsh and fish: tests/run --full"]
fn zsh_and_fish_accept_their_scripts_and_fish_completes() {
    let (daemon, scratch) = (Daemon::start(), Scratch::new());
    done(&daemon, "volume create web --size 32M");
    for name in ["zsh", "fish"] {
        let scratch = Scratch::new();
        let script = folder(&scratch, name);
        run(name, &["-n", &script]);
    }
    // Loaded as compinit does it; `compdef` is missing, and called only where it is read by `source`.
    let script = folder(&scratch, "zsh");
    let load =
        format!("fpath=({}) && autoload -Uz _cephlet && autoload +X _cephlet", text(&scratch.path("")));
    run("zsh", &["-f", "-c", &load]);

    fs::write(&script, run(binary(), &["completion", "fish"])).expect("write the script");
    let cases = [
        ("cephlet volume un", "unpublish"),
        ("cephlet volume create web --blo", "--block"),
        ("cephlet volume create web --fs b", "btrfs"),
        ("cephlet volume show w", "web"),
    ];
    for (line, right) in cases {
        let command = format!("source {script}; complete -C '{line}'");
        let output = shell("fish", &scratch, &daemon.path("csi.sock"))
            .env("HOME", scratch.path(""))
            .args(["--no-config", "-c", &command])
            .output();
        let found = lines(&output.expect("fish"));
        let words: Vec<&str> = found.iter().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(words, [right], "{line}");
    }
    done(&daemon, "volume delete web");
}
