//! `transcript.md`: a history as a person reads it.
//!
//! Text of users, models and tools is shown in blocks that it cannot close. A fence is always
//! longer than any run of backticks inside it, and quoted text is quoted line by line, whatever
//! ends its lines. ASCII control characters are shown as their Unicode pictures and other hidden
//! characters ([`threadkeep_units::printable`]) by their number. So no terminal or viewer obeys
//! them, and the file stays text.
//!
//! The part of each entry ends with a comment with its version and its length. A program that
//! continues the file knows from its end alone which version it reaches. An entry that shows
//! nothing adds nothing.

use crate::history::{
    ChargedEvent, ConsentAsked, ContextInjected, ContextLimitReached, DecisionEvent, Entry,
    ErrorEvent, Event, MessageRole, ResultEvent, ThreadHandoff, ThreadResumed, ToolResult,
    UsageCorrected, call_id,
};
use crate::json;
use crate::thread::{DecisionVerdict, StatusCause, ThreadRecord};
use std::fmt::Write;
use threadkeep_units::printable::{is_hidden_control, push_visible};

/// Most characters of one tool result or note that the transcript shows. The history holds all.
const RESULT_CHARS_MAX: usize = 4_000;

/// Returns the note with which the transcript of a thread opens: the thread that it continues, or
/// was forked from; nothing for one that begins by itself.
pub fn markdown_opening(thread: &ThreadRecord) -> String {
    let mut text = String::new();
    if let Some(previous) = &thread.previous {
        push_note(&mut text, &format!("continues {}", escape_inline(previous)));
    } else if let Some(origin) = &thread.fork {
        let (from, version) = (escape_inline(&origin.thread), origin.version);
        push_note(
            &mut text,
            &format!("forked from {from} at version {version}"),
        );
    }
    text
}

/// Renders the part of the transcript that an entry adds, closed by `<!-- version 12, 345 bytes
/// -->`: its version, and the bytes of the part before the comment. `opening` is what stands before
/// the first entry of the path.
pub fn markdown(entry: &Entry, opening: &str) -> String {
    let mut text = opening.to_owned();
    for event in &entry.events {
        push_event(&mut text, entry, event);
    }
    if !text.is_empty() {
        let bytes = text.len();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<!-- version {}, {bytes} bytes -->\n\n",
            entry.version
        );
    }
    text
}

fn push_event(out: &mut String, entry: &Entry, event: &Event) {
    let time = entry.time.rfc3339();
    match event {
        Event::Message(message) => {
            let who = match message.role {
                MessageRole::User => "User",
                MessageRole::Assistant if message.synthetic => "System",
                MessageRole::Assistant => "Assistant",
            };
            push_section(out, who, &time, &quote_text(&message.joined_text()));
        }
        Event::AssistantText(said) => {
            push_section(out, "Assistant", &time, &quote_text(&said.text))
        }
        Event::Thinking(thought) => {
            push_section(out, "Thinking", &time, &quote_text(&thought.text))
        }
        Event::ToolUse(call) => push_section(
            out,
            &format!("Tool call: {}", escape_inline(&call.name)),
            &time,
            &fence_text(&call.arguments, "json"),
        ),
        Event::ToolResult(result) => push_tool_result(out, &time, result),
        Event::Partial(partial) => push_section(
            out,
            match partial.summary {
                true => "Partial summary (never finished)",
                false => "Partial reply (never finished)",
            },
            &time,
            &quote_text(&partial.text),
        ),
        Event::Result(result) => push_note(out, &result_text(result)),
        Event::Suspended(suspended) => push_note(out, &suspension_text(&suspended.cause)),
        Event::Resumed(resumed) => push_note(
            out,
            &format!("resumed (was {})", escape_inline(&resumed.code)),
        ),
        Event::Error(error) => push_note(out, &error_text(error)),
        Event::Cancelled(cancelled) => {
            push_note(out, &format!("ended by {}", escape_inline(&cancelled.by)))
        }
        Event::Charged(charge) => push_note(out, &charge_text(charge)),
        Event::UsageCorrected(told) => push_note(out, &correction_text(told)),
        Event::Raised(_) => push_note(out, "caps raised"),
        Event::Decision(decision) => push_note(out, &decision_text(decision)),
        Event::ConsentAsked(asked) => push_question(out, &time, asked),
        Event::Title(title) => {
            let title = title.title.as_deref().unwrap_or("none");
            push_note(out, &format!("title: {}", escape_inline(title)));
        }
        Event::Note(note) => push_section(
            out,
            &format!("Note: {}", escape_inline(&note.name)),
            &time,
            &fence_beginning(&json::to_text(&note.body), "json"),
        ),
        Event::ContextInjected(injected) => push_injected(out, &time, injected),
        Event::ContextLimitReached(reached) => push_note(out, &limit_text(reached)),
        Event::ThreadHandoff(handoff) => push_note(out, &handoff_text(handoff)),
        Event::ThreadResumed(resumed) => push_note(out, &resumption_text(resumed)),
        Event::Other(_) => push_note(out, &format!("event {}", escape_inline(event.kind()))),
    }
}

