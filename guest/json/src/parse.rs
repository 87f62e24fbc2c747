//! Parses text to a tree, with serde_json's parser.

use super::record::JsonError;
use super::{JsonNumber, JsonObject, JsonValue};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
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
    serde_json::from_str(text).map_err(|e| JsonError::Syntax(e.to_string()))
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
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
    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Err(E::custom("a number has lost its digits"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(JsonValue::from(text.to_owned()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(JsonValue::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(JsonValue::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(FieldName(name)) = access.next_key()? {
            if fields.is_empty() && name == NUMBER_FIELD {
                let RawDigits(digits) = access.next_value()?;
                return match JsonNumber::parse(&digits) {
                    Some(number) => Ok(JsonValue::Number(number)),
                    None => Err(de::Error::custom("invalid number")),
                };
            }
            fields.push((name, access.next_value()?));
        }
        Ok(JsonValue::Object(JsonObject(fields)))
    }
}

/// The name of a field.
struct FieldName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for FieldName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ValueVisitor)? {
            JsonValue::String(name) => Ok(Self(name)),
            _ => Err(de::Error::custom("a name must be a string")),
        }
    }
}

/// The digits of a number, as text.
struct RawDigits(String);

impl<'de> Deserialize<'de> for RawDigits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ValueVisitor)? {
            JsonValue::String(digits) => Ok(Self(digits.into_owned())),
            _ => Err(de::Error::custom("invalid number")),
        }
    }
}
