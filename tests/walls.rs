//! The walls between the rooms: what only one module may do, who may know whom, and how large a file or a
//! function may get. Nothing else would notice a wall that was broken through.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The longest file and the longest function, in lines.
const LONGEST_FILE: usize = 450;
const LONGEST_FUNCTION: usize = 50;

/// A line of code, without its comment.
struct Line {
    file: String,
    number: usize,
    code: String,
}

impl Line {
    fn place(&self) -> String {
        format!("{}:{}: {}", self.file, self.number, self.code.trim())
    }
}

/// Every Rust file below a directory of this checkout, by its path from the top.
fn files(top: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    let mut open = vec![root.join(top)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the checkout").flatten() {
            let path: PathBuf = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("it is below the top").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("source is text"));
            }
        }
    }
    found
}

/// Whether a file has only tests in it.
fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs")
        || file.contains("/tests/")
        || ["fake.rs", "ram.rs", "scratch.rs"].iter().any(|name| file.ends_with(name))
}

/// The lines of the product: no comments, no tests.
fn product() -> Vec<Line> {
    let sources = files("src").into_iter().filter(|(file, _)| !is_test(file));
    sources.flat_map(|(file, text)| lines(&file, &text)).collect()
}

/// The lines of one file up to its tests, which end every file that has them.
fn lines(file: &str, text: &str) -> Vec<Line> {
    let all: Vec<&str> = text.lines().collect();
    let is_tests =
        |at: usize| all[at].starts_with("mod tests {") || all[at].starts_with("pub(super) mod tests {");
    let end = (0..all.len()).find(|at| is_tests(*at)).unwrap_or(all.len());
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    (0..end).map(|at| Line { file: file.to_string(), number: at + 1, code: code(all[at]) }).collect()
}

/// Whether `code` has `word` with no letter, digit or underscore on either side.
fn has_word(code: &str, word: &str) -> bool {
    let inside =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    code.match_indices(word).any(|(at, _)| {
        !inside(code[..at].chars().next_back()) && !inside(code[at + word.len()..].chars().next())
    })
}

/// The places outside `rooms` (files, or directories that end in `/`) where the code has one of these words.
fn outside(rooms: &[&str], words: &[&str]) -> Vec<String> {
    let at_home = |file: &str| {
        rooms.iter().any(|room| file == *room || (room.ends_with('/') && file.starts_with(room)))
    };
    let strays = product()
        .into_iter()
        .filter(|line| !at_home(&line.file) && words.iter().any(|word| has_word(&line.code, word)));
    strays.map(|line| line.place()).collect()
}

/// Asserts that only `rooms` have one of these words, and that they do: a rule about nothing is none.
#[track_caller]
fn only(rooms: &[&str], words: &[&str]) {
    let strays = outside(rooms, words);
    assert!(strays.is_empty(), "{words:?} belongs into {rooms:?} only:\n{}", strays.join("\n"));
    assert!(!outside(&[], words).is_empty(), "nobody has {words:?} any more: the rule is out of date");
}

#[test]
fn only_sys_is_unsafe() {
    only(&["src/sys/"], &["unsafe", "unsafe_code"]);
}

#[test]
fn only_exec_starts_processes() {
    // sys/process.rs prepares a child between fork and exec, which takes unsafe code.
    only(
        &["src/exec/", "src/sys/process.rs"],
        &["Command::new", "process::Command", "fork", "execve", "posix_spawn"],
    );
}

#[test]
fn only_the_configuration_reads_the_environment() {
    only(&["src/config/"], &["env::var", "env::vars", "env::var_os", "env::vars_os", "option_env!"]);
}

#[test]
fn only_the_door_and_the_clients_know_grpc() {
    only(&["src/grpc/", "src/cli/plugin.rs"], &["grpcio"]);
}

#[test]
fn only_one_module_names_grpc_codes() {
    only(&["src/grpc/status.rs"], &["RpcStatusCode"]);
}

#[test]
fn only_the_journal_and_the_local_store_sync() {
    let rooms = ["src/sys/", "src/journal/", "src/backend/local/store.rs", "src/backend/local/image.rs"];
    only(&rooms, &["fsync", "fdatasync", "sync_all", "sync_data", "syncfs"]);
}

#[test]
fn nobody_ends_the_process_but_main() {
    let strays = outside(&[], &["process::exit", "process::abort"]);
    assert!(strays.is_empty(), "destructors would not run:\n{}", strays.join("\n"));
}

