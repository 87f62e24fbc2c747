//! A conversation in the form that every server of a wire accepts: no empty message, alternating
//! roles, valid ids.
//!
//! A history may have two user messages in a row (an empty reply stood between them), an assistant
//! message at its end (a cut reply), or an assistant message with nothing but thinking. Strict
//! servers refuse the whole conversation for any of these, every time.
//!
//! It is mended in the same way for every server. A message of the assistant stands between a
//! result and a user's message unless the dialect lets them meet: templates of local models refuse
//! the pair, and no server refuses the message.

use super::normal_form::{self, EncodeError, ImagePart, MessageRole, NormalMessage, NormalPart};
use super::origin::{CallIds, CallOrigin};
use crate::models::{CompletionRequest, RequestImage, RequestImages};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Text of the user message that is inserted where the assistant must continue its own message, and
/// where a conversation begins with the assistant.
pub(in crate::models) const CONTINUE: &str = "Continue.";

/// One message. The next one has another role.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) enum SentMessage {
    /// Texts of the user, none of them blank, and images.
    User(Vec<UserPart>),
    /// Blocks of the assistant, at least one of them a text or a call.
    Assistant(Vec<AssistantPart>),
    /// Results of the preceding calls.
    Results(Vec<CallResult>),
}

/// A block of the user.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) enum UserPart {
    /// A text that is not blank.
    Text(String),
    /// An image.
    Image(SentImage),
}

/// An image with its bytes.
#[derive(Clone, PartialEq)]
pub(in crate::models) struct SentImage {
    /// Its media type.
    pub media: &'static str,
    /// Its bytes as Base64.
    pub base64: Arc<str>,
}

impl fmt::Debug for SentImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentImage({}, {} bytes)", self.media, self.base64.len())
    }
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
    /// Its images.
    pub images: Vec<SentImage>,
}

/// Converts the conversation of a request.
pub(in crate::models) fn sent_messages(
    request: &CompletionRequest,
    mut ids: CallIds<'_>,
) -> Result<Vec<SentMessage>, EncodeError> {
    let mut turns: Vec<SentMessage> = Vec::with_capacity(request.messages.len() + 1);
    let mut sent = HashMap::new();
    let mut images = PlacedImages::new(&request.images);
    for (index, text) in request.messages.iter().enumerate() {
        let message = normal_form::parse_message(index, text)?;
        let turn = to_sent_message(message, &mut images, (&mut ids, &mut sent))
            .ok_or(EncodeError::Misplaced(index))?;
        if let Some(turn) = turn {
            push_message(&mut turns, turn);
        }
    }
    if let Some(SentMessage::Assistant(_)) = turns.last() {
        turns.push(continue_message());
    }
    Ok(turns)
}

fn continue_message() -> SentMessage {
    SentMessage::User(vec![UserPart::Text(CONTINUE.to_owned())])
}

/// Appends a message: merged into the last one if that has the same role, after an inserted user
/// message if two of the assistant would meet.
fn push_message(turns: &mut Vec<SentMessage>, next: SentMessage) {
    match (turns.last_mut(), next) {
        (Some(SentMessage::User(texts)), SentMessage::User(more)) => texts.extend(more),
        (Some(SentMessage::Results(results)), SentMessage::Results(more)) => results.extend(more),
        (None | Some(SentMessage::Assistant(_)), next @ SentMessage::Assistant(_)) => {
            turns.extend([continue_message(), next]);
        }
        (_, next) => turns.push(next),
    }
}

