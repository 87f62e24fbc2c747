//! The arguments of a call: every key known, every value of its type. Errors are sentences for the
//! model.

use super::ARGUMENTS_BYTES_MAX;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use threadkeep_units::nearest::suggestion;

/// Arguments that have no key but the tool's own.
pub(super) struct ToolArguments(Map<String, Value>);

impl ToolArguments {
    pub(super) fn parse(text: &str, keys: &[&str]) -> Result<Self, String> {
        let known = keys.join(", ");
        if text.len() > ARGUMENTS_BYTES_MAX {
            return Err(format!(
                "the arguments are longer than {ARGUMENTS_BYTES_MAX} bytes; send less"
            ));
        }
        let Ok(Value::Object(values)) = serde_json::from_str(text) else {
            return Err(format!(
                "the arguments must be a JSON object with the keys {known}"
            ));
        };
        match values.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(unknown) => {
                let shown: String = unknown.chars().take(60).collect();
                let hint = suggestion(unknown, keys.iter().copied());
                Err(format!(
                    "\"{shown}\" is not an argument{hint}; the arguments are {known}"
                ))
            }
            None => Ok(Self(values)),
        }
    }

    /// Returns a value that is present and not null.
    fn non_null(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.non_null(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{key} must be a string")),
        }
    }

    pub(super) fn required_text(&self, key: &str) -> Result<&str, String> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(format!(
                "{key} is missing; it must be a string that is not empty"
            )),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, String> {
        match self.non_null(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{key} must be true or false")),
        }
    }

    pub(super) fn number(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, String> {
        let Some(value) = self.non_null(key) else {
            return Ok(default);
        };
        match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => Ok(number),
            None => Err(format!(
                "{key} must be a whole number from {} to {}",
                range.start(),
                range.end()
            )),
        }
    }
}
