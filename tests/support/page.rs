//! README's pages: what a user copies and pastes.

const README: &str = include_str!("../../README.md");

/// The blocks of commands on the page with this title, in their order.
pub fn blocks(title: &str) -> Vec<&'static str> {
    of_kind(title, "sh")
}

/// The two files that stand beside each other in a block of the page, each under a comment that says where.
pub fn files_side_by_side(title: &str) -> [String; 2] {
    let block = of_kind(title, "toml").into_iter().next().expect("two files");
    let (head, lines) = block.split_once('\n').expect("a line that says where");
    let width = head.rfind('#').expect("a second column");
    let columns = lines.lines().map(|line| line.split_at(width));
    let (left, right): (Vec<&str>, Vec<&str>) =
        columns.map(|(left, right)| (left.trim_end(), right.trim_start_matches("# "))).unzip();
    [left.join("\n"), right.join("\n")]
}

fn of_kind(title: &str, kind: &str) -> Vec<&'static str> {
    let (_, rest) = README.split_once(&format!("\n### {title}\n")).expect("a page");
    let page = rest.split("\n### ").next().unwrap_or_default();
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n')).collect()
}
