//! The request body, made from the normal form.
//!
//! Fields stand in a fixed order and `messages` is last, each message encoded by itself. So the same request is the
//! same bytes, and the body of one turn, up to its closing brackets, is a prefix of the next turn's.
//!
//! What the wire cannot say:
//!
//! - Thinking is left out, unless [`Dialect::return_thinking`] asks for it (some servers insist on it between a call
//!   and its result).
//! - Arguments travel as the text that the model wrote, or as `{}` where that is no JSON object.
//! - A failed result has no mark of its own; its text says so.

use crate::models::http::normal::{self, EncodeError, Message, Part, Role};
use crate::models::{Request, ToolSpec};
use serde::Serialize;
use serde_json::value::Value;

/// How the servers of one wire differ.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dialect {
    /// Name the output maximum `max_completion_tokens` instead of `max_tokens`.
    pub max_completion_tokens: bool,
    /// Send thinking back as `reasoning_content`.
    pub return_thinking: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    messages: Vec<WireMessage>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
}

#[derive(Serialize)]
struct WireMessage {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall>,
}

impl WireMessage {
    fn text(role: &'static str, content: String) -> Self {
        Self {
            role,
            tool_call_id: None,
            content: Some(content),
            reasoning_content: None,
            tool_calls: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct WireCall {
    id: String,
    r#type: &'static str,
    function: WireCalled,
}

#[derive(Serialize)]
struct WireCalled {
    name: String,
    arguments: String,
}

/// The body of a request.
pub(super) fn encode(request: &Request, dialect: Dialect) -> Result<Vec<u8>, EncodeError> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(WireMessage::text("system", request.system.clone()));
    }
    for (index, text) in request.messages.iter().enumerate() {
        let message = normal::message(index, text)?;
        add_message(&mut messages, message, dialect).ok_or(EncodeError::Misplaced(index))?;
    }
    let (old, new) = if dialect.max_completion_tokens {
        (None, Some(request.output_max))
    } else {
        (Some(request.output_max), None)
    };
    let body = Body {
        model: &request.model,
        max_tokens: old,
        max_completion_tokens: new,
        stream: true,
        stream_options: StreamOptions {
            include_usage: true,
        },
        tools: request
            .tools
            .iter()
            .map(encode_tool)
            .collect::<Result<_, _>>()?,
        messages,
    };
    // Strings and trees of strings always have a JSON form; a failure here could only mean that one is too large.
    normal::bounded(serde_json::to_vec(&body).map_err(|_| EncodeError::TooLarge)?)
}

fn encode_tool(tool: &ToolSpec) -> Result<WireTool<'_>, EncodeError> {
    let parameters =
        serde_json::from_str(&tool.schema).map_err(|_| EncodeError::Schema(tool.name.clone()))?;
    let function = WireFunction {
        name: &tool.name,
        description: &tool.description,
        parameters,
    };
    Ok(WireTool {
        r#type: "function",
        function,
    })
}

/// None if a block does not belong into a message of its role.
fn add_message(messages: &mut Vec<WireMessage>, message: Message, dialect: Dialect) -> Option<()> {
    match message.role {
        Role::User => messages.push(user(message.content)?),
        Role::Assistant => messages.push(assistant(message.content, dialect)?),
        Role::Tool => {
            for part in message.content {
                let Part::ToolResult { id, text, .. } = part else {
                    return None;
                };
                messages.push(WireMessage {
                    tool_call_id: Some(id),
                    ..WireMessage::text("tool", text)
                });
            }
        }
    }
    Some(())
}

/// Several texts become one, a blank line between them: not every server takes a list.
fn user(parts: Vec<Part>) -> Option<WireMessage> {
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        let Part::Text { text } = part else {
            return None;
        };
        texts.push(text);
    }
    Some(WireMessage::text("user", texts.join("\n\n")))
}

