//! Asks monitors by the program `ceph`, unless the session answers. `ceph` takes a single command as
//! arguments, and several on standard input, one a line; then its status is 0 even if one of them failed.

use serde_json::Value;

use super::{Asker, Command, Monitors};
use crate::backend::ceph::{Failure, Programs};
use crate::exec::{Class, Output, Tool};

impl Monitors for Programs {
    fn ask(&self, (call, access): Asker<'_>, class: Class, commands: &[Command]) -> Result<Output, Failure> {
        let session = self.session.as_ref();
        if let Some(answer) = session.and_then(|it| it.command((call, access), class, commands)) {
            return answer.map_err(|error| Failure::new(access, error));
        }
        let cmd = access.command(Tool::Ceph, class);
        let cmd = match commands {
            [only] => cmd.args(only.iter().flat_map(words)),
            several => cmd.arg("--format=json").stdin(several.iter().map(line).collect::<String>()),
        };
        self.start(call, access, &cmd)
    }
}

/// An argument as it is typed: positional, without its name.
fn words((name, value): &(&'static str, Value)) -> Vec<String> {
    // Without the decimal point that a number has in JSON.
    let number = || value.as_f64().unwrap_or_default().to_string();
    let text = value.as_str().map_or_else(number, str::to_string);
    match *name {
        "prefix" => text.split(' ').map(str::to_string).collect(),
        "format" => vec![format!("--format={text}")],
        _ => vec![text],
    }
}

/// One line of input. The format of all answers is an option of the program, and no word here has blanks.
fn line(command: &Command) -> String {
    let words: Vec<String> = command.iter().filter(|(name, _)| *name != "format").flat_map(words).collect();
    words.join(" ") + "\n"
}
