//! Events of later versions.

use crate::json::{JsonObject, JsonValue, ToJson};

/// An event of a later version, kept as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    kind: String,
    fields: JsonValue<'static>,
}

impl UnknownEvent {
    /// Keeps an event, with the name of its type.
    pub(super) fn new(value: JsonValue<'_>) -> Self {
        let kind = value.get("type").and_then(JsonValue::as_str);
        let kind = kind.unwrap_or("other").to_owned();
        let mut fields = match value.into_owned() {
            JsonValue::Object(fields) => fields,
            _ => JsonObject::new(),
        };
        fields.shift_remove("type");
        Self {
            kind,
            fields: JsonValue::Object(fields),
        }
    }

    /// Its type.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Writes its fields, without its type.
    pub(super) fn write_fields(&self, out: &mut String) {
        self.fields.write(out);
    }
}
