//! A tenant's settings of checkpoints on disk: when `state.json` is saved, which copies are kept,
//! what becomes of them at the end. The keys and their defaults are
//! `threadkeep_units::persistence`.
//!
//! Each key has an effect, or is refused by name where it could have only one value. A missing or
//! null key has its default; `description` says something to people and is passed over.

use super::checkpoint_copies::COPIES_DIR;
use super::save_trigger::{SaveTrigger, TriggerSet};
use crate::library::{LibraryError, TenantLibrary};
use serde_json::Value;
use std::time::Duration;
use threadkeep_units::nearest::nearest;
use threadkeep_units::persistence::{
    ARCHIVE_PATH, ATOMIC, CLEANUP_DAYS, CLEANUP_ENABLED, CLEANUP_NEWEST, COMPLETION_ACTION,
    COMPRESS, COPIES_MAX, EXTENDED_NAMES, EXTENDS, INCREMENTAL, PERSISTENCE_KEYS, PRIORITY_MUST,
    PersistenceKey, RETRY_ATTEMPTS, RETRY_BACKOFF, RETRY_ENABLED, SEED_ARCHIVE_PATH,
};

/// The name of these settings in a library.
pub const SETTINGS_NAME: &str = "state_persistence";

/// Most copies of a thread: each may be as large as the window of its model.
const COPIES_LIMIT: u64 = 1_000;
/// Most attempts of a save. With the pauses between them a save may take half a minute.
const ATTEMPTS_LIMIT: u64 = 10;
/// Most days: a hundred years.
const DAYS_LIMIT: u64 = 36_500;
/// The first pause between two attempts of a save.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Sections of seed 002 that are no settings here, with the reason.
const FIXED_SECTIONS: [(&str, &str); 2] = [
    (
        "state",
        "the form of state.json is fixed: docs/state.schema.json is its JSON Schema",
    ),
    (
        "schema_version",
        "the form of state.json is fixed: 1.1.0 is written, and 1.0.0 is read as well",
    ),
];

/// The settings of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// The saves that are made.
    pub enabled: TriggerSet,
    /// The saves that must succeed, or the run ends by an error.
    pub required: TriggerSet,
    /// True if most copies are merge patches.
    pub incremental: bool,
    /// True if copies are compressed.
    pub compress: bool,
    /// Attempts of a save, at least one.
    pub attempts_max: u32,
    /// Growth of the pause between attempts.
    pub backoff: RetryBackoff,
    /// Most copies that are kept.
    pub copies_max: usize,
    /// The removal of copies for their age, if there is one.
    pub cleanup: Option<AgeCleanup>,
    /// Use of the checkpoints of a thread that has ended.
    pub completion: CompletionAction,
    /// Directory below that of a thread to which they are moved.
    pub archive_dir: String,
}

/// The removal of copies for their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeCleanup {
    /// The newest copies are kept, whatever their age.
    pub newest: usize,
    /// Age from which on others are removed.
    pub age_max: Duration,
}

/// Growth of the pause between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryBackoff {
    /// It stays the same.
    Constant,
    /// It grows by the same each time.
    Linear,
    /// It doubles.
    Exponential,
}

impl RetryBackoff {
    const NAMES: [&str; 3] = ["exponential", "linear", "constant"];

    /// Returns the pause after the attempt of this number, from 1.
    pub fn pause(self, attempt: u32) -> Duration {
        let factor = match self {
            Self::Constant => 1,
            Self::Linear => attempt,
            Self::Exponential => 1 << attempt.saturating_sub(1).min(16),
        };
        PAUSE.saturating_mul(factor).min(PAUSE_MAX)
    }
}

/// Use of the checkpoints of a thread that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionAction {
    /// They are moved to the archive.
    Archive,
    /// They are removed.
    Delete,
    /// They stay.
    Keep,
}

impl CompletionAction {
    const NAMES: [&str; 3] = ["archive", "delete", "keep"];
}

