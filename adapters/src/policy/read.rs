//! Parses a policy from YAML: every key must be known, every value of its kind, every name
//! possible.

use super::{
    AddressPrefix, NAMES_MAX, Policy, PolicyPreset, ProviderGrant, UnknownBill, billionths,
};
use crate::ceilings::HostCeilings;
use crate::environment;
use crate::library::LibraryError;
use crate::library::models::ModelPrices;
use crate::library::models::table_reader::{ConfigReader, KeyPath};
use crate::library::{front_matter, yaml};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use threadkeep_units::tool_pattern::find_pattern_problem;

/// The keys of a policy file.
const KEYS: [&str; 10] = [
    "preset",
    "limits",
    "models",
    "tools",
    "approvals",
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
pub(super) fn parse_policy(text: &str, name: &str) -> Result<Policy, LibraryError> {
    let reader = ConfigReader { text, place: name };
    let value = reader.parse()?;
    let empty = Map::new();
    let root = match &value {
        Value::Null => &empty,
        value => reader.expect_object(&[], value)?,
    };
    reader.check_keys(&[], root, &KEYS)?;
    let preset = parse_preset(&reader, root)?;
    let based_on = Policy::preset(preset);
    Ok(Policy {
        name: name.to_owned(),
        preset,
        limits: parse_limits(&reader, root.get("limits"))?,
        models: parse_models(&reader, root.get("models"))?,
        tools: parse_texts(&reader, &["tools"], root.get("tools"))?,
        approvals: parse_approvals(&reader, root.get("approvals"))?,
        providers: parse_providers(&reader, root.get("providers"))?,
        ceilings: parse_ceilings(&reader, root.get("ceilings"))?,
        unknown_bill: parse_unknown_bill(&reader, root)?,
        quota_bytes: match root.get("quota") {
            None => based_on.quota_bytes,
            Some(value) => parse_whole(&reader, &["quota"], Some(value))?,
        },
        book: parse_book(&reader, root)?,
    })
}

fn parse_preset(
    reader: &ConfigReader<'_>,
    root: &Map<String, Value>,
) -> Result<PolicyPreset, LibraryError> {
    let Some(name) = reader.optional_text(&["preset"], root)? else {
        return Ok(PolicyPreset::Local);
    };
    let known = PolicyPreset::ALL.map(PolicyPreset::as_str);
    let name = reader.check_word(&["preset"], &name, "preset", &known)?;
    let named = PolicyPreset::ALL
        .into_iter()
        .find(|preset| preset.as_str() == name);
    // `check_word` has checked the name.
    Ok(named.unwrap_or(PolicyPreset::Local))
}

/// Caps are passed to the guest as they are written; a value that it would not understand is
/// refused here, before there is any thread.
fn parse_limits(
    reader: &ConfigReader<'_>,
    value: Option<&Value>,
) -> Result<Map<String, Value>, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(Map::new());
    };
    let table = reader.expect_object(&["limits"], value)?;
    reader.check_keys(&["limits"], table, &LIMITS)?;
    for (name, value) in table {
        let path: KeyPath<'_> = &["limits", name];
        match name.as_str() {
            "spend" | "duration" => parse_decimal(reader, path, Some(value)).map(drop)?,
            _ => parse_whole(reader, path, Some(value)).map(drop)?,
        }
    }
    Ok(table.clone())
}

/// Granted models by name, each with `{prices}` or nothing.
fn parse_models(
    reader: &ConfigReader<'_>,
    value: Option<&Value>,
) -> Result<Option<BTreeMap<String, Option<ModelPrices>>>, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(None);
    };
    let mut models = BTreeMap::new();
    for (name, value) in reader.read_section("models", Some(value), NAMES_MAX)? {
        let path: KeyPath<'_> = &["models", name];
        let prices = match non_null(Some(value)) {
            None => None,
            Some(value) => {
                let table = reader.expect_object(path, value)?;
                reader.check_keys(path, table, &["prices"])?;
                reader.read_prices(name, table.get("prices"))?
            }
        };
        models.insert(name.to_owned(), prices);
    }
    Ok(Some(models))
}

fn parse_providers(
    reader: &ConfigReader<'_>,
    value: Option<&Value>,
) -> Result<Option<BTreeMap<String, ProviderGrant>>, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(None);
    };
    let section = reader.read_section("providers", Some(value), NAMES_MAX)?;
    let granted = section
        .into_iter()
        .map(|(name, value)| Ok((name.to_owned(), parse_provider(reader, name, value)?)));
    granted.collect::<Result<_, _>>().map(Some)
}

fn parse_provider(
    reader: &ConfigReader<'_>,
    name: &str,
    value: &Value,
) -> Result<ProviderGrant, LibraryError> {
    let path: KeyPath<'_> = &["providers", name];
    let empty = Map::new();
    let table = match value {
        Value::Null => &empty,
        value => reader.expect_object(path, value)?,
    };
    reader.check_keys(path, table, &["wire", "hosts", "keys", "private"])?;
    let wire = match table.get("wire") {
        Some(_) => Some(reader.read_wire(path, table)?),
        None => None,
    };
    let hosts_at: KeyPath<'_> = &["providers", name, "hosts"];
    let keys_at: KeyPath<'_> = &["providers", name, "keys"];
    let hosts = parse_texts(reader, hosts_at, table.get("hosts"))?.unwrap_or_default();
    let keys = parse_texts(reader, keys_at, table.get("keys"))?.unwrap_or_default();
    if let Some(key) = keys.iter().find(|key| !environment::is_key_variable(key)) {
        let problem = format!(
            "a key is the name of a variable that ends in {}",
            environment::KEY_SUFFIX
        );
        return Err(reader.invalid(keys_at, key, problem, None));
    }
    let hosts = hosts.into_iter().map(|host| {
        let problem = "a host is such as api.openai.com, api.test:8443, http://127.0.0.1:11434 or, \
                       with the beginning \
                       of a path in plain letters, gateway.test/team-a/v1";
        AddressPrefix::from_text(&host)
            .ok_or_else(|| reader.invalid(hosts_at, &host, problem.to_owned(), None))
    });
    Ok(ProviderGrant {
        wire,
        hosts: hosts.collect::<Result<_, _>>()?,
        private: parse_flag(reader, &["providers", name, "private"], table)?,
        keys,
    })
}

