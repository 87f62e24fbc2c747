//! A tenant's settings of coordination: when a thread is handed off, what its summary is, how long
//! waits take. The keys and their defaults are `threadkeep_units::coordination`.
//!
//! A null or missing key has its default, except `summary_directive`, where null asks for no
//! summary. A known key at another level, or an unknown one, is refused with the right path.

use super::{Directive, DirectiveSummary, SummaryChoice, parse_object};
use crate::error::Error;
use crate::json::{JsonObject, JsonValue};
use crate::limits::CAP_MAX;
use crate::money::NanoUsd;
use threadkeep_units::coordination::{
    BUILTIN_SUMMARY, CEILING, COORDINATION_KEYS, COORDINATION_PLACES, CoordinationKey,
    SUMMARY_DIRECTIVE, SUMMARY_MODEL, SUMMARY_SPEND, SUMMARY_TOKENS, SUMMARY_TURNS,
    TRANSCRIPT_INTEGRITY, TRIGGER, WAIT_TIMEOUT,
};
use threadkeep_units::nearest::nearest;

/// Parts per million of a whole: a window.
pub const MILLION: u64 = 1_000_000;
/// Time that a wait takes which names no timeout, in milliseconds, where nothing sets another.
pub const WAIT_MILLIS_DEFAULT: u64 = 600_000;
/// Words of `transcript_integrity`.
const INTEGRITY_WORDS: [&str; 2] = ["strict", "lenient"];

/// A kind of number in the settings: decimals with at most nine places.
#[derive(Clone, Copy)]
struct NumberKind {
    /// The unit that is counted, in billionths of what is written.
    unit: u64,
    /// Least number of units.
    least: u64,
    /// Most units.
    most: u64,
    /// Sentence about the values that are allowed.
    problem: &'static str,
}

/// Part of a window. Below the least, nothing of a conversation would be left.
const PART: NumberKind = NumberKind {
    unit: 1_000,
    least: MILLION / 100,
    most: MILLION,
    problem: "must be a part of the window from 0.01 to 1, such as 0.9, of at most six decimals",
};
/// Tokens: more than any window has.
const TOKENS: NumberKind = NumberKind {
    unit: 1_000_000_000,
    least: 1,
    most: 1_000_000_000,
    problem: "must be a whole number from 1 to 1000000000",
};
/// Attempts: each delays the thread that waits for it.
const TURNS: NumberKind = NumberKind {
    unit: 1_000_000_000,
    least: 1,
    most: 100,
    problem: "must be a whole number from 1 to 100",
};
/// Seconds, in milliseconds: at most a day, as a call may ask for.
const SECONDS: NumberKind = NumberKind {
    unit: 1_000_000,
    least: 1_000,
    most: super::builtin::WAIT_SECONDS_MAX * 1_000,
    problem: "must be seconds from 1 to 86400, of at most three decimals",
};
/// US dollars, in billionths.
const DOLLARS: NumberKind = NumberKind {
    unit: 1,
    least: 0,
    most: CAP_MAX,
    problem: "must be US dollars, zero or more, of at most nine decimals",
};

/// The settings of a tenant, each as the file sets it or by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinationSettings {
    /// Context from which on a thread is handed off, in parts per million of the window.
    pub trigger: u64,
    /// Most tokens of summary and trailing messages that a hand-off carries over.
    pub ceiling: u64,
    /// Time that a `wait_threads` without a timeout waits, in milliseconds.
    pub wait: u64,
    /// Name of the directive by which summaries are written; `None` for no summaries.
    pub summary_directive: Option<String>,
    /// The model or tier that the file names for summaries.
    pub summary_model: Option<String>,
    /// Most tokens that a summary is asked to have.
    pub summary_tokens: u64,
    /// Most attempts of a summary.
    pub summary_turns: Option<u64>,
    /// Most money that the attempts of a summary may cost.
    pub summary_spend: Option<NanoUsd>,
}

impl CoordinationSettings {
    /// Reads the document `coordination` of the settings, which may be missing.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` whose field is the path of the key.
    pub fn parse(text: Option<&str>) -> Result<Self, Error> {
        let document = match text {
            None => JsonObject::new(),
            Some(text) => parse_object("coordination", text)?,
        };
        check_keys("", &document)?;
        let file = SettingsFile { document };
        let integrity = file.text(TRANSCRIPT_INTEGRITY)?;
        if !INTEGRITY_WORDS.contains(&integrity.as_str()) {
            let (path, problem) = (TRANSCRIPT_INTEGRITY.path, "must be strict or lenient");
            return Err(Error::invalid_name(
                path,
                &integrity,
                problem,
                &INTEGRITY_WORDS,
            ));
        }
        let summary_directive = match file.find(SUMMARY_DIRECTIVE) {
            Some(JsonValue::Null) => None,
            _ => Some(file.text(SUMMARY_DIRECTIVE)?),
        };
        if let Some(name) = &summary_directive {
            crate::id::check_id(SUMMARY_DIRECTIVE.path, name)?;
        }
        let turns = file.number(SUMMARY_TURNS, TURNS)?;
        let spend = file.number(SUMMARY_SPEND, DOLLARS)?;
        Ok(Self {
            trigger: file.number(TRIGGER, PART)?,
            ceiling: file.number(CEILING, TOKENS)?,
            wait: file.number(WAIT_TIMEOUT, SECONDS)?,
            summary_directive,
            summary_model: match file.is_set(SUMMARY_MODEL) {
                true => Some(file.text(SUMMARY_MODEL)?),
                false => None,
            },
            summary_tokens: file.number(SUMMARY_TOKENS, TOKENS)?,
            summary_turns: file.is_set(SUMMARY_TURNS).then_some(turns),
            summary_spend: file.is_set(SUMMARY_SPEND).then_some(NanoUsd::new(spend)),
        })
    }

