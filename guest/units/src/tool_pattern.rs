//! The form of a pattern of tools' names: a name, or the beginning of one and `*` for any ending.
//!
//! A pattern of another form matches no tool. Where calls are to be asked about by it, they would
//! run unasked, so it is refused where it is written.

/// Longest name of a tool, in bytes.
pub const TOOL_NAME_BYTES_MAX: usize = 64;

/// Returns true if a tool's name may have the character.
pub fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// Returns what keeps a pattern from matching any tool, if something does.
pub fn find_pattern_problem(pattern: &str) -> Option<String> {
    let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
    let wrong = beginning.chars().find(|one| !is_name_character(*one));
    match wrong {
        None if pattern.is_empty() => Some("names no tool".to_owned()),
        None if beginning.len() > TOOL_NAME_BYTES_MAX => Some(format!(
            "matches no tool: a tool's name has at most {TOOL_NAME_BYTES_MAX} bytes"
        )),
        None => None,
        Some('*') => {
            Some("matches no tool: a * stands for any ending, at the end alone".to_owned())
        }
        Some(wrong) => Some(format!(
            "matches no tool: a name is of letters, digits, _ and -, and this has {wrong:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_can_match_no_tool_has_a_problem() {
        let long = "n".repeat(TOOL_NAME_BYTES_MAX);
        let fine = [
            "*",
            "read_file",
            "read_*",
            "read-2*",
            "READ",
            &long,
            &format!("{long}*"),
        ];
        for pattern in fine {
            assert_eq!(find_pattern_problem(pattern), None, "{pattern}");
        }
        let wrong = [
            "",
            "**",
            "re*d",
            "*_file",
            "read_file ",
            " *",
            "a.b",
            "re\u{430}d_*",
            "\u{2217}",
        ];
        for pattern in wrong.into_iter().chain([format!("{long}n*").as_str()]) {
            assert!(find_pattern_problem(pattern).is_some(), "{pattern}");
        }
    }
}
