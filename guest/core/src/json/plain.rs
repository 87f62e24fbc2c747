//! JSON of texts, numbers, booleans, options and lists.

use super::Value;
use super::number::write_whole;
use super::record::{FromJson, ToJson, Wrong};
use super::write::{write_bool, write_signed, write_text};

impl<T: ToJson + ?Sized> ToJson for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl ToJson for Value<'_> {
    fn write(&self, out: &mut String) {
        self.write(out, None);
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
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        match value {
            Value::String(text) => Ok(text.into_owned()),
            _ => Err(Wrong::kind("text")),
        }
    }

    fn hollow() -> Self {
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
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        match value {
            Value::Bool(flag) => Ok(flag),
            _ => Err(Wrong::kind("true or false")),
        }
    }

    fn hollow() -> Self {
        false
    }
}

impl ToJson for u64 {
    fn write(&self, out: &mut String) {
        write_whole(out, *self);
    }

    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl FromJson for u64 {
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        value
            .as_u64()
            .ok_or(Wrong::kind("a whole number from 0 to 2^64 - 1"))
    }

    fn hollow() -> Self {
        0
    }
}

impl ToJson for u32 {
    fn write(&self, out: &mut String) {
        write_whole(out, u64::from(*self));
    }
}

impl FromJson for u32 {
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        let whole = value.as_u64().and_then(|whole| Self::try_from(whole).ok());
        whole.ok_or(Wrong::kind("a whole number from 0 to 2^32 - 1"))
    }

    fn hollow() -> Self {
        0
    }
}

impl ToJson for i64 {
    fn write(&self, out: &mut String) {
        write_signed(out, *self);
    }
}

impl FromJson for i64 {
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        match value {
            Value::Number(number) => number.signed(),
            _ => None,
        }
        .ok_or(Wrong::kind("a whole number from -2^63 to 2^63 - 1"))
    }

    fn hollow() -> Self {
        0
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
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        match value {
            Value::Null => Ok(None),
            value => T::read(value).map(Some),
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn hollow() -> Self {
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
    fn read(value: Value<'_>) -> Result<Self, Wrong> {
        match value {
            Value::Array(items) => {
                let mut all = Self::with_capacity(items.len());
                for item in items {
                    all.push(T::read(item)?);
                }
                Ok(all)
            }
            _ => Err(Wrong::kind("a list")),
        }
    }

    fn hollow() -> Self {
        Self::new()
    }
}