    /// Chooses the summary of a thread: as its directive asks, and by these settings where that
    /// says nothing. `None` for no summary.
    pub fn choose_summary(&self, directive: Option<&Directive>) -> Option<SummaryChoice> {
        let asked = directive.map(|directive| &directive.summary);
        let name = self.summary_directive.clone();
        let choice = |name| SummaryChoice {
            directive: name,
            model: self.summary_model.clone(),
            tokens: self.summary_tokens,
            turns: self.summary_turns,
            spend: self.summary_spend,
        };
        match asked {
            Some(DirectiveSummary::Nothing) => None,
            None | Some(DirectiveSummary::BySettings) => name.map(choice),
            Some(DirectiveSummary::Fields {
                model,
                directive,
                tokens,
            }) => {
                let name = directive.clone().or(name);
                let choice = choice(name.unwrap_or_else(|| BUILTIN_SUMMARY.to_owned()));
                Some(SummaryChoice {
                    model: model.clone().or(choice.model),
                    tokens: tokens.unwrap_or(choice.tokens),
                    ..choice
                })
            }
        }
    }
}

impl Default for CoordinationSettings {
    fn default() -> Self {
        Self {
            trigger: 900_000,
            ceiling: 16_000,
            wait: WAIT_MILLIS_DEFAULT,
            summary_directive: Some(BUILTIN_SUMMARY.to_owned()),
            summary_model: None,
            summary_tokens: 4_000,
            summary_turns: None,
            summary_spend: None,
        }
    }
}

/// The document, whose keys were checked.
struct SettingsFile<'a> {
    document: JsonObject<'a>,
}

impl SettingsFile<'_> {
    /// Returns the value that the file gives a key.
    fn find(&self, key: CoordinationKey) -> Option<&JsonValue<'_>> {
        let mut fields = &self.document;
        let mut segments = key.path.split('.').peekable();
        while let Some(segment) = segments.next() {
            let value = fields.get(segment)?;
            match (segments.peek(), value) {
                (None, value) => return Some(value),
                (Some(_), JsonValue::Object(inner)) => fields = inner,
                (Some(_), _) => return None,
            }
        }
        None
    }

    fn is_set(&self, key: CoordinationKey) -> bool {
        matches!(self.find(key), Some(value) if *value != JsonValue::Null)
    }

    /// Returns the JSON text of a key's value: the file's, or else the default.
    fn value_text(&self, key: CoordinationKey) -> String {
        match self.find(key) {
            None | Some(JsonValue::Null) => key.default.to_owned(),
            Some(value) => value.to_string(),
        }
    }

    fn text(&self, key: CoordinationKey) -> Result<String, Error> {
        let text = self.value_text(key);
        match crate::json::parse(&text) {
            Ok(JsonValue::String(name)) if !name.is_empty() => Ok(name.into_owned()),
            _ => Err(Error::invalid(key.path, &text, "must be a name")),
        }
    }

    /// Reads a number, as a count of the units of its kind.
    fn number(&self, key: CoordinationKey, kind: NumberKind) -> Result<u64, Error> {
        let text = self.value_text(key);
        // Money may be text, as it may be in front matter.
        let written = match kind.unit {
            1 => text.trim_matches('"'),
            _ => &text,
        };
        let nanos = NanoUsd::parse(written).map(NanoUsd::get).ok();
        let whole = nanos.filter(|nanos| nanos.is_multiple_of(kind.unit));
        let number = whole.map(|nanos| nanos / kind.unit);
        let allowed = number.filter(|number| (kind.least..=kind.most).contains(number));
        allowed.ok_or_else(|| Error::invalid(key.path, &text, kind.problem))
    }
}

/// Refuses a key below `section` that is not one of the settings; `section` is empty at the top,
/// and ends with a dot elsewhere.
fn check_keys(section: &str, fields: &JsonObject<'_>) -> Result<(), Error> {
    for (name, value) in fields.iter() {
        let path = format!("{section}{name}");
        if !COORDINATION_PLACES.contains(&path.as_str()) {
            return Err(misplaced_key_error(path, name));
        }
        match value {
            JsonValue::Object(fields) => check_keys(&format!("{path}."), fields)?,
            JsonValue::Null => {}
            _ if COORDINATION_KEYS.iter().any(|key| key.path == path) => {}
            other => {
                let problem = "is a section: it must have keys with values";
                return Err(Error::invalid(path, &other.to_string(), problem));
            }
        }
    }
    Ok(())
}

/// Returns the refusal of a key: of one that belongs elsewhere with that place, else with the
/// nearest that there is.
fn misplaced_key_error(path: String, name: &str) -> Error {
    let last = |place: &str| place.rsplit('.').next().unwrap_or_default().to_owned();
    let names: Vec<String> = COORDINATION_PLACES
        .iter()
        .map(|place| last(place))
        .collect();
    let same = names.iter().position(|known| known == name);
    let near = || {
        let near = nearest(name, names.iter().map(String::as_str))?;
        names.iter().position(|known| known == near)
    };
    let problem = match same {
        Some(at) => format!(
            "stands at the wrong level: its place is {}",
            COORDINATION_PLACES[at]
        ),
        None => "is not a setting of coordination".to_owned(),
    };
    let place = same.or_else(near).map(|at| COORDINATION_PLACES[at]);
    Error::invalid(path, name, problem).with_nearest(place)
}

#[cfg(test)]
mod tests;
