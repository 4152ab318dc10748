//! Paths in requests.

/// A path in its one spelling, without a slash twice or at the end: paths are known by their text. What is no
/// absolute path stays as it is and is refused later.
pub fn path(text: String) -> String {
    let plain = !text.starts_with('/') || !(text.ends_with('/') || text.contains("//"));
    let parts = text.split('/').filter(|part| !part.is_empty());
    if plain { text } else { format!("/{}", parts.collect::<Vec<_>>().join("/")) }
}
