//! No circle within a room: if a file or folder needs another one, that one does not need it in turn. The
//! test counts paths, and calls of methods of a type whose `impl` blocks are spread over the room: neither
//! the compiler nor a list of imports shows such a dependency.
//!
//! A room's own `mod.rs` is not counted: it wires the room together.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Line, product};

/// The dependencies within a room, each with a place that shows it.
type Needs = BTreeMap<(String, String), String>;

/// The module that a file is, as a path: `src/locks/key.rs` is `["locks", "key"]`.
fn module(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_string).collect()
}

/// The paths that a `use` tree names: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.trim().to_string()] };
    let (prefix, inside) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{prefix}{part}"))).collect()
}

/// A path from the top of the crate; None for one of another crate.
fn absolute(path: &str, from: &[String]) -> Option<Vec<String>> {
    let mut words: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base = match words.first().copied()? {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from[..from.len() - 1].to_vec(),
        _ => return None,
    };
    words.remove(0);
    while words.first() == Some(&"super") {
        base.pop();
        words.remove(0);
    }
    Some(base.into_iter().chain(words.into_iter().map(str::to_string)).collect())
}

/// Every path that a file names, with the line it stands in.
fn paths(lines: &[Line]) -> Vec<(Vec<String>, String)> {
    let (mut found, mut open) = (Vec::new(), String::new());
    for line in lines {
        let code = line.code.trim();
        let from = module(&line.file);
        let is_use =
            code.starts_with("use ") || code.starts_with("pub use ") || code.starts_with("pub(crate) use ");
        let mut texts = Vec::new();
        if is_use || !open.is_empty() {
            open.push_str(code);
            if code.ends_with(';') {
                let text = std::mem::take(&mut open);
                let tree = text.split_once("use ").map_or("", |(_, tree)| tree).trim_end_matches(';');
                texts = expand(tree);
            }
        } else {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
            let words = code.split(|letter| !is_part(letter));
            texts.extend(words.filter(|word| word.contains("::")).map(str::to_string));
        }
        found.extend(texts.iter().filter_map(|text| absolute(text, &from)).map(|path| (path, line.place())));
    }
    found
}

/// The name of a type that an `impl` block in column 0 is for, if it is an inherent one.
fn inherent(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("impl")?.trim_end_matches('{').trim();
    let rest =
        rest.strip_prefix('<').map_or(rest, |generic| generic.split_once("> ").map_or(generic, |it| it.1));
    (!rest.contains(" for ")).then(|| rest.split('<').next().unwrap_or(rest).trim())
}

/// The methods of inherent `impl` blocks: type, name, and whether a line is within such a block.
fn methods(lines: &[Line]) -> Vec<(String, String)> {
    let (mut found, mut within) = (Vec::new(), None);
    for line in lines {
        match line.code.as_str() {
            code if code.starts_with("impl") => within = inherent(code).map(str::to_string),
            "}" => within = None,
            code => {
                let name = code
                    .split_once("fn ")
                    .filter(|(before, _)| before.len() - before.trim_start().len() == 4);
                let name = name.and_then(|(_, rest)| rest.split(['(', '<']).next());
                found.extend(within.clone().zip(name.map(str::to_string)));
            }
        }
    }
    found
}

/// A room and its children, by their paths there. In the room of all rooms these are the modules of the
/// crate, in any other the files, those of its folders included. No `mod.rs` is among them.
struct Room {
    path: Vec<String>,
    children: BTreeMap<Vec<String>, Vec<Line>>,
}

fn rooms() -> Vec<Room> {
    let mut rooms: BTreeMap<Vec<String>, Room> = BTreeMap::new();
    for line in product() {
        let module = module(&line.file);
        let wires = line.file.ends_with("/mod.rs");
        let whole = if wires { 1 } else { module.len() };
        for at in 0..whole.min(module.len()).min(2) {
            let path = module[..at].to_vec();
            let child = if at == 0 { module[..1].to_vec() } else { module[at..].to_vec() };
            let room = rooms.entry(path.clone()).or_insert_with(|| Room { path, children: BTreeMap::new() });
            let copy = Line { file: line.file.clone(), number: line.number, code: line.code.clone() };
            room.children.entry(child).or_default().push(copy);
        }
    }
    rooms.into_values().collect()
}

