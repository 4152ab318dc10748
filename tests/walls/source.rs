//! The source of this checkout as text: its files and its lines of code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of code, without its comment.
pub struct Line {
    pub file: String,
    pub number: usize,
    pub code: String,
}

impl Line {
    pub fn place(&self) -> String {
        format!("{}:{}: {}", self.file, self.number, self.code.trim())
    }
}

/// Every Rust file below a directory of this checkout, by its path from the top.
pub fn files(top: &str) -> BTreeMap<String, String> {
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
pub fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs")
        || file.contains("/tests/")
        || ["fake.rs", "ram.rs", "scratch.rs"].iter().any(|name| file.ends_with(name))
}

/// The lines of the product: no comments, no tests.
pub fn product() -> Vec<Line> {
    let sources = files("src").into_iter().filter(|(file, _)| !is_test(file));
    sources.flat_map(|(file, text)| lines(&file, &text)).collect()
}

/// The lines of one file up to its tests, which end every file that has them.
pub fn lines(file: &str, text: &str) -> Vec<Line> {
    let all: Vec<&str> = text.lines().collect();
    let is_tests =
        |at: usize| all[at].starts_with("mod tests {") || all[at].starts_with("pub(super) mod tests {");
    let end = (0..all.len()).find(|at| is_tests(*at)).unwrap_or(all.len());
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    (0..end).map(|at| Line { file: file.to_string(), number: at + 1, code: code(all[at]) }).collect()
}

/// Whether `code` has `word` with no letter, digit or underscore on either side.
pub fn has_word(code: &str, word: &str) -> bool {
    let inside =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    code.match_indices(word).any(|(at, _)| {
        !inside(code[..at].chars().next_back()) && !inside(code[at + word.len()..].chars().next())
    })
}