impl CheckpointSettings {
    /// Reads the settings of a tenant.
    ///
    /// # Errors
    /// If the library cannot be read, or a key is unknown or has no value that it may have.
    pub fn load(library: &dyn TenantLibrary) -> Result<Self, LibraryError> {
        let text = library.document("settings", SETTINGS_NAME)?;
        Self::parse(text.as_deref())
    }

    /// Reads the document of the settings, which may be missing.
    ///
    /// # Errors
    /// [`LibraryError::Invalid`], whose place is the path of the key.
    pub fn parse(text: Option<&str>) -> Result<Self, LibraryError> {
        let document: Value = match text {
            None => Value::Object(serde_json::Map::new()),
            Some(text) => serde_json::from_str(text)
                .map_err(|error| invalid(SETTINGS_NAME, "", format!("is not JSON: {error}")))?,
        };
        check_keys("", &document)?;
        let file = SettingsDocument(&document);
        file.check_fixed_values()?;
        let mut enabled = TriggerSet::EMPTY;
        let mut required = TriggerSet::EMPTY;
        for trigger in SaveTrigger::ALL {
            if file.trigger_enabled(trigger)? {
                enabled.insert(trigger);
            }
            if file.trigger_priority(trigger)? == PRIORITY_MUST {
                required.insert(trigger);
            }
        }
        let copies_max = file.count(COPIES_MAX, 1, COPIES_LIMIT)?;
        let mut newest = file.count(CLEANUP_NEWEST, 0, COPIES_LIMIT)?;
        if !file.names(CLEANUP_NEWEST) {
            // A default gives way to what the file says.
            newest = newest.min(copies_max);
        }
        if newest > copies_max {
            let problem = format!(
                "is more than the {copies_max} that {} allows",
                COPIES_MAX.path
            );
            return Err(invalid(CLEANUP_NEWEST.path, &newest.to_string(), problem));
        }
        let days = file.number(CLEANUP_DAYS.path, 0, DAYS_LIMIT)?;
        let cleanup = file.flag(CLEANUP_ENABLED)?.then_some(AgeCleanup {
            newest,
            age_max: Duration::from_secs(days * 86_400),
        });
        let attempts = file.number(RETRY_ATTEMPTS.path, 1, ATTEMPTS_LIMIT)?;
        Ok(Self {
            enabled,
            required,
            incremental: file.flag(INCREMENTAL)?,
            compress: file.flag(COMPRESS)?,
            attempts_max: match file.flag(RETRY_ENABLED)? {
                true => attempts as u32,
                false => 1,
            },
            backoff: file.backoff()?,
            copies_max,
            cleanup,
            completion: file.completion()?,
            archive_dir: file.archive_dir()?,
        })
    }

    /// Returns true if the reasons of commits must be known to tell which of them are saved.
    pub fn needs_reasons(&self) -> bool {
        let ordinary = [
            SaveTrigger::PreTurn,
            SaveTrigger::PostLlm,
            SaveTrigger::PostTools,
        ];
        let enabled = ordinary.map(|trigger| self.enabled.contains(trigger));
        let required = ordinary.map(|trigger| self.required.contains(trigger));
        enabled != [enabled[0]; 3] || required != [required[0]; 3]
    }
}

/// The document, whose keys were checked.
struct SettingsDocument<'a>(&'a Value);

