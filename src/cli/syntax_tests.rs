//! Tests of the grammar of the command line.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::cli::commands::COMMANDS;

fn parse_words(line: &str) -> CliResult<Parsed> {
    parse(COMMANDS, line.split_whitespace().map(OsString::from).collect())
}

fn given(line: &str) -> (&'static str, Given) {
    match parse_words(line).unwrap() {
        Parsed::Run(command, given) => (command.name, given),
        Parsed::Help(topic) => panic!("help on {topic:?}"),
    }
}

fn refused(line: &str) -> String {
    let failure = parse_words(line).map(|_| ()).expect_err(line);
    assert_eq!(failure.exit_code(), 2, "{line}");
    failure.to_string()
}

#[test]
fn no_word_is_the_daemon() {
    assert_eq!(given("").0, "serve");
    assert_eq!(given("serve").0, "serve");
    assert_eq!(given("--version").0, "version");
}

#[test]
fn options_stand_before_between_and_after_words() {
    for line in [
        "--json volume expand v1 --size 5G",
        "volume --json expand --size 5G v1",
        "volume expand --size=5G v1 --json",
        "volume expand --size 5G --json -- v1",
    ] {
        let (name, given) = given(line);
        assert_eq!(
            (name, given.word(0), given.value("size"), given.has("json")),
            ("volume expand", "v1", Some("5G"), true),
            "{line}"
        );
    }
}

#[test]
fn repeated_options_keep_their_order() {
    let (_, given) = given("volume create a --parameter x=1 --parameter y=2");
    assert_eq!(given.all("parameter").collect::<Vec<_>>(), ["x=1", "y=2"]);
}

#[test]
fn what_does_not_fit_is_named_together_with_the_help() {
    assert_eq!(refused("volume"), "\"volume\" is followed by one of its commands; see cephlet volume --help");
    assert_eq!(refused("volum list"), "there is no command \"volum\"; see cephlet --help");
    assert_eq!(refused("volume make"), "there is no command \"volume make\"; see cephlet volume --help");
    assert_eq!(refused("volume expand"), "VOLUME is missing; see cephlet volume expand --help");
    assert_eq!(refused("volume show a b"), "\"b\" is one word too many; see cephlet volume show --help");
    assert_eq!(
        refused("volume show a --size 1"),
        "there is no option --size here; see cephlet volume show --help"
    );
    assert_eq!(refused("volume show a -x"), "there is no option -x; see cephlet volume show --help");
    assert_eq!(refused("--size 1 volume expand a"), "there is no option --size here; see cephlet --help");
    assert_eq!(refused("probe --json --json"), "--json is given twice; see cephlet probe --help");
    assert!(refused("probe --json=yes").contains("json"));
    assert!(refused("probe --socket").contains("see cephlet probe --help"));
}

#[test]
fn options_of_the_client_do_not_go_with_the_daemon() {
    assert_eq!(refused("--socket /x"), "--socket does not go with serve; see cephlet --help");
    assert_eq!(refused("version --json"), "--json does not go with version; see cephlet version --help");
}

#[test]
fn help_is_there_for_everything_even_where_words_are_missing() {
    for (line, topic) in [
        ("--help", ""),
        ("volume -h", "volume"),
        ("volume create --help", "volume create"),
        ("probe -h", "probe"),
    ] {
        assert!(matches!(parse_words(line).unwrap(), Parsed::Help(found) if found == topic), "{line}");
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let (_, given) = given("volume create a --block --fs xfs");
    assert_eq!(given.not_both("block", "fs").unwrap_err().to_string(), "--block and --fs exclude each other");
    assert!(given.not_both("block", "from-volume").is_ok());
}
