//! Values of the contract as JSON and back, by their types alone: a record is an object with the
//! names of the WIT, a variant an object with its case, and an option that is none is left out.

use serde_json::{Map, Value};
use wasmtime::component::{Type, Val};

/// Largest integer that JSON holds as a number in every language; a larger one is text.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Converts an argument. An integer that does not fit wraps, as in Python and JavaScript.
pub fn to_val(kind: &Type, value: &Value) -> Val {
    match kind {
        Type::Bool => Val::Bool(value.as_bool().expect("a bool")),
        Type::U32 => Val::U32(integer(value) as u32),
        Type::U64 => Val::U64(integer(value) as u64),
        Type::S64 => Val::S64(integer(value) as i64),
        Type::String => Val::String(value.as_str().expect("a text").to_owned()),
        Type::List(list) => {
            let items = value.as_array().expect("a list").iter();
            Val::List(items.map(|item| to_val(&list.ty(), item)).collect())
        }
        Type::Record(record) => Val::Record(
            record
                .fields()
                .map(|field| (field.name.to_owned(), to_val(&field.ty, &value[field.name])))
                .collect(),
        ),
        Type::Option(option) => {
            let some = Some(value).filter(|value| !value.is_null());
            Val::Option(some.map(|value| Box::new(to_val(&option.ty(), value))))
        }
        Type::Variant(variant) => {
            let cases = value.as_object().expect("a case");
            let (name, payload) = cases.iter().next().expect("one case");
            let case = variant.cases().find(|case| case.name == name);
            let kind = case.unwrap_or_else(|| panic!("no case {name}")).ty;
            let payload = kind.map(|kind| Box::new(to_val(&kind, payload)));
            Val::Variant(name.clone(), payload)
        }
        other => panic!("no argument has the type {other:?}"),
    }
}

fn integer(value: &Value) -> i128 {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    text.parse()
        .unwrap_or_else(|_| panic!("{value} is no integer"))
}

/// Converts an answer.
pub fn to_json(value: &Val) -> Value {
    let payload = |value: &Option<Box<Val>>| value.as_deref().map_or(Value::Null, to_json);
    match value {
        Val::Bool(bool) => Value::Bool(*bool),
        Val::U32(number) => Value::from(*number),
        Val::U64(number) if *number > EXACT_MAX => Value::String(number.to_string()),
        Val::U64(number) => Value::from(*number),
        Val::S64(number) if number.unsigned_abs() > EXACT_MAX => Value::String(number.to_string()),
        Val::S64(number) => Value::from(*number),
        Val::String(text) => Value::String(text.clone()),
        Val::List(items) => items.iter().map(to_json).collect(),
        Val::Record(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, field)| !matches!(field, Val::Option(None)))
                .map(|(name, field)| (name.clone(), to_json(field)))
                .collect(),
        ),
        Val::Option(some) => payload(some),
        Val::Variant(name, some) => Value::Object(Map::from_iter([(name.clone(), payload(some))])),
        other => panic!("no answer has the type of {other:?}"),
    }
}

/// Returns JSON text with the names of every object in order, the same in each of the hosts.
pub fn canonical_text(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical_text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let field = |name: &&String| {
                let key = Value::String((*name).clone());
                format!("{key}:{}", canonical_text(&fields[name.as_str()]))
            };
            let fields: Vec<String> = names.iter().map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}
