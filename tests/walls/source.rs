//! The source of this checkout as text: its files, and the lines of code of the product.

use std::collections::{BTreeMap, BTreeSet};
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

/// The lines of code of the product in `src`: no blank lines, no comments, nothing under `#[cfg(test)]`.
pub fn product() -> Vec<Line> {
    let sources: BTreeMap<String, Vec<Line>> =
        files("src").into_iter().map(|(file, text)| (file.clone(), lines(&file, &text))).collect();
    let tests: BTreeSet<String> = sources.values().flat_map(|lines| test_modules(lines)).collect();
    let is_test = |file: &str| {
        tests.iter().any(|module| file.starts_with(&format!("{module}/")) || file == format!("{module}.rs"))
    };
    sources
        .into_iter()
        .filter(|(file, _)| !is_test(file))
        .flat_map(|(_, lines)| without_tests(lines))
        .collect()
}

/// The lines of code of a file.
pub fn lines(file: &str, text: &str) -> Vec<Line> {
    let line = |(at, text): (usize, &str)| {
        let code = if text.trim_start().starts_with("//") { "" } else { text };
        Line {
            file: file.to_string(),
            number: at + 1,
            code: code.split(" //").next().unwrap_or_default().to_string(),
        }
    };
    text.lines().enumerate().map(line).filter(|line| !line.code.trim().is_empty()).collect()
}

fn is_test_only(line: &Line) -> bool {
    let code = line.code.trim();
    code == "#[cfg(test)]" || code.starts_with("#[cfg(any(test")
}

/// The modules in files of their own that only tests have, by their paths without `.rs`.
fn test_modules(lines: &[Line]) -> Vec<String> {
    let module = |at: usize| {
        let attributes = lines[at + 1..].iter().take_while(|line| line.code.starts_with("#[")).count();
        let item = &lines[at + 1 + attributes];
        let name = item.code.trim().strip_suffix(';')?.split("mod ").nth(1)?;
        let file = Path::new(&item.file);
        let (folder, stem) = (file.parent()?, file.file_stem()?.to_str()?);
        let path =
            lines[at + 1..at + 1 + attributes].iter().find_map(|line| line.code.strip_prefix("#[path = \""));
        let module = match path {
            Some(path) => {
                folder.join(path.trim_end_matches("\"]").trim_end_matches(".rs").trim_end_matches("/mod"))
            }
            None if ["mod", "lib", "main"].contains(&stem) => folder.join(name),
            None => folder.join(stem).join(name),
        };
        Some(module.display().to_string())
    };
    (0..lines.len()).filter(|at| is_test_only(&lines[*at])).filter_map(module).collect()
}

/// The same without the items under `#[cfg(test)]`. An item ends with the brace that closes it, or with the
/// first line that ends in a semicolon or comma.
pub fn without_tests(lines: Vec<Line>) -> Vec<Line> {
    let mut kept = Vec::new();
    let mut rest = lines.into_iter().peekable();
    while let Some(line) = rest.next() {
        if line.code.trim() != "#[cfg(test)]" {
            kept.push(line);
            continue;
        }
        while rest.next_if(|line| line.code.trim().starts_with("#[")).is_some() {}
        let (mut depth, mut has_block) = (0, false);
        for line in rest.by_ref() {
            let count = |brace: char| line.code.matches(brace).count() as i64;
            depth += count('{') - count('}');
            has_block |= count('{') > 0;
            if depth <= 0 && (has_block || line.code.ends_with([';', ','])) {
                break;
            }
        }
    }
    kept
}

/// Whether `code` has `word` with no letter, digit or underscore on either side.
pub fn has_word(code: &str, word: &str) -> bool {
    let inside =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    code.match_indices(word).any(|(at, _)| {
        !inside(code[..at].chars().next_back()) && !inside(code[at + word.len()..].chars().next())
    })
}
