//! The scripts by which shells complete command lines, made from the table of commands; and the names of
//! volumes, which those scripts ask for.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cli::failure::CliResult;
use crate::cli::plugin::{Client, Plugin};
use crate::cli::settings;
use crate::cli::syntax::{Action, CLIENT, Command, Given, Opt, VOLUME};
use crate::config::Role;
use crate::grpc::proto::cephlet_operator_v1::ListReachableRequest;

const FOR_BASH: &str = include_str!("completion/bash.sh");
const FOR_ZSH: &str = include_str!("completion/zsh.zsh");
const FOR_FISH: &str = include_str!("completion/fish.fish");

/// How long somebody waits who has pressed the key.
const PATIENCE: Duration = Duration::from_secs(1);

/// `cephlet completion bash`.
pub const BASH: Command = script("completion bash", bash);
/// `cephlet completion zsh`.
pub const ZSH: Command = script("completion zsh", zsh);
/// `cephlet completion fish`.
pub const FISH: Command = script("completion fish", fish);

/// `cephlet completion names`.
pub const NAMES: Command = Command {
    name: "completion names",
    about: "print the names of volumes, for these scripts",
    words: &[],
    options: &[],
    notes: &["It asks the daemon for a second at the most, and prints nothing without an answer."],
    json: "",
    action: Action::Do(names),
};

const fn script(name: &'static str, make: fn(&'static [Command]) -> String) -> Command {
    let about = "print the script by which this shell completes commands of cephlet";
    Command { name, about, words: &[], options: &[], notes: &[], json: "", action: Action::Complete(make) }
}

/// What a word or the value of an option can be.
enum Values {
    Volumes,
    Files,
    Listed(&'static [&'static str]),
    Any,
}

/// The values of a word, or of an option, that has this name in the help.
fn values(name: &str, listed: &'static [&'static str]) -> Values {
    match (name, listed) {
        (VOLUME, _) => Values::Volumes,
        ("PATH" | "FILE", _) => Values::Files,
        (_, []) => Values::Any,
        (_, listed) => Values::Listed(listed),
    }
}

/// All options of a command but --help.
fn options(command: &Command) -> impl Iterator<Item = &'static Opt> {
    let client: &[Opt] = if command.asks() { CLIENT } else { &[] };
    command.options().chain(client)
}

/// The words that can begin or go on the name of a command, with what they do.
struct Group {
    name: &'static str,
    members: Vec<(&'static str, String)>,
}

/// What begins a name, and what goes on each of the beginnings.
fn groups(commands: &'static [Command]) -> Vec<Group> {
    let split = |command: &Command| command.name.split_once(' ').unwrap_or(("", command.name));
    let names: BTreeSet<&str> = commands.iter().map(|command| split(command).0).collect();
    let group = |name: &'static str| {
        let own = commands.iter().filter(|command| split(command).0 == name);
        Group { name, members: own.map(|it| (split(it).1, it.about.to_string())).collect() }
    };
    let (mut first, others): (Vec<_>, Vec<_>) =
        names.into_iter().map(group).partition(|group| group.name.is_empty());
    let verbs = |group: &Group| group.members.iter().map(|(verb, _)| *verb).collect::<Vec<_>>().join(", ");
    for group in &mut first {
        group.members.extend(others.iter().map(|other| (other.name, verbs(other))));
    }
    first.into_iter().chain(others).collect()
}

/// Words as all three shells read them, with blanks between.
fn quoted(words: impl IntoIterator<Item = String>) -> String {
    let words = words.into_iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    words.collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    quoted([word.to_string()])
}

fn bash(commands: &'static [Command]) -> String {
    let option = |option: &Opt| match (option.value, option.values) {
        (None, _) => format!("--{}", option.name),
        (Some(value), []) => format!("--{}={value}", option.name),
        (_, values) => format!("--{}={}", option.name, values.join(",")),
    };
    let with_help = |options: &mut dyn Iterator<Item = &'static Opt>| {
        quoted(options.map(option).chain(["--help".to_string()]))
    };
    let group = |group: Group| {
        let names = quoted(group.members.iter().map(|(name, _)| (*name).to_string()));
        format!("    {}) names=({names}) options=({}) ;;\n", quote(group.name), with_help(&mut CLIENT.iter()))
    };
    let command = |command: &Command| {
        let (words, options) = (command.words.join(" "), with_help(&mut options(command)));
        format!("    {}) words=({words}) options=({options}) ;;\n", quote(command.name))
    };
    let lines = groups(commands).into_iter().map(group).chain(commands.iter().map(command));
    FOR_BASH.replace("@COMMANDS@\n", &lines.collect::<String>())
}

