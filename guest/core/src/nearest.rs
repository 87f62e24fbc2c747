//! The nearest valid name for one that is not.

/// Names longer than this are not compared: the distance costs the product of the lengths.
const NAME_BYTES_MAX: usize = 80;

/// The candidate with the smallest edit distance to `name`, if it is near enough to be a slip (a third of its length,
/// at least 2). The first of equals wins.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let near = (name.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_ascii_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.to_ascii_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = ["research", "review", "write_report"];
        for (name, expected) in [
            ("reserch", Some("research")),
            ("Review", Some("review")),
            ("writereport", Some("write_report")),
            ("deploy", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name:?}");
        }
    }

    #[test]
    fn does_not_compare_long_names() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }
}
