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
            [only] => cmd.args(words(only)),
            several => cmd.arg("--format=json").stdin(several.iter().map(line).collect::<String>()),
        };
        self.runner.run(call, &cmd).map_err(|error| Failure::new(access, error))
    }
}

/// The words of a command as they are typed. Arguments are positional, except those of `fs`, many of which
/// may be left out.
fn words(command: &Command) -> Vec<String> {
    let is_named = |prefix: &str| prefix.starts_with("fs ");
    let is_named =
        command.iter().any(|(name, value)| *name == "prefix" && value.as_str().is_some_and(is_named));
    let typed = |(name, value): &(&'static str, Value)| match (*name, typed(value)) {
        // The daemon takes them, but the table by which `ceph` checks words has none.
        ("filters", _) => Vec::new(),
        ("target", text) => vec!["tell".into(), text],
        ("prefix", text) => text.split(' ').map(str::to_string).collect(),
        ("format", text) => vec![format!("--format={text}")],
        (name, text) if is_named => vec![format!("--{name}={text}")],
        (_, text) => vec![text],
    };
    command.iter().flat_map(typed).collect()
}

/// A value as it is typed: a text without quotes, a number without the decimal point that it has in JSON.
fn typed(value: &Value) -> String {
    let whole = || value.as_f64().filter(|number| number.fract() == 0.0 && !value.is_u64());
    match value.as_str() {
        Some(text) => text.to_string(),
        None => whole().map_or_else(|| value.to_string(), |number| number.to_string()),
    }
}

/// One line of input. The format of all answers is an option of the program, and no word here has blanks.
fn line(command: &Command) -> String {
    let command: Command = command.iter().filter(|(name, _)| *name != "format").cloned().collect();
    words(&command).join(" ") + "\n"
}
