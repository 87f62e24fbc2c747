//! Settings of a provider's entry for the protocol of its servers, and the options of a model.

use super::WireProtocol;
use super::table_reader::{ConfigReader, KeyPath};
use crate::environment;
use crate::library::{LibraryError, front_matter};
use crate::models::dialect::{ANTHROPIC, DIALECTS, OutputField, ReturnThinking, ServerDialect};
use serde_json::{Map, Value};
use std::time::Duration;

/// Longest time that an entry may set, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Most headers, query parameters and options of one entry. People have a handful.
const FIELDS_MAX: usize = 32;
/// Most bytes of a model's options, as JSON text: they are sent with every request.
const OPTIONS_BYTES_MAX: usize = 16 << 10;

/// The keys of a provider over HTTP, after `wire`.
pub(super) const PROVIDER_KEYS: [&str; 10] = [
    "base_url",
    "key",
    "dialect",
    "max_tokens",
    "stream_options",
    "return_thinking",
    "cache",
    "headers",
    "query",
    "times",
];

/// Fields of a request that the runner or the wire sets, so that no option may.
const RESERVED_FIELDS: [&str; 11] = [
    "model",
    "messages",
    "system",
    "tools",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "cache_control",
    "n",
    "functions",
];

/// Options that are allowed under a policy which bounds models or money. None of them chooses a
/// model, a price or a number of replies.
pub(super) const GRANTED_OPTIONS: [&str; 17] = [
    "frequency_penalty",
    "logit_bias",
    "min_p",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "seed",
    "stop",
    "stop_sequences",
    "temperature",
    "thinking",
    "top_k",
    "top_p",
    "verbosity",
];

/// Timeouts of a provider, as far as its entry sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutSettings {
    /// Time to make a connection.
    pub connect: Option<Duration>,
    /// Time until an answer begins.
    pub answer: Option<Duration>,
    /// Time between two parts of a reply.
    pub idle: Option<Duration>,
    /// Time for a whole call.
    pub whole: Option<Duration>,
}

/// Settings of an entry for the protocol of its servers; `None` leaves a setting to the dialect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderSettings {
    /// Name of a dialect of OpenAI's wire.
    pub dialect: Option<String>,
    /// The field that bounds the output.
    pub output_field: Option<OutputField>,
    /// True to request usage at the end of a stream.
    pub stream_options: Option<bool>,
    /// When thinking is sent back.
    pub return_thinking: Option<ReturnThinking>,
    /// True to request caching of the conversation.
    pub cache: Option<bool>,
    /// Further headers: names and values as they are written.
    pub headers: Vec<(String, String)>,
    /// Query parameters of the address.
    pub query: Vec<(String, String)>,
    /// Timeouts of calls.
    pub times: TimeoutSettings,
}

impl ProviderSettings {
    /// Returns the dialect of a provider at this address.
    pub fn dialect(&self, wire: WireProtocol, base_url: &str) -> ServerDialect {
        let named = self
            .dialect
            .as_deref()
            .and_then(ServerDialect::find_by_name);
        let mut dialect = match wire {
            WireProtocol::Anthropic => ANTHROPIC,
            WireProtocol::OpenAi | WireProtocol::Scripted => {
                named.unwrap_or_else(|| ServerDialect::for_address(base_url))
            }
        };
        dialect.output_field = self.output_field.unwrap_or(dialect.output_field);
        dialect.stream_options = self.stream_options.unwrap_or(dialect.stream_options);
        dialect.return_thinking = self.return_thinking.unwrap_or(dialect.return_thinking);
        dialect.cache = self.cache.unwrap_or(dialect.cache);
        dialect
    }
}

