//! Refusals of servers of OpenAI's chat completions, as their makers document them.
//!
//! This checker is independent: it reads a body as a server does and shares nothing with the
//! encoder, not even the table of dialects.

use super::history_writer::{FOREIGN, OWN_SIGNATURE, OWN_THOUGHT};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The stand-in for a signature that another provider's call lacks, by Google's documentation.
const DUMMY_SIGNATURE: &str = "skip_thought_signature_validator";
/// Fields of a body that every server accepts.
const BODY_FIELDS: [&str; 7] = [
    "model",
    "stream",
    "stream_options",
    "tools",
    "messages",
    "max_tokens",
    "max_completion_tokens",
];
/// Models of OpenAI that refuse `max_tokens`, among those that the tests use.
pub(super) const REASONING_MODELS: [&str; 2] = ["gpt-5-mini", "openai/o3"];

/// Demands of one kind of server beside those of all servers.
#[derive(Debug)]
pub(super) struct ServerRules {
    pub name: &'static str,
    /// The field that bounds the output; `None` if the model decides.
    output: Option<&'static str>,
    pub thinking: ThinkingRule,
    traits: &'static [ServerTrait],
}

/// The messages on which `reasoning_content` stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingRule {
    /// On no message.
    Refused,
    /// Only on messages with calls.
    WithCalls,
    /// On every message of the assistant.
    Demanded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerTrait {
    /// A user's message may follow a result.
    UserAfterResult,
    /// `stream_options` is refused.
    NoStreamOptions,
    /// Ids of calls are nine letters and digits.
    NineCharacters,
    /// The first call of a message is signed.
    SignedCalls,
    /// An empty `reasoning_content` counts as a missing one.
    NoEmptyThinking,
}

use ServerTrait::{NineCharacters, NoEmptyThinking, NoStreamOptions, SignedCalls, UserAfterResult};
use ThinkingRule::{Demanded, Refused, WithCalls};

const MAX_TOKENS: Option<&str> = Some("max_tokens");
const MAX_COMPLETION_TOKENS: Option<&str> = Some("max_completion_tokens");

/// Every kind of server, named by its dialect.
#[rustfmt::skip]
const SERVERS: [ServerRules; 9] = [
    ServerRules::new("generic", None, WithCalls, &[]),
    ServerRules::new("openai", MAX_COMPLETION_TOKENS, WithCalls, &[UserAfterResult]),
    ServerRules::new("azure", MAX_COMPLETION_TOKENS, WithCalls, &[UserAfterResult]),
    ServerRules::new("mistral", MAX_TOKENS, Refused, &[NoStreamOptions, NineCharacters]),
    ServerRules::new("deepseek", MAX_TOKENS, Demanded, &[]),
    ServerRules::new("gemini", MAX_TOKENS, WithCalls, &[UserAfterResult, SignedCalls]),
    ServerRules::new("kimi", MAX_TOKENS, Demanded, &[NoEmptyThinking]),
    ServerRules::new("groq", MAX_COMPLETION_TOKENS, Refused, &[UserAfterResult]),
    ServerRules::new("xai", MAX_COMPLETION_TOKENS, WithCalls, &[]),
];

/// Success, or the first rule that is broken.
pub(super) type RuleCheck = Result<(), String>;

pub(super) fn require(holds: bool, rule: &str) -> RuleCheck {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

/// Returns true for a name that a tool may have, and for an id that Anthropic's wire accepts.
pub(super) fn is_plain_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&text.len()) && text.chars().all(plain)
}

/// Returns true if all fields of an object are known.
pub(super) fn has_only(object: &Value, known: &[&str]) -> bool {
    let fields = object.as_object().into_iter().flat_map(Map::keys);
    object.is_object()
        && fields
            .into_iter()
            .all(|field| known.contains(&field.as_str()))
}

