//! Parses a policy from YAML: every key must be known, every value of its kind, every name
//! possible.

use super::{AddressPrefix, NAMES_MAX, Policy, Preset, ProviderGrant, UnknownBill, billionths};
use crate::authority;
use crate::ceilings::Ceilings;
use crate::library::LibraryError;
use crate::library::models::Prices;
use crate::library::models::read::{Path, Reader};
use crate::library::{front, yaml};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The keys of a policy file.
const KEYS: [&str; 9] = [
    "preset",
    "limits",
    "models",
    "tools",
    "providers",
    "ceilings",
    "unknown_bill",
    "quota",
    "book",
];

/// The caps that a policy may bound: those of a thread.
const LIMITS: [&str; 6] = ["turns", "tokens", "spend", "spawns", "depth", "duration"];

const CEILINGS: [&str; 12] = [
    "spend",
    "unpriced",
    "model_calls",
    "model_bytes",
    "tool_calls",
    "tool_bytes",
    "argument_bytes",
    "calls_per_minute",
    "run_time",
    "call_time",
    "idle_time",
    "runs",
];

/// Parses a whole policy. `name` stands for the file in errors.
pub(super) fn policy(text: &str, name: &str) -> Result<Policy, LibraryError> {
    let reader = Reader { text, place: name };
    let value = reader.parse()?;
    let empty = Map::new();
    let root = match &value {
        Value::Null => &empty,
        value => reader.object(&[], value)?,
    };
    reader.known(&[], root, &KEYS)?;
    let preset = preset(&reader, root)?;
    let based_on = Policy::preset(preset);
    Ok(Policy {
        name: name.to_owned(),
        preset,
        limits: limits(&reader, root.get("limits"))?,
        models: models(&reader, root.get("models"))?,
        tools: texts(&reader, &["tools"], root.get("tools"))?,
        providers: providers(&reader, root.get("providers"))?,
        ceilings: ceilings(&reader, root.get("ceilings"))?,
        unknown_bill: unknown_bill(&reader, root)?,
        quota_bytes: match root.get("quota") {
            None => based_on.quota_bytes,
            Some(value) => whole(&reader, &["quota"], Some(value))?,
        },
        book: book(&reader, root)?,
    })
}

fn preset(reader: &Reader<'_>, root: &Map<String, Value>) -> Result<Preset, LibraryError> {
    let Some(name) = reader.optional_text(&["preset"], root)? else {
        return Ok(Preset::Local);
    };
    let known = Preset::ALL.map(Preset::as_str);
    let name = reader.one_of(&["preset"], &name, "preset", &known)?;
    let named = Preset::ALL
        .into_iter()
        .find(|preset| preset.as_str() == name);
    // `one_of` has checked the name.
    Ok(named.unwrap_or(Preset::Local))
}

/// Caps are passed to the guest as they are written; a value that it would not understand is
/// refused here, before there is any thread.
fn limits(reader: &Reader<'_>, value: Option<&Value>) -> Result<Map<String, Value>, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(Map::new());
    };
    let table = reader.object(&["limits"], value)?;
    reader.known(&["limits"], table, &LIMITS)?;
    for (name, value) in table {
        let path: Path<'_> = &["limits", name];
        match name.as_str() {
            "spend" | "duration" => decimal(reader, path, Some(value)).map(drop)?,
            _ => whole(reader, path, Some(value)).map(drop)?,
        }
    }
    Ok(table.clone())
}

/// Granted models by name, each with `{prices}` or nothing.
fn models(
    reader: &Reader<'_>,
    value: Option<&Value>,
) -> Result<Option<BTreeMap<String, Option<Prices>>>, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(None);
    };
    let mut models = BTreeMap::new();
    for (name, value) in reader.section("models", Some(value), NAMES_MAX)? {
        let path: Path<'_> = &["models", name];
        let prices = match present(Some(value)) {
            None => None,
            Some(value) => {
                let table = reader.object(path, value)?;
                reader.known(path, table, &["prices"])?;
                reader.prices(name, table.get("prices"))?
            }
        };
        models.insert(name.to_owned(), prices);
    }
    Ok(Some(models))
}

fn providers(
    reader: &Reader<'_>,
    value: Option<&Value>,
) -> Result<Option<BTreeMap<String, ProviderGrant>>, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(None);
    };
    let section = reader.section("providers", Some(value), NAMES_MAX)?;
    let granted = section
        .into_iter()
        .map(|(name, value)| Ok((name.to_owned(), provider(reader, name, value)?)));
    granted.collect::<Result<_, _>>().map(Some)
}

fn provider(reader: &Reader<'_>, name: &str, value: &Value) -> Result<ProviderGrant, LibraryError> {
    let path: Path<'_> = &["providers", name];
    let empty = Map::new();
    let table = match value {
        Value::Null => &empty,
        value => reader.object(path, value)?,
    };
    reader.known(path, table, &["wire", "hosts", "keys", "private"])?;
    let wire = match table.get("wire") {
        Some(_) => Some(reader.wire(path, table)?),
        None => None,
    };
    let hosts_at: Path<'_> = &["providers", name, "hosts"];
    let keys_at: Path<'_> = &["providers", name, "keys"];
    let hosts = texts(reader, hosts_at, table.get("hosts"))?.unwrap_or_default();
    let keys = texts(reader, keys_at, table.get("keys"))?.unwrap_or_default();
    if let Some(key) = keys.iter().find(|key| !authority::is_key(key)) {
        let problem = format!(
            "a key is the name of a variable that ends in {}",
            authority::KEY_SUFFIX
        );
        return Err(reader.invalid(keys_at, key, problem, None));
    }
    let hosts = hosts.into_iter().map(|host| {
        let problem = "a host is such as api.openai.com, api.test:8443, http://127.0.0.1:11434 or, with the beginning \
                       of a path in plain letters, gateway.test/team-a/v1";
        AddressPrefix::of_text(&host)
            .ok_or_else(|| reader.invalid(hosts_at, &host, problem.to_owned(), None))
    });
    Ok(ProviderGrant {
        wire,
        hosts: hosts.collect::<Result<_, _>>()?,
        private: flag(reader, &["providers", name, "private"], table)?,
        keys,
    })
}

