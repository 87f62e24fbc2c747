//! Requests for summaries: their bytes, what they leave out, and that no text escapes its quotes.

use super::super::transcript_paragraph::RESULT_SHOWN_BYTES_MAX;
use super::super::{WindowNeeds, context_texts};
use super::*;
use crate::estimate::estimate_tokens;
use crate::history::{
    AssistantText, ContextInjected, NoteEvent, ThinkingEvent, ToolResult, ToolResultState, ToolUse,
};
use crate::json::JsonValue;
use crate::money::NanoUsd;
use crate::runner::terms_within;
use crate::settings::Model;
use proptest::prelude::*;
use serde_json::Value;

fn summary(window: u64, prompt: Option<&str>) -> PinnedSummary {
    let model = format!(r#"{{"name":"m","provider":"p","window":{window}}}"#);
    let mut summary = PinnedSummary::builtin(Model::parse(&model).unwrap(), 300);
    if let Some(prompt) = prompt {
        prompt.clone_into(&mut summary.prompt);
    }
    summary
}

fn user(text: &str) -> Event {
    Event::Message(Message::text(MessageRole::User, text))
}

fn say_text(text: &str) -> Event {
    let text = text.to_owned();
    Event::AssistantText(AssistantText { text })
}

fn thought(text: &str) -> Event {
    let text = text.to_owned();
    Event::Thinking(ThinkingEvent { text, raw: None })
}

fn call(name: &str, arguments: &str) -> Event {
    Event::ToolUse(ToolUse {
        name: name.into(),
        arguments: arguments.into(),
        id: "x".into(),
        raw: None,
    })
}

fn result(version: u64, name: &str, text: &str, failed: bool) -> Event {
    Event::ToolResult(ToolResult {
        version,
        index: 1,
        name: name.into(),
        text: text.into(),
        failed,
        state: ToolResultState::Done,
        cost: NanoUsd::ZERO,
        blocks: Vec::new(),
    })
}

fn inject_context(summary: &str) -> Vec<Event> {
    let texts = context_texts(Some(summary), "", true).into_iter();
    let inject = |(role, text)| Event::ContextInjected(ContextInjected { role, text });
    texts.map(inject).collect()
}

/// Makes the request for entries in the order of their path, the last of which is not stored yet.
fn request_of(terms: SummaryTerms<'_>, entries: &[Vec<Event>]) -> Option<SummaryRequest> {
    let needs = WindowNeeds {
        carried: ContentSize::default(),
        transcript: Some(terms.most()),
    };
    let load = |entries: &[Vec<Event>]| {
        let stored = (1..).zip(entries);
        let mut stored: Vec<WindowEntry> = stored
            .map(|(version, events)| WindowEntry::pending("t", version, events))
            .collect();
        let context = stored.first().is_some_and(WindowEntry::is_injected);
        let context = context.then(|| stored.remove(0));
        let mut window = LiveWindow::new(needs, context, stored.len() as u64);
        for entry in stored.into_iter().rev() {
            window.push_older(entry);
            if !window.needs_older() {
                break;
            }
        }
        window
    };
    let whole = summary_request(&load(entries), None, terms);
    if let Some((last, stored)) = entries
        .split_last()
        .filter(|(_, stored)| !stored.is_empty())
    {
        let pending = WindowEntry::pending("t", entries.len() as u64, last);
        let request = summary_request(&load(stored), Some(&pending), terms);
        assert_eq!(
            request, whole,
            "the commit and the step make the same request"
        );
    }
    whole
}

/// Returns the text of the one message of a request.
fn message_text(request: &SummaryRequest) -> String {
    let message: Value = serde_json::from_str(&request.message).unwrap();
    assert_eq!(message["role"], "user");
    assert_eq!(message["content"].as_array().unwrap().len(), 1);
    message["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_transcript_shows_who_said_what() {
    let summary = summary(8_000, Some("Sum up:\n${inputs.transcript_content}\nEnd."));
    let terms = SummaryTerms {
        summary: &summary,
        tokens: 300,
        output: 300,
    };
    let note = NoteEvent {
        name: "n".into(),
        body: JsonValue::Null,
    };
    let long = "r".repeat(RESULT_SHOWN_BYTES_MAX + 1);
    let request = request_of(
        terms,
        &[
            inject_context("They read a.txt."),
            vec![user("read\r\nb.txt")],
            vec![
                thought("secret thought"),
                call("read", "{\"a\":1}"),
                say_text("Wait."),
            ],
            vec![result(3, "read", "b\u{2028}> c\n", false), user("and?")],
            vec![
                Event::Note(note),
                Event::Message(Message::synthetic("(stopped by user)")),
                result(3, "read\n[user]", &long, true),
            ],
        ],
    )
    .unwrap();
    let text = message_text(&request);
    let expected = format!(
        "Sum up:\n[background]\n> ## Thread Handoff Context\n> \n> {}\n> \n> They read a.txt.\n\
         [user]\n> read\n> \n> b.txt\n\
         [call of the tool \"read\", call_3_1]\n> {{\"a\":1}}\n[assistant]\n> Wait.\n\
         [result of the tool \"read\", call_3_1]\n> b\n> > c\n> \n[user]\n> and?\n\
         [failed \"read\\n[user]\", call_3_1, the first {} of {} bytes]\n> {}\nEnd.",
        context_texts(Some(""), "", false)[0]
            .1
            .lines()
            .nth(2)
            .unwrap(),
        RESULT_SHOWN_BYTES_MAX,
        long.len(),
        &long[1..]
    );
    assert_eq!(text, expected);
    assert!(request.system.contains("at most 300 tokens"));
    assert!(!request.system.contains("a.txt"));
}

#[test]
fn the_oldest_is_left_out_and_the_earlier_summary_stays() {
    let summary = summary(1_500, None);
    let terms = SummaryTerms {
        summary: &summary,
        tokens: 300,
        output: 300,
    };
    let mut entries = vec![inject_context("FIRST-SUMMARY")];
    entries.extend((0..40).map(|n| vec![user(&format!("question {n} {}", "x".repeat(80)))]));
    let text = message_text(&request_of(terms, &entries).unwrap());
    assert!(
        text.contains("FIRST-SUMMARY") && text.contains("question 39 "),
        "{text}"
    );
    assert!(!text.contains("question 0 "), "{text}");
    let gap = text.split_once("does not fit here: ").unwrap().1;
    let left_out: usize = gap.split_once(' ').unwrap().0.parse().unwrap();
    let shown = (0..40)
        .filter(|n| text.contains(&format!("question {n} ")))
        .count();
    assert_eq!(left_out + shown, 40, "{text}");
    // The gap stands between what it separates.
    assert!(text.find("FIRST-SUMMARY") < text.find("does not fit"));
    assert!(text.find("does not fit") < text.find("question 39 "));
}

/// Symptom: a model with a small window was asked for a summary of 4000 tokens, of which the next
/// link took a tenth: the end, with the pending work, was cut away. Fix: it is asked for what is
/// carried; what it may write is as before. Kind: prompt and system prompt, more and less.
#[test]
fn no_more_is_asked_for_than_is_carried() {
    let summary = summary(8_000, None);
    for (carried, asked) in [(u64::MAX, 300), (301, 300), (120, 120), (0, 1)] {
        let terms = terms_within(&summary, carried);
        assert_eq!(terms.output, 300, "{carried}");
        let request = request_of(terms, &[vec![user("hello")]]).unwrap();
        for text in [message_text(&request), request.system] {
            let words = format!("at most {asked} tokens");
            assert!(text.contains(&words), "{carried}: {text}");
        }
    }
}

#[test]
fn one_message_larger_than_the_window_is_cut() {
    let summary = summary(1_500, None);
    let terms = SummaryTerms {
        summary: &summary,
        tokens: 300,
        output: 300,
    };
    for script in ["x", "漢", "\n", "\""] {
        let entries = [
            vec![user("first")],
            vec![user(&format!("newest {}", script.repeat(9_000)))],
        ];
        let request = request_of(terms, &entries).unwrap();
        let text = message_text(&request);
        assert!(
            text.contains("> newest ") && text.contains("the first "),
            "{text}"
        );
        assert!(
            text.contains("1 entries") || text.contains("2 entries"),
            "{text}"
        );
        assert!(
            request.size.tokens <= 1_200,
            "{script:?}: {:?}",
            request.size
        );
        assert!(
            request.size.tokens > 1_000,
            "{script:?}: {:?}",
            request.size
        );
    }
}

#[test]
fn a_window_without_room_makes_no_request() {
    for (window, output, fits) in [
        (0, 0, false),
        (300, 0, false),
        (1_500, 1_500, false),
        (1_500, 300, true),
    ] {
        let summary = summary(window.max(1), None);
        let terms = SummaryTerms {
            summary: &summary,
            tokens: 300,
            output,
        };
        assert_eq!(
            GrowingTranscript::new(terms).is_some(),
            fits,
            "{window} {output}"
        );
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let scripts = [
        "x",
        "漢字",
        "é",
        "🙂",
        "\n",
        "\"\\",
        "]\n[user]\n> ",
        "</conversation>\n",
        "\u{1}",
    ];
    let text = (prop::sample::select(scripts.to_vec()), 0_usize..900)
        .prop_map(|(script, times)| script.repeat(times));
    (0_usize..6, text).prop_map(|(kind, text)| match kind {
        0 => user(&text),
        1 => say_text(&text),
        2 => thought(&format!("THOUGHT {text}")),
        3 => call("read\n[user]\n> ", &text),
        4 => result(1, "read", &text, true),
        _ => inject_context(&text).remove(0),
    })
}

/// Symptom: with the default bound of 0.02 USD no window of a usual size got a summary: its request
/// cost more and was refused. Fix: the transcript is cut to what may be spent. Kind: prices from
/// free to dear.
#[test]
fn a_request_costs_no_more_than_may_be_spent() {
    let entries = vec![vec![user(&"long ".repeat(40_000))]; 4];
    for (input, output, is_cut) in [("0", "0", false), ("1", "5", true), ("3", "15", true)] {
        let model = format!(
            r#"{{"name":"m","provider":"p","window":200000,
            "prices":{{"input":"{input}","output":"{output}"}}}}"#
        );
        let mut summary = PinnedSummary::builtin(Model::parse(&model).unwrap(), 4_000);
        summary.spend = NanoUsd::new(20_000_000);
        let terms = terms_within(&summary, u64::MAX);
        let request = request_of(terms, &entries).expect("it is affordable");
        let prices = summary.model.prices.unwrap();
        let counted = request.size.tokens.saturating_add(request.size.tokens / 8);
        assert!(prices.max_cost(counted, terms.output) <= summary.spend);
        assert_eq!(
            request.size.tokens < 40_000,
            is_cut,
            "{input}: {:?}",
            request.size
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_request_never_exceeds_its_window(
        entries in prop::collection::vec(prop::collection::vec(any_event(), 0..4), 0..12),
        window in 1_u64..30_000,
        output in 0_u64..2_000,
        twice in any::<bool>(),
    ) {
        let prompt = "A ${inputs.transcript_content} B ${inputs.transcript_content} C";
        let summary = summary(window, twice.then_some(prompt));
        let terms = SummaryTerms { summary: &summary, tokens: 300, output };
        let Some(request) = request_of(terms, &entries) else {
            prop_assert!(window < output + 1_500);
            return Ok(());
        };
        prop_assert_eq!(request_of(terms, &entries), Some(request.clone()));
        let text = message_text(&request);
        let counted = estimate_tokens(&text) + estimate_tokens(&request.system);
        prop_assert!(counted <= request.size.tokens);
        prop_assert!(request.size.tokens + output <= window, "{:?}", request.size);
        prop_assert!(request.size.bytes <= SUMMARY_BYTES_MAX);
        prop_assert!(!text.contains("THOUGHT"));
        // Between the frame of the prompt, a line is quoted, or a heading of the program.
        let frame = message_text(&SummaryRequest {
            message: terms.message(""),
            ..request.clone()
        });
        let known = ["[user]", "[assistant]", "[background]", "[call of the tool \"", "[failed \"",
            "[user, the first ", "[assistant, the first ", "[background, the first ",
            "[the oldest part of"];
        let inside = text.lines().filter(|line| !frame.lines().any(|known| known == *line));
        let inside = inside.map(|line| line.trim_start_matches("A ").trim_start_matches("B "));
        for line in inside.filter(|line| !line.is_empty() && !twice) {
            let is_known = known.iter().any(|known| line.starts_with(known));
            prop_assert!(line.starts_with("> ") || is_known, "{line:?}");
        }
    }
}
