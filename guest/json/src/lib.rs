//! JSON: one tree, one parser, one writer; and the conversion of records to text and back, by the
//! macros [`record!`] and [`words!`].
//!
//! Numbers keep the digits they were written with, and objects their order. The parser is
//! serde_json's. Derived code would exist once for each type (readers for text and for trees, two
//! writers) and was most of the component's size; this crate writes it once.
//!
//! It is a crate of its own because every text of a turn passes here several times: it is compiled
//! for speed, and what decides for size. Nothing here knows a record.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, missing_docs)]

mod equality;
mod number;
mod parse;
mod primitives;
mod record;
mod scan;
mod surrogates;
#[cfg(test)]
mod tests;
mod units;
mod write;

pub use number::JsonNumber;
pub use parse::{NUMBER_FIELD, parse};
pub use record::{
    FromJson, JsonError, ObjectReader, ObjectWriter, ToJson, or_problem, read, read_value, to_text,
};
pub use scan::{count_ascii_bytes, count_plain_bytes};
pub use surrogates::mend_surrogates;

use std::borrow::Cow;

/// A JSON value. Strings without escapes are borrowed from the text it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(JsonNumber),
    /// A string.
    String(Cow<'a, str>),
    /// A list.
    Array(Vec<Self>),
    /// Named values, in order.
    Object(JsonObject<'a>),
}

impl<'a> JsonValue<'a> {
    /// Returns the string, if the value is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if it is a whole one from 0 to 2^64 - 1, written without point and
    /// exponent.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Returns the field of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(map) => map.get(name),
            _ => None,
        }
    }

    /// Returns the same value, independent of the text it was parsed from.
    pub fn into_owned(self) -> JsonValue<'static> {
        match self {
            Self::Null => JsonValue::Null,
            Self::Bool(flag) => JsonValue::Bool(flag),
            Self::Number(number) => JsonValue::Number(number),
            Self::String(text) => JsonValue::String(Cow::Owned(text.into_owned())),
            Self::Array(items) => {
                JsonValue::Array(items.into_iter().map(JsonValue::into_owned).collect())
            }
            Self::Object(map) => {
                let owned = |(name, value): (Cow<'_, str>, JsonValue<'_>)| {
                    (Cow::Owned(name.into_owned()), value.into_owned())
                };
                JsonValue::Object(JsonObject(map.0.into_iter().map(owned).collect()))
            }
        }
    }
}

impl<'a> From<&'a str> for JsonValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl From<String> for JsonValue<'_> {
    fn from(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
}

impl From<u64> for JsonValue<'_> {
    fn from(whole: u64) -> Self {
        Self::Number(JsonNumber::from(whole))
    }
}

/// An object: named values in the order they were written. A repeated name means its last value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonObject<'a>(Vec<(Cow<'a, str>, JsonValue<'a>)>);

impl<'a> JsonObject<'a> {
    /// Makes an object without fields.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns true if the object has no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    /// Returns the fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &JsonValue<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Returns true if the object has a field of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.find_index(name).is_some()
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&JsonValue<'a>> {
        self.find_index(name).map(|place| &self.0[place].1)
    }

    /// Returns the value of a field, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut JsonValue<'a>> {
        let place = self.find_index(name)?;
        Some(&mut self.0[place].1)
    }

    /// Returns the value of a field, to be changed; a missing field is added.
    pub fn get_or_insert_with(
        &mut self,
        name: &str,
        make: impl FnOnce() -> JsonValue<'a>,
    ) -> &mut JsonValue<'a> {
        let place = self.find_index(name).unwrap_or_else(|| {
            self.0.push((Cow::Owned(name.to_owned()), make()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Sets a field: in its place if it exists, else at the end.
    pub fn insert(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<JsonValue<'a>>) {
        let (name, value) = (name.into(), value.into());
        match self.find_index(&name) {
            Some(place) => self.0[place].1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes a field; those after it move up.
    pub fn shift_remove(&mut self, name: &str) -> Option<JsonValue<'a>> {
        let value = self.find_index(name).map(|place| self.0.remove(place).1);
        self.0.retain(|(other, _)| other != name);
        value
    }

    /// Removes a field; the last one takes its place. Lines of `transcript.jsonl` have had their
    /// order by this since the first version.
    pub fn swap_remove(&mut self, name: &str) -> Option<JsonValue<'a>> {
        self.find_index(name)
            .map(|place| self.0.swap_remove(place).1)
    }

    fn find_index(&self, name: &str) -> Option<usize> {
        self.0.iter().rposition(|(other, _)| other == name)
    }
}