impl Room {
    /// The child that a path leads into.
    fn child(&self, path: &[String]) -> Option<&Vec<String>> {
        let rest = path.strip_prefix(self.path.as_slice())?;
        self.children.keys().filter(|child| rest.starts_with(child)).max_by_key(|child| child.len())
    }

    /// The dependencies by the paths that are named.
    fn by_paths(&self, needs: &mut Needs) {
        for (child, lines) in &self.children {
            for (path, place) in paths(lines) {
                let other = self.child(&path).filter(|other| *other != child);
                if let Some(other) = other {
                    needs.entry((child.join("/"), other.join("/"))).or_insert(place);
                }
            }
        }
    }

    /// The dependencies by calls of methods of a type that several children give methods to.
    fn by_methods(&self, needs: &mut Needs) {
        let mut owners: BTreeMap<(String, String), BTreeSet<&Vec<String>>> = BTreeMap::new();
        let mut shared: BTreeMap<String, BTreeSet<&Vec<String>>> = BTreeMap::new();
        for (child, lines) in &self.children {
            for (of, name) in methods(lines) {
                shared.entry(of.clone()).or_default().insert(child);
                owners.entry((of, name)).or_default().insert(child);
            }
        }
        for ((of, name), homes) in &owners {
            let (Some(home), true) = (homes.first(), homes.len() == 1 && shared[of].len() > 1) else {
                continue;
            };
            let call = format!("self.{name}(");
            for (child, lines) in self.children.iter().filter(|(child, _)| child != home) {
                let users = shared[of].contains(child);
                if let Some(line) = lines.iter().find(|line| users && line.code.contains(&call)) {
                    needs.entry((child.join("/"), home.join("/"))).or_insert(line.place());
                }
            }
        }
    }

    /// The dependencies that are part of a circle.
    fn circles(&self) -> Vec<String> {
        let mut needs = Needs::new();
        self.by_paths(&mut needs);
        if !self.path.is_empty() {
            self.by_methods(&mut needs);
        }
        let reaches = |from: &str, to: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                let next = needs.keys().filter(|(who, _)| who == at).map(|(_, whom)| whom.as_str());
                open.extend(next.filter(|whom| seen.insert(*whom)).collect::<Vec<_>>());
            }
            seen.contains(to)
        };
        let within = needs.iter().filter(|((who, whom), _)| reaches(whom, who));
        let room = if self.path.is_empty() { "src".to_string() } else { self.path.join("/") };
        within.map(|((who, whom), place)| format!("{room}: {who} needs {whom}: {place}")).collect()
    }
}

#[test]
fn no_room_has_a_circle() {
    let circles: Vec<String> = rooms().iter().flat_map(Room::circles).collect();
    assert!(circles.is_empty(), "files that need each other:\n{}", circles.join("\n"));
}

/// The rule can fail, by paths and by methods.
#[test]
fn a_circle_is_seen() {
    let lines = |file: &str, text: &str| -> Vec<Line> {
        let line = |(at, code): (usize, &str)| Line { file: file.into(), number: at + 1, code: code.into() };
        text.lines().enumerate().map(line).collect()
    };
    let room = |one: &str, other: &str| Room {
        path: vec!["room".into()],
        children: [("a", one), ("b", other)]
            .map(|(name, text)| (vec![name.to_string()], lines(&format!("src/room/{name}.rs"), text)))
            .into(),
    };
    let by_paths = room("use crate::room::{Shared, b::B};", "fn f() {\n    super::a::g();\n}");
    assert_eq!(by_paths.circles().len(), 2);
    let one = "impl Shared {\n    fn one(&self) {\n        self.two()\n    }\n}";
    let other = "impl Shared {\n    pub fn two(&self) {\n        self.one()\n    }\n}";
    assert_eq!(room(one, other).circles().len(), 2);
    assert!(room(one, "impl Shared {\n    pub fn two(&self) {}\n}").circles().is_empty());
}
