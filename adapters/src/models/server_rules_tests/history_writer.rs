//! The conversion of random histories to messages in the normal form.
//!
//! Every text consists of a mark and a number of its own. The mark tells where the text may be
//! sent.

use super::histories::{
    CallFields, CallSource, IdShape, RandomCall, RandomHistory, RandomReply, ReplyPart,
    ResultShape, ThinkingSource,
};
use serde_json::{Value, json};

/// Name of the provider that the conversations are sent to.
pub(super) const PROVIDER: &str = "p";
/// Mark of everything that another provider sent for itself alone.
pub(super) const FOREIGN: &str = "other-";
/// Mark of thinking that this provider sent as `reasoning_content`.
pub(super) const OWN_THOUGHT: &str = "own-thought-";
/// Mark of thinking with a signature of Anthropic's.
pub(super) const SIGNED_THOUGHT: &str = "signed-thought-";
/// Mark of thinking that no server accepts back.
pub(super) const LOST_THOUGHT: &str = "lost-thought-";
/// Signature of calls that this provider made.
pub(super) const OWN_SIGNATURE: &str = "own-signature";

/// A conversation in the normal form.
#[derive(Debug, Default)]
pub(super) struct WrittenHistory {
    /// The messages.
    pub messages: Vec<Value>,
    /// Number of messages before each model call.
    pub call_points: Vec<usize>,
    words: u32,
    version: u64,
}

impl RandomHistory {
    /// Writes the conversation with ids and fields that this server may have sent.
    pub fn write(&self, server: &str) -> WrittenHistory {
        let mut written = WrittenHistory::default();
        written.add_users(&self.opening);
        written.call_points.push(written.messages.len());
        for reply in &self.replies {
            written.add_reply(reply, server);
            written.call_points.push(written.messages.len());
        }
        written
    }
}

impl WrittenHistory {
    fn word(&mut self, mark: &str) -> String {
        self.words += 1;
        format!("{mark}{}.", self.words)
    }

    fn add_users(&mut self, mail: &[usize]) {
        for texts in mail {
            let texts = (0..*texts).map(|_| json!({"type": "text", "text": self.word("user-")}));
            let content: Vec<Value> = texts.collect();
            self.messages
                .push(json!({"role": "user", "content": content}));
        }
    }

    fn add_reply(&mut self, reply: &RandomReply, server: &str) {
        self.version += reply.versions;
        let mut rounds = [const { Vec::new() }; 3];
        let mut blocks = Vec::new();
        let mut says_any = false;
        for (index, part) in reply.parts.iter().enumerate() {
            let block = match part {
                ReplyPart::Words => json!({"type": "text", "text": self.word("words-")}),
                ReplyPart::Blank(text) => json!({"type": "text", "text": text}),
                ReplyPart::Thinking(source) => self.thinking(*source),
                ReplyPart::Call(call) => {
                    let id = format!("call_{}_{index}", self.version);
                    rounds[call.round].push(self.result(&id, call));
                    call.block(&id, server)
                }
            };
            says_any |= block["text"] != "" && block["type"] == "text";
            blocks.push(block);
        }
        if !blocks.is_empty() {
            self.messages
                .push(json!({"role": "assistant", "content": blocks}));
        }
        let calls_none = rounds.iter().all(Vec::is_empty);
        let results = rounds.into_iter().filter(|round| !round.is_empty());
        let results = results.map(|round| json!({"role": "tool", "content": round}));
        self.messages.extend(results);
        self.add_users(&reply.mail);
        // After a run that ended with its reply comes the input of the next run.
        if calls_none && says_any && !reply.is_cut && reply.mail.is_empty() {
            self.add_users(&[1]);
        }
        self.version += 1;
    }

