//! Differences between servers of one wire: a single table of named dialects. No other module knows
//! about them.
//!
//! A provider speaks the dialect that its entry names, else the one that its host is known for,
//! else [`GENERIC`]. Single settings may be switched in `models.yaml` beside it. To add a dialect,
//! add an entry to [`DIALECTS`].

use crate::policy::ProviderAddress;
use std::collections::BTreeMap;
use threadkeep_storage::locks::SleepingMutex;

/// The name of the field that bounds the output of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputField {
    /// `max_completion_tokens` for models that OpenAI names `gpt-5...`, `o1...`, `o3...` or
    /// `o4...`, else `max_tokens`.
    ByModel,
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// When thinking that came as `reasoning_content` goes back in that field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnThinking {
    /// Never.
    Never,
    /// On messages that make calls, if the same provider wrote it.
    WithCalls,
    /// On every message of the assistant; empty where there is none.
    Always,
}

impl ReturnThinking {
    /// Every value, with its word in `models.yaml`.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("never", Self::Never),
        ("calls", Self::WithCalls),
        ("always", Self::Always),
    ];
}

/// The header that carries the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer KEY`.
    Bearer,
    /// This header, whose value is the key alone.
    Plain(&'static str),
}

/// Demands, refusals and field names of one kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerDialect {
    /// Its name in `models.yaml`.
    pub name: &'static str,
    /// Hosts known to speak this dialect. One that begins with a dot matches the end of a host.
    pub hosts: &'static [&'static str],
    /// The header that carries the key.
    pub key_header: KeyHeader,
    /// The field that bounds the output.
    pub output_field: OutputField,
    /// True if requests ask for usage at the end of a stream with `stream_options`.
    pub stream_options: bool,
    /// When thinking is sent back.
    pub return_thinking: ReturnThinking,
    /// Value of `reasoning_content` where the field is required and there is no thinking.
    /// Moonshot's servers treat an empty text as a missing one.
    pub no_thinking: &'static str,
    /// True if a user's message may follow a tool's result. Where it may not, a short assistant
    /// message is put between them.
    pub user_after_result: bool,
    /// Signature of calls that another provider made: Google's servers refuse a call without one.
    pub foreign_signature: Option<&'static str>,
    /// True if fields that came with a call (`extra_content` and the like) are sent back.
    pub call_fields: bool,
    /// True if the beginning of the conversation is marked for caching (Anthropic's wire only).
    pub cache: bool,
}

/// OpenAI's wire as most servers speak it, strict ones and templates of local models included.
pub const GENERIC: ServerDialect = ServerDialect {
    name: "generic",
    hosts: &[],
    key_header: KeyHeader::Bearer,
    output_field: OutputField::ByModel,
    stream_options: true,
    return_thinking: ReturnThinking::WithCalls,
    no_thinking: "",
    user_after_result: false,
    foreign_signature: None,
    call_fields: true,
    cache: false,
};

/// Anthropic's wire.
pub const ANTHROPIC: ServerDialect = ServerDialect {
    name: "anthropic",
    hosts: &[],
    key_header: KeyHeader::Plain("x-api-key"),
    cache: true,
    ..GENERIC
};

/// Every dialect of OpenAI's wire.
pub const DIALECTS: [ServerDialect; 9] = [
    GENERIC,
    ServerDialect {
        name: "openai",
        hosts: &["api.openai.com"],
        output_field: OutputField::MaxCompletionTokens,
        user_after_result: true,
        ..GENERIC
    },
    ServerDialect {
        name: "azure",
        hosts: &[".openai.azure.com", ".services.ai.azure.com"],
        key_header: KeyHeader::Plain("api-key"),
        output_field: OutputField::MaxCompletionTokens,
        user_after_result: true,
        ..GENERIC
    },
    ServerDialect {
        name: "mistral",
        hosts: &["api.mistral.ai", "codestral.mistral.ai"],
        output_field: OutputField::MaxTokens,
        stream_options: false,
        return_thinking: ReturnThinking::Never,
        ..GENERIC
    },
    ServerDialect {
        name: "deepseek",
        hosts: &["api.deepseek.com"],
        output_field: OutputField::MaxTokens,
        return_thinking: ReturnThinking::Always,
        ..GENERIC
    },
    ServerDialect {
        name: "gemini",
        hosts: &["generativelanguage.googleapis.com"],
        output_field: OutputField::MaxTokens,
        user_after_result: true,
        foreign_signature: Some("skip_thought_signature_validator"),
        ..GENERIC
    },
    ServerDialect {
        name: "kimi",
        hosts: &["api.moonshot.ai", "api.moonshot.cn"],
        output_field: OutputField::MaxTokens,
        return_thinking: ReturnThinking::Always,
        no_thinking: " ",
        ..GENERIC
    },
    ServerDialect {
        name: "groq",
        hosts: &["api.groq.com"],
        output_field: OutputField::MaxCompletionTokens,
        return_thinking: ReturnThinking::Never,
        user_after_result: true,
        ..GENERIC
    },
    ServerDialect {
        name: "xai",
        hosts: &["api.x.ai"],
        output_field: OutputField::MaxCompletionTokens,
        ..GENERIC
    },
];