fn parse_ceilings(
    reader: &ConfigReader<'_>,
    value: Option<&Value>,
) -> Result<HostCeilings, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(HostCeilings::none());
    };
    let table = reader.expect_object(&["ceilings"], value)?;
    reader.check_keys(&["ceilings"], table, &CEILINGS)?;
    let number = |name: &str| parse_whole(reader, &["ceilings", name], table.get(name));
    let unpriced = parse_flag(reader, &["ceilings", "unpriced"], table)?;
    let time = |name: &str| {
        let path: KeyPath<'_> = &["ceilings", name];
        let seconds = parse_decimal(reader, path, table.get(name))?;
        let time = seconds.map(Duration::from_nanos);
        // A run time of zero is refused by name; a call time of zero could only cut every call.
        if name != "run_time" && time.is_some_and(|time| time.as_millis() == 0) {
            let problem = "a time above zero is needed here".to_owned();
            return Err(reader.invalid(path, "0", problem, None));
        }
        Ok::<_, LibraryError>(time)
    };
    Ok(HostCeilings {
        spend_nanos_max: parse_decimal(reader, &["ceilings", "spend"], table.get("spend"))?,
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

fn parse_unknown_bill(
    reader: &ConfigReader<'_>,
    root: &Map<String, Value>,
) -> Result<UnknownBill, LibraryError> {
    let path: KeyPath<'_> = &["unknown_bill"];
    let Some(word) = reader.optional_text(path, root)? else {
        return Ok(UnknownBill::default());
    };
    let word = reader.check_word(path, &word, "rule for unknown bills", &UnknownBill::WORDS)?;
    Ok(UnknownBill::from_word(&word).unwrap_or_default())
}

/// Parses the name of a file beside the policy.
fn parse_book(
    reader: &ConfigReader<'_>,
    root: &Map<String, Value>,
) -> Result<Option<String>, LibraryError> {
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

fn non_null(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

/// Parses the key at the end of the path in its table: true or false, and false where it is left
/// out.
fn parse_flag(
    reader: &ConfigReader<'_>,
    path: KeyPath<'_>,
    table: &Map<String, Value>,
) -> Result<bool, LibraryError> {
    let name = path.last().copied().unwrap_or_default();
    match table.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => {
            let problem = format!(
                "true or false is needed here, not {}",
                front_matter::value_noun(other)
            );
            Err(reader.invalid(path, "", problem, None))
        }
    }
}

fn parse_whole(
    reader: &ConfigReader<'_>,
    path: KeyPath<'_>,
    value: Option<&Value>,
) -> Result<Option<u64>, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(None);
    };
    let problem = || "a whole number, zero or more, is needed here".to_owned();
    match value.as_u64() {
        Some(number) => Ok(Some(number)),
        None => Err(reader.invalid(path, &value.to_string(), problem(), None)),
    }
}

/// Parses a decimal with at most nine places, in billionths.
fn parse_decimal(
    reader: &ConfigReader<'_>,
    path: KeyPath<'_>,
    value: Option<&Value>,
) -> Result<Option<u64>, LibraryError> {
    let text = match non_null(value) {
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

fn parse_texts(
    reader: &ConfigReader<'_>,
    path: KeyPath<'_>,
    value: Option<&Value>,
) -> Result<Option<Vec<String>>, LibraryError> {
    let Some(value) = non_null(value) else {
        return Ok(None);
    };
    let problem = || format!("a list of at most {NAMES_MAX} names is needed here");
    let items = value.as_array().filter(|items| items.len() <= NAMES_MAX);
    let items = items.ok_or_else(|| reader.invalid(path, "", problem(), None))?;
    let text = |item: &Value| reader.expect_text(path, item).map(str::to_owned);
    items.iter().map(text).collect::<Result<_, _>>().map(Some)
}

/// Parses the patterns of tools whose calls a person decides about. One that can match no tool
/// would leave calls unasked about.
fn parse_approvals(
    reader: &ConfigReader<'_>,
    value: Option<&Value>,
) -> Result<Vec<String>, LibraryError> {
    let path: KeyPath<'_> = &["approvals"];
    let patterns = parse_texts(reader, path, value)?.unwrap_or_default();
    for pattern in &patterns {
        let tool = pattern.strip_prefix("execute.tool.").unwrap_or(pattern);
        if let Some(problem) = find_pattern_problem(tool) {
            return Err(reader.invalid(path, pattern, problem, None));
        }
    }
    Ok(patterns)
}

/// Largest policy file, in bytes; it is read whole.
pub const TEXT_BYTES_MAX: u64 = yaml::TEXT_BYTES_MAX as u64;
