//! Equality of values as RFC 6902 defines it: numbers by their value, objects without order.
//!
//! Numbers are compared by their digits. A number of any length keeps them, so two that differ only
//! behind what a floating-point number holds are not equal.

use super::{JsonNumber, JsonObject, JsonValue};
use std::collections::BinaryHeap;
use threadkeep_units::json_number::is_same_number;

/// A field of an object.
type FieldPair<'a> = (&'a str, &'a JsonValue<'a>);

/// Returns the fields of an object by their names, with a heap: a sort of the standard library
/// would be far more code in the component.
fn sorted_fields<'a>(map: &'a JsonObject<'a>) -> Vec<FieldPair<'a>> {
    let names = (0..).zip(&map.0).map(|(place, (name, _))| (&**name, place));
    let names = BinaryHeap::from(names.collect::<Vec<(&str, usize)>>()).into_sorted_vec();
    let fields = names.into_iter();
    fields
        .map(|(name, place)| (name, &map.0[place].1))
        .collect()
}

impl JsonObject<'_> {
    /// Returns the first of the names, in their order, that two fields have.
    pub fn find_repeated_name(&self) -> Option<&str> {
        let fields = sorted_fields(self);
        let mut pairs = fields.iter().zip(fields.iter().skip(1));
        pairs.find_map(|(one, next)| (one.0 == next.0).then_some(one.0))
    }
}

impl JsonValue<'_> {
    /// Returns true if both are the same value: numbers of the same value (`1.0` and `1e0`), equal
    /// texts, arrays that are equal in order, objects with equal fields in any order.
    pub fn is_equal_to(&self, other: &JsonValue<'_>) -> bool {
        match (self, other) {
            (Self::Null, JsonValue::Null) => true,
            (Self::Bool(one), JsonValue::Bool(two)) => one == two,
            (Self::Number(one), JsonValue::Number(two)) => one.is_equal_to(two),
            (Self::String(one), JsonValue::String(two)) => one == two,
            (Self::Array(one), JsonValue::Array(two)) => {
                let mut pairs = one.iter().zip(two);
                one.len() == two.len() && pairs.all(|(one, two)| one.is_equal_to(two))
            }
            (Self::Object(one), JsonValue::Object(two)) => {
                let (one, two) = (sorted_fields(one), sorted_fields(two));
                let mut pairs = one.iter().zip(&two);
                let same = |(one, two): (&FieldPair<'_>, &FieldPair<'_>)| {
                    one.0 == two.0 && one.1.is_equal_to(two.1)
                };
                one.len() == two.len() && pairs.all(same)
            }
            _ => false,
        }
    }
}

impl JsonNumber {
    /// Returns true if both have the same value. Numbers that are not zero and whose exponents no
    /// 64 bits hold are equal only if they are written alike.
    pub fn is_equal_to(&self, other: &Self) -> bool {
        self == other || is_same_number(&self.to_digits(), &other.to_digits())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn numbers_are_equal_by_value_and_objects_without_order() {
        for (one, two, expected) in [
            ("1.0", "1", true),
            ("1e0", "1", true),
            ("10e-1", "1.000", true),
            ("1E+2", "100", true),
            ("-0", "0", true),
            ("0.0e99999999999999999999", "0", true),
            ("0.1", "0.10000000000000000001", false),
            ("9007199254740993", "9007199254740992", false),
            ("1", "-1", false),
            ("12", "1.2", false),
            ("1e99999999999999999999", "1e99999999999999999999", true),
            ("1e99999999999999999999", "10e99999999999999999998", false),
            ("1", "\"1\"", false),
            ("null", "false", false),
            (r#"{"a":1,"b":[1.0]}"#, r#"{"b":[1],"a":1}"#, true),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#, false),
            (r#"{"a":1,"c":1}"#, r#"{"a":1,"b":1}"#, false),
            ("[1,2]", "[2,1]", false),
            ("[1]", "[1,1]", false),
        ] {
            let (first, second) = (parse(one).unwrap(), parse(two).unwrap());
            assert_eq!(first.is_equal_to(&second), expected, "{one} {two}");
            assert_eq!(second.is_equal_to(&first), expected, "{two} {one}");
        }
    }
}
