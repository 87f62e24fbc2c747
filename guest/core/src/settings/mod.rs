//! The documents of the library: directives, models, tools and policy; and the pin that fixes them
//! for a thread.

mod builtin;
mod directive;
mod limits;
mod model;
mod pin;
mod tool;

pub use builtin::{Builtin, Spawn, WAIT_SECONDS, Waits, builtins, is_builtin};
pub use directive::{Directive, InputSpec, render_prompt};
pub use limits::parse_limits;
pub use model::Model;
pub use pin::{Pin, Policy, pin};
pub use tool::{TOOL_MILLIS, ToolDef, check_asked, granted, narrowed};
pub(crate) use tool::{check_capabilities, check_name};

use crate::error::Error;
use crate::json::{Map, Value};

/// Refuses a field that is not among `known`; the error names the nearest that is.
pub(crate) fn known_fields(place: &str, object: &Map<'_>, known: &[&str]) -> Result<(), Error> {
    match object.keys().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let problem = format!("is not a field here: {}", known.join(", "));
            Err(Error::unknown(
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
    object: &Map<'_>,
    name: &str,
) -> Result<Option<String>, Error> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.to_string())),
        Some(other) => Err(Error::invalid(
            format!("{place}.{name}"),
            &other.to_string(),
            "must be text",
        )),
    }
}

/// Reads an optional field that must be true or false.
pub(crate) fn flag_field(place: &str, object: &Map<'_>, name: &str) -> Result<bool, Error> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(Error::invalid(
            format!("{place}.{name}"),
            &other.to_string(),
            "must be true or false",
        )),
    }
}

/// Reads an optional field that must be a list of texts.
pub(crate) fn texts_field(place: &str, object: &Map<'_>, name: &str) -> Result<Vec<String>, Error> {
    let refuse = |value: &Value<'_>| {
        Err(Error::invalid(
            format!("{place}.{name}"),
            &value.to_string(),
            "must be a list of texts",
        ))
    };
    match object.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value @ Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or(()))
            .collect::<Result<_, ()>>()
            .or_else(|()| refuse(value)),
        Some(other) => refuse(other),
    }
}

/// Parses a document of the library as an object.
pub(crate) fn object<'a>(place: &str, text: &'a str) -> Result<Map<'a>, Error> {
    match crate::json::parse(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Error::invalid(
            place,
            &other.to_string(),
            "must be an object of fields",
        )),
        Err(e) => Err(Error::invalid(place, text, format!("is not JSON: {e}"))),
    }
}
