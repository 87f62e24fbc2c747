//! The nearest of known names to one that is unknown, for errors that suggest what was meant.
//!
//! It only suggests: nothing is decided by it.

/// Longest name, in bytes, that is compared. Names are keys, models, tools, arguments and threads;
/// the comparison takes the product of both lengths.
pub const NAME_BYTES_MAX: usize = 80;

/// Most candidates that are compared, so that a long list costs at most a few milliseconds.
pub const CANDIDATES_MAX: usize = 1_000;

/// Returns the candidate that differs least from `name`, if it is near enough to be meant: at most
/// a third of the characters of `name` (at least one) inserted, removed, replaced or swapped with a
/// neighbour. Upper and lower case are alike. Of several equally near ones it is the first.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    find_nearest(name, &mut candidates.into_iter())
}

fn find_nearest<'a>(name: &str, candidates: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let wanted = name.to_ascii_lowercase();
    let edits_max = (wanted.chars().count() / 3).max(1);
    candidates
        .take(CANDIDATES_MAX)
        .filter(|candidate| !candidate.is_empty() && candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| {
            (
                strsim::osa_distance(&wanted, &candidate.to_ascii_lowercase()),
                candidate,
            )
        })
        .filter(|(edits, candidate)| *edits <= edits_max && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns the end of an error's sentence: `; did you mean "x"?`, or nothing.
pub fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates)
        .map(|near| format!("; did you mean \"{near}\"?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = [
            "models",
            "providers",
            "tiers",
            "cache_read",
            "write_report",
            "a",
        ];
        let long = "m".repeat(NAME_BYTES_MAX + 1);
        for (name, expected) in [
            ("model", Some("models")),
            ("Models", Some("models")),
            ("mdoels", Some("models")),
            ("provider", Some("providers")),
            ("tier", Some("tiers")),
            ("cacheread", Some("cache_read")),
            ("cahce_read", Some("cache_read")),
            ("writereport", Some("write_report")),
            ("tools", None),
            ("", None),
            ("x", None),
            ("zzzzzzzzz", None),
            (long.as_str(), None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name:?}");
        }
    }

    #[test]
    fn the_first_of_equals_and_no_more_than_the_bound() {
        assert_eq!(nearest("cat", ["bat", "hat"]), Some("bat"));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(nearest("xxx", [long.as_str()]), None);
        let many = std::iter::repeat_n("zzzz", CANDIDATES_MAX).chain(["cat"]);
        assert_eq!(nearest("cat", many), None);
        assert_eq!(
            suggestion("modles", ["models"]),
            "; did you mean \"models\"?"
        );
        assert_eq!(suggestion("tools", ["models"]), "");
    }
}
