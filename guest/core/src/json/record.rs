//! Records as JSON: [`record!`] for structs, [`words!`] for enums without payload.
//!
//! A struct is an object with its fields in the order in which [`record!`] names them. Reading passes over unknown
//! fields, refuses repeated ones, and takes a missing `Option` as `None`.

use super::{Map, Value};
use std::borrow::Cow;

/// Why a JSON text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It is not JSON: where and why.
    #[error("{0}")]
    Syntax(String),
    /// A field is missing.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field is there twice.
    #[error("the field `{0}` is there twice")]
    Repeated(String),
    /// A field is not known where only known ones are allowed.
    #[error("the field `{0}` is unknown")]
    Unknown(String),
    /// A value is of another kind.
    #[error("`{field}` must be {wanted}")]
    Kind {
        /// The innermost field; empty for the whole text.
        field: &'static str,
        /// What would be right.
        wanted: &'static str,
    },
}

impl Wrong {
    /// A value is not what is wanted here; the field is filled in by who reads it.
    pub fn kind(wanted: &'static str) -> Self {
        Self::Kind { field: "", wanted }
    }
}

/// What can be written as JSON.
pub trait ToJson {
    /// Append the text.
    fn write(&self, out: &mut String);

    /// True if it is what an optional field is when it is not there.
    fn is_absent(&self) -> bool {
        false
    }
}

/// What can be read from JSON.
pub trait FromJson: Sized {
    /// Take it from a tree.
    ///
    /// # Errors
    /// If the tree is something else.
    fn read(value: Value<'_>) -> Result<Self, Wrong>;

    /// What a missing field is, if it may be missing.
    fn absent() -> Option<Self> {
        None
    }

    /// Any value: what stands in a record beside a field that was wrong, until the record is thrown away.
    fn hollow() -> Self;
}

/// Room that a text begins with.
const TEXT_BYTES: usize = 1_024;

/// A value as text.
pub fn text(value: &(impl ToJson + ?Sized)) -> String {
    // Most records and entries: a few reallocations less.
    let mut out = String::with_capacity(TEXT_BYTES);
    value.write(&mut out);
    out
}

/// A value from text.
///
/// # Errors
/// If it is not JSON, or is something else.
pub fn read<T: FromJson>(text: &str) -> Result<T, Wrong> {
    T::read(super::parse(text)?)
}

/// Writes an object, field by field.
#[derive(Debug)]
pub struct Fields<'a> {
    out: &'a mut String,
    before: &'static str,
}

impl<'a> Fields<'a> {
    /// Begin an object.
    pub fn new(out: &'a mut String) -> Self {
        Self { out, before: "{\"" }
    }

    /// Add a field. In its name, nothing is escaped.
    pub fn add(&mut self, name: &str, value: &(impl ToJson + ?Sized)) -> &mut Self {
        self.name(name);
        value.write(self.out);
        self
    }

    /// Add a field, unless it is absent.
    pub fn add_present(&mut self, name: &str, value: &impl ToJson) -> &mut Self {
        if !value.is_absent() {
            self.add(name, value);
        }
        self
    }

    fn name(&mut self, name: &str) {
        self.out.push_str(self.before);
        self.before = ",\"";
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    /// End the object.
    pub fn end(&mut self) {
        let empty = self.before.starts_with('{');
        self.out.push_str(if empty { "{}" } else { "}" });
    }
}

/// Reads an object, field by field. What is left at the end is unknown, or there twice.
#[derive(Debug)]
pub struct Taken<'a> {
    /// A field that was taken has no name any more.
    fields: Vec<(Cow<'a, str>, Value<'a>)>,
    /// Where the next field is looked for first: records are read in the order they were written.
    next: usize,
    left: usize,
    /// What was wrong first.
    wrong: Option<Wrong>,
}