fn push_injected(out: &mut String, time: &str, injected: &ContextInjected) {
    let sender = match injected.role {
        MessageRole::User => "Context (sent as the user)",
        MessageRole::Assistant => "Context (sent as the assistant)",
    };
    push_section(out, sender, time, &quote_text(&injected.text));
}

fn suspension_text(cause: &StatusCause) -> String {
    let (code, message) = (escape_inline(&cause.code), escape_inline(&cause.message));
    format!("suspended ({code}): {message}")
}

fn push_question(out: &mut String, time: &str, asked: &ConsentAsked) {
    let title = format!("{} asks for consent", escape_inline(&asked.name));
    push_section(out, &title, time, &quote_text(&asked.text));
}

fn decision_text(event: &DecisionEvent) -> String {
    let decided = match event.decision {
        DecisionVerdict::Approve => "approved",
        DecisionVerdict::Deny => "denied",
        DecisionVerdict::Answer => "answered",
    };
    let call = call_id(event.version, event.index);
    match &event.note {
        Some(note) => format!("{call} {decided}: {}", escape_inline(note)),
        None => format!("{call} {decided}"),
    }
}

fn limit_text(reached: &ContextLimitReached) -> String {
    let (used, limit) = (reached.tokens_used, reached.tokens_limit);
    format!("the context is nearly full: {used} of {limit} tokens")
}

fn handoff_text(handoff: &ThreadHandoff) -> String {
    let summary = match (handoff.summary_generated, &handoff.summary_problem) {
        (true, _) => format!("a summary of {} tokens", handoff.summary_tokens),
        (false, Some(problem)) => format!("no summary: {}", escape_inline(problem)),
        (false, None) => "no summary".to_owned(),
    };
    format!(
        "handed off to {}, with the last {} turns and {summary}",
        escape_inline(&handoff.new_thread_id),
        handoff.trailing_turns
    )
}

fn resumption_text(resumed: &ThreadResumed) -> String {
    format!(
        "resumed in {}, with {} turns: {}",
        escape_inline(&resumed.new_thread_id),
        resumed.reconstructed_turns,
        escape_inline(&resumed.message_preview)
    )
}

fn result_text(result: &ResultEvent) -> String {
    let estimated = if result.estimated { ", estimated" } else { "" };
    let summary = if result.summary { "summary by " } else { "" };
    format!(
        "{summary}{}: {} input and {} output tokens, {} USD{estimated}, {} ms",
        escape_inline(&result.model),
        result.usage.context(),
        result.usage.output,
        result.spend,
        result.duration
    )
}

fn error_text(error: &ErrorEvent) -> String {
    format!(
        "attempt {} failed ({}): {}",
        error.attempt,
        escape_inline(&error.code),
        escape_inline(&error.message)
    )
}

fn charge_text(charge: &ChargedEvent) -> String {
    format!(
        "nobody knows what the call that version {} admitted cost: {} USD are charged, of at most \
         {} USD",
        charge.version, charge.spend, charge.most
    )
}

fn correction_text(told: &UsageCorrected) -> String {
    format!("charged {} USD, really {} USD", told.charged, told.spend)
}

fn push_tool_result(out: &mut String, time: &str, result: &ToolResult) {
    let failed = if result.failed { " (failed)" } else { "" };
    let heading = format!("Tool result: {}{failed}", escape_inline(&result.name));
    let mut body = fence_beginning(&result.text, "");
    for blob in &result.blocks {
        let _ = write!(body, "\n\n{}", escape_inline(&blob.label()));
    }
    push_section(out, &heading, time, &body);
}

/// Shows the beginning of a text in a fence, and says where that is not all.
fn fence_beginning(text: &str, language: &str) -> String {
    let shown: String = text.chars().take(RESULT_CHARS_MAX).collect();
    let cut = if shown.len() < text.len() {
        "\n\n*cut: the whole is in the history*"
    } else {
        ""
    };
    format!("{}{cut}", fence_text(&shown, language))
}

fn push_section(out: &mut String, heading: &str, time: &str, body: &str) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "## {heading}\n\n<sub>{time}</sub>\n\n{}\n\n",
        body.trim_end_matches('\n')
    );
}

fn push_note(out: &mut String, text: &str) {
    let _ = write!(out, "*{text}*\n\n");
}

fn quote_text(text: &str) -> String {
    let quote = |line: &str| match line {
        "" => ">\n".to_owned(),
        _ => format!("> {line}\n"),
    };
    make_visible(text).lines().map(quote).collect()
}

fn fence_text(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", make_visible(text))
}

/// Makes hidden characters visible. Lines end with a line feed, also those that ended with a
/// carriage return, which Markdown takes for a line end too. Other ASCII control characters become
/// their pictures, and other hidden characters their number.
fn make_visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => shown.push('\n'),
            '\0'..='\u{1f}' => {
                shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'));
            }
            '\u{7f}' => shown.push('\u{2421}'),
            c if is_hidden_control(c) => push_visible(&mut shown, c),
            c => shown.push(c),
        }
    }
    shown
}

