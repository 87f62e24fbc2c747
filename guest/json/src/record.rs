//! Records as JSON: [`record!`] for structs, [`words!`] for enums without payload.
//!
//! A struct is an object with its fields in the order in which [`record!`] names them. Reading
//! ignores unknown fields, refuses repeated ones, and takes a missing `Option` as `None`.
//!
//! A field that [`record!`] does not name makes the record fail to compile. The bytes of each
//! stored record are pinned in `guest/core/tests/records.rs`.

use super::{JsonObject, JsonValue};
use std::borrow::Cow;

/// Errors of reading a record from JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON; the message says where and why.
    #[error("{0}")]
    Syntax(String),
    /// A required field is missing.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field is repeated.
    #[error("the field `{0}` is there twice")]
    Repeated(String),
    /// A field is unknown where only known ones are allowed.
    #[error("the field `{0}` is unknown")]
    Unknown(String),
    /// A value is of another type.
    #[error("`{field}` must be {wanted}")]
    Kind {
        /// The innermost field; empty for the whole text.
        field: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
}

impl JsonError {
    /// Makes an error for a value of another type. The caller that reads a field fills in its name.
    pub fn wrong_kind(wanted: &'static str) -> Self {
        Self::Kind { field: "", wanted }
    }
}

/// A value that can be written as JSON.
pub trait ToJson {
    /// Appends the JSON text.
    fn write(&self, out: &mut String);

    /// Returns true if the value equals that of a missing optional field.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A value that can be read from JSON.
pub trait FromJson: Sized {
    /// Reads the value from a tree. If the tree holds something else, it notes the problem, unless
    /// there is one, and returns a placeholder: so a record has nothing to undo behind each field,
    /// which was half of its code.
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self;

    /// Returns the value of a missing field, if the field may be missing.
    fn value_if_missing() -> Option<Self> {
        None
    }

    /// Returns any value. It stands where one could not be read, until the problem is reported and
    /// all is thrown away.
    fn placeholder() -> Self;
}

/// Returns the value that was found, or notes that another type is wanted and returns a
/// placeholder.
pub fn or_problem<T: FromJson>(
    found: Option<T>,
    wanted: &'static str,
    problem: &mut Option<JsonError>,
) -> T {
    found.unwrap_or_else(|| {
        note_problem(problem, JsonError::wrong_kind(wanted));
        T::placeholder()
    })
}

/// Notes a problem, unless there is an earlier one.
#[inline(never)]
fn note_problem(problem: &mut Option<JsonError>, found: JsonError) {
    problem.get_or_insert(found);
}

/// Gives the problem the name of the field that was read, unless it has one.
#[inline(never)]
fn name_problem(problem: &mut Option<JsonError>, name: &'static str) {
    if let Some(JsonError::Kind { field, .. }) = problem
        && field.is_empty()
    {
        *field = name;
    }
}

/// Initial capacity of a written text, in bytes.
const TEXT_BYTES: usize = 1_024;

/// Writes a value as text.
pub fn to_text(value: &(impl ToJson + ?Sized)) -> String {
    // Most records and entries fit without a reallocation.
    let mut out = String::with_capacity(TEXT_BYTES);
    value.write(&mut out);
    out
}

/// Reads a value from text.
///
/// # Errors
/// If the text is not JSON, or holds something else.
pub fn read<T: FromJson>(text: &str) -> Result<T, JsonError> {
    read_value(super::parse(text)?)
}

/// Reads a value from a tree.
///
/// # Errors
/// If the tree holds something else.
pub fn read_value<T: FromJson>(value: JsonValue<'_>) -> Result<T, JsonError> {
    let mut problem = None;
    let read = T::read(value, &mut problem);
    match problem {
        None => Ok(read),
        Some(problem) => Err(problem),
    }
}

/// Writes an object, field by field.
#[derive(Debug)]
pub struct ObjectWriter<'a> {
    out: &'a mut String,
    before: &'static str,
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    pub fn new(out: &'a mut String) -> Self {
        Self { out, before: "{\"" }
    }