impl ConfigReader<'_> {
    /// Reads the settings of a provider's entry.
    pub(super) fn read_settings(
        &self,
        name: &str,
        table: &Map<String, Value>,
        wire: WireProtocol,
    ) -> Result<ProviderSettings, LibraryError> {
        let at = |key| ["providers", name, key];
        let only = |key: &str, of: WireProtocol| match table.contains_key(key) && wire != of {
            true => {
                let problem = format!("{key} is a setting of the wire {}", of.as_str());
                Err(self.invalid(&["providers", name, key], "", problem, None))
            }
            false => Ok(()),
        };
        for key in ["dialect", "max_tokens", "stream_options", "return_thinking"] {
            only(key, WireProtocol::OpenAi)?;
        }
        only("cache", WireProtocol::Anthropic)?;
        let flag = |key: &'static str| self.read_flag(&at(key), table.get(key));
        let headers = self.read_fields(&at("headers"), table.get("headers"))?;
        for (header, value) in &headers {
            let path = ["providers", name, "headers", header];
            self.check_variables(&path, Some(value), environment::KEY_SUFFIX)?;
        }
        Ok(ProviderSettings {
            dialect: self.read_dialect_name(&at("dialect"), table)?,
            output_field: self.read_word(&at("max_tokens"), table, "field", &OUTPUT_FIELDS)?,
            stream_options: flag("stream_options")?,
            return_thinking: self.read_word(
                &at("return_thinking"),
                table,
                "value",
                &ReturnThinking::WORDS,
            )?,
            cache: flag("cache")?,
            headers,
            query: self.read_query(name, table)?,
            times: self.read_times(name, table.get("times"))?,
        })
    }

    fn read_dialect_name(
        &self,
        path: KeyPath<'_>,
        table: &Map<String, Value>,
    ) -> Result<Option<String>, LibraryError> {
        let names = DIALECTS.map(|dialect| dialect.name);
        match self.optional_text(path, table)? {
            None => Ok(None),
            Some(word) => self.check_word(path, &word, "dialect", &names).map(Some),
        }
    }

    /// Reads one of a few words and returns its value.
    fn read_word<T: Copy>(
        &self,
        path: KeyPath<'_>,
        table: &Map<String, Value>,
        noun: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, LibraryError> {
        let Some(word) = self.optional_text(path, table)? else {
            return Ok(None);
        };
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let word = self.check_word(path, &word, noun, &known)?;
        let found = words.iter().find(|(known, _)| *known == word);
        Ok(found.map(|(_, value)| *value))
    }

    pub(super) fn read_flag(
        &self,
        path: KeyPath<'_>,
        value: Option<&Value>,
    ) -> Result<Option<bool>, LibraryError> {
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => {
                let problem = format!(
                    "true or false is needed here, not {}",
                    front_matter::value_noun(other)
                );
                Err(self.invalid(path, "", problem, None))
            }
        }
    }

    /// Reads names and texts. A number is used as it is written.
    fn read_fields(
        &self,
        path: KeyPath<'_>,
        value: Option<&Value>,
    ) -> Result<Vec<(String, String)>, LibraryError> {
        let table = match value {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(value) => self.expect_object(path, value)?,
        };
        self.check_count(path, table.len())?;
        let text = |name: &str, value: &Value| match value {
            Value::Number(number) => Ok(number.to_string()),
            value => {
                let path = [path, &[name]].concat();
                self.expect_text(&path, value).map(str::to_owned)
            }
        };
        table
            .iter()
            .map(|(name, value)| Ok((name.clone(), text(name, value)?)))
            .collect()
    }

    /// Reads query parameters. They appear in logs of servers, so they may not contain variables.
    fn read_query(
        &self,
        name: &str,
        table: &Map<String, Value>,
    ) -> Result<Vec<(String, String)>, LibraryError> {
        let query = self.read_fields(&["providers", name, "query"], table.get("query"))?;
        match query.iter().find(|(_, value)| value.contains("${")) {
            None => Ok(query),
            Some((key, _)) => {
                let problem = "no variable may stand in a query: use headers".to_owned();
                Err(self.invalid(&["providers", name, "query", key], "", problem, None))
            }
        }
    }

    fn check_count(&self, path: KeyPath<'_>, count: usize) -> Result<(), LibraryError> {
        match count > FIELDS_MAX {
            true => {
                let problem = format!("there are {count}; the most is {FIELDS_MAX}");
                Err(self.invalid(path, "", problem, None))
            }
            false => Ok(()),
        }
    }

    fn read_times(
        &self,
        name: &str,
        value: Option<&Value>,
    ) -> Result<TimeoutSettings, LibraryError> {
        let path: KeyPath<'_> = &["providers", name, "times"];
        let table = match value {
            None | Some(Value::Null) => return Ok(TimeoutSettings::default()),
            Some(value) => self.expect_object(path, value)?,
        };
        self.check_keys(path, table, &["connect", "answer", "idle", "whole"])?;
        let time = |key: &'static str| {
            self.read_seconds(&["providers", name, "times", key], table.get(key))
        };
        Ok(TimeoutSettings {
            connect: time("connect")?,
            answer: time("answer")?,
            idle: time("idle")?,
            whole: time("whole")?,
        })
    }

    /// Reads a time in seconds, above zero.
    fn read_seconds(
        &self,
        path: KeyPath<'_>,
        value: Option<&Value>,
    ) -> Result<Option<Duration>, LibraryError> {
        let value = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let seconds = value.as_f64().filter(|seconds| *seconds <= SECONDS_MAX);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time.filter(|time| time.as_millis() > 0) {
            Some(time) => Ok(Some(time)),
            None => {
                let problem = "seconds above zero, and at most a day of them, are needed here";
                Err(self.invalid(path, &value.to_string(), problem.to_owned(), None))
            }
        }
    }

    /// Reads the options of a model: fields that are added to the body of its requests.
    pub(super) fn read_options(
        &self,
        model: &str,
        value: Option<&Value>,
    ) -> Result<Map<String, Value>, LibraryError> {
        let path: KeyPath<'_> = &["models", model, "options"];
        let table = match value {
            None | Some(Value::Null) => return Ok(Map::new()),
            Some(value) => self.expect_object(path, value)?,
        };
        self.check_count(path, table.len())?;
        if let Some(own) = table
            .keys()
            .find(|key| RESERVED_FIELDS.contains(&key.as_str()))
        {
            let problem = format!("{own} is set by threadkeep itself and is no option");
            let path = ["models", model, "options", own];
            return Err(self.invalid(&path, own, problem, None));
        }
        let text = Value::from(table.clone()).to_string();
        if text.contains("${") {
            let problem = "no variable may stand in an option".to_owned();
            return Err(self.invalid(path, "", problem, None));
        }
        let bytes = text.len();
        if bytes > OPTIONS_BYTES_MAX {
            let problem = format!("they have {bytes} bytes; the most is {OPTIONS_BYTES_MAX}");
            return Err(self.invalid(path, "", problem, None));
        }
        Ok(table.clone())
    }
}

/// Words for `max_tokens`.
const OUTPUT_FIELDS: [(&str, OutputField); 2] = [
    ("max_tokens", OutputField::MaxTokens),
    ("max_completion_tokens", OutputField::MaxCompletionTokens),
];

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