impl SettingsDocument<'_> {
    /// Returns the value of a key: the document's, or else the default.
    fn value(&self, path: &str) -> Value {
        let found = self.0.pointer(&format!("/{}", path.replace('.', "/")));
        match found {
            Some(value) if !value.is_null() => value.clone(),
            _ => default_value(path),
        }
    }

    /// Returns true if the document has a value of its own for a key.
    fn names(&self, key: PersistenceKey) -> bool {
        let found = self.0.pointer(&format!("/{}", key.path.replace('.', "/")));
        found.is_some_and(|value| !value.is_null())
    }

    fn flag(&self, key: PersistenceKey) -> Result<bool, LibraryError> {
        self.flag_at(key.path)
    }

    fn flag_at(&self, path: &str) -> Result<bool, LibraryError> {
        let value = self.value(path);
        let flag = value.as_bool();
        flag.ok_or_else(|| invalid(path, &value.to_string(), "must be true or false"))
    }

    fn number(&self, path: &str, least: u64, most: u64) -> Result<u64, LibraryError> {
        let value = self.value(path);
        let number = value.as_u64();
        let allowed = number.filter(|number| (least..=most).contains(number));
        allowed.ok_or_else(|| {
            let problem = format!("must be a whole number from {least} to {most}");
            invalid(path, &value.to_string(), problem)
        })
    }

    fn count(&self, key: PersistenceKey, least: u64, most: u64) -> Result<usize, LibraryError> {
        Ok(self.number(key.path, least, most)? as usize)
    }

    /// Reads one of some words; returns its place among them.
    fn word(&self, key: PersistenceKey, words: &[&str]) -> Result<usize, LibraryError> {
        let value = self.value(key.path);
        let text = value.as_str().unwrap_or_default();
        let found = words.iter().position(|word| *word == text);
        found.ok_or_else(|| {
            let problem = format!("must be one of {}", words.join(", "));
            LibraryError::Invalid {
                place: key.path.to_owned(),
                value: value.to_string(),
                problem: format!("{value} {problem}"),
                nearest: nearest(text, words.iter().copied()).map(str::to_owned),
            }
        })
    }

    /// Refuses keys that can have only one value where they have another.
    fn check_fixed_values(&self) -> Result<(), LibraryError> {
        self.word(EXTENDS, &EXTENDED_NAMES)?;
        if !self.flag(ATOMIC)? {
            let problem = "is not possible: every file is written beside the old one and put in \
                           its place, so that no reader meets half of it";
            return Err(invalid(ATOMIC.path, "false", problem));
        }
        Ok(())
    }

    fn trigger_enabled(&self, trigger: SaveTrigger) -> Result<bool, LibraryError> {
        let path = format!("checkpoint.triggers.{}.enabled", trigger.name());
        let enabled = self.flag_at(&path)?;
        if !enabled && trigger.is_always() {
            let problem =
                "is not possible: what a thread goes on from after a stop is always saved";
            return Err(invalid(&path, "false", problem));
        }
        Ok(enabled)
    }

    fn trigger_priority(&self, trigger: SaveTrigger) -> Result<u64, LibraryError> {
        let path = format!("checkpoint.triggers.{}.priority", trigger.name());
        let priority = self.number(&path, 1, PRIORITY_MUST)?;
        if trigger == SaveTrigger::OnCancel && priority != PRIORITY_MUST {
            let problem = "would have no effect: a thread that was cancelled has ended, and no \
                           priority lets it go on";
            return Err(invalid(&path, &priority.to_string(), problem));
        }
        Ok(priority)
    }

    fn backoff(&self) -> Result<RetryBackoff, LibraryError> {
        Ok(match self.word(RETRY_BACKOFF, &RetryBackoff::NAMES)? {
            0 => RetryBackoff::Exponential,
            1 => RetryBackoff::Linear,
            _ => RetryBackoff::Constant,
        })
    }

    fn completion(&self) -> Result<CompletionAction, LibraryError> {
        Ok(
            match self.word(COMPLETION_ACTION, &CompletionAction::NAMES)? {
                0 => CompletionAction::Archive,
                1 => CompletionAction::Delete,
                _ => CompletionAction::Keep,
            },
        )
    }

    /// Reads the path of the archive: a directory with a dot in its name, so that it is that of no
    /// thread, inside the directory of the thread.
    fn archive_dir(&self) -> Result<String, LibraryError> {
        let value = self.value(ARCHIVE_PATH.path);
        let text = value.as_str().unwrap_or_default();
        if text == SEED_ARCHIVE_PATH {
            return Ok("archive.d".to_owned());
        }
        let name = text.strip_prefix(".ai/threads/{thread_id}/");
        let name = name.map(|name| name.strip_suffix('/').unwrap_or(name));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_good = |name: &&str| {
            name.bytes().all(plain)
                && name.ends_with(".d")
                && !name.starts_with('.')
                // On some file systems letters are the same in both cases.
                && ![COPIES_DIR, "blobs.d", "locks.d"]
                    .iter()
                    .any(|own| own.eq_ignore_ascii_case(name))
        };
        name.filter(is_good).map(str::to_owned).ok_or_else(|| {
            let problem = "must be a directory of the thread's own whose name ends with .d, as \
                           .ai/threads/{thread_id}/archive.d/: nothing is written outside, and a \
                           name without a dot could be a thread's";
            invalid(ARCHIVE_PATH.path, &value.to_string(), problem)
        })
    }
}

