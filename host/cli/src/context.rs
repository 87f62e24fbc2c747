//! The use of a model's window, for a person.

/// Tokens of the next request of a thread, and those that its model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContextFill {
    /// Tokens of the next request.
    pub tokens: u64,
    /// Tokens that the model takes; none before the first run.
    pub window: Option<u64>,
}

impl ContextFill {
    /// Describes it as `12,345 of 128,000 tokens (9 %)`, rounded down; `None` before the first run.
    pub fn describe(self) -> Option<String> {
        let window = self.window.filter(|_| self.tokens > 0)?;
        let (tokens, window) = (group_digits(self.tokens), group_digits(window));
        Some(format!(
            "{tokens} of {window} tokens ({} %)",
            self.percent()
        ))
    }

    /// Returns the used part of the window, rounded down; 0 before the first run.
    pub fn percent(self) -> u128 {
        let window = self.window.unwrap_or(u64::MAX).max(1);
        u128::from(self.tokens) * 100 / u128::from(window)
    }
}

/// Writes a number with a comma between groups of three digits.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_sees_tokens_window_and_percent() {
        let describe = |tokens, window| ContextFill { tokens, window }.describe();
        assert_eq!(describe(0, Some(1_000)), None);
        assert_eq!(describe(5, None), None);
        for (tokens, window, expected) in [
            (1, 999, "1 of 999 tokens (0 %)"),
            (12_345, 128_000, "12,345 of 128,000 tokens (9 %)"),
            (1_000, 1_000, "1,000 of 1,000 tokens (100 %)"),
            (
                3_000_000,
                1_047_576,
                "3,000,000 of 1,047,576 tokens (286 %)",
            ),
            (
                u64::MAX,
                0,
                "18,446,744,073,709,551,615 of 0 tokens (1844674407370955161500 %)",
            ),
        ] {
            assert_eq!(describe(tokens, Some(window)).as_deref(), Some(expected));
        }
    }
}