    /// Adds a field. Its name is written without escapes.
    pub fn add(&mut self, name: &str, value: &(impl ToJson + ?Sized)) -> &mut Self {
        self.write_name(name);
        value.write(self.out);
        self
    }

    /// Adds a field, unless its value is absent.
    pub fn add_present(&mut self, name: &str, value: &impl ToJson) -> &mut Self {
        if !value.is_absent() {
            self.add(name, value);
        }
        self
    }

    fn write_name(&mut self, name: &str) {
        self.out.push_str(self.before);
        self.before = ",\"";
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    /// Ends the object.
    pub fn finish(&mut self) {
        let empty = self.before.starts_with('{');
        self.out.push_str(if empty { "{}" } else { "}" });
    }
}

/// Reads an object, field by field. The fields left at the end are unknown or repeated.
#[derive(Debug)]
pub struct ObjectReader<'a> {
    /// The fields of the object. A field that was read has an empty name.
    fields: Vec<(Cow<'a, str>, JsonValue<'a>)>,
    /// The index at which the next field is looked for first: records are read in the order they
    /// were written.
    next: usize,
    left: usize,
    /// The first error.
    wrong: Option<JsonError>,
}

impl<'a> ObjectReader<'a> {
    /// Begins with an object.
    ///
    /// # Errors
    /// If the value is no object.
    pub fn new(value: JsonValue<'a>) -> Result<Self, JsonError> {
        let mut reader = Self::begin(value);
        match reader.wrong.take() {
            None => Ok(reader),
            Some(wrong) => Err(wrong),
        }
    }

    /// Begins with an object. Of any other value, no field is there, and that is the first error.
    #[inline(never)]
    pub fn begin(value: JsonValue<'a>) -> Self {
        let (fields, wrong) = match value {
            JsonValue::Object(JsonObject(fields)) => (fields, None),
            _ => (Vec::new(), Some(JsonError::wrong_kind("an object"))),
        };
        Self {
            left: fields.len(),
            fields,
            next: 0,
            wrong,
        }
    }

