//! A tenant's settings of coordination: when a thread is handed off, what its summary is, how long
//! waits take. The keys and their defaults are `threadkeep_units::coordination`.
//!
//! A null or missing key has its default, except `summary_directive`, where null asks for no
//! summary. A known key at another level, or an unknown one, is refused with the right path.

use super::summary::{DirectiveSummary, SummaryChoice};
use super::{Directive, parse_object};
use crate::error::Error;
use crate::json::{JsonObject, JsonValue};
use crate::limits::CAP_MAX;
use crate::money::NanoUsd;
use threadkeep_units::coordination::{
    BUILTIN_SUMMARY, CEILING, COORDINATION_KEYS, CoordinationKey, SUMMARY_DIRECTIVE, SUMMARY_MODEL,
    SUMMARY_SPEND, SUMMARY_TOKENS, SUMMARY_TURNS, TRANSCRIPT_INTEGRITY, TRIGGER, WAIT_TIMEOUT,
};
use threadkeep_units::nearest::nearest;

/// Parts per million of a whole: a window.
pub const MILLION: u64 = 1_000_000;
/// Least part of a window from which on a thread may be handed off, in parts per million. Below it
/// nothing of a conversation would be left.
const TRIGGER_MIN: u64 = MILLION / 100;
/// Time that a wait takes which names no timeout, in milliseconds, where nothing sets another.
pub const WAIT_MILLIS_DEFAULT: u64 = 600_000;
/// Longest wait without a timeout of its own that may be set, in milliseconds: a day, as a call may
/// ask for.
const WAIT_MILLIS_MAX: u64 = super::builtin::WAIT_SECONDS_MAX * 1_000;
/// Most attempts of a summary that may be set: each delays the thread that waits for it.
const SUMMARY_TURNS_MAX: u64 = 100;

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
    /// [`Error::Invalid`] whose field is the path of the key.
    pub fn parse(text: Option<&str>) -> Result<Self, Error> {
        let document = match text {
            None => JsonObject::new(),
            Some(text) => parse_object("coordination", text)?,
        };
        check_keys("", &document)?;
        let file = SettingsFile { document };
        file.word(TRANSCRIPT_INTEGRITY, &["strict", "lenient"])?;
        let summary_directive = match file.find(SUMMARY_DIRECTIVE) {
            Some(JsonValue::Null) => None,
            _ => Some(file.text(SUMMARY_DIRECTIVE)?),
        };
        if let Some(name) = &summary_directive {
            crate::id::check_id(SUMMARY_DIRECTIVE.path, name)?;
        }
        Ok(Self {
            trigger: file.ratio(TRIGGER, TRIGGER_MIN)?,
            ceiling: file.whole_number(CEILING, CAP_MAX)?,
            wait: file.millis(WAIT_TIMEOUT, WAIT_MILLIS_MAX)?,
            summary_directive,
            summary_model: match file.is_set(SUMMARY_MODEL) {
                true => Some(file.text(SUMMARY_MODEL)?),
                false => None,
            },
            summary_tokens: file.whole_number(SUMMARY_TOKENS, CAP_MAX)?,
            summary_turns: match file.is_set(SUMMARY_TURNS) {
                true => Some(file.whole_number(SUMMARY_TURNS, SUMMARY_TURNS_MAX)?),
                false => None,
            },
            summary_spend: match file.is_set(SUMMARY_SPEND) {
                true => Some(file.dollars(SUMMARY_SPEND)?),
                false => None,
            },
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
            _ => Err(refusal(key, &text, "must be a name")),
        }
    }

    fn word(&self, key: CoordinationKey, words: &[&str]) -> Result<(), Error> {
        let text = self.value_text(key);
        let word = text.trim_matches('"');
        match words.contains(&word) {
            true => Ok(()),
            false => {
                let problem = format!("must be {}", words.join(" or "));
                Err(Error::invalid_name(key.path, word, &problem, words))
            }
        }
    }

    fn whole_number(&self, key: CoordinationKey, most: u64) -> Result<u64, Error> {
        let text = self.value_text(key);
        let number = text.parse().ok().filter(|n| (1..=most).contains(n));
        let problem = || format!("must be a whole number from 1 to {most}");
        number.ok_or_else(|| refusal(key, &text, &problem()))
    }

    /// Reads a part of one, as parts per million.
    fn ratio(&self, key: CoordinationKey, least: u64) -> Result<u64, Error> {
        let text = self.value_text(key);
        let parts = self.decimal(&text).map(|nanos| nanos / 1_000);
        let parts = parts.filter(|parts| (least..=MILLION).contains(parts));
        let problem = "must be a part of the window, from 0.01 to 1, such as 0.9";
        parts.ok_or_else(|| refusal(key, &text, problem))
    }

    /// Reads seconds, as milliseconds.
    fn millis(&self, key: CoordinationKey, most: u64) -> Result<u64, Error> {
        let text = self.value_text(key);
        let millis = self.decimal(&text).map(|nanos| nanos / 1_000_000);
        let problem = || format!("must be seconds, from 1 to {}", most / 1_000);
        let millis = millis.filter(|millis| (1_000..=most).contains(millis));
        millis.ok_or_else(|| refusal(key, &text, &problem()))
    }

    fn dollars(&self, key: CoordinationKey) -> Result<NanoUsd, Error> {
        let text = self.value_text(key);
        let nanos = self.decimal(&text).filter(|nanos| *nanos <= CAP_MAX);
        let problem = "must be US dollars, zero or more, with at most nine decimals";
        nanos
            .map(NanoUsd::new)
            .ok_or_else(|| refusal(key, &text, problem))
    }

    /// Reads a decimal that is not negative, in billionths: a number as it was written, or text.
    fn decimal(&self, text: &str) -> Option<u64> {
        let number = NanoUsd::parse(text.trim_matches('"')).ok()?;
        Some(number.get())
    }
}