/// Returns the default of the key at a path.
fn default_value(path: &str) -> Value {
    let key = PERSISTENCE_KEYS.iter().find(|key| key.path == path);
    key.map_or(Value::Null, |key| {
        serde_json::from_str(key.default).unwrap_or_default()
    })
}

/// Refuses keys below a section that are no settings; `section` is empty at the top, and ends with
/// a dot elsewhere.
fn check_keys(section: &str, value: &Value) -> Result<(), LibraryError> {
    let Some(fields) = value.as_object() else {
        let place = section.trim_end_matches('.');
        let problem = "is a section: it must have keys with values";
        return Err(invalid(place, &value.to_string(), problem));
    };
    for (name, value) in fields {
        let path = format!("{section}{name}");
        let inner = format!("{path}.");
        let is_key = PERSISTENCE_KEYS.iter().any(|key| key.path == path);
        let is_section = PERSISTENCE_KEYS
            .iter()
            .any(|key| key.path.starts_with(&inner));
        if name == "description" || is_key || (is_section && value.is_null()) {
            continue;
        }
        if let Some((_, why)) = FIXED_SECTIONS.iter().find(|(fixed, _)| *fixed == path) {
            return Err(invalid(&path, "", format!("is no setting: {why}")));
        }
        if !is_section {
            return Err(unknown_key_error(&path, name));
        }
        check_keys(&inner, value)?;
    }
    Ok(())
}

/// Returns the refusal of an unknown key: with the place of a known one of that name, else with
/// the nearest.
fn unknown_key_error(path: &str, name: &str) -> LibraryError {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let places = PERSISTENCE_KEYS.iter().flat_map(|key| {
        let ends = key.path.match_indices('.').map(|(at, _)| &key.path[..at]);
        ends.chain([key.path])
    });
    let places: Vec<&'static str> = places.collect();
    let meant = places.iter().find(|place| last(place) == name).copied();
    let names = places.iter().map(|place| last(place));
    let near = meant.or_else(|| {
        let near = nearest(name, names)?;
        places.iter().find(|place| last(place) == near).copied()
    });
    LibraryError::Invalid {
        place: path.to_owned(),
        value: String::new(),
        problem: match (meant, near) {
            (Some(meant), _) => format!("is no setting there: its place is {meant}"),
            (None, Some(near)) => format!("is no setting: did you mean {near}?"),
            (None, None) => "is no setting".to_owned(),
        },
        nearest: near.map(str::to_owned),
    }
}

fn invalid(path: &str, value: &str, problem: impl Into<String>) -> LibraryError {
    let problem = problem.into();
    LibraryError::Invalid {
        place: path.to_owned(),
        problem: match value {
            "" => problem,
            value => format!("{value} {problem}"),
        },
        value: value.to_owned(),
        nearest: None,
    }
}

#[cfg(test)]
mod tests;
