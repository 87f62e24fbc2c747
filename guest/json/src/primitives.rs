//! JSON of texts, numbers, booleans, options and lists.

use super::JsonValue;
use super::number::write_u64;
use super::record::{FromJson, JsonError, ToJson, or_problem};
use super::write::{write_bool, write_i64, write_text};

impl<T: ToJson + ?Sized> ToJson for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl ToJson for JsonValue<'_> {
    fn write(&self, out: &mut String) {
        self.write(out, None);
    }
}

impl FromJson for JsonValue<'static> {
    fn read(value: JsonValue<'_>, _: &mut Option<JsonError>) -> Self {
        value.into_owned()
    }

    fn placeholder() -> Self {
        Self::Null
    }
}

impl ToJson for str {
    fn write(&self, out: &mut String) {
        write_text(out, self);
    }
}

impl ToJson for String {
    fn write(&self, out: &mut String) {
        write_text(out, self);
    }
}

impl FromJson for String {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        match value {
            JsonValue::String(text) => text.into_owned(),
            _ => or_problem(None, "text", problem),
        }
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

impl ToJson for bool {
    fn write(&self, out: &mut String) {
        write_bool(out, *self);
    }

    fn is_absent(&self) -> bool {
        !*self
    }
}

impl FromJson for bool {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        match value {
            JsonValue::Bool(flag) => flag,
            _ => or_problem(None, "true or false", problem),
        }
    }

    fn placeholder() -> Self {
        false
    }
}

impl ToJson for u64 {
    fn write(&self, out: &mut String) {
        write_u64(out, *self);
    }

    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl FromJson for u64 {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let wanted = "a whole number from 0 to 2^64 - 1";
        or_problem(value.as_u64(), wanted, problem)
    }

    fn placeholder() -> Self {
        0
    }
}

impl ToJson for u32 {
    fn write(&self, out: &mut String) {
        write_u64(out, u64::from(*self));
    }

    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl FromJson for u32 {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let whole = value.as_u64().and_then(|whole| Self::try_from(whole).ok());
        or_problem(whole, "a whole number from 0 to 2^32 - 1", problem)
    }

    fn placeholder() -> Self {
        0
    }
}

impl ToJson for i64 {
    fn write(&self, out: &mut String) {
        write_i64(out, *self);
    }
}

impl FromJson for i64 {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let whole = match value {
            JsonValue::Number(number) => number.as_i64(),
            _ => None,
        };
        or_problem(whole, "a whole number from -2^63 to 2^63 - 1", problem)
    }

    fn placeholder() -> Self {
        0
    }
}

impl<T: ToJson> ToJson for Box<T> {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl<T: FromJson> FromJson for Box<T> {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        Self::new(T::read(value, problem))
    }

    fn placeholder() -> Self {
        Self::new(T::placeholder())
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: FromJson> FromJson for Option<T> {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        match value {
            JsonValue::Null => None,
            value => Some(T::read(value, problem)),
        }
    }

    fn value_if_missing() -> Option<Self> {
        Some(None)
    }

    fn placeholder() -> Self {
        None
    }
}

impl<T: ToJson> ToJson for [T] {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (place, item) in self.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            item.write(out);
        }
        out.push(']');
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn write(&self, out: &mut String) {
        self.as_slice().write(out);
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let JsonValue::Array(items) = value else {
            return or_problem(None, "a list", problem);
        };
        let mut all = Self::with_capacity(items.len());
        for item in items {
            all.push(T::read(item, problem));
        }
        all
    }

    fn placeholder() -> Self {
        Self::new()
    }
}
