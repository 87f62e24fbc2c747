//! Parses text to a tree, with serde_json's parser.

use super::record::JsonError;
use super::{JsonNumber, JsonObject, JsonValue};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The field name under which serde_json gives a number that keeps its digits. An object that
/// really has such a field is taken for a number if its value is one, as everywhere in serde_json,
/// and refused otherwise.
pub const NUMBER_FIELD: &str = "$serde_json::private::Number";

/// Parses the value that a text holds. Nesting is limited to 128 levels.
///
/// # Errors
/// [`JsonError::Syntax`] if the text is not JSON.
pub fn parse(text: &str) -> Result<JsonValue<'_>, JsonError> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let is_refused = Cell::new(false);
    let reader = ValueReader {
        is_refused: &is_refused,
    };
    let parsed = reader.deserialize(&mut parser);
    let tree = parsed.and_then(|tree| parser.end().map(|()| tree));
    let tree = tree.map_err(|e| JsonError::Syntax(e.to_string()))?;
    if is_refused.get() {
        let problem =
            format!("the name {NUMBER_FIELD} is reserved for a number, as its only field");
        return Err(JsonError::Syntax(problem));
    }
    Ok(tree)
}

/// Makes values of what the parser finds.
#[derive(Clone, Copy)]
struct ValueReader<'r> {
    /// Set where a value is refused. An error of serde would do as well, and bring the code that
    /// searches its sentence for a line and a column: 4,000 bytes of the component.
    is_refused: &'r Cell<bool>,
}

impl ValueReader<'_> {
    /// Notes that the text is refused, and returns a value that nobody will see.
    fn refuse<'de>(self) -> JsonValue<'de> {
        self.is_refused.set(true);
        JsonValue::Null
    }

    /// Returns the number that serde_json gives as an object of one field, see [`NUMBER_FIELD`].
    fn read_number<'de>(self, fields: &[(Cow<'de, str>, JsonValue<'de>)]) -> JsonValue<'de> {
        let number = match fields {
            [(_, JsonValue::String(digits))] => JsonNumber::parse(digits),
            _ => None,
        };
        number.map_or_else(|| self.refuse(), JsonValue::Number)
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = JsonValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = JsonValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(JsonValue::Bool(flag))
    }

    fn visit_u64<E>(self, whole: u64) -> Result<Self::Value, E> {
        Ok(JsonValue::from(whole))
    }

    fn visit_i64<E>(self, whole: i64) -> Result<Self::Value, E> {
        Ok(JsonValue::Number(JsonNumber::from_valid_text(
            whole.to_string(),
        )))
    }

    #[expect(
        clippy::disallowed_types,
        reason = "serde's trait names it; no number gets here"
    )]
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(self.refuse())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(JsonValue::from(text.to_owned()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(JsonValue::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(JsonValue::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = access.next_key_seed(self)? {
            let JsonValue::String(name) = name else {
                return Ok(self.refuse());
            };
            fields.push((name, access.next_value_seed(self)?));
        }
        if fields.first().is_some_and(|(name, _)| name == NUMBER_FIELD) {
            return Ok(self.read_number(&fields));
        }
        Ok(JsonValue::Object(JsonObject(fields)))
    }
}