impl ServerDialect {
    /// Finds the dialect of OpenAI's wire with this name.
    pub fn find_by_name(name: &str) -> Option<Self> {
        DIALECTS.into_iter().find(|dialect| dialect.name == name)
    }

    /// Returns the dialect of the host of this address, or [`GENERIC`] if the host is unknown.
    pub fn for_address(base_url: &str) -> Self {
        let address = ProviderAddress::from_url(base_url.trim());
        let host = address.as_ref().map_or("", ProviderAddress::host);
        let is_known = |dialect: &ServerDialect| {
            let mut hosts = dialect.hosts.iter();
            hosts.any(|known| *known == host || (known.starts_with('.') && host.ends_with(known)))
        };
        DIALECTS.into_iter().find(is_known).unwrap_or(GENERIC)
    }

    /// Returns true if the field for the output maximum of this model is `max_completion_tokens`.
    pub(super) fn uses_max_completion_tokens(&self, model: &str) -> bool {
        match self.output_field {
            OutputField::MaxTokens => false,
            OutputField::MaxCompletionTokens => true,
            OutputField::ByModel => is_reasoning_model(model),
        }
    }
}

/// A dialect, adjusted by the refusals that servers have sent since the process started.
///
/// A server that refuses a field by name is not sent that field again: the field is switched for
/// that model, once, and the runner's next attempt is a different request. A refusal costs nothing,
/// and no list of servers is ever complete.
#[derive(Debug)]
pub struct LearnedDialect {
    first: ServerDialect,
    /// By model, at most [`MODELS_MAX`].
    learned: SleepingMutex<BTreeMap<String, LearnedSettings>>,
}

/// Most models of one provider for which refusals are remembered.
const MODELS_MAX: usize = 1_000;

/// Settings that a server's refusals have switched; `None` where it has refused nothing.
#[derive(Debug, Clone, Copy, Default)]
struct LearnedSettings {
    output_field: Option<OutputField>,
    stream_options: Option<bool>,
    return_thinking: Option<ReturnThinking>,
    call_fields: Option<bool>,
    cache: Option<bool>,
}

/// Words by which servers refuse a field.
const REFUSING_WORDS: [&str; 9] = [
    "invalid input",
    "unsupported",
    "not supported",
    "not permitted",
    "not allowed",
    "unknown",
    "unrecognized",
    "unexpected",
    "extra inputs",
];

/// Words by which servers ask for a field.
const DEMANDING_WORDS: [&str; 5] = ["missing", "must", "required", "passed back", "expected"];

impl LearnedDialect {
    /// Starts with nothing learned.
    pub fn new(first: ServerDialect) -> Self {
        Self {
            first,
            learned: SleepingMutex::default(),
        }
    }

    /// Returns the dialect that currently holds for this model.
    pub fn dialect_for(&self, model: &str) -> ServerDialect {
        let learned = self.learned.lock().get(model).copied().unwrap_or_default();
        let first = self.first;
        let usual = if first.uses_max_completion_tokens(model) {
            OutputField::MaxCompletionTokens
        } else {
            OutputField::MaxTokens
        };
        ServerDialect {
            output_field: learned.output_field.unwrap_or(usual),
            stream_options: learned.stream_options.unwrap_or(first.stream_options),
            return_thinking: learned.return_thinking.unwrap_or(first.return_thinking),
            call_fields: learned.call_fields.unwrap_or(first.call_fields),
            cache: learned.cache.unwrap_or(first.cache),
            ..first
        }
    }

    /// Learns from the sentence with which a server refused a request for this model. `asked` is
    /// the dialect of that request. Returns true if the next request will be different.
    pub fn learn(&self, sentence: &str, model: &str, asked: ServerDialect) -> bool {
        let mut all = self.learned.lock();
        if all.len() >= MODELS_MAX && !all.contains_key(model) {
            return false;
        }
        let learned = all.entry(model.to_owned()).or_default();
        learned.apply_refusal(sentence, asked);
        drop(all);
        // A concurrent call may have learned the same.
        self.dialect_for(model) != asked
    }
}

