//! A conversation in the form that every server of a wire accepts: no empty message, alternating
//! roles, valid ids.
//!
//! A history may have two user messages in a row (an empty reply stood between them), an assistant
//! message at its end (a cut reply), or an assistant message with nothing but thinking. Strict
//! servers refuse the whole conversation for any of these, every time.

use super::normal::{self, EncodeError, Message, Part, Role};
use super::origin::{CallIds, CallOrigin};
use crate::models::Request;
use std::collections::HashMap;

/// Text of the user message that is inserted where the assistant must continue its own message, and
/// where a conversation begins with the assistant.
pub(in crate::models) const CONTINUE: &str = "Continue.";

/// One message. The next one has another role.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) enum Turn {
    /// Texts of the user, none of them blank.
    User(Vec<String>),
    /// Blocks of the assistant, at least one of them a text or a call.
    Assistant(Vec<AssistantPart>),
    /// Results of the preceding calls.
    Results(Vec<CallResult>),
}

/// A block of the assistant.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) enum AssistantPart {
    /// A text that is not blank.
    Text(String),
    /// Thinking, with the provider's own JSON.
    Thinking { text: String, raw: Option<String> },
    /// A call of a tool.
    Call {
        /// The id that is sent to the server.
        id: String,
        /// The name, limited to characters that a tool's name may have.
        name: String,
        /// A JSON object.
        arguments: String,
        /// Fields that its provider sent with it.
        origin: Option<CallOrigin>,
    },
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) struct CallResult {
    /// The id that is sent to the server.
    pub id: String,
    /// The tool's output; it may be empty.
    pub text: String,
    /// True if the call failed.
    pub failed: bool,
}

/// Converts the conversation of a request.
pub(in crate::models) fn turns(
    request: &Request,
    mut ids: CallIds<'_>,
) -> Result<Vec<Turn>, EncodeError> {
    let mut turns: Vec<Turn> = Vec::with_capacity(request.messages.len() + 1);
    let mut sent = HashMap::new();
    for (index, text) in request.messages.iter().enumerate() {
        let message = normal::message(index, text)?;
        let turn = turn(message, &mut ids, &mut sent).ok_or(EncodeError::Misplaced(index))?;
        if let Some(turn) = turn {
            push(&mut turns, turn);
        }
    }
    if let Some(Turn::Assistant(_)) = turns.last() {
        turns.push(continued());
    }
    Ok(turns)
}

fn continued() -> Turn {
    Turn::User(vec![CONTINUE.to_owned()])
}

/// Appends a message: merged into the last one if that has the same role, after an inserted user
/// message if two of the assistant would meet.
fn push(turns: &mut Vec<Turn>, next: Turn) {
    match (turns.last_mut(), next) {
        (Some(Turn::User(texts)), Turn::User(more)) => texts.extend(more),
        (Some(Turn::Results(results)), Turn::Results(more)) => results.extend(more),
        (None | Some(Turn::Assistant(_)), next @ Turn::Assistant(_)) => {
            turns.extend([continued(), next]);
        }
        (_, next) => turns.push(next),
    }
}

/// Converts one message. The outer `None` means that a block does not fit the role, the inner
/// `None` that nothing of the message is left.
fn turn(
    message: Message,
    ids: &mut CallIds<'_>,
    sent: &mut HashMap<String, String>,
) -> Option<Option<Turn>> {
    let parts = message.content;
    Some(match message.role {
        Role::User => {
            let texts = parts.into_iter().map(|part| match part {
                Part::Text { text } => Some(text),
                _ => None,
            });
            let mut texts: Vec<String> = texts.collect::<Option<_>>()?;
            texts.retain(|text| !text.trim().is_empty());
            (!texts.is_empty()).then_some(Turn::User(texts))
        }
        Role::Assistant => {
            let mut kept = Vec::with_capacity(parts.len());
            for part in parts {
                kept.extend(assistant_part(part, ids, sent)?);
            }
            let says = |part: &AssistantPart| !matches!(part, AssistantPart::Thinking { .. });
            kept.iter().any(says).then_some(Turn::Assistant(kept))
        }
        Role::Tool => {
            let mut results = Vec::with_capacity(parts.len());
            for part in parts {
                let Part::ToolResult { id, text, failed } = part else {
                    return None;
                };
                // Every server would refuse the conversation for a result without its call.
                if let Some(id) = sent.get(&id).cloned() {
                    results.push(CallResult { id, text, failed });
                }
            }
            (!results.is_empty()).then_some(Turn::Results(results))
        }
    })
}

fn assistant_part(
    part: Part,
    ids: &mut CallIds<'_>,
    sent: &mut HashMap<String, String>,
) -> Option<Option<AssistantPart>> {
    Some(match part {
        Part::Text { text } => (!text.trim().is_empty()).then_some(AssistantPart::Text(text)),
        Part::Thinking { text, raw } => Some(AssistantPart::Thinking { text, raw }),
        Part::ToolUse {
            id: ours,
            name,
            arguments,
            raw,
        } => {
            let origin = CallOrigin::read(raw.as_deref());
            let id = ids.choose(&ours, origin.as_ref());
            sent.insert(ours, id.clone());
            Some(AssistantPart::Call {
                id,
                name: normal::call_name(&name),
                arguments: normal::arguments(&arguments).to_owned(),
                origin,
            })
        }
        Part::ToolResult { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn roles(messages: &[serde_json::Value]) -> Vec<&'static str> {
        let request = Request {
            messages: messages.iter().map(ToString::to_string).collect(),
            ..Request::default()
        };
        let turns = turns(&request, CallIds::new("p", |_| true)).expect("it has a body");
        let role = |turn: &Turn| match turn {
            Turn::User(texts) if texts.as_slice() == [CONTINUE] => "continue",
            Turn::User(_) => "user",
            Turn::Assistant(_) => "assistant",
            Turn::Results(_) => "results",
        };
        turns.iter().map(role).collect()
    }

    #[test]
    fn roles_take_turns_whatever_the_history_holds() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "u"}]});
        let said = json!({"role": "assistant", "content": [{"type": "text", "text": "a"}]});
        let blank = json!({"role": "assistant", "content": [{"type": "text", "text": " \n"}]});
        let thought = json!({"role": "assistant", "content": [{"type": "thinking", "text": "t"}]});
        let call = json!({"role": "assistant", "content":
            [{"type": "tool_use", "id": "call_1_0", "name": "n", "arguments": "{}"}]});
        let result = json!({"role": "tool", "content":
            [{"type": "tool_result", "id": "call_1_0", "name": "n", "text": "", "failed": false}]});
        for (messages, want) in [
            (vec![&user, &said, &user], vec!["user", "assistant", "user"]),
            (vec![&user, &thought, &user], vec!["user"]),
            (vec![&user, &blank, &user], vec!["user"]),
            (vec![&user, &said], vec!["user", "assistant", "continue"]),
            (
                vec![&user, &said, &said, &user],
                vec!["user", "assistant", "continue", "assistant", "user"],
            ),
            (vec![&said, &user], vec!["continue", "assistant", "user"]),
            (
                vec![&user, &call, &result, &user],
                vec!["user", "assistant", "results", "user"],
            ),
            (
                vec![&user, &call, &result, &said, &user],
                vec!["user", "assistant", "results", "assistant", "user"],
            ),
        ] {
            let messages: Vec<_> = messages.into_iter().cloned().collect();
            assert_eq!(roles(&messages), want, "{messages:?}");
        }
    }
}
