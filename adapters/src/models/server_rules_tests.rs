//! Properties of request bodies, checked with random conversations for every kind of server. A body
//! has nothing that the server refuses, leaves nothing out, and begins the body of the next
//! request.
//!
//! `histories` and `history_writer` make the conversations, `chat_rules` and `anthropic_rules`
//! imitate the servers, and `broken_bodies` shows that these do refuse.

mod anthropic_rules;
mod broken_bodies;
mod broken_chats;
mod broken_messages;
mod chat_rules;
mod histories;
mod history_writer;

use super::anthropic::AnthropicWire;
use super::dialect::{ANTHROPIC, DIALECTS, ServerDialect};
use super::openai::OpenAiWire;
use super::wire::{ModelWire as _, ProviderProfile};
use super::{CompletionRequest, ProviderOptions, ToolSpec};
use chat_rules::{REASONING_MODELS, RuleCheck, ServerRules, ThinkingRule, has_text, require};
use histories::{RandomHistory, any_history};
use history_writer::{OWN_SIGNATURE, OWN_THOUGHT, PROVIDER, SIGNED_THOUGHT};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use serde_json::Value;

/// Conversations for each property. Each is sent to every server, at each of its model calls.
const CASES: u32 = 256;

/// A provider, set up for the servers of one dialect.
enum TestedServer {
    Chat(ProviderProfile, ServerRules),
    Messages(ProviderProfile),
}

impl TestedServer {
    fn new(dialect: ServerDialect) -> Self {
        let address = "http://127.0.0.1:9/v1";
        let is_anthropic = dialect == ANTHROPIC;
        let options = ProviderOptions {
            name: PROVIDER.to_owned(),
            dialect,
            ..ProviderOptions::openai(address)
        };
        if is_anthropic {
            Self::Messages(ProviderProfile::new::<AnthropicWire>(options).expect("it is set up"))
        } else {
            let rules = ServerRules::for_dialect(dialect.name);
            let profile = ProviderProfile::new::<OpenAiWire>(options).expect("it is set up");
            Self::Chat(profile, rules)
        }
    }

    fn all() -> Vec<Self> {
        let dialects = DIALECTS.into_iter().chain([ANTHROPIC]);
        dialects.map(Self::new).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Chat(_, rules) => rules.name,
            Self::Messages(_) => ANTHROPIC.name,
        }
    }

    fn encode(&self, request: &CompletionRequest) -> String {
        let body = match self {
            Self::Chat(profile, _) => OpenAiWire::encode(profile, request),
            Self::Messages(profile) => AnthropicWire::encode(profile, request),
        };
        String::from_utf8(body.expect("it has a body")).expect("it is text")
    }

    fn check(&self, body: &Value) -> RuleCheck {
        match self {
            Self::Chat(_, rules) => rules.check(body),
            Self::Messages(_) => anthropic_rules::check(body),
        }
    }

    /// Returns the thinking of a message that must be sent back to this server.
    fn returned_thoughts<'a>(&self, blocks: &'a [Value]) -> Vec<&'a str> {
        let calls = blocks.iter().any(|block| block["type"] == "tool_use");
        let last_said = blocks.iter().rposition(is_sent_alone);
        let (mark, end) = match self {
            // Thinking at the end of a message is left out.
            Self::Messages(_) => (SIGNED_THOUGHT, last_said),
            Self::Chat(_, rules) => match rules.thinking {
                ThinkingRule::Refused => (OWN_THOUGHT, None),
                ThinkingRule::WithCalls => (OWN_THOUGHT, calls.then_some(blocks.len())),
                ThinkingRule::Demanded => (OWN_THOUGHT, last_said.map(|_| blocks.len())),
            },
        };
        let thoughts = blocks[..end.unwrap_or(0)].iter();
        let texts = thoughts.filter_map(|block| block["text"].as_str());
        texts.filter(|text| text.starts_with(mark)).collect()
    }
}

/// The parts of a request beside its conversation.
#[derive(Debug, Clone)]
struct RequestFrame {
    model: &'static str,
    system: &'static str,
    has_tool: bool,
}

fn any_frame() -> impl Strategy<Value = RequestFrame> {
    let models = ["m-1", "gpt-4.1", REASONING_MODELS[0], REASONING_MODELS[1]];
    let models = prop::sample::select(models.to_vec());
    let systems = prop::sample::select(vec!["", " \n", "Be brief."]);
    (models, systems, any::<bool>()).prop_map(|(model, system, has_tool)| RequestFrame {
        model,
        system,
        has_tool,
    })
}

impl RequestFrame {
    fn request(&self, messages: &[Value]) -> CompletionRequest {
        let tool = ToolSpec {
            name: "read_file".into(),
            description: "Reads.".into(),
            schema: r#"{"type":"object"}"#.into(),
        };
        CompletionRequest {
            model: self.model.into(),
            system: self.system.into(),
            tools: self.has_tool.then_some(tool).into_iter().collect(),
            messages: messages.iter().map(Value::to_string).collect(),
            images: Default::default(),
            output_max: 100,
            session: None,
        }
    }
}

