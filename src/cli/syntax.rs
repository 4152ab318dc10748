//! The grammar of the command line: what a command takes, and the parser for that.
//!
//! Parsing and help are made from the same tables, so that neither knows an option that the other does not.

use std::collections::BTreeMap;
use std::ffi::OsString;

use lexopt::Arg;

use crate::cli::failure::{CliError, CliResult};
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;

/// A word, or the value of an option, that is the name of a volume or its ID.
pub const VOLUME: &str = "VOLUME";
/// The same for a snapshot: `VOLUME@NAME`, or its ID.
pub const SNAPSHOT: &str = "SNAPSHOT";

/// An option of a command.
#[derive(Debug)]
pub struct Opt {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// The name of its value in the help; None for a flag.
    pub value: Option<&'static str>,
    /// All that its value can be; empty if that is no list.
    pub values: &'static [&'static str],
    /// It may be given more than once.
    pub repeated: bool,
    /// What it does, in a few words.
    pub about: &'static str,
}

/// A command that asks the daemon.
pub type Ask = fn(&dyn Plugin, &Given) -> CliResult<Report>;

/// What a command does.
#[derive(Debug)]
pub enum Action {
    /// Be the daemon.
    Serve,
    /// Show this program's version.
    Version,
    /// Make text of the table of commands, and print it.
    Complete(fn(&'static [Command]) -> String),
    /// Work that takes no options of a client; returns the text to print.
    Do(fn(&Given) -> CliResult<String>),
    /// Ask the daemon.
    Ask(Ask),
}

/// A command.
#[derive(Debug)]
pub struct Command {
    /// The words that name it: "volume create".
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The words that follow, all required: [`VOLUME`], "PATH".
    pub words: &'static [&'static str],
    /// Its own options.
    pub options: &'static [Opt],
    /// Further paragraphs of its help.
    pub notes: &'static [&'static str],
    /// The fields of its JSON; empty if it has none.
    pub json: &'static str,
    /// What it does.
    pub action: Action,
}

impl Opt {
    /// The same with a list of all that its value can be.
    pub const fn one_of(mut self, values: &'static [&'static str]) -> Self {
        self.values = values;
        self
    }
}

/// A flag.
pub const fn flag(name: &'static str, about: &'static str) -> Opt {
    Opt { name, value: None, values: &[], repeated: false, about }
}

/// An option with a value.
pub const fn option(name: &'static str, value: &'static str, about: &'static str) -> Opt {
    Opt { name, value: Some(value), values: &[], repeated: false, about }
}

/// An option with a value that may be given more than once.
pub const fn repeated(name: &'static str, value: &'static str, about: &'static str) -> Opt {
    Opt { name, value: Some(value), values: &[], repeated: true, about }
}

/// The options of every command that asks the daemon.
pub const CLIENT: &[Opt] = &[
    option(
        "socket",
        "PATH",
        "the daemon's socket (default: CSI_ENDPOINT, else csi.sock in CEPHLET_RUNTIME_DIR)",
    ),
    option(
        "timeout",
        "TIME",
        "limit of a call: 30, 5m, 1h (default: 30s for config, probe, info, jobs, capacity and plain doctor, else none)",
    ),
    flag("json", "print JSON, for programs"),
];

/// The option of every command that takes a volume or a snapshot and has no parameters of its own.
const PLACE: Opt = repeated("parameter", "KEY=VALUE", "where the volume is: pool=fast; may be repeated");

impl Command {
    /// Whether it takes a volume or a snapshot.
    pub fn takes_names(&self) -> bool {
        self.words.iter().any(|word| [VOLUME, SNAPSHOT].contains(word))
    }

    /// Whether it is one of a group: "volume create" is one of "volume".
    pub fn is_in(&self, group: &str) -> bool {
        self.name.strip_prefix(group).is_some_and(|rest| rest.starts_with(' '))
    }

    /// Whether it asks the daemon, and so takes [`CLIENT`]'s options.
    pub fn asks(&self) -> bool {
        matches!(self.action, Action::Ask(_))
    }

    /// Its own options, and [`PLACE`].
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> {
        let has_parameters = self.options.iter().any(|option| option.name == PLACE.name);
        let place: &[Opt] = if self.takes_names() && !has_parameters { &[PLACE] } else { &[] };
        self.options.iter().chain(place)
    }
}

/// What was given to a command.
#[derive(Clone, Debug, Default)]
pub struct Given {
    words: Vec<String>,
    options: Vec<(&'static str, String)>,
    /// The names of volumes and snapshots, by their IDs.
    pub names: BTreeMap<String, String>,
}

impl Given {
    /// The word at this place; parsing has made sure that it is there.
    pub fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// All values of an option.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The words and the values of the command's own options, each with its name in the help.
    pub fn texts<'a>(
        &'a mut self,
        command: &'a Command,
    ) -> impl Iterator<Item = (&'static str, &'a mut String)> {
        let kind = |name: &str| command.options().find(|option| option.name == name)?.value;
        let words = command.words.iter().copied().zip(&mut self.words);
        words.chain(self.options.iter_mut().filter_map(move |(name, value)| Some((kind(name)?, value))))
    }

