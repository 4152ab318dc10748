//! The sections of cephlet(8) that are made from tables: commands, variables, exit statuses, conditions. The
//! page has each between two comments; this module renders them and compares.

use std::fmt::Write;

use crate::backend::Reason;
use crate::backend::finding::Trouble;
use crate::cli::commands::COMMANDS;
use crate::cli::failure::STATUSES;
use crate::cli::syntax::{CLIENT, Command, Opt};
use crate::config::VARIABLES;

const PAGE: &str = include_str!("../../packaging/man/cephlet.8");

/// The longest line that `mandoc -Tlint` accepts.
const WIDTH: usize = 80;

/// Running text: one sentence a line, folded. Characters that mdoc takes for markup are escaped.
fn text(words: &str) -> String {
    let mut lines = vec![String::new()];
    let mut ends_sentence = false;
    for word in words.split_whitespace() {
        let word = word.replace('\\', "\\e").replace("--", "\\-\\-");
        let line = lines.last_mut().expect("one line at least");
        let is_full = line.len() + word.len() + 1 > WIDTH || ends_sentence;
        if line.is_empty() || !is_full {
            let space = if line.is_empty() { "" } else { " " };
            write!(line, "{space}{word}").expect("a string takes everything");
        } else {
            lines.push(word.clone());
        }
        ends_sentence = word.ends_with('.') && !word.ends_with("..");
    }
    lines.join("\n")
}

/// With a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if words.ends_with('.') { "" } else { "." };
    text(&format!("{first}{}{stop}", letters.as_str()))
}

fn options(options: impl Iterator<Item = &'static Opt>) -> String {
    let item = |option: &Opt| {
        let value = option.value.map(|value| format!(" Ar {value}")).unwrap_or_default();
        format!(".It Fl \\-{}{value}\n{}\n", option.name.replace('-', "\\-"), sentence(option.about))
    };
    format!(".Bl -tag -width Ds\n{}.El\n", options.map(item).collect::<String>())
}

fn command(command: &'static Command) -> String {
    let words: String = command.words.iter().map(|word| format!(" Ar {word}")).collect();
    let mut page = format!(".It Cm {}{words}\n{}\n", command.name, sentence(command.about));
    if command.options().next().is_some() {
        page += &options(command.options());
    }
    for note in command.notes {
        page += &format!(".Pp\n{}\n", text(note));
    }
    if !command.json.is_empty() {
        page += &format!(".Pp\n{}\n", text(&format!("JSON: {}.", command.json)));
    }
    page
}

fn commands() -> String {
    let all: String = COMMANDS.iter().map(command).collect();
    let asks = COMMANDS.iter().any(Command::asks);
    assert!(asks, "the options of a client belong to some command");
    format!(
        ".Bl -tag -width Ds\n{all}.El\n.Pp\nEvery command but\n.Cm serve , version , node rename\nand those \
         of\n.Cm completion\nasks the daemon, and takes these options too:\n{}",
        options(CLIENT.iter())
    )
}

fn variables() -> String {
    let default = |value: &str| match value {
        "" => String::new(),
        value => format!("Default:\n.Ql {value} .\n"),
    };
    let shipped = VARIABLES.iter().filter(|it| it.name != "CEPHLET_CRASH_AT");
    shipped
        .map(|it| format!(".It Ev {}\n{}\n{}", it.name, sentence(it.meaning), default(it.default)))
        .collect()
}

fn statuses() -> String {
    STATUSES.iter().map(|(status, about)| format!(".It {status}\n{}\n", sentence(about))).collect()
}

fn findings() -> String {
    let item = |it: &Trouble| {
        let mend = it.mend.replace("{}", "SUBJECT");
        format!(
            ".It {}\n{}\n{}\n",
            it.word,
            text(&format!("Costs: {}.", it.cost)),
            text(&format!("Mended by: {mend}."))
        )
    };
    Trouble::ALL.iter().map(item).collect()
}

fn conditions() -> String {
    let item =
        |it: &Reason| format!(".It {} ({})\n{}\n", it.word(), it.status().word, sentence(it.sentence()));
    Reason::ALL.iter().map(item).collect()
}

/// The page with this content after the comment that begins with `.\" NAME: generated`, up to the next one.
fn with_section(page: &str, name: &str, content: &str) -> String {
    let begins = format!(".\\\" {name}: generated");
    let (before, rest) = page.split_once(&begins).expect("the comment that begins the section");
    let (comment, rest) = rest.split_once('\n').expect("a line");
    let (_, after) = rest.split_once(".\\\" end of ").expect("the comment that ends the section");
    format!("{before}{begins}{comment}\n{content}.\\\" end of {after}")
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let page = with_section(PAGE, "commands", &commands());
    let page = with_section(&page, "variables", &variables());
    let page = with_section(&page, "statuses", &statuses());
    let page = with_section(&page, "conditions", &conditions());
    let page = with_section(&page, "findings", &findings());
    if page != PAGE {
        let right = std::env::temp_dir().join(format!("cephlet.8.{}", std::process::id()));
        std::fs::write(&right, page).expect("a temporary file");
        panic!("packaging/man/cephlet.8 differs from the tables: replace it by {}", right.display());
    }
}
