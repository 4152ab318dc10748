//! "Did you mean …": the known word that is nearest to one with a slip of the finger in it.

/// The known word that needs the fewest changes to become `word`, if it needs few enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (changes, candidate) = distances.min_by_key(|(changes, _)| *changes)?;
    (changes <= candidate.len().div_ceil(3)).then_some(candidate)
}

/// Levenshtein's distance in bytes, upper and lower case being the same.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_changes() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("fsType", "fstype"), 0);
    }

    #[test]
    fn finds_what_was_meant_and_guesses_no_further() {
        let known = ["pool", "dataPool", "mounter"];
        assert_eq!(nearest("datapol", known), Some("dataPool"));
        assert_eq!(nearest("mountre", known), Some("mounter"));
        assert_eq!(nearest("encrypted", known), None);
        assert_eq!(nearest("pool", []), None);
    }
}
