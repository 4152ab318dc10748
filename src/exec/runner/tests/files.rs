//! Files that a process is given to read or to keep open, and that no other process gets.

use super::*;
use crate::secrets::Secret;
use crate::sys::byte_lock::{ByteLock, is_taken};

/// Prints the file that its last argument names, and all its arguments.
const READ_FILE: &str = r#"cat "$2"; echo; tr '\0' ' ' < /proc/$$/cmdline"#;

#[test]
fn a_key_reaches_the_process_by_no_command_line() {
    let (stubs, call) = (Stubs::new(), Call::internal("test"));
    let cmd = stubs
        .cmd(Class::Question, READ_FILE)
        .memory_file("--keyfile", Secret::new("AQDkey=="))
        .stdin("input");
    assert!(cmd.to_string().ends_with(" --keyfile /proc/self/fd/3"), "{cmd}");
    assert!(!format!("{cmd} {cmd:?}").contains("AQDkey"));
    let seen = String::from_utf8(stubs.processes.run(&call, &cmd).unwrap().stdout).unwrap();
    let (key, command_line) = seen.split_once('\n').unwrap();
    assert_eq!(key, "AQDkey==");
    assert!(
        command_line.contains("--keyfile /proc/self/fd/") && !command_line.contains("AQDkey"),
        "{command_line}"
    );
}

#[test]
fn what_a_command_or_a_helper_leaves_running_holds_its_lock() {
    let (stubs, call) = (stubs_with_helper("sleep 1000 & echo $!"), Call::internal("test"));
    let open = || fs::File::options().create(true).append(true).open(stubs.dir.path().join("locks")).unwrap();
    let run = |lock: &ByteLock| {
        let cmd = stubs.cmd(Class::Change, "sleep 1000 & echo $!").keeping_open(lock.file());
        stubs.processes.run(&call, &cmd).unwrap().stdout
    };
    let ask =
        |lock: &ByteLock| stubs.processes.ask(&call, "map", Class::Change, b"", Some(lock.file())).unwrap();
    for start in [&run as &dyn Fn(&ByteLock) -> Vec<u8>, &ask] {
        let lock = ByteLock::try_take(open(), 8).unwrap().unwrap();
        let pid = String::from_utf8(start(&lock)).unwrap();
        drop(lock);
        assert!(is_taken(&open(), 8).unwrap(), "UNSAFE: others begin while it is at it");
        system(Command::new("kill").args(["-9", pid.trim()]));
        await_end(&pid);
        assert!(!is_taken(&open(), 8).unwrap());
    }
}

#[test]
fn several_files_are_told_apart() {
    let (stubs, call) = (Stubs::new(), Call::internal("test"));
    let cmd = stubs.cmd(Class::Question, r#"cat "$4" "$2""#);
    let cmd = cmd.memory_file("--a", Secret::new("first")).memory_file("--b", Secret::new("second"));
    assert_eq!(stubs.processes.run(&call, &cmd).unwrap().stdout, b"secondfirst");
    assert_eq!(cmd.memory_files().collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
fn a_key_leaks_into_no_other_process() {
    let (stubs, call) = (Stubs::with(|limits| limits.tools = 8), Call::internal("test"));
    let keyed = stubs.cmd(Class::Question, r#"cat "$2""#).memory_file("--keyfile", Secret::new("AQDkey=="));
    let plain = stubs.cmd(Class::Question, "readlink /proc/$$/fd/*; true");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..30)
                    .for_each(|_| assert_eq!(stubs.processes.run(&call, &keyed).unwrap().stdout, b"AQDkey=="))
            });
            scope.spawn(|| {
                for _ in 0..30 {
                    let open = String::from_utf8(stubs.processes.run(&call, &plain).unwrap().stdout).unwrap();
                    assert!(open.contains("pipe:") && !open.contains("memfd"), "{open}");
                }
            });
        }
    });
}