/// The texts of a reply were one text before they were blocks, so they are joined without anything between.
fn assistant(parts: Vec<Part>, dialect: Dialect) -> Option<WireMessage> {
    let (mut content, mut thinking, mut tool_calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text { text } => content.push_str(&text),
            Part::Thinking { text, .. } => thinking.push_str(&text),
            Part::ToolUse {
                id,
                name,
                arguments,
            } => {
                let arguments = normal::arguments(&arguments).to_owned();
                tool_calls.push(WireCall {
                    id,
                    r#type: "function",
                    function: WireCalled {
                        name: normal::call_name(&name),
                        arguments,
                    },
                });
            }
            Part::ToolResult { .. } => return None,
        }
    }
    let content = if content.is_empty() && !tool_calls.is_empty() {
        None
    } else {
        Some(content)
    };
    let reasoning_content = (dialect.return_thinking && !thinking.is_empty()).then_some(thinking);
    Some(WireMessage {
        role: "assistant",
        tool_call_id: None,
        content,
        reasoning_content,
        tool_calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use normal::REQUEST_BYTES_MAX;

    fn request(messages: &[&str]) -> Request {
        Request {
            model: "m-1".into(),
            system: "Be brief.".into(),
            tools: Vec::new(),
            messages: messages.iter().map(|text| (*text).to_owned()).collect(),
            output_max: 100,
            session: None,
        }
    }

    fn body(request: &Request) -> String {
        String::from_utf8(encode(request, Dialect::default()).unwrap()).unwrap()
    }

    const USER: &str =
        r#"{"role":"user","content":[{"type":"text","text":"Grüße"},{"type":"text","text":"2"}]}"#;
    const CALLS: &str = r#"{"role":"assistant","content":[{"type":"thinking","text":"hm","raw":"{\"n\":1.50}"},
        {"type":"text","text":"I "},{"type":"text","text":"look."},
        {"type":"tool_use","id":"call_3_0","name":"read","arguments":"{ \"path\": \"a\",\"n\":1.0 }"},
        {"type":"tool_use","id":"call_3_1","name":"read","arguments":"{\"path\": "}]}"#;
    const RESULTS: &str = r#"{"role":"tool","content":[
        {"type":"tool_result","id":"call_3_0","name":"read","text":"x","failed":false},
        {"type":"tool_result","id":"call_3_1","name":"read","text":"broken","failed":true}]}"#;

    #[test]
    fn a_conversation_on_the_wire() {
        let mut request = request(&[USER, CALLS, RESULTS]);
        request.tools = vec![ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: r#"{"type": "object", "b": 1.0, "a": 12345678901234567890123}"#.into(),
        }];
        let want = concat!(
            r#"{"model":"m-1","max_tokens":100,"stream":true,"stream_options":{"include_usage":true},"#,
            r#""tools":[{"type":"function","function":{"name":"read","description":"Reads.","#,
            r#""parameters":{"type":"object","b":1.0,"a":12345678901234567890123}}}],"messages":["#,
            r#"{"role":"system","content":"Be brief."},"#,
            r#"{"role":"user","content":"Grüße\n\n2"},"#,
            r#"{"role":"assistant","content":"I look.","tool_calls":["#,
            r#"{"id":"call_3_0","type":"function","function":{"name":"read","#,
            r#""arguments":"{ \"path\": \"a\",\"n\":1.0 }"}},"#,
            r#"{"id":"call_3_1","type":"function","function":{"name":"read","arguments":"{}"}}]},"#,
            r#"{"role":"tool","tool_call_id":"call_3_0","content":"x"},"#,
            r#"{"role":"tool","tool_call_id":"call_3_1","content":"broken"}]}"#,
        );
        assert_eq!(body(&request), want);
    }

    #[test]
    fn each_body_is_a_prefix_of_the_next() {
        let all = [USER, CALLS, RESULTS, USER];
        for n in 1..all.len() {
            let before = body(&request(&all[..n]));
            let after = body(&request(&all[..=n]));
            let prefix = before.strip_suffix("]}").unwrap();
            assert!(
                after.starts_with(prefix),
                "the body changed before message {n}"
            );
            assert_eq!(
                after,
                body(&request(&all[..=n])),
                "the same request, other bytes"
            );
        }
    }

    #[test]
    fn dialects() {
        let calls = r#"{"role":"assistant","content":[{"type":"thinking","text":"hm"},
            {"type":"tool_use","id":"c","name":"n","arguments":"{}"}]}"#;
        let dialect = Dialect {
            max_completion_tokens: true,
            return_thinking: true,
        };
        let text = String::from_utf8(encode(&request(&[calls]), dialect).unwrap()).unwrap();
        assert!(
            text.starts_with(r#"{"model":"m-1","max_completion_tokens":100,"stream""#),
            "{text}"
        );
        assert!(
            text.contains(r#""content":null,"reasoning_content":"hm","tool_calls""#),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_in_the_normal_form_is_refused() {
        let result = r#"{"type":"tool_result","id":"c","name":"n","text":"x","failed":false}"#;
        let text = r#"{"type":"text","text":"x"}"#;
        let one = |role: &str, block: &str| format!(r#"{{"role":"{role}","content":[{block}]}}"#);
        for (message, want) in [
            ("{".to_owned(), EncodeError::Message(1)),
            (one("system", text), EncodeError::Message(1)),
            (
                one("user", r#"{"type":"video","url":"x"}"#),
                EncodeError::Message(1),
            ),
            (one("user", result), EncodeError::Misplaced(1)),
            (one("assistant", result), EncodeError::Misplaced(1)),
            (one("tool", text), EncodeError::Misplaced(1)),
            (
                one(
                    "user",
                    &text.replace(r#""x""#, &format!("{:?}", "x".repeat(REQUEST_BYTES_MAX))),
                ),
                EncodeError::TooLarge,
            ),
        ] {
            let got = encode(&request(&[USER, &message]), Dialect::default());
            assert_eq!(got, Err(want), "{}", &message[..message.len().min(80)]);
        }
        let mut request = request(&[USER]);
        request.tools = vec![ToolSpec {
            name: "t".into(),
            description: String::new(),
            schema: "{".into(),
        }];
        assert_eq!(
            encode(&request, Dialect::default()),
            Err(EncodeError::Schema("t".into()))
        );
    }
}