fn refusal(key: CoordinationKey, value: &str, problem: &str) -> Error {
    Error::invalid(key.path, value, problem)
}

/// Refuses a key below `section` that is not one of the settings; `section` is empty at the top,
/// and ends with a dot elsewhere.
fn check_keys(section: &str, fields: &JsonObject<'_>) -> Result<(), Error> {
    for (name, value) in fields.iter() {
        let path = format!("{section}{name}");
        let inner = format!("{path}.");
        if COORDINATION_KEYS.iter().any(|key| key.path == path) {
            continue;
        }
        if !COORDINATION_KEYS
            .iter()
            .any(|key| key.path.starts_with(&inner))
        {
            return Err(misplaced_key_error(section, name, path));
        }
        match value {
            JsonValue::Null => {}
            JsonValue::Object(fields) => check_keys(&inner, fields)?,
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
fn misplaced_key_error(section: &str, name: &str, path: String) -> Error {
    let places = known_places();
    let last = |place: &&String| place.rsplit('.').next() == Some(name);
    if let Some(place) = places.iter().find(last) {
        let problem = format!("stands at the wrong level: its place is {place}");
        return invalid_with_nearest(path, name, problem, Some(place.clone()));
    }
    let names = || places.iter().filter_map(|place| place.rsplit('.').next());
    let near = nearest(name, names());
    let near = near.and_then(|near| places.iter().find(|place| place.ends_with(near)));
    let here = places
        .iter()
        .filter_map(|place| place.strip_prefix(section));
    let here: Vec<&str> = here.filter(|rest| !rest.contains('.')).collect();
    let problem = format!("is not a setting here: {}", here.join(", "));
    invalid_with_nearest(path, name, problem, near.cloned())
}

fn invalid_with_nearest(path: String, name: &str, problem: String, place: Option<String>) -> Error {
    match Error::invalid(path, name, problem) {
        Error::Invalid {
            field,
            value,
            problem,
            ..
        } => Error::Invalid {
            field,
            value,
            problem,
            nearest: place,
        },
        error => error,
    }
}

/// Returns the paths of all keys and of the sections above them.
fn known_places() -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for key in COORDINATION_KEYS {
        let ends = key.path.match_indices('.').map(|(at, _)| at);
        for end in ends.chain([key.path.len()]) {
            let place = &key.path[..end];
            if !places.iter().any(|known| known == place) {
                places.push(place.to_owned());
            }
        }
    }
    places
}

#[cfg(test)]
mod tests;
