//! Formats of the small records that are kept for ever.

use super::FORMAT;
use crate::error::{Error, ErrorKind};
use crate::json::JsonValue;
use crate::json::{FromJson, JsonError, ToJson};

/// Format of a record that earlier builds wrote without one: it is 1 then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordFormat(u32);

impl RecordFormat {
    /// The format that this version writes.
    pub const CURRENT: Self = Self(FORMAT);

    /// Refuses a record that a newer program wrote: what it says, and what it would lose when it is
    /// written, is not known here.
    ///
    /// # Errors
    /// `ErrorKind::NewerFormat` with the thread and the kind of the record.
    pub fn refuse_newer(self, thread: &str, record: &'static str) -> Result<(), Error> {
        if self.0 <= FORMAT {
            return Ok(());
        }
        Err(ErrorKind::NewerFormat {
            thread: thread.to_owned(),
            record,
            format: self.0,
        }
        .into())
    }
}

impl ToJson for RecordFormat {
    fn write(&self, out: &mut String) {
        self.0.write(out);
    }
}

impl FromJson for RecordFormat {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        Self(u32::read(value, problem))
    }

    fn value_if_missing() -> Option<Self> {
        Some(Self(1))
    }

    fn placeholder() -> Self {
        Self::CURRENT
    }
}
