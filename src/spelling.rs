//! "Did you mean": the known name that a misspelt one is closest to.

/// The known name closest to `wrong`, ignoring case; empty if no name is known.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> &'a str {
    let wrong = wrong.to_lowercase();
    known.into_iter().min_by_key(|name| distance(&wrong, &name.to_lowercase())).unwrap_or_default()
}

/// How many bytes must be inserted, removed or replaced to make one text the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_whatever_its_case() {
        let known = ["CEPHLET_QUEUE", "CEPHLET_WORKERS"];
        assert_eq!(nearest("CEPHLET_WORKRES", known), "CEPHLET_WORKERS");
        assert_eq!(nearest("cephlet_queue", known), "CEPHLET_QUEUE");
        assert_eq!(nearest("x", []), "");
    }

    #[test]
    fn the_distance_counts_single_changes() {
        assert_eq!(
            [distance("", "ab"), distance("ab", "ab"), distance("ab", "cb"), distance("abc", "bc")],
            [2, 0, 1, 1]
        );
    }
}