/// Checks a property of a server and a conversation with random conversations; fails with the
/// smallest one that breaks it.
fn for_every_conversation(property: fn(&TestedServer, &RequestFrame, &RandomHistory) -> RuleCheck) {
    let config = ProptestConfig {
        cases: CASES,
        max_shrink_iters: 4_000,
        ..ProptestConfig::with_source_file(file!())
    };
    let servers = TestedServer::all();
    let ran = TestRunner::new(config).run(&(any_frame(), any_history()), |(frame, history)| {
        for server in &servers {
            let checked = property(server, &frame, &history);
            checked.map_err(|fault| {
                let messages = history.write(server.name()).messages;
                let messages: String = messages.iter().map(|text| format!("\n  {text}")).collect();
                TestCaseError::fail(format!("{}: {fault}: {frame:?}{messages}", server.name()))
            })?;
        }
        Ok(())
    });
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(TestError::Abort(reason)) => panic!("no conversations: {reason}"),
    }
}

#[test]
fn servers_accept_every_conversation() {
    for_every_conversation(|server, frame, history| {
        let written = history.write(server.name());
        for messages in written
            .call_points
            .iter()
            .map(|at| &written.messages[..*at])
        {
            let body = server.encode(&frame.request(messages));
            let parsed = serde_json::from_str(&body).map_err(|error| error.to_string())?;
            let checked = server.check(&parsed);
            checked.map_err(|rule| format!("{rule}, in {body}, of {} messages", messages.len()))?;
        }
        Ok(())
    });
}

#[test]
fn nothing_that_was_said_is_left_out() {
    for_every_conversation(|server, frame, history| {
        let messages = history.write(server.name()).messages;
        let body = server.encode(&frame.request(&messages));
        for blocks in messages.iter().map(blocks) {
            let words = blocks.iter().filter(|block| block["type"] != "thinking");
            let words = words.filter_map(|block| block["text"].as_str());
            let thoughts = server.returned_thoughts(blocks);
            for text in words.map(str::trim).chain(thoughts) {
                require(body.contains(text), text)?;
            }
        }
        let signatures = |text: &str| text.matches(OWN_SIGNATURE).count();
        let kept: usize = messages
            .iter()
            .map(|message| signatures(&message.to_string()))
            .sum();
        require(signatures(&body) == kept, "a signature of its own")
    });
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns true for a block that is sent by itself: not for thinking, nor for a blank text.
fn is_sent_alone(block: &Value) -> bool {
    let is_text = block["type"] == "text";
    let is_thinking = block["type"] == "thinking";
    !is_thinking && (!is_text || has_text(block["text"].as_str()))
}

fn role_of(message: Option<&Value>) -> &str {
    let role = message.and_then(|message| message["role"].as_str());
    role.unwrap_or_default()
}

/// A server reads the beginning of a request from its cache if it equals an earlier request.
///
/// - If nothing that is sent was added, the body is the same.
/// - If the assistant speaks next, every message stays, those inserted by the encoder included.
/// - If a user speaks next after a user or results, the last message may grow at its end.
/// - If a user speaks next after the assistant, the last message was inserted by the encoder to
///   make the assistant continue; every message before it stays.
#[test]
fn each_body_is_the_beginning_of_the_next() {
    for_every_conversation(|server, frame, history| {
        let written = history.write(server.name());
        for points in written.call_points.windows(2) {
            let (before, after) = (
                &written.messages[..points[0]],
                &written.messages[..points[1]],
            );
            let is_sent = |message: &&Value| blocks(message).iter().any(is_sent_alone);
            let last = role_of(before.iter().rfind(is_sent));
            let next = role_of(after[points[0]..].iter().find(is_sent));
            let before = server.encode(&frame.request(before));
            let again = server.encode(&frame.request(&after[..points[0]]));
            require(before == again, "the same request is other bytes")?;
            let kept = kept_beginning(server, &before, last, next);
            let after = server.encode(&frame.request(after));
            let stays = after.starts_with(kept) && (!next.is_empty() || after == before);
            require(stays, &format!("{before} is not the beginning of {after}"))?;
        }
        Ok(())
    });
}

/// Returns the part of a body that must stay the same when the conversation, whose last message has
/// the role `last`, continues with the role `next`.
fn kept_beginning<'a>(server: &TestedServer, body: &'a str, last: &str, next: &str) -> &'a str {
    let inner = match server {
        TestedServer::Chat(..) => r#""}]}"#,
        TestedServer::Messages(_) => "]}]}",
    };
    let kept = match (last, next) {
        (_, "assistant") => body.strip_suffix("]}"),
        ("assistant", "user") => body.rfind(r#",{"role":"user""#).map(|at| &body[..at]),
        _ => body.strip_suffix(inner),
    };
    kept.expect("it ends as the body of its wire does")
}
