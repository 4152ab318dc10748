//! The operator's command line: the daemon itself, a look at its settings, and a CSI client of its socket.
//!
//! `syntax` reads arguments by the tables in `commands`, from which `help` is made too. A command asks the
//! daemon through `plugin` and gives a `report`, which is printed here; or a `failure`, which has an exit
//! status.

mod commands;
mod failure;
#[cfg(test)]
mod fake;
mod fence;
mod help;
mod identity;
#[cfg(test)]
mod manual;
mod node;
mod plugin;
mod publications;
mod publish;
mod replication;
mod report;
mod session;
mod settings;
mod snapshot;
mod syntax;
mod values;
mod volume;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::config::{Config, Role};
use crate::daemon;
use crate::error::Error;
use crate::layout::Layout;

use commands::COMMANDS;
use failure::{CliError, CliResult};
use plugin::Client;
use publications::Publications;
use report::Report;
use session::Session;
use syntax::{Action, Command, Given, Parsed};

/// How long a question may take that needs no work on a volume.
const QUESTION: Duration = Duration::from_secs(30);

/// Commands that only ask. Others may take as long as the daemon works.
const QUESTIONS: [&str; 3] = ["probe", "info", "capacity"];

/// Does what the command line says; the exit status is one of those in `cephlet --help`.
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
        Action::Config => print(&settings::describe(&settings::load(Role::Daemon)?)),
        Action::Version => print(concat!("cephlet ", env!("CARGO_PKG_VERSION"), "\n")),
        Action::Do(work) => print(&work(&given)?),
        Action::Ask(ask) => {
            let report = with_session(command, &given, ask)?;
            report.notes.iter().for_each(|note| complain(note));
            print(&report.rendered(given.has("json")))
        }
    }
}

/// Connects to the daemon and runs a command against it.
fn with_session(
    command: &Command,
    given: &Given,
    ask: fn(&Session<'_>, &Given) -> CliResult<Report>,
) -> CliResult<Report> {
    let config: Config = settings::load(Role::Client)?;
    let socket = given.value("socket").map_or(config.endpoint.clone(), PathBuf::from);
    let asked = given.value("timeout").map(|text| values::duration("timeout", text)).transpose()?;
    let timeout = asked.or(QUESTIONS.contains(&command.name).then_some(QUESTION));
    let client = Client::connect(&socket, timeout)?;
    ask(&Session { plugin: &client, publications: Publications::new(Layout::new(&config)) }, given)
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> CliResult<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::from(Error::io("write to standard output", &error)))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to stderr. Not eprintln!, which panics when nobody reads.
fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "cephlet: {line}");
}
