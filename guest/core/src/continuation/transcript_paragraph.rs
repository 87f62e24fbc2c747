//! Paragraphs of a transcript: how a model that writes a summary is shown messages, calls and
//! results. A text cannot leave its paragraph, because each of its lines is quoted.

use super::content_size::ContentSize;
use crate::error::cut;
use crate::history::{Event, MessageRole, call_id, provider_role};
use crate::json;
use std::borrow::Cow;

/// Most bytes that are shown of the arguments of a call.
const ARGUMENTS_SHOWN_BYTES_MAX: usize = 2 << 10;
/// Most bytes that are shown of a result.
pub(super) const RESULT_SHOWN_BYTES_MAX: usize = 4 << 10;

/// Returns true if the program alone wrote the messages of an entry: at the beginning of a path
/// they stand for what an earlier hand-off left out.
pub fn is_injected_context(events: &[Event]) -> bool {
    let mut sent = events.iter().filter(|event| provider_role(event).is_some());
    let is_injected = |event: &Event| matches!(event, Event::ContextInjected(_));
    sent.next().is_some_and(is_injected) && sent.all(is_injected)
}

/// Returns the size of what a transcript shows of an entry.
pub(super) fn transcript_size(version: u64, events: &[Event]) -> ContentSize {
    let paragraphs = paragraphs(version, events);
    let sizes = paragraphs
        .iter()
        .map(|paragraph| written_size(&paragraph.render(usize::MAX)));
    sizes.fold(ContentSize::default(), ContentSize::plus)
}

/// Returns the size of a text as a part of a message, which is JSON text.
pub(super) fn written_size(text: &str) -> ContentSize {
    match text {
        "" => ContentSize::default(),
        text => ContentSize::of(&json::to_text(text)),
    }
}

/// A message, a call or a result.
pub(super) struct TranscriptParagraph<'a> {
    heading: String,
    body: Cow<'a, str>,
    /// Most bytes of the body that are shown.
    most: usize,
}

impl TranscriptParagraph<'_> {
    /// Writes it with at most so many bytes of the body.
    pub(super) fn render(&self, bytes: usize) -> String {
        let shown = cut(&self.body, bytes.min(self.most));
        let mut text = format!("[{}", self.heading);
        if shown.len() < self.body.len() {
            let (shown, all) = (shown.len(), self.body.len());
            text.push_str(&format!(", the first {shown} of {all} bytes"));
        }
        text.push_str("]\n");
        // Whatever a reader may take for the end of a line ends one here.
        let is_end = |c| {
            matches!(
                c,
                '\n' | '\u{b}'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}'
            )
        };
        for line in shown.split(is_end) {
            text.push_str("> ");
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Writes as much of it as fits; nothing if not even its heading does.
    pub(super) fn cut_to(&self, room: ContentSize) -> String {
        let (mut fitting, mut most) = (0, self.body.len());
        while fitting < most {
            let middle = fitting + (most - fitting).div_ceil(2);
            match written_size(&self.render(middle)).fits(room) {
                true => fitting = middle,
                false => most = middle - 1,
            }
        }
        let text = self.render(fitting);
        match written_size(&text).fits(room) {
            true => text,
            false => String::new(),
        }
    }
}

/// Returns the paragraphs of an entry, in order.
pub(super) fn paragraphs(version: u64, events: &[Event]) -> Vec<TranscriptParagraph<'_>> {
    let events = (0_u32..).zip(events);
    events
        .filter_map(|(index, event)| paragraph(version, index, event))
        .collect()
}

fn paragraph(version: u64, index: u32, event: &Event) -> Option<TranscriptParagraph<'_>> {
    let whole = usize::MAX;
    let (heading, body, most) = match event {
        _ if provider_role(event).is_none() => return None,
        Event::Message(message) => {
            let heading = match message.role {
                MessageRole::User => "user",
                MessageRole::Assistant => "assistant",
            };
            (heading.to_owned(), message.joined_text().into(), whole)
        }
        // The program's own answer to the context tells nothing.
        Event::ContextInjected(context) if context.role == MessageRole::Assistant => return None,
        Event::ContextInjected(context) => {
            ("background".to_owned(), context.text.as_str().into(), whole)
        }
        Event::AssistantText(said) => ("assistant".to_owned(), said.text.as_str().into(), whole),
        Event::ToolUse(call) => {
            let (name, id) = (json::to_text(&call.name), call_id(version, index));
            let heading = format!("call of the tool {name}, {id}");
            (
                heading,
                call.arguments.as_str().into(),
                ARGUMENTS_SHOWN_BYTES_MAX,
            )
        }
        Event::ToolResult(result) => {
            let name = json::to_text(&result.name);
            let id = call_id(result.version, result.index);
            let how = if result.failed {
                "failed"
            } else {
                "result of the tool"
            };
            let heading = format!("{how} {name}, {id}");
            (heading, result.show_with_blobs(), RESULT_SHOWN_BYTES_MAX)
        }
        _ => return None,
    };
    Some(TranscriptParagraph {
        heading,
        body,
        most,
    })
}