/// Escapes text for a place inside a line: it cannot begin a block, a comment, a link or an
/// emphasis.
fn escape_inline(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '[' | '<') {
            line.push('\\');
        }
        match c {
            c if c.is_ascii_control() => line.push(' '),
            c if is_hidden_control(c) => push_visible(&mut line, c),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{CommitReason, Message};
    use crate::time::UnixTime;

    fn entry(events: Vec<Event>) -> Entry {
        Entry {
            format: 1,
            version: 12,
            reason: CommitReason::UserMessage,
            time: UnixTime::default(),
            run: 1,
            commit: String::new(),
            previous: String::new(),
            answers: None,
            settled: None,
            admitted: None,
            charged: Vec::new(),
            about: None,
            state: None,
            ended: None,
            state_at: 0,
            events,
        }
    }

    #[test]
    fn no_text_closes_its_block() {
        for (text, expected) in [
            ("a ```` b", "`````json\na ```` b\n`````"),
            ("plain", "```json\nplain\n```"),
            ("a\r```\0", "````json\na\n```\u{2400}\n````"),
        ] {
            assert_eq!(fence_text(text, "json"), expected);
        }
        for (text, expected) in [
            ("a\n# b\n", "> a\n> # b\n"),
            ("a\r# b\r\n\n```", "> a\n> # b\n>\n> ```\n"),
            (
                "\u{1b}[31m\0\u{7f}\u{9b}",
                "> \u{241b}[31m\u{2400}\u{2421}\\u{9b}\n",
            ),
            // Symptom: a reversed name in a transcript was shown as another. Fix: the control is
            // visible.
            (
                "a\u{202e}b\u{200f}\u{61c}\u{2028}\u{200b}c\u{200d}",
                "> a\\u{202e}b\\u{200f}\\u{61c}\\u{2028}\\u{200b}c\u{200d}\n",
            ),
            (
                "<!-- version 1, 2 bytes -->",
                "> <!-- version 1, 2 bytes -->\n",
            ),
        ] {
            assert_eq!(quote_text(text), expected);
        }
        assert_eq!(escape_inline("a\n*b* <!-- [c"), "a \\*b\\* \\<!-- \\[c");
        assert_eq!(escape_inline("a\u{9b}\u{202e}b"), "a\\u{9b}\\u{202e}b");
    }

    #[test]
    fn links_name_the_thread_that_goes_on() {
        let handoff = |generated, problem: Option<&str>| {
            Event::ThreadHandoff(ThreadHandoff {
                new_thread_id: "t-2".to_owned(),
                trailing_turns: 8,
                summary_generated: generated,
                summary_tokens: 900,
                summary_problem: problem.map(str::to_owned),
            })
        };
        let resumed = Event::ThreadResumed(ThreadResumed {
            new_thread_id: "t-2".to_owned(),
            directive: None,
            message_preview: "*again*\n<!-- x".to_owned(),
            reconstructed_turns: 3,
        });
        for (event, note) in [
            (
                handoff(true, None),
                "handed off to t-2, with the last 8 turns and a summary of 900 tokens",
            ),
            (
                handoff(false, Some("no *money*")),
                "handed off to t-2, with the last 8 turns and no summary: no \\*money\\*",
            ),
            (
                handoff(false, None),
                "handed off to t-2, with the last 8 turns and no summary",
            ),
            (
                resumed,
                "resumed in t-2, with 3 turns: \\*again\\* \\<!-- x",
            ),
        ] {
            let text = markdown(&entry(vec![event]), "");
            assert!(text.starts_with(&format!("*{note}*\n\n")), "{text}");
        }
    }

    #[test]
    fn an_entry_is_closed_by_its_version_and_length() {
        let said = Event::Message(Message::text(MessageRole::User, "漢🙂"));
        let text = markdown(&entry(vec![said.clone()]), "");
        let (shown, comment) = text.rsplit_once("<!--").unwrap();
        assert_eq!(
            shown,
            "## User\n\n<sub>1970-01-01T00:00:00.000Z</sub>\n\n> 漢🙂\n\n"
        );
        assert_eq!(
            comment,
            format!(" version 12, {} bytes -->\n\n", shown.len())
        );
        assert_eq!(markdown(&entry(Vec::new()), ""), "");
        // What stands before the first entry is counted with it.
        let opened = markdown(&entry(vec![said]), "*continues t*\n\n");
        let (first, comment) = opened.rsplit_once("<!--").unwrap();
        assert_eq!(first, format!("*continues t*\n\n{shown}"));
        assert_eq!(
            comment,
            format!(" version 12, {} bytes -->\n\n", first.len())
        );
        let empty = markdown(&entry(Vec::new()), "*continues t*\n\n");
        assert!(
            empty.ends_with("<!-- version 12, 15 bytes -->\n\n"),
            "{empty}"
        );
    }
}
