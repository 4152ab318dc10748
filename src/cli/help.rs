//! The help, made from the tables by which the command line is parsed.

use crate::cli::commands::COMMANDS;
use crate::cli::failure::STATUSES;
use crate::cli::syntax::{CLIENT, Command, Opt};

/// What the words of most commands may be.
const NAMES: &str = "\
VOLUME is the name of a volume, or its ID; SNAPSHOT is VOLUME@NAME, or its ID. A name is looked for where volumes without
parameters are made, and elsewhere with --parameter.";

/// The help on a command, on a group of commands, or on all for the empty topic.
pub fn help(topic: &str) -> String {
    match COMMANDS.iter().find(|command| command.name == topic) {
        Some(command) => on_command(command),
        None => on_group(topic),
    }
}

fn on_group(topic: &str) -> String {
    let whole = topic.is_empty();
    let commands = COMMANDS.iter().filter(|command| whole || command.is_in(topic));
    let commands = commands.map(|command| (call(command), command.about.to_string()));
    let mut sections = vec![format!("usage: cephlet {}", if whole { "[COMMAND]" } else { topic })];
    if whole {
        sections.insert(
            0,
            "cephlet: the CSI daemon for Ceph and local volumes, and its command line".to_string(),
        );
    } else if let Some(usage) = sections.first_mut() {
        usage.push_str(" COMMAND");
    }
    sections.push(section("commands", commands));
    sections.push(section("options of the commands that ask the daemon", CLIENT.iter().map(line)));
    if whole {
        sections.push(section(
            "exit status",
            STATUSES.iter().map(|(status, about)| (status.to_string(), (*about).to_string())),
        ));
        sections.push("Every command has its own --help.".to_string());
    }
    sections.join("\n\n")
}

fn on_command(command: &Command) -> String {
    let lines: Vec<_> = command.options().map(line).collect();
    let options = if lines.is_empty() { "" } else { " [OPTIONS]" };
    let mut sections =
        vec![format!("usage: cephlet {}{options}\n\n{}", call(command), sentence(command.about))];
    if !lines.is_empty() {
        sections.push(section("options", lines.into_iter()));
    }
    if command.asks() {
        sections.push(section("options of the commands that ask the daemon", CLIENT.iter().map(line)));
    }
    if command.takes_names() {
        sections.push(NAMES.to_string());
    }
    sections.extend(command.notes.iter().map(ToString::to_string));
    if !command.json.is_empty() {
        sections.push(format!("With --json: {}.", command.json));
    }
    sections.join("\n\n")
}

/// How the command is called: its name and its words.
fn call(command: &Command) -> String {
    [command.name].iter().chain(command.words).copied().collect::<Vec<_>>().join(" ")
}

fn line(option: &Opt) -> (String, String) {
    let value = option.value.map(|value| format!(" {value}")).unwrap_or_default();
    (format!("--{}{value}", option.name), option.about.to_string())
}

fn section(title: &str, lines: impl Iterator<Item = (String, String)>) -> String {
    let lines: Vec<_> = lines.collect();
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let rows = lines.iter().map(|(left, right)| format!("  {left:width$}  {right}"));
    std::iter::once(format!("{title}:")).chain(rows).collect::<Vec<_>>().join("\n")
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_explains_itself_and_all_its_options() {
        for command in COMMANDS {
            let help = help(command.name);
            assert!(help.starts_with(&format!("usage: cephlet {}", command.name)), "{help}");
            for option in command.options() {
                assert!(help.contains(&format!("--{}", option.name)), "{}: {}", command.name, option.name);
            }
            let asks = command.asks();
            assert_eq!(help.contains("--socket PATH"), asks, "{}", command.name);
            assert_eq!(help.contains("With --json: "), asks, "{} documents its JSON", command.name);
        }
    }

    #[test]
    fn the_whole_help_has_every_command_and_every_exit_status() {
        let help = help("");
        for command in COMMANDS {
            assert!(help.contains(&format!("\n  {} ", call(command))), "{}", command.name);
        }
        for (status, about) in STATUSES {
            assert!(help.contains(&format!("  {status} ")) && help.contains(about), "{status}");
        }
        assert!(!help.contains("@helper"));
    }

    #[test]
    fn a_group_shows_its_own_commands() {
        let help = help("snapshot");
        assert!(help.starts_with("usage: cephlet snapshot COMMAND\n"), "{help}");
        assert!(help.contains("snapshot delete SNAPSHOT") && !help.contains("volume publish"), "{help}");
    }

    #[test]
    fn help_fits_the_width_of_the_project() {
        let topics = COMMANDS.iter().map(|command| command.name).chain(["", "volume", "snapshot"]);
        for (topic, help) in topics.map(|topic| (topic, help(topic))) {
            for line in help.lines() {
                assert!(line.chars().count() <= 130, "{topic}: {line}");
            }
        }
    }
}
