//! The operator's command line: the daemon itself, and a client of its socket. The client speaks CSI where
//! CSI has a suitable rpc, else cephlet's own operator service.
//!
//! `syntax` reads arguments by the tables in `commands`, from which `help` is made too. A command asks the
//! daemon through `plugin` and gives a `report`, which is printed here; or a `failure`, which has an exit
//! status.

mod commands;
mod completion;
mod condition;
mod doctor;
mod failure;
#[cfg(test)]
mod fake;
mod fence;
mod help;
mod here;
mod identity;
mod jobs;
#[cfg(test)]
mod manual;
mod names;
mod node;
mod plugin;
mod publish;
mod replication;
mod report;
mod settings;
mod snapshot;
mod syntax;
mod values;
mod volume;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use crate::config::{Config, Role};
use crate::daemon;
use crate::error::Error;

use commands::COMMANDS;
use failure::{CliError, CliResult};
use plugin::{Client, Plugin};
use report::Report;
use syntax::{Action, Command, Given, Parsed};

/// How long a command that only asks may take if it needs no work on a volume.
const QUESTION: Duration = Duration::from_secs(30);

/// The pause between two attempts of a command with --retry.
const RETRY: Duration = Duration::from_secs(10);

/// Commands that only ask and need no work on a volume. Others may take as long as the daemon works.
const QUESTIONS: [&str; 6] = ["config", "probe", "info", "jobs", "capacity", "doctor"];

/// Commands that may wait for long, and show on a terminal how far that is which they wait for.
const SHOWN: [&str; 4] = ["volume create", "volume expand", "volume publish", "volume delete"];

/// Does what the command line says. `cephlet --help` lists the exit statuses.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    match syntax::parse(COMMANDS, arguments).and_then(perform) {
        Ok(status) => status,
        Err(failure) => {
            complain(&failure.to_string());
            ExitCode::from(&failure)
        }
    }
}

fn perform(parsed: Parsed) -> CliResult<ExitCode> {
    let (command, given) = match parsed {
        Parsed::Help(topic) => return print(&format!("{}\n", help::help(&topic))),
        Parsed::Run(command, given) => (command, given),
    };
    match command.action {
        Action::Serve => Ok(daemon::run(&settings::load(Role::Daemon)?)),
        Action::Version => print(concat!("cephlet ", env!("CARGO_PKG_VERSION"), "\n")),
        Action::Complete(script) => print(&script(COMMANDS)),
        Action::Do(work) => print(&work(&given)?),
        Action::Ask(ask) => {
            let report = insist(given.has("retry"), RETRY, || answer(command, ask, &given))?;
            report.notes.iter().for_each(|note| complain(note));
            report.hint.iter().filter(|_| io::stderr().is_terminal()).for_each(|hint| complain(hint));
            print(&report.rendered(given.has("json")))?;
            Ok(ExitCode::from(report.status))
        }
    }
}

/// Asks the daemon, or looks without it where that is enough.
fn answer(command: &Command, ask: syntax::Ask, given: &Given) -> CliResult<Report> {
    if given.has("check") {
        return settings::check();
    }
    let plugin = match connect(command, given) {
        Err(failure) if command.name == doctor::DOCTOR.name => {
            return doctor::without_daemon(failure, Config::load(Role::Client));
        }
        plugin => plugin?,
    };
    let socket = settings::socket(given)?;
    let ask = |plugin: &dyn Plugin, given: &Given| match SHOWN.contains(&command.name) {
        true => jobs::shown(socket.clone(), given.word(0), || ask(plugin, given)),
        false => ask(plugin, given),
    };
    names::ask(&plugin, command, ask, given.clone())
}

/// Asks again while the failure may pass, if `retries`.
fn insist<T>(retries: bool, pause: Duration, ask: impl Fn() -> CliResult<T>) -> CliResult<T> {
    loop {
        match ask() {
            Err(failure) if retries && failure.may_pass() => complain(&failure.to_string()),
            outcome => return outcome,
        }
        thread::sleep(pause);
    }
}

/// Connects to the daemon.
fn connect(command: &Command, given: &Given) -> CliResult<Client> {
    let socket = settings::socket(given)?;
    Ok(Client::connect(&socket, timeout(command, given)?)?)
}

/// How long each call may take; None if as long as the daemon works. `doctor --fix` changes something.
fn timeout(command: &Command, given: &Given) -> CliResult<Option<Duration>> {
    let asked = given.value("timeout").map(|text| values::duration("timeout", text)).transpose()?;
    let only_asks = QUESTIONS.contains(&command.name) && !given.has("fix");
    Ok(asked.or(only_asks.then_some(QUESTION)))
}

/// Writes to stdout. A reader that closes the pipe early (`| head`) is no failure.
fn print(text: &str) -> CliResult<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::from(Error::io("write to standard output", &error)))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to stderr, but without eprintln!, which panics if the pipe has no reader.
fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "cephlet: {line}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_question_is_given_up_and_a_change_is_not() {
        let timeout =
            |line: &str| match syntax::parse(COMMANDS, line.split_whitespace().map(Into::into).collect())
                .unwrap()
            {
                Parsed::Run(command, given) => timeout(command, &given).unwrap(),
                Parsed::Help(_) => panic!("no command in {line:?}"),
            };
        assert_eq!((timeout("doctor"), timeout("doctor --fix CopyLeft:x")), (Some(QUESTION), None));
        assert_eq!(timeout("doctor --fix CopyLeft:x --timeout 5"), Some(Duration::from_secs(5)));
        assert_eq!(timeout("volume delete web"), None);
    }

    #[test]
    fn a_command_is_repeated_only_while_its_failure_may_pass() {
        let asked = |retries: bool, failures: [Error; 2]| {
            let left = RefCell::new(failures.to_vec());
            let ask = || left.borrow_mut().pop().map_or(Ok(()), |failure| Err(failure.into()));
            (insist(retries, Duration::ZERO, ask).is_ok(), left.borrow().len())
        };
        let (passing, lasting) = (Error::unavailable("silent"), Error::not_found("gone"));
        assert_eq!(asked(true, [passing.clone(), Error::precondition("in use")]), (true, 0));
        assert_eq!(asked(true, [passing.clone(), lasting]), (false, 1));
        assert_eq!(asked(false, [passing.clone(), passing]), (false, 1));
    }
}