fn zsh(commands: &'static [Command]) -> String {
    let action = |name: &str, listed| match values(name, listed) {
        Values::Volumes => "_cephlet_volumes".to_string(),
        Values::Files => "_files".to_string(),
        Values::Listed(values) => format!("({})", values.join(" ")),
        Values::Any => " ".to_string(),
    };
    let option = |option: &Opt| {
        let Opt { name, about, .. } = option;
        let star = if option.repeated { "*" } else { "" };
        match option.value {
            None => format!("{star}--{name}[{about}]"),
            Some(value) => format!("{star}--{name}=[{about}]:{value}:{}", action(value, option.values)),
        }
    };
    let group = |Group { name, members }| {
        let members = quoted(members.into_iter().map(|(member, about)| format!("{member}:{about}")));
        format!("    {}) _cephlet_choose {members} ;;\n", quote(&format!("{name} ")))
    };
    let command = |command: &Command| {
        let count = command.name.split(' ').count();
        let words = command.words.iter().map(|word| format!(":{word}:{}", action(word, &[])));
        let arguments = quoted(options(command).map(option).chain(words));
        format!("    {}*) _cephlet_arguments {count} {arguments} ;;\n", quote(&format!("{} ", command.name)))
    };
    let lines = groups(commands).into_iter().map(group).chain(commands.iter().map(command));
    FOR_ZSH.replace("@COMMANDS@\n", &lines.collect::<String>())
}

fn fish(commands: &'static [Command]) -> String {
    let values = |name: &str, listed| match values(name, listed) {
        Values::Volumes => "-x -a '(cephlet completion names 2>/dev/null)'".to_string(),
        Values::Files => "-r -F".to_string(),
        Values::Listed(values) => format!("-x -a {}", quote(&values.join(" "))),
        Values::Any => "-x".to_string(),
    };
    let complete = |condition: String, what: String| format!("complete -c cephlet -n '{condition}' {what}\n");
    let group = |Group { name, members }| -> String {
        let one = |(member, about): (&str, String)| {
            complete(format!("__cephlet_at 0 {name}"), format!("-a {member} -d {}", quote(&about)))
        };
        members.into_iter().map(one).collect()
    };
    let command = |command: &Command| -> String {
        let word = |(at, word): (usize, &&str)| {
            complete(format!("__cephlet_at {at} {}", command.name), values(word, &[]))
        };
        let option = |option: &Opt| {
            let value = option.value.map(|value| values(value, option.values)).unwrap_or_default();
            let what = format!("-l {} {value} -d {}", option.name, quote(option.about));
            complete(format!("__cephlet_in {}", command.name), what)
        };
        command.words.iter().enumerate().map(word).chain(options(command).map(option)).collect()
    };
    let flags = commands.iter().flat_map(options).filter(|option| option.value.is_none());
    let flags: BTreeSet<String> = flags.map(|option| format!("--{}", option.name)).collect();
    let lines = groups(commands).into_iter().map(group).chain(commands.iter().map(command));
    FOR_FISH.replace("@FLAGS@", &quoted(flags)).replace("@COMMANDS@\n", &lines.collect::<String>())
}

/// Without an answer there is nothing to complete, and nothing to say either: the
/// line that is being written is no place for it.
fn names(_: &Given) -> CliResult<String> {
    // What a shell would have to quote stays out.
    let is_plain = |name: &String| {
        name.chars().all(|it| it.is_ascii_alphanumeric() || "-_.:@%+/=,".contains(it)) && !name.is_empty()
    };
    let names = ask().unwrap_or_default().into_iter().filter(is_plain);
    Ok(names.map(|name| name + "\n").collect())
}

/// The names of the volumes that the daemon lists on its first page.
fn ask() -> CliResult<Vec<String>> {
    let config = settings::load(Role::Client)?;
    let plugin: &dyn Plugin = &Client::connect(&config.endpoint, Some(PATIENCE))?;
    let page = plugin.ask(&ListReachableRequest::default())?;
    Ok(page.volumes.into_iter().map(|volume| volume.name).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::commands::COMMANDS;
    use crate::csi::{FILE_SYSTEMS, Mode, OLD_FILE_SYSTEMS};

    fn scripts() -> [String; 3] {
        [bash, zsh, fish].map(|script| script(COMMANDS))
    }

    #[test]
    fn every_command_and_every_option_is_in_every_script() {
        for script in scripts() {
            assert!(!script.contains("@COMMANDS@") && !script.contains("@FLAGS@"), "{script}");
            for command in COMMANDS {
                let verb = command.name.split(' ').next_back().unwrap();
                assert!(
                    script.contains(&format!("'{verb}'"))
                        || script.contains(&format!("-a {verb} "))
                        || script.contains(&format!("'{verb}:")),
                    "{}",
                    command.name
                );
                for Opt { name, .. } in options(command) {
                    assert!(script.contains(&format!("--{name}")) || script.contains(&format!("-l {name} ")));
                }
            }
        }
    }

    #[test]
    fn a_quotation_mark_ends_no_word() {
        assert_eq!(quoted(["the daemon's".into(), "b".into()]), r"'the daemon'\''s' 'b'");
    }

    #[test]
    fn listed_values_are_all_that_the_daemon_knows() {
        let of = |command: &str, name: &str| {
            let command = COMMANDS.iter().find(|it| it.name == command).unwrap();
            command.options().find(|option| option.name == name).unwrap().values
        };
        let known: Vec<&str> = FILE_SYSTEMS.into_iter().chain(OLD_FILE_SYSTEMS).collect();
        assert_eq!(of("volume create", "fs"), known);
        assert_eq!(of("volume publish", "mode"), Mode::WORDS.map(|(_, word)| word));
    }
}