    /// Refuses two options that contradict each other.
    pub fn not_both(&self, one: &str, other: &str) -> CliResult<()> {
        match self.has(one) && self.has(other) {
            true => Err(CliError::usage(format!("--{one} and --{other} exclude each other"))),
            false => Ok(()),
        }
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Parsed {
    /// A command, and what was given to it.
    Run(&'static Command, Given),
    /// Help on a command or a group of them; on all if empty.
    Help(String),
}

/// The words and options read so far.
struct Reading {
    commands: &'static [Command],
    name: String,
    command: Option<&'static Command>,
    given: Given,
    help: bool,
}

/// Reads a command line of one of these commands.
///
/// # Errors
/// A usage error that names the word or option that does not fit.
pub fn parse(commands: &'static [Command], arguments: Vec<OsString>) -> CliResult<Parsed> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut reading =
        Reading { commands, name: String::new(), command: None, given: Given::default(), help: false };
    while let Some(argument) = parser.next().map_err(CliError::usage)? {
        match argument {
            Arg::Value(word) => reading.word(text(word)?)?,
            Arg::Short('h') => reading.help = true,
            Arg::Short(letter) => return Err(reading.usage(format!("there is no option -{letter}"))),
            Arg::Long("help") => reading.help = true,
            Arg::Long("version") => reading.version()?,
            Arg::Long(name) => {
                let option = reading.find(name)?;
                let value = match option.value {
                    Some(_) => text(parser.value().map_err(|error| reading.usage(error))?)?,
                    None => String::new(),
                };
                reading.option(option, value)?;
            }
        }
    }
    reading.finish()
}

fn text(value: OsString) -> CliResult<String> {
    value.into_string().map_err(|value| CliError::usage(format!("{} is not UTF-8", value.display())))
}

impl Reading {
    /// The command of this name.
    fn named(&self, name: &str) -> Option<&'static Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// A usage error that says where the help is.
    fn usage(&self, what: impl std::fmt::Display) -> CliError {
        let space = if self.name.is_empty() { "" } else { " " };
        CliError::usage(format!("{what}; see cephlet {}{space}--help", self.name))
    }

    /// A word: a part of the command's name, or one of its own words.
    fn word(&mut self, word: String) -> CliResult<()> {
        if let Some(command) = self.command {
            if self.given.words.len() == command.words.len() {
                return Err(self.usage(format!("{word:?} is one word too many")));
            }
            self.given.words.push(word);
            return Ok(());
        }
        let name = if self.name.is_empty() { word } else { format!("{} {word}", self.name) };
        self.command = self.named(&name);
        if self.command.is_none() && !self.commands.iter().any(|command| command.is_in(&name)) {
            return Err(self.usage(format!("there is no command {name:?}")));
        }
        self.name = name;
        Ok(())
    }

    /// `--version`, as most programs have it.
    fn version(&mut self) -> CliResult<()> {
        match self.name.is_empty() {
            true => self.word("version".to_string()),
            false => Err(self.usage("there is no option --version")),
        }
    }

    /// The option of this name. Before the command's name only the options of all commands are allowed.
    fn find(&self, name: &str) -> CliResult<&'static Opt> {
        let own = self.command.into_iter().flat_map(Command::options);
        let found = own.chain(CLIENT).find(|option| option.name == name);
        found.ok_or_else(|| self.usage(format!("there is no option --{name} here")))
    }

    fn option(&mut self, option: &'static Opt, value: String) -> CliResult<()> {
        if !option.repeated && self.given.has(option.name) {
            return Err(self.usage(format!("--{} is given twice", option.name)));
        }
        self.given.options.push((option.name, value));
        Ok(())
    }

    fn finish(self) -> CliResult<Parsed> {
        if self.help {
            return Ok(Parsed::Help(self.name));
        }
        // Without any word the command is `serve`.
        let chosen = if self.name.is_empty() { self.named("serve") } else { self.command };
        let Some(command) = chosen else {
            return Err(self.usage(format!("{:?} is followed by one of its commands", self.name)));
        };
        if let Some(missing) = command.words.get(self.given.words.len()) {
            return Err(self.usage(format!("{missing} is missing")));
        }
        let asks = command.asks();
        if let Some((name, _)) =
            self.given.options.iter().find(|(name, _)| !asks && CLIENT.iter().any(|it| it.name == *name))
        {
            return Err(self.usage(format!("--{name} does not go with {}", command.name)));
        }
        Ok(Parsed::Run(command, self.given))
    }
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
