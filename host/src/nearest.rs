//! The nearest of a few known names to an unknown one, for errors that suggest a correction.
//!
//! It only suggests: nothing is decided by it.

/// Longest name, in bytes, that is compared. Names here are keys, models, tools and arguments; a
/// longer text is no typing error, and the comparison takes the product of both lengths.
pub const NAME_BYTES_MAX: usize = 64;

/// Most candidates that are compared, so that a long list costs no more than a few milliseconds.
pub const CANDIDATES_MAX: usize = 1_000;

/// The candidate that differs least from `name`, if it is near enough: at most a third of its
/// characters (but at least one) inserted, removed, replaced or swapped with a neighbour; upper and
/// lower case are alike. The first of several equally near ones.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let wanted = folded(name);
    let budget = (wanted.len() / 3).max(1);
    candidates
        .into_iter()
        .take(CANDIDATES_MAX)
        .filter(|candidate| !candidate.is_empty() && candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| (distance(&wanted, &folded(candidate)), candidate))
        .filter(|(far, candidate)| *far <= budget && *far < candidate.chars().count())
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// The end of an error's sentence: `; did you mean "x"?`, or an empty text.
pub fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates)
        .map(|near| format!("; did you mean \"{near}\"?"))
        .unwrap_or_default()
}

fn folded(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// Optimal string alignment distance: insertions, removals, replacements and swaps of neighbours.
/// Three rows are enough.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, &a) in left.iter().enumerate() {
        let mut next = vec![row + 1; right.len() + 1];
        for (column, &b) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(a != b);
            let mut best = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let swapped = row > 0 && column > 0 && a == right[column - 1] && left[row - 1] == b;
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            next[column + 1] = best;
        }
        before = std::mem::replace(&mut last, next);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant() {
        let names = ["models", "providers", "tiers", "cache_read", "a"];
        let long = "m".repeat(NAME_BYTES_MAX + 1);
        let table = [
            ("model", Some("models")),
            ("Models", Some("models")),
            ("mdoels", Some("models")),
            ("provider", Some("providers")),
            ("tier", Some("tiers")),
            ("cacheread", Some("cache_read")),
            ("cahce_read", Some("cache_read")),
            ("tools", None),
            ("", None),
            ("x", None),
            ("zzzzzzzzz", None),
            (long.as_str(), None),
        ];
        for (name, expected) in table {
            assert_eq!(nearest(name, names), expected, "{name:?}");
        }
    }

    #[test]
    fn the_first_of_equals_and_no_more_than_the_bound() {
        assert_eq!(nearest("cat", ["bat", "hat"]), Some("bat"));
        let many = std::iter::repeat_n("zzzz", CANDIDATES_MAX).chain(["cat"]);
        assert_eq!(nearest("cat", many), None);
        assert_eq!(
            suggestion("modles", ["models"]),
            "; did you mean \"models\"?"
        );
        assert_eq!(suggestion("tools", ["models"]), "");
    }
}
