//! A secret text that cannot be printed by accident.

use std::fmt;

/// A provider's key, or another value of its headers. It has no `Display` and no `Serialize`, and
/// its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct SecretText {
    value: String,
    /// True for a value that may be shown: a person wrote it out in a file, and it is not a key.
    shown: bool,
}

impl SecretText {
    /// Wraps a key.
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            shown: false,
        }
    }

    /// Wraps a value that is sent like a key but is not secret.
    pub fn plain(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            shown: true,
        }
    }

    /// Returns true if the value must not appear in any text that is shown.
    pub fn is_secret(&self) -> bool {
        !self.shown
    }

    /// Returns the value: for the one header that carries it, and for checks that a text does not.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::SecretText;

    #[test]
    fn debug_shows_nothing_of_it() {
        let shown = format!("{:?}", Some(SecretText::new("sk-12345678")));
        assert_eq!(shown, "Some(Secret(..))");
    }
}