    fn take_field(&mut self, name: &str) -> Option<JsonValue<'a>> {
        let place = match self.fields.get(self.next) {
            Some((next, _)) if next == name => self.next,
            _ => self.fields.iter().position(|(other, _)| other == name)?,
        };
        self.next = place + 1;
        self.left -= 1;
        let (name, value) = &mut self.fields[place];
        *name = Cow::Borrowed("");
        Some(std::mem::replace(value, JsonValue::Null))
    }

    /// Reads a field as it is.
    ///
    /// # Errors
    /// If the field is missing.
    pub fn raw_field(&mut self, name: &'static str) -> Result<JsonValue<'a>, JsonError> {
        self.take_field(name).ok_or(JsonError::Missing(name))
    }

    /// Reads a field.
    ///
    /// # Errors
    /// If the field is missing and must not be, or is of another type.
    pub fn field<T: FromJson>(&mut self, name: &'static str) -> Result<T, JsonError> {
        let earlier = self.wrong.take();
        let found = self.record_field(name);
        match std::mem::replace(&mut self.wrong, earlier) {
            None => Ok(found),
            Some(wrong) => Err(wrong),
        }
    }

    /// Reads a field of a record. The error is kept and reported at the end.
    #[inline(never)]
    pub fn record_field<T: FromJson>(&mut self, name: &'static str) -> T {
        match self.take_field(name) {
            Some(value) => self.read_named(value, name),
            None => T::value_if_missing().unwrap_or_else(|| {
                note_problem(&mut self.wrong, JsonError::Missing(name));
                T::placeholder()
            }),
        }
    }

    /// Reads a field of a record that may be missing.
    #[inline(never)]
    pub fn optional_field<T: FromJson + Default>(&mut self, name: &'static str) -> T {
        match self.take_field(name) {
            Some(value) => self.read_named(value, name),
            None => T::default(),
        }
    }

    fn read_named<T: FromJson>(&mut self, value: JsonValue<'a>, name: &'static str) -> T {
        let read = T::read(value, &mut self.wrong);
        name_problem(&mut self.wrong, name);
        read
    }

    /// Ends the reading of a record, and notes the first error in `problem`, unless there is one.
    #[inline(never)]
    pub fn end(mut self, names: &[&str], problem: &mut Option<JsonError>) {
        if let Err(wrong) = self.finish(names) {
            note_problem(problem, wrong);
        }
    }

    /// Ends the reading: no field had an error, and no field left over has one of the names that
    /// were read.
    ///
    /// # Errors
    /// The first error, or a repeated field.
    pub fn finish(&mut self, names: &[&str]) -> Result<(), JsonError> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.left == 0 {
            return Ok(());
        }
        let mut left = self.fields.iter().map(|(name, _)| name.as_ref());
        match left.find(|name| names.contains(name)) {
            Some(name) => Err(JsonError::Repeated(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Ends the reading: no field had an error, and none is left over.
    ///
    /// # Errors
    /// The first error, or a field that was not read.
    pub fn finish_strictly(&mut self) -> Result<(), JsonError> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.left == 0 {
            return Ok(());
        }
        let mut left = self.fields.iter().map(|(name, _)| name.as_ref());
        let name = left.find(|name| !name.is_empty()).unwrap_or_default();
        Err(JsonError::Unknown(name.to_owned()))
    }
}

/// Implements JSON for a struct: `record!(Head { format, status })`. With `write` or `read` before
/// the name it implements one direction. After a field may stand
/// - `as "type"`: its name in JSON;
/// - `or default`: it may be missing;
/// - `or nothing`: it may be missing, and is not written when it is `None`, `false`, 0 or an empty
///   list.
#[macro_export]
macro_rules! record {
    ($type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        $crate::record!(write $type { $($field $(as $name)? $(or $how)?),* });
        $crate::record!(read $type { $($field $(as $name)? $(or $how)?),* });
    };
    (write $type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        impl $crate::ToJson for $type {
            fn write(&self, out: &mut String) {
                let Self { $($field),* } = self;
                let mut fields = $crate::ObjectWriter::new(out);
                $($crate::record!(
                    @write fields,
                    $field,
                    $crate::record!(@name $field $($name)?)
                    $(, $how)?
                );)*
                fields.finish();
            }
        }
    };
    (read $type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        impl $crate::FromJson for $type {
            fn read(
                value: $crate::JsonValue<'_>,
                problem: &mut Option<$crate::JsonError>,
            ) -> Self {
                let mut reader = $crate::ObjectReader::begin(value);
                let record = Self {
                    $($field: $crate::record!(
                        @read reader,
                        $crate::record!(@name $field $($name)?)
                        $(, $how)?
                    ),)*
                };
                reader.end(&[$($crate::record!(@name $field $($name)?)),*], problem);
                record
            }

            fn placeholder() -> Self {
                Self { $($field: $crate::FromJson::placeholder()),* }
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@write $fields:ident, $field:ident, $name:expr) => { $fields.add($name, $field) };
    (@write $fields:ident, $field:ident, $name:expr, default) => { $fields.add($name, $field) };
    (@write $fields:ident, $field:ident, $name:expr, nothing) => {
        $fields.add_present($name, $field)
    };
    (@read $reader:ident, $name:expr) => { $reader.record_field($name) };
    (@read $reader:ident, $name:expr, $how:ident) => { $reader.optional_field($name) };
}

/// Implements JSON both ways for an enum of words, and `as_str`: `words!(Status { Created =
/// "created" })`.
#[macro_export]
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $type {
            /// Returns the word in records, WIT and documents.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::ToJson for $type {
            fn write(&self, out: &mut String) {
                self.as_str().write(out);
            }
        }

        impl $crate::FromJson for $type {
            fn read(
                value: $crate::JsonValue<'_>,
                problem: &mut Option<$crate::JsonError>,
            ) -> Self {
                let found = match value.as_str() {
                    $(Some($word) => Some(Self::$variant),)*
                    _ => None,
                };
                $crate::or_problem(found, concat!("one of" $(, " ", $word)*), problem)
            }

            fn placeholder() -> Self {
                [$(Self::$variant),*][0]
            }
        }
    };
}