impl<'a> Taken<'a> {
    /// Begin with an object.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(value: Value<'a>) -> Result<Self, Wrong> {
        let Value::Object(Map(fields)) = value else {
            return Err(Wrong::kind("an object"));
        };
        Ok(Self {
            left: fields.len(),
            fields,
            next: 0,
            wrong: None,
        })
    }

    fn take(&mut self, name: &str) -> Option<Value<'a>> {
        let place = match self.fields.get(self.next) {
            Some((next, _)) if next == name => self.next,
            _ => self.fields.iter().position(|(other, _)| other == name)?,
        };
        self.next = place + 1;
        self.left -= 1;
        let (name, value) = &mut self.fields[place];
        *name = Cow::Borrowed("");
        Some(std::mem::replace(value, Value::Null))
    }

    /// Take a field as it is.
    ///
    /// # Errors
    /// If it is missing.
    pub fn value(&mut self, name: &'static str) -> Result<Value<'a>, Wrong> {
        self.take(name).ok_or(Wrong::Missing(name))
    }

    /// Take a field.
    ///
    /// # Errors
    /// If it is missing and must not be, or is of another kind.
    pub fn field<T: FromJson>(&mut self, name: &'static str) -> Result<T, Wrong> {
        match self.take(name) {
            Some(value) => T::read(value).map_err(|wrong| place(wrong, name)),
            None => T::absent().ok_or(Wrong::Missing(name)),
        }
    }

    /// Take a field of a record. What is wrong with it is told at the end, so that nothing has to be undone here: that
    /// would be half of the code of a record.
    #[inline(never)]
    pub fn part<T: FromJson>(&mut self, name: &'static str) -> T {
        let found = self.field(name);
        self.or_hollow(found)
    }

    /// The same for a field that may be missing.
    #[inline(never)]
    pub fn optional<T: FromJson + Default>(&mut self, name: &'static str) -> T {
        let found = match self.take(name) {
            Some(value) => T::read(value).map_err(|wrong| place(wrong, name)),
            None => Ok(T::default()),
        };
        self.or_hollow(found)
    }

    fn or_hollow<T: FromJson>(&mut self, found: Result<T, Wrong>) -> T {
        found.unwrap_or_else(|wrong| {
            self.wrong.get_or_insert(wrong);
            T::hollow()
        })
    }

    /// End: no part was wrong, and of what is left, nothing has one of the names that were taken.
    ///
    /// # Errors
    /// What was wrong first, or if a field was there twice.
    pub fn end(&mut self, names: &[&str]) -> Result<(), Wrong> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.left == 0 {
            return Ok(());
        }
        let mut left = self.fields.iter().map(|(name, _)| name.as_ref());
        match left.find(|name| names.contains(name)) {
            Some(name) => Err(Wrong::Repeated(name.to_owned())),
            None => Ok(()),
        }
    }

    /// End: no part was wrong, and nothing is left.
    ///
    /// # Errors
    /// What was wrong first, or if a field was not taken.
    pub fn end_strictly(&mut self) -> Result<(), Wrong> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.left == 0 {
            return Ok(());
        }
        let mut left = self.fields.iter().map(|(name, _)| name.as_ref());
        let name = left.find(|name| !name.is_empty()).unwrap_or_default();
        Err(Wrong::Unknown(name.to_owned()))
    }
}

fn place(wrong: Wrong, name: &'static str) -> Wrong {
    match wrong {
        Wrong::Kind { field: "", wanted } => Wrong::Kind {
            field: name,
            wanted,
        },
        wrong => wrong,
    }
}

/// JSON for a struct: `record!(Head { format, status })`; one way with `write` or `read` before its name. After a field
/// may stand
/// - `as "type"`: its name in JSON;
/// - `or default`: it may be missing;
/// - `or nothing`: it may be missing, and is not written when it is `None`, `false`, 0 or an empty list.
macro_rules! record {
    ($type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        $crate::json::record::record!(write $type { $($field $(as $name)? $(or $how)?),* });
        $crate::json::record::record!(read $type { $($field $(as $name)? $(or $how)?),* });
    };
    (write $type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                let Self { $($field),* } = self;
                let mut fields = $crate::json::Fields::new(out);
                $($crate::json::record::record!(@write fields, $field, $crate::json::record::record!(@name $field $($name)?) $(, $how)?);)*
                fields.end();
            }
        }
    };
    (read $type:ident { $($field:ident $(as $name:literal)? $(or $how:ident)?),* $(,)? }) => {
        impl $crate::json::FromJson for $type {
            fn read(value: $crate::json::Value<'_>) -> Result<Self, $crate::json::Wrong> {
                let mut taken = $crate::json::record::Taken::new(value)?;
                let record = Self {
                    $($field: $crate::json::record::record!(@read taken, $crate::json::record::record!(@name $field $($name)?) $(, $how)?),)*
                };
                taken.end(&[$($crate::json::record::record!(@name $field $($name)?)),*])?;
                Ok(record)
            }

            fn hollow() -> Self {
                Self { $($field: $crate::json::FromJson::hollow()),* }
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@write $fields:ident, $field:ident, $name:expr) => { $fields.add($name, $field) };
    (@write $fields:ident, $field:ident, $name:expr, default) => { $fields.add($name, $field) };
    (@write $fields:ident, $field:ident, $name:expr, nothing) => { $fields.add_present($name, $field) };
    (@read $taken:ident, $name:expr) => { $taken.part($name) };
    (@read $taken:ident, $name:expr, $how:ident) => { $taken.optional($name) };
}
pub(crate) use record;

/// JSON both ways for an enum of words, and `as_str`: `words!(Status { Created = "created" })`.
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $type {
            /// The word in records, WIT and documents.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                self.as_str().write(out);
            }
        }

        impl $crate::json::FromJson for $type {
            fn read(value: $crate::json::Value<'_>) -> Result<Self, $crate::json::Wrong> {
                match value.as_str() {
                    $(Some($word) => Ok(Self::$variant),)*
                    _ => Err($crate::json::Wrong::kind(concat!("one of" $(, " ", $word)*))),
                }
            }

            fn hollow() -> Self {
                [$(Self::$variant),*][0]
            }
        }
    };
}
pub(crate) use words;
