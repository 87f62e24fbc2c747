//! JSON pointers (RFC 6901) and the places in a value that they name.

use crate::json::JsonValue;

/// Longest pointer, in bytes.
pub const POINTER_BYTES_MAX: usize = 512;

/// A JSON pointer: the names and indexes on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPointer {
    /// The names and indexes, unescaped.
    pub tokens: Vec<String>,
}

impl JsonPointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > POINTER_BYTES_MAX {
            return Err(format!("is longer than {POINTER_BYTES_MAX} bytes"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return match text {
                "" => Ok(Self { tokens: Vec::new() }),
                _ => Err("is not a JSON pointer: it begins with /, or is empty".to_owned()),
            };
        };
        let tokens = rest.split('/').map(unescape_token);
        Ok(Self {
            tokens: tokens.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the way to the parent, and the last name; `None` for the whole value.
    pub fn split_last(&self) -> Option<(&[String], &str)> {
        let (last, parent) = self.tokens.split_last()?;
        Some((parent, last))
    }

    /// Returns true if one names a place at or above that of the other.
    pub fn meets(&self, other: &Self) -> bool {
        let mut pairs = self.tokens.iter().zip(&other.tokens);
        pairs.all(|(one, two)| one == two)
    }
}

fn unescape_token(token: &str) -> Result<String, String> {
    let mut parts = token.split('~');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err("has a ~ that is not followed by 0 or 1".to_owned()),
        };
        name.push(character);
        name.push_str(rest);
    }
    Ok(name)
}

/// Reads an index of an array: digits, without a leading zero.
pub(super) fn array_index(token: &str) -> Option<usize> {
    let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (token == "0" || !token.starts_with('0'));
    token.parse().ok().filter(|_| canonical)
}

/// Returns the value at a place, if it is there.
pub(super) fn find_value<'a, 'b>(
    value: &'b JsonValue<'a>,
    tokens: &[String],
) -> Option<&'b JsonValue<'a>> {
    tokens.iter().try_fold(value, |value, token| match value {
        JsonValue::Object(map) => map.get(token),
        JsonValue::Array(items) => items.get(array_index(token)?),
        _ => None,
    })
}

/// Returns the value at a place, to be changed.
pub(super) fn find_value_mut<'a, 'b>(
    value: &'b mut JsonValue<'a>,
    tokens: &[String],
) -> Option<&'b mut JsonValue<'a>> {
    tokens.iter().try_fold(value, |value, token| match value {
        JsonValue::Object(map) => map.get_mut(token),
        JsonValue::Array(items) => items.get_mut(array_index(token)?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_as_rfc_6901_writes_them() {
        for (text, expected) in [
            ("", Some(vec![])),
            ("/", Some(vec![""])),
            ("/a/0", Some(vec!["a", "0"])),
            ("/a~1b/~0", Some(vec!["a/b", "~"])),
            ("/~01", Some(vec!["~1"])),
            ("a", None),
            ("/~", None),
            ("/~2", None),
            ("/a~", None),
        ] {
            let parsed = JsonPointer::parse(text).ok();
            assert_eq!(
                parsed.map(|pointer| pointer.tokens),
                expected.map(own),
                "{text}"
            );
        }
        let own_bytes = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
        assert!(JsonPointer::parse(&own_bytes(POINTER_BYTES_MAX)).is_ok());
        assert!(JsonPointer::parse(&own_bytes(POINTER_BYTES_MAX + 1)).is_err());
    }

    fn own(tokens: Vec<&str>) -> Vec<String> {
        tokens.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn indexes_have_no_sign_and_no_leading_zero() {
        for (token, expected) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("01", None),
            ("00", None),
            ("-", None),
            ("+1", None),
            ("-1", None),
            ("1e0", None),
            ("", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(array_index(token), expected, "{token}");
        }
    }
}