pub(super) fn has_text(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

impl ServerRules {
    const fn new(
        name: &'static str,
        output: Option<&'static str>,
        thinking: ThinkingRule,
        traits: &'static [ServerTrait],
    ) -> Self {
        Self {
            name,
            output,
            thinking,
            traits,
        }
    }

    /// Returns the rules of servers of this dialect.
    pub fn for_dialect(dialect: &str) -> Self {
        let found = SERVERS.into_iter().find(|rules| rules.name == dialect);
        found.unwrap_or_else(|| panic!("no rules are written down for {dialect}"))
    }

    fn has(&self, wanted: ServerTrait) -> bool {
        self.traits.contains(&wanted)
    }

    /// Checks the body of a request.
    pub fn check(&self, body: &Value) -> RuleCheck {
        self.check_fields(body)?;
        let messages = body["messages"].as_array().ok_or("no list of messages")?;
        let mut conversation = ChatCheck::new(self);
        for (n, message) in messages.iter().enumerate() {
            let checked = conversation.add(message);
            checked.map_err(|rule| format!("messages[{n}]: {rule}"))?;
        }
        conversation.end()
    }

    fn check_fields(&self, body: &Value) -> RuleCheck {
        require(has_only(body, &BODY_FIELDS), "a field that no server knows")?;
        let model = body["model"].as_str().unwrap_or_default();
        let by_model = if REASONING_MODELS.contains(&model) {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        let wanted = self.output.unwrap_or(by_model);
        for field in ["max_tokens", "max_completion_tokens"] {
            let given = body[field].as_u64().is_some_and(|most| most > 0);
            require(given == (field == wanted), "not the one output field")?;
        }
        let options = body.get("stream_options").is_some();
        let refused = options && self.has(NoStreamOptions);
        require(!refused, "stream_options is no field of this server")?;
        require(body["stream"] == true, "not a stream")?;
        let foreign = body.to_string().contains(FOREIGN);
        require(!foreign, "what another provider sent for itself alone")
    }
}

/// State of the check of a conversation, message by message.
struct ChatCheck<'a> {
    rules: &'a ServerRules,
    last_role: String,
    /// Ids of the calls of the last assistant message that have no result yet.
    open: BTreeSet<String>,
    ids: BTreeSet<String>,
}

impl<'a> ChatCheck<'a> {
    fn new(rules: &'a ServerRules) -> Self {
        Self {
            rules,
            last_role: String::new(),
            open: BTreeSet::new(),
            ids: BTreeSet::new(),
        }
    }

    fn add(&mut self, message: &Value) -> RuleCheck {
        let role = message["role"].as_str().unwrap_or_default();
        let closed = role == "tool" || self.open.is_empty();
        require(closed, "a call has no result before the next message")?;
        match role {
            "system" => self.add_system(message)?,
            "user" => self.add_user(message)?,
            "assistant" => self.add_assistant(message)?,
            "tool" => self.add_result(message)?,
            _ => return Err("an unknown role".to_owned()),
        }
        role.clone_into(&mut self.last_role);
        Ok(())
    }

    fn end(&self) -> RuleCheck {
        require(self.open.is_empty(), "a call has no result at the end")?;
        let asked = matches!(self.last_role.as_str(), "user" | "tool");
        require(asked, "the last message is neither a user's nor a tool's")
    }

    fn add_system(&self, message: &Value) -> RuleCheck {
        require(self.last_role.is_empty(), "a system message behind others")?;
        check_words(message, "an empty system message")
    }

    fn add_user(&self, message: &Value) -> RuleCheck {
        require(self.last_role != "user", "two users in a row")?;
        let after_result = self.last_role == "tool" && !self.rules.has(UserAfterResult);
        require(!after_result, "a user behind a result")?;
        check_words(message, "an empty user message")
    }

    fn add_assistant(&mut self, message: &Value) -> RuleCheck {
        let begun = matches!(self.last_role.as_str(), "user" | "tool");
        let two = self.last_role == "assistant";
        require(!two, "two assistants in a row")?;
        require(begun, "the first message is not a user's")?;
        let none = Vec::new();
        let calls = match &message["tool_calls"] {
            Value::Null => &none,
            Value::Array(calls) if !calls.is_empty() => calls,
            _ => return Err("an empty list of calls".to_owned()),
        };
        let is_silent = message.get("content") == Some(&Value::Null) && !calls.is_empty();
        let spoken = is_silent || has_text(message["content"].as_str());
        require(spoken, "an empty assistant message")?;
        self.check_thinking(message, !calls.is_empty())?;
        for (n, call) in calls.iter().enumerate() {
            self.add_call(call, n == 0)?;
        }
        Ok(())
    }

    fn check_thinking(&self, message: &Value, calls: bool) -> RuleCheck {
        let known = ["role", "content", "tool_calls"];
        let thinking = ["reasoning_content", "reasoning_details"];
        let text = message["reasoning_content"].as_str();
        match self.rules.thinking {
            Refused => return require(has_only(message, &known), "a field of thinking"),
            Demanded => require(text.is_some(), "no reasoning_content")?,
            WithCalls => {
                let misplaced = message.get("reasoning_content").is_some() && !calls;
                require(!misplaced, "reasoning_content without calls")?;
            }
        }
        let known = [known.as_slice(), &thinking].concat();
        require(has_only(message, &known), "an unknown field of a message")?;
        if self.rules.has(NoEmptyThinking) {
            require(text != Some(""), "empty reasoning_content")?;
        }
        let mut thoughts = text.unwrap_or_default().trim().split_terminator('.');
        let own = thoughts.all(|thought| thought.starts_with(OWN_THOUGHT));
        require(own, "thinking that did not come in reasoning_content")
    }

    fn add_call(&mut self, call: &Value, first: bool) -> RuleCheck {
        let known = [
            "id",
            "type",
            "function",
            "extra_content",
            "provider_specific_fields",
        ];
        require(has_only(call, &known), "an unknown field of a call")?;
        require(call["type"] == "function", "a call of another type")?;
        let id = call["id"].as_str().unwrap_or_default();
        require(self.is_id(id), "a bad id")?;
        require(self.ids.insert(id.to_owned()), "an id comes twice")?;
        self.open.insert(id.to_owned());
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        require(is_plain_name(name), "a bad name")?;
        let arguments = function["arguments"].as_str().unwrap_or_default();
        let object = serde_json::from_str::<Map<String, Value>>(arguments);
        require(object.is_ok(), "arguments that are no object")?;
        self.check_signature(call, first)
    }

    fn is_id(&self, id: &str) -> bool {
        let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
        let nine = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        plain && (nine || !self.rules.has(NineCharacters))
    }

    fn check_signature(&self, call: &Value, first: bool) -> RuleCheck {
        let signature = call["extra_content"]["google"]["thought_signature"].as_str();
        let is_known = |text| text == OWN_SIGNATURE || text == DUMMY_SIGNATURE;
        if !self.rules.has(SignedCalls) {
            let made_up = signature == Some(DUMMY_SIGNATURE);
            return require(!made_up, "a signature for another server");
        }
        require(signature.is_none_or(is_known), "a foreign signature")?;
        require(
            signature.is_some() || !first,
            "a first call without a signature",
        )
    }

    fn add_result(&mut self, message: &Value) -> RuleCheck {
        let known = ["role", "tool_call_id", "content"];
        require(has_only(message, &known), "an unknown field of a result")?;
        require(message["content"].is_string(), "a result without a text")?;
        let id = message["tool_call_id"].as_str().unwrap_or_default();
        require(self.open.remove(id), "a result without its call")
    }
}

fn check_words(message: &Value, rule: &str) -> RuleCheck {
    require(
        has_only(message, &["role", "content"]),
        "an unknown field of a message",
    )?;
    require(has_text(message["content"].as_str()), rule)
}
