//! The documents of the library: directives, models, tools and policy; and the pin that fixes them
//! for a thread.

mod builtin;
mod builtin_tools;
mod coordination;
mod directive;
mod directive_summary;
mod limits;
mod model;
mod pin;
mod summary;
mod tool;

pub use builtin::{BuiltinCall, SpawnCall, WaitCall, builtin_tools};
pub use builtin_tools::is_builtin_tool;
pub use coordination::{CoordinationSettings, MILLION, WAIT_MILLIS_DEFAULT};
pub use directive::{Directive, FRONT_MATTER_FIELDS, InputSpec, render_prompt};
pub use directive_summary::DirectiveSummary;
pub use limits::parse_limits;
pub use model::Model;
pub use pin::{PinnedContinuation, PinnedSettings, Policy, named_spend, resolve_settings};
pub use summary::{PinnedSummary, SummaryChoice};
pub use tool::{
    TOOL_MILLIS_DEFAULT, ToolDef, check_draft_capabilities, intersect_capabilities, is_granted,
};
pub(crate) use tool::{check_approvals, check_patterns, check_tool_name, parse_approvals};

use crate::error::Error;
use crate::json::{JsonObject, JsonValue};

/// Refuses a field that is not among `known`; the error names the nearest that is.
pub(crate) fn check_known_fields(
    place: &str,
    object: &JsonObject<'_>,
    known: &[&str],
) -> Result<(), Error> {
    match object.keys().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let problem = format!("is not a field here: {}", known.join(", "));
            Err(Error::invalid_name(
                format!("{place}.{name}"),
                name,
                &problem,
                known,
            ))
        }
    }
}

/// Reads an optional field that must be text.
pub(crate) fn text_field(
    place: &str,
    object: &JsonObject<'_>,
    name: &str,
) -> Result<Option<String>, Error> {
    match object.get(name) {
        None | Some(JsonValue::Null) => Ok(None),
        Some(JsonValue::String(text)) => Ok(Some(text.to_string())),
        Some(other) => Err(Error::invalid(
            format!("{place}.{name}"),
            &other.to_string(),
            "must be text",
        )),
    }
}

/// Reads an optional field that must be true or false.
pub(crate) fn flag_field(place: &str, object: &JsonObject<'_>, name: &str) -> Result<bool, Error> {
    match object.get(name) {
        None | Some(JsonValue::Null) => Ok(false),
        Some(JsonValue::Bool(flag)) => Ok(*flag),
        Some(other) => Err(Error::invalid(
            format!("{place}.{name}"),
            &other.to_string(),
            "must be true or false",
        )),
    }
}

/// Reads an optional field that must be a list of texts.
pub(crate) fn texts_field(
    place: &str,
    object: &JsonObject<'_>,
    name: &str,
) -> Result<Vec<String>, Error> {
    let refuse = |value: &JsonValue<'_>| {
        Err(Error::invalid(
            format!("{place}.{name}"),
            &value.to_string(),
            "must be a list of texts",
        ))
    };
    match object.get(name) {
        None | Some(JsonValue::Null) => Ok(Vec::new()),
        Some(value @ JsonValue::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or(()))
            .collect::<Result<_, ()>>()
            .or_else(|()| refuse(value)),
        Some(other) => refuse(other),
    }
}

/// Parses a document of the library as an object.
pub(crate) fn parse_object<'a>(place: &str, text: &'a str) -> Result<JsonObject<'a>, Error> {
    match crate::json::parse(text) {
        Ok(JsonValue::Object(object)) => Ok(object),
        Ok(other) => Err(Error::invalid(
            place,
            &other.to_string(),
            "must be an object of fields",
        )),
        Err(e) => Err(Error::invalid(place, text, format!("is not JSON: {e}"))),
    }
}