/// Converts one message. The outer `None` means that a block does not fit the role, the inner
/// `None` that nothing of the message is left.
fn to_sent_message(
    message: NormalMessage,
    images: &mut PlacedImages<'_>,
    (ids, sent): (&mut CallIds<'_>, &mut HashMap<String, String>),
) -> Option<Option<SentMessage>> {
    let parts = message.content;
    Some(match message.role {
        MessageRole::User => {
            let parts = parts.into_iter().map(|part| match part {
                NormalPart::Text { text } => Some(UserPart::Text(text)),
                NormalPart::Image(part) => Some(match images.take_next(&part) {
                    Ok(image) => UserPart::Image(image),
                    Err(text) => UserPart::Text(text),
                }),
                _ => None,
            });
            let mut kept: Vec<UserPart> = parts.collect::<Option<_>>()?;
            let is_blank =
                |part: &UserPart| matches!(part, UserPart::Text(text) if text.trim().is_empty());
            kept.retain(|part| !is_blank(part));
            (!kept.is_empty()).then_some(SentMessage::User(kept))
        }
        MessageRole::Assistant => {
            let mut kept = Vec::with_capacity(parts.len());
            for part in parts {
                kept.extend(to_assistant_part(part, ids, sent)?);
            }
            let says = |part: &AssistantPart| !matches!(part, AssistantPart::Thinking { .. });
            kept.iter()
                .any(says)
                .then_some(SentMessage::Assistant(kept))
        }
        MessageRole::Tool => {
            let mut results = Vec::with_capacity(parts.len());
            for part in parts {
                let NormalPart::ToolResult {
                    id,
                    text,
                    failed,
                    images: named,
                } = part
                else {
                    return None;
                };
                let call = sent.get(&id).cloned();
                let result = CallResult {
                    id: call.clone().unwrap_or_default(),
                    text,
                    failed,
                    images: Vec::new(),
                };
                let result = add_images(result, images, &named);
                // Every server would refuse the conversation for a result without its call.
                results.extend(call.map(|_| result));
            }
            (!results.is_empty()).then_some(SentMessage::Results(results))
        }
    })
}

/// The images of a request, taken place by place from the oldest on.
struct PlacedImages<'a> {
    images: &'a RequestImages,
    /// The number of places that were passed, by hash.
    passed: HashMap<String, u64>,
}

impl<'a> PlacedImages<'a> {
    fn new(images: &'a RequestImages) -> Self {
        Self {
            images,
            passed: HashMap::new(),
        }
    }

    /// Returns the image that the next part names, or the text in its place.
    fn take_next(&mut self, part: &ImagePart) -> Result<SentImage, String> {
        let passed = self.passed.entry(part.blob.clone()).or_default();
        let place = *passed;
        *passed += 1;
        match self.images.get_place(&part.blob, place) {
            Some(RequestImage::Sent { media, base64 }) => Ok(SentImage {
                media,
                base64: Arc::clone(base64),
            }),
            Some(RequestImage::LeftOut(text)) => Err(text.clone()),
            None => Err("[image that is not there]".to_owned()),
        }
    }
}

/// Adds the images of a result to it, or lines in their place to its text.
fn add_images(
    mut result: CallResult,
    images: &mut PlacedImages<'_>,
    named: &[ImagePart],
) -> CallResult {
    for part in named {
        match images.take_next(part) {
            Ok(image) => result.images.push(image),
            Err(text) => {
                let before = if result.text.is_empty() { "" } else { "\n" };
                result.text.push_str(before);
                result.text.push_str(&text);
            }
        }
    }
    result
}

fn to_assistant_part(
    part: NormalPart,
    ids: &mut CallIds<'_>,
    sent: &mut HashMap<String, String>,
) -> Option<Option<AssistantPart>> {
    Some(match part {
        NormalPart::Text { text } => (!text.trim().is_empty()).then_some(AssistantPart::Text(text)),
        NormalPart::Thinking { text, raw } => Some(AssistantPart::Thinking { text, raw }),
        NormalPart::ToolUse {
            id: ours,
            name,
            arguments,
            raw,
        } => {
            let origin = CallOrigin::read(raw.as_deref());
            let id = ids.choose_id(&ours, origin.as_ref());
            sent.insert(ours, id.clone());
            Some(AssistantPart::Call {
                id,
                name: normal_form::sendable_name(&name),
                arguments: normal_form::sendable_arguments(&arguments).to_owned(),
                origin,
            })
        }
        NormalPart::ToolResult { .. } | NormalPart::Image(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn roles(messages: &[serde_json::Value]) -> Vec<&'static str> {
        let request = CompletionRequest {
            messages: messages.iter().map(ToString::to_string).collect(),
            ..CompletionRequest::default()
        };
        let turns = sent_messages(&request, CallIds::new("p", |_| true)).expect("it has a body");
        let role = |turn: &SentMessage| match turn {
            SentMessage::User(parts) if *parts == [UserPart::Text(CONTINUE.to_owned())] => {
                "continue"
            }
            SentMessage::User(_) => "user",
            SentMessage::Assistant(_) => "assistant",
            SentMessage::Results(_) => "results",
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
