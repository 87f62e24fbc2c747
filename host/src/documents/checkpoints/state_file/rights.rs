//! The caps of a `state.json`, and the calls that need consent in its thread: what bounds the
//! thread that is made from it. What cannot be taken over exactly is refused by its field, because
//! a default in its place may allow more.

use super::{StateFile, StateFileError, wrong};
use serde_json::{Map, Number, Value};
use std::collections::HashSet;
use std::time::Duration;

/// Caps that count something, with the most that each can be.
const COUNT_CAPS: [(&str, u64); 4] = [
    ("turns", u32::MAX as u64),
    ("tokens", u64::MAX),
    ("spawns", u32::MAX as u64),
    ("depth", u32::MAX as u64),
];

/// Whole numbers that a binary floating-point number of 64 bits has exactly.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// Prefix of the capability that grants a tool.
const TOOL_PREFIX: &str = "execute.tool.";

impl StateFile {
    /// A cap that counts something, such as `turns`.
    pub fn cap(&self, name: &str) -> Option<u64> {
        self.limit(name).and_then(whole_number)
    }

    /// The cap on the time of a run.
    pub fn duration_cap(&self) -> Option<Duration> {
        self.limit("duration_seconds").and_then(duration)
    }

    /// The decimal text of the cap on money, in US dollars.
    pub fn spend_cap(&self) -> Option<String> {
        let number = self.limit("spend")?;
        let text = number.to_string();
        let is_decimal = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let places = text.rsplit('.').next().map_or(0, str::len);
        if is_decimal && places <= 9 {
            return Some(text);
        }
        // A binary number, as other programs write them: amounts have nine decimals at most.
        let text = format!("{:.9}", number.as_f64()?);
        Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
    }

    fn limit(&self, name: &str) -> Option<&Number> {
        match self.fields.get("limits")?.get(name)? {
            Value::Number(cap) => Some(cap),
            _ => None,
        }
    }

    /// Patterns of the calls that need a person's consent: those that the file names, and the tools
    /// of the calls that waited for a decision. A file without patterns, as earlier programs wrote
    /// them, so keeps at least these.
    pub fn approvals(&self) -> Vec<String> {
        let mut patterns = self.texts("approvals");
        if self.text("suspend_reason") == Some("approval") {
            let waiting = self.open_tools().into_iter();
            let waiting = waiting.map(|tool| format!("{TOOL_PREFIX}{tool}"));
            for pattern in waiting.collect::<Vec<_>>() {
                if !patterns.contains(&pattern) {
                    patterns.push(pattern);
                }
            }
        }
        patterns
    }

    /// Tools of the calls that have no result. A name that no tool can have is left out.
    fn open_tools(&self) -> Vec<&str> {
        let mut open: Vec<(&str, &str)> = Vec::new();
        let blocks = self.messages.iter().filter_map(|message| {
            let blocks = message["content"].as_array();
            blocks.map(Vec::as_slice)
        });
        for block in blocks.flatten() {
            let id = block["id"].as_str().unwrap_or_default();
            match block["type"].as_str() {
                Some("tool_use") => open.push((id, block["name"].as_str().unwrap_or_default())),
                Some("tool_result") => open.retain(|(call, _)| *call != id),
                _ => {}
            }
        }
        let mut seen = HashSet::new();
        let is_name = |name: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !name.is_empty() && name.bytes().all(plain)
        };
        let names = open.into_iter().map(|(_, name)| name).filter(is_name);
        names.filter(|name| seen.insert(*name)).collect()
    }
}

/// Checks the caps of a file.
pub(super) fn check_caps(fields: &Map<String, Value>) -> Result<(), StateFileError> {
    let limits = fields.get("limits").and_then(Value::as_object);
    for (name, cap) in limits.into_iter().flatten() {
        if !cap.is_null() {
            check_cap(name, cap).map_err(|problem| wrong(format!("limits.{name}"), problem))?;
        }
    }
    Ok(())
}

fn check_cap(name: &str, cap: &Value) -> Result<(), String> {
    let number = match cap {
        Value::Number(number) if number.as_f64().is_some_and(|cap| cap >= 0.0) => number,
        _ => return Err("must be a number, zero or more, or null".to_owned()),
    };
    if let Some((_, most)) = COUNT_CAPS.iter().find(|(known, _)| *known == name) {
        return match whole_number(number) {
            Some(count) if count <= *most => Ok(()),
            _ => Err(format!("must be a whole number of at most {most}, or null")),
        };
    }
    match name {
        "spend" => Ok(()),
        "duration_seconds" if duration(number).is_some() => Ok(()),
        "duration_seconds" => Err("is more seconds than a cap can have".to_owned()),
        _ => Err(
            "is no cap: they are spend, turns, tokens, spawns, depth and duration_seconds"
                .to_owned(),
        ),
    }
}

/// Returns the whole number that a JSON number is, however it is written: `5`, `5.0`, `5e0`.
fn whole_number(number: &Number) -> Option<u64> {
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    let float = number.as_f64()?;
    let is_exact = float.fract() == 0.0 && (0.0..=EXACT_FLOAT_MAX).contains(&float);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative and small enough"
    )]
    is_exact.then_some(float as u64)
}

/// Returns the time that a cap on seconds is; `None` if it has more milliseconds than a cap can.
fn duration(number: &Number) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(number.as_f64()?).ok()?;
    u64::try_from(time.as_millis()).ok().map(|_| time)
}