    fn thinking(&mut self, source: ThinkingSource) -> Value {
        let mark = match source {
            ThinkingSource::Own("reasoning_content", _) => OWN_THOUGHT,
            ThinkingSource::Other(..) => FOREIGN,
            ThinkingSource::Signed => SIGNED_THOUGHT,
            _ => LOST_THOUGHT,
        };
        let text = self.word(mark);
        let raw = match source {
            ThinkingSource::Own(field, details) => {
                let details = details.then_some("own-detail");
                thinking_origin(PROVIDER, field, details)
            }
            ThinkingSource::Other(field, details) => {
                let details = details.then_some("other-detail");
                thinking_origin("q", field, details)
            }
            ThinkingSource::Signed => signed_thinking(&text, "c2lnbmVk"),
            ThinkingSource::Unsigned => signed_thinking(&text, ""),
            ThinkingSource::Redacted => r#"{"type":"redacted_thinking","data":"AAEC"}"#.to_owned(),
            ThinkingSource::Broken => "{".to_owned(),
            ThinkingSource::Bare => return json!({"type": "thinking", "text": text}),
        };
        json!({"type": "thinking", "text": text, "raw": raw})
    }

    fn result(&mut self, id: &str, call: &RandomCall) -> Value {
        let text = match call.result {
            ResultShape::Completed | ResultShape::Failed => self.word("result-"),
            ResultShape::Silent(text) => text.to_owned(),
            ResultShape::Interrupted => "interrupted: nobody knows whether this call ran".into(),
        };
        let failed = matches!(call.result, ResultShape::Failed | ResultShape::Interrupted);
        json!({"type": "tool_result", "id": id, "name": call.name, "text": text, "failed": failed})
    }
}

fn thinking_origin(provider: &str, field: &str, detail: Option<&str>) -> String {
    let mut raw = json!({"provider": provider, "field": field});
    if let Some(detail) = detail {
        raw["details"] = json!([{"type": "reasoning.text", "text": detail}]);
    }
    raw.to_string()
}

fn signed_thinking(text: &str, signature: &str) -> String {
    json!({"type": "thinking", "thinking": text, "signature": signature}).to_string()
}

impl RandomCall {
    fn block(&self, id: &str, server: &str) -> Value {
        let mut block = json!({"type": "tool_use", "id": id, "name": self.name,
            "arguments": self.arguments});
        let raw = match self.source {
            CallSource::Bare => return block,
            CallSource::Broken => "{".to_owned(),
            CallSource::Own(id, fields) => {
                let fields = match server {
                    "generic" | "gemini" => fields,
                    _ => CallFields::None,
                };
                call_origin(PROVIDER, &id.written_by(server), fields, OWN_SIGNATURE)
            }
            CallSource::Other(id, fields) => {
                call_origin("q", &id.written_by("generic"), fields, "other-signature")
            }
        };
        block["raw"] = raw.into();
        block
    }
}

fn call_origin(provider: &str, id: &str, fields: CallFields, signature: &str) -> String {
    let mut raw = json!({"provider": provider, "id": id});
    match fields {
        CallFields::None => {}
        CallFields::Google => {
            raw["extra_content"] = json!({"google": {"thought_signature": signature}});
        }
        CallFields::Gateway => {
            raw["provider_specific_fields"] = json!({"thought_signature": signature});
        }
    }
    raw.to_string()
}

impl IdShape {
    /// Returns an id of this form, or in the server's own form for the ids that it generates.
    fn written_by(self, server: &str) -> String {
        match (self, server) {
            (Self::Empty, _) => String::new(),
            (Self::Plain(n) | Self::Kimi(n), "mistral") => format!("D681PevK{n}"),
            (_, "mistral") => "VvvODy9mT".to_owned(),
            (Self::Long, "openai" | "azure") => "call_".to_owned() + &"x".repeat(24),
            (Self::Long, _) => "x".repeat(65),
            (Self::Plain(n), _) => format!("call_own{n}"),
            (Self::Kimi(n), _) => format!("functions.read_file:{n}"),
            (Self::Blank, _) => "an id\n".to_owned(),
            (Self::Accented, _) => "id-é".to_owned(),
        }
    }
}