/// Dependencies point right: `grpc → volume → { backend, journal, locks } → { kernel, exec, sys }`.
#[test]
fn layers_know_only_what_is_below_them() {
    let layers: [(&str, &[&str]); 9] = [
        (
            "sys",
            &["grpc", "cli", "daemon", "volume", "backend", "journal", "locks", "workers", "exec", "kernel"],
        ),
        ("exec", &["grpc", "cli", "daemon", "volume", "backend", "journal", "locks", "workers", "kernel"]),
        ("kernel", &["grpc", "cli", "daemon", "volume", "backend", "journal", "locks", "workers"]),
        ("journal", &["grpc", "cli", "daemon", "volume", "backend", "locks", "workers", "exec", "kernel"]),
        (
            "locks",
            &["grpc", "cli", "daemon", "volume", "backend", "journal", "workers", "exec", "kernel", "sys"],
        ),
        ("workers", &["grpc", "cli", "daemon", "volume", "backend", "journal", "locks", "exec", "kernel"]),
        ("backend", &["grpc", "cli", "daemon", "volume", "journal", "locks", "workers"]),
        ("volume", &["grpc", "cli", "daemon", "workers"]),
        ("grpc", &["cli", "daemon", "journal", "exec", "kernel"]),
    ];
    let product = product();
    let knows = |layer: &str, above: &[&str]| -> Vec<String> {
        let mine = product.iter().filter(|line| line.file.starts_with(&format!("src/{layer}/")));
        let breaks =
            mine.filter(|line| above.iter().any(|module| has_word(&line.code, &format!("crate::{module}"))));
        breaks.map(Line::place).collect()
    };
    let strays: Vec<String> = layers.iter().flat_map(|(layer, above)| knows(layer, above)).collect();
    assert!(strays.is_empty(), "layers that look up:\n{}", strays.join("\n"));
}

/// What is above the backends may not know what a volume is made of, nor who asks.
#[test]
fn operations_know_no_backend_and_no_protocol() {
    let rooms = ["src/volume/", "src/journal/", "src/locks/", "src/backend/mod.rs"];
    let words = ["local::Local", "backend::local", "loopdev", "csi_v1", "wire"];
    let product = product();
    let theirs = product.iter().filter(|line| rooms.iter().any(|room| line.file.starts_with(room)));
    let strays = theirs.filter(|line| words.iter().any(|word| has_word(&line.code, word)));
    let strays: Vec<String> = strays.map(Line::place).collect();
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

#[test]
fn files_fit_into_a_head() {
    let sources = files("src").into_iter().chain(files("tests"));
    let long: Vec<String> = sources
        .map(|(file, text)| (text.lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, file)| format!("{file}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "longer than {LONGEST_FILE} lines:\n{}", long.join("\n"));
}

/// The functions of a file, as rustfmt lays them out: from the line that has `fn` to the brace that closes in
/// the same column.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let column = |line: &str| line.len() - line.trim_start().len();
    let all: Vec<&str> = text.lines().collect();
    let qualifiers = ["pub", "async", "const", "unsafe", "extern"];
    let is_start = |line: &str| {
        let mut words =
            line.split_whitespace().skip_while(|word| qualifiers.iter().any(|it| word.starts_with(it)));
        words.next() == Some("fn")
    };
    let starts = (0..all.len()).filter(|at| is_start(all[*at]));
    let length = |start: usize| {
        let closes = |line: &&str| column(line) == column(all[start]) && line.trim() == "}";
        let body = all[start..].iter().position(|line| line.ends_with(['{', ';', '}']))?;
        if !all[start + body].ends_with('{') {
            return None;
        }
        all[start..].iter().position(closes).map(|end| (start + 1, end + 1))
    };
    starts.filter_map(length).collect()
}

#[test]
fn functions_fit_onto_a_page() {
    let mut seen = 0;
    let mut long = Vec::new();
    for (file, text) in files("src").into_iter().chain(files("tests")) {
        let found = functions(&text);
        seen += found.len();
        long.extend(
            found
                .iter()
                .filter(|(_, lines)| *lines > LONGEST_FUNCTION)
                .map(|(at, lines)| format!("{file}:{at}: {lines} lines")),
        );
    }
    assert!(seen > 500, "only {seen} functions were found");
    assert!(long.is_empty(), "longer than {LONGEST_FUNCTION} lines:\n{}", long.join("\n"));
}

/// The rules can fail.
#[test]
fn a_breach_is_seen() {
    assert!(has_word("unsafe { x }", "unsafe") && has_word("std::env::var(\"X\")", "env::var"));
    assert!(!has_word("unsafely()", "unsafe") && !has_word("env::vars()", "env::var"));
    let text =
        "fn a() {\n    unsafe {}\n}\n// unsafe\nmod tests {\n    fn b() {\n        unsafe {}\n    }\n}\n";
    let code: Vec<String> = lines("x.rs", text).into_iter().map(|line| line.code).collect();
    assert_eq!(
        code.iter().filter(|code| has_word(code, "unsafe")).count(),
        1,
        "neither comments nor tests count"
    );
    assert_eq!(functions(text), [(1, 3), (6, 3)]);
}
