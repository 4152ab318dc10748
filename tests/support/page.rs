//! README's pages: what a user copies and pastes.

const README: &str = include_str!("../../README.md");

/// The blocks of commands on the page with this title, in their order.
pub fn blocks(title: &str) -> Vec<&'static str> {
    let (_, rest) = README.split_once(&format!("\n### {title}\n")).expect("a page");
    let page = rest.split("\n### ").next().unwrap_or_default();
    page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next()).collect()
}