fn ceilings(reader: &Reader<'_>, value: Option<&Value>) -> Result<Ceilings, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(Ceilings::none());
    };
    let table = reader.object(&["ceilings"], value)?;
    reader.known(&["ceilings"], table, &CEILINGS)?;
    let number = |name: &str| whole(reader, &["ceilings", name], table.get(name));
    let unpriced = flag(reader, &["ceilings", "unpriced"], table)?;
    let time = |name: &str| {
        let path: Path<'_> = &["ceilings", name];
        let seconds = decimal(reader, path, table.get(name))?;
        let time = seconds.map(Duration::from_nanos);
        // A run time of zero is refused by name; a call time of zero could only cut every call.
        if name != "run_time" && time.is_some_and(|time| time.as_millis() == 0) {
            let problem = "a time above zero is needed here".to_owned();
            return Err(reader.invalid(path, "0", problem, None));
        }
        Ok::<_, LibraryError>(time)
    };
    Ok(Ceilings {
        spend_nanos_max: decimal(reader, &["ceilings", "spend"], table.get("spend"))?,
        unpriced,
        model_calls_max: number("model_calls")?,
        model_bytes_max: number("model_bytes")?,
        tool_calls_max: number("tool_calls")?,
        tool_bytes_max: number("tool_bytes")?,
        argument_bytes_max: number("argument_bytes")?,
        calls_per_minute_max: number("calls_per_minute")?,
        run_time_max: time("run_time")?,
        call_time_max: time("call_time")?,
        idle_time_max: time("idle_time")?,
        runs_max: number("runs")?,
    })
}

fn unknown_bill(
    reader: &Reader<'_>,
    root: &Map<String, Value>,
) -> Result<UnknownBill, LibraryError> {
    let path: Path<'_> = &["unknown_bill"];
    let Some(word) = reader.optional_text(path, root)? else {
        return Ok(UnknownBill::default());
    };
    let word = reader.one_of(path, &word, "rule for unknown bills", &UnknownBill::WORDS)?;
    Ok(UnknownBill::from_word(&word).unwrap_or_default())
}

/// Parses the name of a file beside the policy.
fn book(reader: &Reader<'_>, root: &Map<String, Value>) -> Result<Option<String>, LibraryError> {
    let book = reader.optional_text(&["book"], root)?;
    let plain = |name: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        name.len() <= 128 && !name.starts_with('.') && name.bytes().all(letter)
    };
    match book {
        Some(name) if !plain(&name) => {
            let problem = "a book is the name of a file beside the policy, such as used.json";
            Err(reader.invalid(&["book"], &name, problem.to_owned(), None))
        }
        book => Ok(book),
    }
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

/// Parses the key at the end of the path in its table: true or false, and false where it is left
/// out.
fn flag(
    reader: &Reader<'_>,
    path: Path<'_>,
    table: &Map<String, Value>,
) -> Result<bool, LibraryError> {
    let name = path.last().copied().unwrap_or_default();
    match table.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => {
            let problem = format!("true or false is needed here, not {}", front::kind(other));
            Err(reader.invalid(path, "", problem, None))
        }
    }
}

fn whole(
    reader: &Reader<'_>,
    path: Path<'_>,
    value: Option<&Value>,
) -> Result<Option<u64>, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(None);
    };
    let problem = || "a whole number, zero or more, is needed here".to_owned();
    match value.as_u64() {
        Some(number) => Ok(Some(number)),
        None => Err(reader.invalid(path, &value.to_string(), problem(), None)),
    }
}

/// Parses a decimal with at most nine places, in billionths.
fn decimal(
    reader: &Reader<'_>,
    path: Path<'_>,
    value: Option<&Value>,
) -> Result<Option<u64>, LibraryError> {
    let text = match present(value) {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let problem = "a decimal such as 0.25, with at most nine places, is needed here";
    match billionths(&text) {
        Some(nanos) => Ok(Some(nanos)),
        None => Err(reader.invalid(path, &text, problem.to_owned(), None)),
    }
}

fn texts(
    reader: &Reader<'_>,
    path: Path<'_>,
    value: Option<&Value>,
) -> Result<Option<Vec<String>>, LibraryError> {
    let Some(value) = present(value) else {
        return Ok(None);
    };
    let problem = || format!("a list of at most {NAMES_MAX} names is needed here");
    let items = value.as_array().filter(|items| items.len() <= NAMES_MAX);
    let items = items.ok_or_else(|| reader.invalid(path, "", problem(), None))?;
    let text = |item: &Value| reader.text(path, item).map(str::to_owned);
    items.iter().map(text).collect::<Result<_, _>>().map(Some)
}

/// Largest policy file, in bytes; it is read whole.
pub const TEXT_BYTES_MAX: u64 = yaml::TEXT_BYTES_MAX as u64;
