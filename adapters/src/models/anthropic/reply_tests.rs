//! Replies and faults that events of a stream make.

use super::*;
use crate::models::wire::ReplyBuilder as _;
use crate::models::wire::classify;
use crate::models::{BLOCKS_MAX, REPLY_BYTES_MAX};
use serde_json::json;
use std::sync::Mutex;

fn read_all(
    events: &[Value],
) -> (
    AnthropicReply,
    Result<ModelCompletion, ExchangeFault>,
    Vec<ReplyDelta>,
) {
    let deltas = Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let mut reply = AnthropicReply::new("p", 1_000);
    let taken = events
        .iter()
        .try_for_each(|event| reply.take_event(&event.to_string(), &on_delta).map(drop));
    let result = taken.and_then(|()| reply.complete());
    (reply, result, deltas.into_inner().unwrap())
}

fn read(events: &[Value]) -> Result<ModelCompletion, ExchangeFault> {
    read_all(events).1
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text(index: u64, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn arguments(index: u64, json: &str) -> Value {
    delta(
        index,
        json!({"type": "input_json_delta", "partial_json": json}),
    )
}

fn begin_text(index: u64) -> Value {
    begin(index, json!({"type": "text", "text": ""}))
}

fn begin_call(index: u64, id: &str) -> Value {
    begin(
        index,
        json!({"type": "tool_use", "id": id, "name": "read", "input": {}}),
    )
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1,
        "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300}}})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 90}})
}

fn call(id: &str, arguments: &str) -> ReplyBlock {
    ReplyBlock::ToolUse {
        id: id.into(),
        name: "read".into(),
        arguments: arguments.into(),
        raw: (id != "call_0").then(|| format!(r#"{{"provider":"p","id":"{id}"}}"#)),
    }
}

/// A whole answer of the wire: thinking, redacted thinking, text and two calls, and events without
/// meaning.
const ANSWER: &str = include_str!("answer.txt");

#[tokio::test]
async fn an_answer_cut_at_every_byte_is_the_same() {
    let (whole, deltas) = wire::replay(AnthropicReply::new("p", 1_000), vec![ANSWER.into()]).await;
    let whole = whole.unwrap();
    assert_eq!(whole.finish, "tool_use");
    assert_eq!(
        whole.blocks,
        [
            ReplyBlock::Thinking {
                text: "Zwei Dateien – \"a\"?".into(),
                raw: Some(
                    concat!(
                        r#"{"type":"thinking","thinking":"Zwei Dateien – \"a\"?","#,
                        r#""signature":"EqQB/+=="}"#
                    )
                    .into()
                ),
            },
            ReplyBlock::Thinking {
                text: String::new(),
                raw: Some(r#"{"type":"redacted_thinking","data":"AAEC"}"#.into()),
            },
            ReplyBlock::Text {
                text: "Grüße 🙂".into()
            },
            call("toolu_1", r#"{"path": "ä.txt"}"#),
            call("toolu_2", "{}"),
        ]
    );
    assert_eq!(
        whole.usage,
        Some(Usage {
            input: 7,
            output: 90,
            read: 300,
            write: 20,
            reasoning: 40
        })
    );
    let told = |wanted: fn(&ReplyDelta) -> Option<&str>| {
        deltas.iter().filter_map(wanted).collect::<String>()
    };
    assert_eq!(
        told(|delta| matches!(delta, ReplyDelta::Text(_)).then(|| delta_text(delta))),
        "Grüße 🙂"
    );
    assert_eq!(
        told(|delta| matches!(delta, ReplyDelta::ToolUse(_)).then(|| delta_text(delta))),
        "readread"
    );
    let bytes = ANSWER.as_bytes();
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let (got, again) = wire::replay(
            AnthropicReply::new("p", 1_000),
            vec![first.into(), second.into()],
        )
        .await;
        assert_eq!((got, &again), (Ok(whole.clone()), &deltas), "cut at {at}");
    }
    let single = bytes.iter().map(|byte| vec![*byte]).collect();
    assert_eq!(
        wire::replay(AnthropicReply::new("p", 1_000), single)
            .await
            .0,
        Ok(whole)
    );
}

fn delta_text(delta: &ReplyDelta) -> &str {
    let (ReplyDelta::Text(text) | ReplyDelta::Thinking(text) | ReplyDelta::ToolUse(text)) = delta
    else {
        panic!("a reply tells of nothing else: {delta:?}");
    };
    text
}

#[tokio::test]
async fn an_answer_that_ends_before_its_stop_reason_is_none() {
    let reason = ANSWER.find("event: message_delta").unwrap();
    let whole = ANSWER[reason..].find("\n\n").unwrap() + reason + 2;
    for at in 0..ANSWER.len() {
        let (got, _) = wire::replay(
            AnthropicReply::new("p", 1_000),
            vec![ANSWER.as_bytes()[..at].into()],
        )
        .await;
        if at < whole {
            assert_eq!(got, Err(ExchangeFault::Unfinished), "cut at {at}");
        } else {
            assert_eq!(
                got.unwrap().usage.map(|usage| usage.output),
                Some(90),
                "cut at {at}"
            );
        }
    }
}

#[test]
fn stop_reasons() {
    for (reason, alone, with_call) in [
        ("end_turn", "stop", "tool_use"),
        ("stop_sequence", "stop", "tool_use"),
        ("max_tokens", "length", "length"),
        ("model_context_window_exceeded", "length", "length"),
        ("pause_turn", "length", "length"),
        ("refusal", "content_filter", "content_filter"),
        ("novel", "novel", "novel"),
    ] {
        let said = [start(), begin_text(0), text(0, "x")];
        let finish = |more: &[Value]| {
            let events = [&said[..], more, &[stop(reason)]].concat();
            read(&events).unwrap().finish
        };
        assert_eq!(finish(&[]), alone, "{reason}");
        assert_eq!(finish(&[begin_call(1, "a")]), with_call, "{reason}");
    }
}

#[test]
fn a_call_that_was_cut_is_not_run() {
    for (reason, json, want) in [
        ("tool_use", "", "{}"),
        ("max_tokens", "", ""),
        ("max_tokens", "{\"path\": \"a", "{\"path\": \"a"),
    ] {
        let events = [begin_call(0, "a"), arguments(0, json), stop(reason)];
        assert_eq!(
            read(&events).unwrap().blocks,
            [call("a", want)],
            "{reason} {json:?}"
        );
    }
    let whole = begin(
        0,
        json!({"type": "tool_use", "name": "read", "input": {"n": 1.50}}),
    );
    let blocks = read(&[whole, stop("tool_use")]).unwrap().blocks;
    assert_eq!(blocks, [call("call_0", r#"{"n":1.5}"#)]);
}

#[test]
fn thinking_without_a_signature_is_read_and_not_kept_for_sending() {
    let thinking = || {
        begin(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        )
    };
    let more = delta(0, json!({"type": "thinking_delta", "thinking": "hm"}));
    let signed = delta(0, json!({"type": "signature_delta", "signature": "s"}));
    let block = |text: &str, raw: Option<&str>| ReplyBlock::Thinking {
        text: text.into(),
        raw: raw.map(str::to_owned),
    };
    let silent = r#"{"type":"thinking","thinking":"","signature":"s"}"#;
    for (events, want) in [
        (vec![thinking(), more], vec![block("hm", None)]),
        (vec![thinking(), signed], vec![block("", Some(silent))]),
        (vec![thinking()], vec![]),
    ] {
        let events = [events, vec![stop("end_turn")]].concat();
        assert_eq!(read(&events).unwrap().blocks, want, "{events:?}");
    }
}

#[test]
fn what_nobody_asked_for_is_passed_over() {
    let events = [
        json!({"type": "ping"}),
        json!({"type": "novel", "index": "x"}),
        begin(
            0,
            json!({"type": "server_tool_use", "id": "s", "name": "web"}),
        ),
        arguments(0, "{}"),
        begin(1, json!({"type": "text", "text": "Hel"})),
        text(1, "lo"),
        delta(1, json!({"type": "citations_delta", "citation": {}})),
        json!({"type": "content_block_stop", "index": 1}),
        stop("end_turn"),
    ];
    let (_, completion, deltas) = read_all(&events);
    let hello = ReplyBlock::Text {
        text: "Hello".into(),
    };
    assert_eq!(completion.unwrap().blocks, [hello]);
    assert_eq!(
        deltas,
        [
            ReplyDelta::Text("Hel".into()),
            ReplyDelta::Text("lo".into())
        ]
    );
}

#[test]
fn what_is_not_a_reply() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "m"}});
    let said = classify::ProviderError {
        r#type: "overloaded_error".into(),
        message: "m".into(),
        ..classify::ProviderError::default()
    };
    let bare = json!({"type": "error"});
    for (event, want) in [
        (error("overloaded_error"), ExchangeFault::StreamError(said)),
        (
            bare,
            ExchangeFault::StreamError(classify::ProviderError::default()),
        ),
        (stop("tool_use"), ExchangeFault::CallsMissing),
        (stop(""), ExchangeFault::Unfinished),
        (json!({"type": "message_stop"}), ExchangeFault::Unfinished),
        (json!([]), ExchangeFault::BadChunk),
        (json!({"index": 0}), ExchangeFault::BadChunk),
        (text(1, "x"), ExchangeFault::BadChunk),
        (arguments(0, "{}"), ExchangeFault::BadChunk),
        (
            delta(0, json!({"type": "text_delta", "text": 1})),
            ExchangeFault::BadChunk,
        ),
        (
            delta(0, json!({"type": "signature_delta", "signature": "s"})),
            ExchangeFault::BadChunk,
        ),
        (begin(1, json!({})), ExchangeFault::BadChunk),
    ] {
        let events = [start(), begin_text(0), text(0, "x"), event.clone()];
        assert_eq!(read(&events), Err(want), "{event}");
    }
}

/// A failure keeps the known part of its usage: input as it was reported, and of the output at
/// least as much as arrived. With thinking, which arrives shortened, the usage is unknown.
#[test]
fn the_usage_of_a_failure() {
    let usage = |events: &[Value]| read_all(events).0.usage();
    let reported = Usage {
        input: 7,
        output: 1,
        read: 300,
        write: 20,
        reasoning: 0,
    };
    assert_eq!(usage(&[]), None);
    assert_eq!(usage(&[start(), begin_text(0)]), Some(reported));
    let long = text(0, &"x".repeat(3_000));
    let output = 1_000;
    let arrived = Usage { output, ..reported };
    assert_eq!(usage(&[start(), begin_text(0), long]), Some(arrived));
    let counted = Usage {
        output: 90,
        ..reported
    };
    assert_eq!(usage(&[start(), stop("")]), Some(counted));
    for kind in ["thinking", "redacted_thinking"] {
        let thinking = begin(0, json!({"type": kind, "data": "x"}));
        assert_eq!(usage(&[start(), thinking.clone()]), None, "{kind}");
        assert_eq!(
            usage(&[start(), thinking, stop("")]),
            Some(counted),
            "{kind}"
        );
    }
}

#[test]
fn usage_grows_and_is_the_one_of_the_end() {
    let end = |usage: Value| {
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": usage})
    };
    for (usage, want) in [
        (json!({"output_tokens": 90}), Some((7, 300, 20, 90))),
        (
            json!({"input_tokens": 0, "output_tokens": 90}),
            Some((7, 300, 20, 90)),
        ),
        (
            json!({"input_tokens": 9, "cache_read_input_tokens": 310, "output_tokens": 90}),
            Some((9, 310, 20, 90)),
        ),
        (json!({"output_tokens": -1}), None),
        (json!("many"), None),
        (json!(null), None),
    ] {
        let got = read(&[start(), end(usage.clone())]).unwrap().usage;
        let got = got.map(|usage| (usage.input, usage.read, usage.write, usage.output));
        assert_eq!(got, want, "{usage}");
    }
}

#[test]
fn a_reply_is_bounded() {
    let half = "x".repeat(REPLY_BYTES_MAX / 2);
    let thinking = || begin(0, json!({"type": "thinking", "thinking": ""}));
    let more = |kind: &str, field: &str| delta(0, json!({"type": kind, field: half}));
    let too_large = |first: Value, more: Value| {
        let one = read(&[first.clone(), more.clone(), stop("end_turn")]);
        assert!(one.is_ok(), "{one:?}");
        let three = [first, more.clone(), more.clone(), more];
        assert_eq!(read(&three), Err(ExchangeFault::TooLarge));
    };
    too_large(begin_text(0), more("text_delta", "text"));
    too_large(thinking(), more("thinking_delta", "thinking"));
    too_large(thinking(), more("signature_delta", "signature"));
    too_large(begin_call(0, "a"), more("input_json_delta", "partial_json"));
    let large = |field: &str| {
        begin(
            0,
            json!({"type": "redacted_thinking", field: half.repeat(2)}),
        )
    };
    assert_eq!(read(&[large("data")]), Err(ExchangeFault::TooLarge));
    assert_eq!(read(&[large("novel")]), Err(ExchangeFault::TooLarge));
    let input = json!({"type": "tool_use", "input": {"a": half.repeat(2)}});
    assert_eq!(read(&[begin(0, input)]), Err(ExchangeFault::TooLarge));
    let blocks: Vec<Value> = (0..=BLOCKS_MAX as u64).map(begin_text).collect();
    assert_eq!(read(&blocks), Err(ExchangeFault::TooLarge));
    assert_eq!(read(&blocks[1..]), Err(ExchangeFault::Unfinished));
}

#[test]
fn a_message_that_was_abandoned_leaves_nothing() {
    let hello = |word: &str| [start(), begin_text(0), text(0, word)];
    let said = |events: &[Value]| read(events).unwrap().blocks;
    let block = |text: &str| ReplyBlock::Text { text: text.into() };
    let (one, other) = (hello("one"), hello("other"));
    let end = [stop("end_turn")];
    assert_eq!(said(&[&one[..], &other, &end].concat()), [block("other")]);
    assert_eq!(said(&[&one[..], &end, &other].concat()), [block("one")]);
}

#[test]
fn zeros_beside_text_are_no_usage() {
    let end = |usage: Value| {
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": usage})
    };
    let begin = |input: u64| {
        json!({"type": "message_start",
        "message": {"usage": {"input_tokens": input, "output_tokens": 0}}})
    };
    for (input, output, known) in [(5, 2, true), (0, 2, false), (5, 0, false), (0, 0, false)] {
        let events = [
            begin(input),
            begin_text(0),
            text(0, "x"),
            end(json!({"output_tokens": output})),
        ];
        assert_eq!(
            read(&events).unwrap().usage.is_some(),
            known,
            "{input} {output}"
        );
    }
}