impl LearnedSettings {
    /// Switches the field that the sentence names, unless it was switched before.
    fn apply_refusal(&mut self, sentence: &str, asked: ServerDialect) {
        let sentence = sentence.to_ascii_lowercase();
        let says = |list: &[&str]| list.iter().any(|word| sentence.contains(word));
        let refuses = says(&REFUSING_WORDS);
        let names = |field: &str| sentence.contains(field);
        if names("max_completion_tokens") && refuses && self.output_field.is_none() {
            self.output_field = Some(match asked.output_field {
                OutputField::MaxCompletionTokens => OutputField::MaxTokens,
                OutputField::ByModel | OutputField::MaxTokens => OutputField::MaxCompletionTokens,
            });
        } else if names("max_tokens") && refuses && self.output_field.is_none() {
            self.output_field = Some(OutputField::MaxCompletionTokens);
        } else if names("stream_options") && refuses {
            self.stream_options = Some(false);
        } else if names("cache_control") && refuses {
            self.cache = Some(false);
        } else if (names("extra_content") || names("provider_specific_fields")) && refuses {
            self.call_fields = Some(false);
        } else if (names("reasoning_content") || names("reasoning_details")) && refuses {
            self.return_thinking = Some(ReturnThinking::Never);
        } else if names("reasoning_content")
            && says(&DEMANDING_WORDS)
            && self.return_thinking.is_none()
        {
            self.return_thinking = Some(ReturnThinking::Always);
        }
    }
}

/// Returns true for OpenAI's own names of models that refuse `max_tokens`: `gpt-5` and later, and
/// `o` with a number.
fn is_reasoning_model(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let name = model.strip_prefix("gpt-").map(|rest| (rest, 5));
    let Some((rest, first)) = name.or_else(|| Some((model.strip_prefix('o')?, 1))) else {
        return false;
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, behind) = rest.split_at(end);
    let ends = behind.is_empty() || behind.starts_with(['-', '.']);
    ends && number.len() < 3 && number.parse().is_ok_and(|number: u32| number >= first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hosts_speak_their_dialect_and_no_other_host_does() {
        for (address, name) in [
            ("https://api.openai.com/v1", "openai"),
            ("https://api.mistral.ai/v1", "mistral"),
            ("https://team.openai.azure.com/openai/v1", "azure"),
            ("https://api.openai.com.evil.test/v1", "generic"),
            ("https://openai.azure.com/v1", "generic"),
            ("http://127.0.0.1:8080/v1", "generic"),
            ("no address", "generic"),
        ] {
            assert_eq!(ServerDialect::for_address(address).name, name, "{address}");
        }
        for dialect in DIALECTS {
            assert_eq!(ServerDialect::find_by_name(dialect.name), Some(dialect));
        }
        assert_eq!(ServerDialect::find_by_name("Mistral"), None);
    }

    #[test]
    fn reasoning_models_bound_their_output_under_the_new_name() {
        for (model, renamed) in [
            ("gpt-5", true),
            ("gpt-5-mini", true),
            ("openai/gpt-5-nano", true),
            ("o1", true),
            ("o4-mini", true),
            ("gpt-5.1-codex", true),
            ("gpt-4o-mini", false),
            ("gpt-4.1", false),
            ("gpt-oss-20b", false),
            ("gpt-5o", false),
            ("o100", false),
            ("olmo", false),
        ] {
            assert_eq!(
                GENERIC.uses_max_completion_tokens(model),
                renamed,
                "{model}"
            );
        }
    }

    /// A field that a server refuses or demands by name is switched once, for that model; any other
    /// refusal gives no reason for another request.
    #[test]
    fn refusals_are_learned_once() {
        let learned = LearnedDialect::new(GENERIC);
        let learn = |sentence: &str, model: &str| {
            learned.learn(sentence, model, learned.dialect_for(model))
        };
        for (sentence, expected) in [
            (
                "max_tokens is too large: 9. This model supports at most 8",
                false,
            ),
            ("Unsupported parameter: 'max_tokens'", true),
            ("Unsupported parameter: 'max_completion_tokens'", false),
            ("body.stream_options: Extra inputs are not permitted", true),
            ("body.stream_options: Extra inputs are not permitted", false),
            (
                "Missing reasoning_content in the assistant message at index 2",
                true,
            ),
            (
                "Missing reasoning_content in the assistant message at index 2",
                false,
            ),
            ("property 'reasoning_content' is unsupported", true),
            (
                "Missing reasoning_content in the assistant message at index 2",
                false,
            ),
            ("cache_control: unknown field", false),
            ("The model `m` does not exist", false),
        ] {
            assert_eq!(learn(sentence, "m"), expected, "{sentence}");
        }
        let now = learned.dialect_for("m");
        assert_eq!(now.output_field, OutputField::MaxCompletionTokens);
        assert!(!now.stream_options);
        assert_eq!(now.return_thinking, ReturnThinking::Never);
        let other = learned.dialect_for("other");
        assert_eq!(other.output_field, OutputField::MaxTokens, "by model");
        assert!(other.stream_options);
    }

    /// Symptom: of two concurrent calls that were refused for the same field, one suspended its
    /// thread. Cause: only the first had learned something. Fix: the result is whether the next
    /// request differs.
    #[test]
    fn calls_that_are_refused_at_once_are_both_made_anew() {
        let learned = LearnedDialect::new(GENERIC);
        let asked = learned.dialect_for("m");
        let refusal = "stream_options is not supported";
        assert!(learned.learn(refusal, "m", asked));
        assert!(learned.learn(refusal, "m", asked));
        assert!(!learned.learn(refusal, "m", learned.dialect_for("m")));
    }
}
