//! Replies and faults that chunks of a stream make.

use super::*;
use crate::models::wire::ReplyBuilder as _;
use crate::models::wire::classify;
use crate::models::{BLOCKS_MAX, REPLY_BYTES_MAX};
use std::sync::Mutex;

pub(super) fn read(chunks: &[&str]) -> (Result<ModelCompletion, ExchangeFault>, Vec<ReplyDelta>) {
    let deltas = Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let mut reply = OpenAiReply::new("p", 1_000);
    let taken = chunks
        .iter()
        .try_for_each(|chunk| reply.take_event(chunk, &on_delta).map(drop));
    let result = taken.and_then(|()| reply.complete());
    (result, deltas.into_inner().unwrap())
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
}

pub(super) fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// Reads a reply with these deltas and this finish reason; returns its blocks and finish.
fn blocks(deltas: &[&str], reason: &str) -> (Vec<ReplyBlock>, String) {
    let mut chunks: Vec<String> = deltas.iter().map(|text| delta(text)).collect();
    chunks.push(finish(reason));
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let completion = read(&chunks).0.unwrap();
    (completion.blocks, completion.finish)
}

pub(super) fn text(text: &str) -> ReplyBlock {
    ReplyBlock::Text { text: text.into() }
}

fn thinking(text: &str, field: &str) -> ReplyBlock {
    ReplyBlock::Thinking {
        text: text.into(),
        raw: Some(format!(r#"{{"provider":"p","field":"{field}"}}"#)),
    }
}

/// Makes a call with the server's own id.
pub(super) fn call(id: &str, name: &str, arguments: &str) -> ReplyBlock {
    ReplyBlock::ToolUse {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        raw: Some(format!(r#"{{"provider":"p","id":"{id}"}}"#)),
    }
}

/// Makes a call to which the server gave no id.
fn nameless_call(id: &str, name: &str, arguments: &str) -> ReplyBlock {
    ReplyBlock::ToolUse {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        raw: None,
    }
}

#[test]
fn text_thinking_and_usage() {
    let (result, deltas) = read(&[
        &delta(r#"{"role":"assistant","content":""}"#),
        &delta(r#"{"reasoning_content":"a","content":null}"#),
        &delta(r#"{"reasoning":"b"}"#),
        &delta(r#"{"content":"Hel"}"#),
        &delta(r#"{"content":"lo"}"#),
        &finish("stop"),
        r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":9,
            "prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},
            "completion_tokens_details":{"reasoning_tokens":4}}}"#,
    ]);
    let completion = result.unwrap();
    assert_eq!(
        completion.blocks,
        [thinking("ab", "reasoning"), text("Hello")]
    );
    assert_eq!(completion.finish, "stop");
    assert_eq!(
        completion.usage,
        Some(Usage {
            input: 30,
            output: 9,
            read: 60,
            write: 10,
            reasoning: 4
        })
    );
    let (a, b) = (
        ReplyDelta::Thinking("a".into()),
        ReplyDelta::Thinking("b".into()),
    );
    assert_eq!(
        deltas,
        [
            a,
            b,
            ReplyDelta::Text("Hel".into()),
            ReplyDelta::Text("lo".into())
        ]
    );
}

#[tokio::test]
async fn an_answer_cut_at_every_byte_is_the_same() {
    let chunks = [
        delta(r#"{"reasoning":"hm – "}"#),
        delta(r#"{"content":"Grüße \ud83d\ude42"}"#),
        delta(concat!(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","#,
            r#""arguments":"{\"x\":"}}]}"#
        )),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"ä\"}"}}]}"#),
        finish("tool_calls"),
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#.to_owned(),
        "[DONE]".to_owned(),
    ];
    let answer: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat();
    let bytes = answer.as_bytes();
    let (whole, deltas) = wire::replay(OpenAiReply::new("p", 1_000), vec![bytes.into()]).await;
    let whole = whole.unwrap();
    assert_eq!(whole.blocks[1], text("Grüße 🙂"));
    assert_eq!(whole.blocks[2], call("a", "f", r#"{"x":"ä"}"#));
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let got = wire::replay(
            OpenAiReply::new("p", 1_000),
            vec![first.into(), second.into()],
        )
        .await;
        assert_eq!(got, (Ok(whole.clone()), deltas.clone()), "cut at {at}");
    }
}

#[test]
fn calls_are_merged() {
    let first = concat!(
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","#,
        r#""arguments":""}}]}"#
    );
    let both = [call("a", "f", r#"{"x":1}"#), call("b", "g", "{}")];
    for (what, deltas) in [
        (
            "by index, interleaved",
            vec![
                first,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}"#,
                concat!(
                    r#"{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"#,
                    r#""function":{"arguments":":1}"}}]}"#
                ),
            ],
        ),
        (
            "each numbered 0",
            vec![
                concat!(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","#,
                    r#""arguments":"{\"x\":1}"}}]}"#
                ),
                r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
            ],
        ),
        (
            "no index",
            vec![
                r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}"#,
                r#"{"tool_calls":[{"function":{"arguments":"1}"}}]}"#,
                r#"{"tool_calls":[{"id":"b","function":{"name":"g"}}]}"#,
            ],
        ),
        (
            "id and name in every chunk",
            vec![
                first,
                concat!(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","#,
                    r#""arguments":"{\"x\":1}"}}]}"#
                ),
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}"#,
            ],
        ),
        (
            "arguments as an object",
            vec![
                concat!(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","#,
                    r#""arguments":{"x":1}}}]}"#
                ),
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":null}}]}"#,
            ],
        ),
    ] {
        assert_eq!(
            blocks(&deltas, "tool_calls"),
            (both.to_vec(), "tool_use".to_owned()),
            "{what}"
        );
        assert_eq!(blocks(&deltas, "stop").1, "tool_use", "{what}");
    }
}

#[test]
fn arguments_are_kept_as_they_were_written() {
    let broken = r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\": "}}]}"#;
    assert_eq!(
        blocks(&[broken], "length"),
        (
            vec![nameless_call("call_0", "f", "{\"a\": ")],
            "length".to_owned()
        )
    );
}

/// Symptom: a call that was cut before its arguments ran without arguments. Cause: missing
/// arguments always became an empty object. Fix: they do so only if the reply is complete.
#[test]
fn a_call_that_was_cut_before_its_arguments_is_not_run() {
    let begun = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#;
    for (reason, arguments) in [("tool_calls", "{}"), ("length", "")] {
        assert_eq!(blocks(&[begun], reason).0, [call("a", "f", arguments)]);
    }
}

#[test]
fn the_start_of_a_call_is_told_once() {
    let start =
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#);
    let more =
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#);
    let (result, deltas) = read(&[&start, &more, &finish("tool_calls")]);
    assert!(result.is_ok());
    assert_eq!(deltas, [ReplyDelta::ToolUse("f".into())]);
}

#[test]
fn finish_reasons() {
    for (reason, want) in [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("end_turn", "stop"),
        ("MAX_TOKENS", "length"),
        ("banana", "banana"),
    ] {
        assert_eq!(blocks(&[r#"{"content":"x"}"#], reason).1, want);
    }
    let refused = blocks(&[r#"{"refusal":"I can"}"#, r#"{"refusal":"not."}"#], "stop");
    assert_eq!(
        refused,
        (vec![text("I cannot.")], "content_filter".to_owned())
    );
}

#[test]
fn what_is_not_a_reply() {
    let hello = delta(r#"{"content":"Hello"}"#);
    let error = concat!(
        r#"{"error":{"message":"m","code":502},"choices":[{"index":0,"delta":{},"#,
        r#""finish_reason":"error"}]}"#
    );
    let said = classify::ProviderError {
        code: "502".into(),
        message: "m".into(),
        ..classify::ProviderError::default()
    };
    for (chunks, want) in [
        (vec![], ExchangeFault::Unfinished),
        (vec![hello.as_str()], ExchangeFault::Unfinished),
        (
            vec![&hello, r#"{"choices":[{"index":0,"finish_reason":""}]}"#],
            ExchangeFault::Unfinished,
        ),
        (
            vec![
                &hello,
                r#"{"choices":[{"index":1,"finish_reason":"stop"}]}"#,
            ],
            ExchangeFault::Unfinished,
        ),
        (
            vec![&hello, r#"{"choices":[{"delta":{"con"#],
            ExchangeFault::BadChunk,
        ),
        (vec!["[]"], ExchangeFault::BadChunk),
        (
            vec![r#"{"choices":[{"delta":{"content":{"a":1}}}]}"#],
            ExchangeFault::BadChunk,
        ),
        (vec![&hello, error], ExchangeFault::StreamError(said)),
        (
            vec![&hello, &finish("error")],
            ExchangeFault::StreamError(classify::ProviderError {
                code: "error".into(),
                ..classify::ProviderError::default()
            }),
        ),
        (
            vec![&hello, &finish("tool_calls")],
            ExchangeFault::CallsMissing,
        ),
    ] {
        assert_eq!(read(&chunks).0, Err(want), "{chunks:?}");
    }
}

/// Symptom: a gateway that counts nothing made every reply free. Cause: zeros beside text were
/// accepted. Fix: they are not a usage, and a later chunk of zeros does not replace an earlier
/// usage.
#[test]
fn zeros_beside_text_are_no_usage() {
    let hello = delta(r#"{"content":"Hello"}"#);
    let usage = |prompt, output| {
        format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{output}}}}}"#
        )
    };
    let counted = Usage {
        input: 5,
        output: 2,
        ..Usage::default()
    };
    for (usages, want) in [
        (vec![usage(5, 2)], Some(counted)),
        (vec![usage(5, 2), usage(0, 0)], Some(counted)),
        (vec![usage(5, 0)], None),
        (vec![usage(0, 2)], None),
        (vec![usage(0, 0)], None),
        (vec![], None),
    ] {
        let end = finish("stop");
        let chunks = [hello.as_str(), &end].into_iter();
        let chunks: Vec<&str> = chunks.chain(usages.iter().map(String::as_str)).collect();
        assert_eq!(read(&chunks).0.unwrap().usage, want, "{usages:?}");
    }
}

#[test]
fn what_was_cut_stays_cut() {
    let hello = delta(r#"{"content":"x"}"#);
    let ended = |first: &str, second: &str| {
        let chunks = [hello.clone(), finish(first), finish(second)];
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        read(&chunks).0.unwrap().finish
    };
    assert_eq!(ended("length", "stop"), "length");
    assert_eq!(ended("stop", "length"), "length");
    assert_eq!(ended("stop", "stop"), "stop");
    let usage = |output: u64| {
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":2,"completion_tokens":{output}}}}}"#)
    };
    let unsaid = |output| read(&[&hello, &usage(output), "[DONE]"]).0.unwrap().finish;
    assert_eq!(
        (unsaid(999).as_str(), unsaid(1_000).as_str()),
        ("stop", "length")
    );
}

/// Symptom: a server could panic the host with a list of numbers. Fix: details that are not objects
/// are skipped. Kind: values of another type than the wire defines.
#[test]
fn values_of_another_kind_are_passed_over() {
    for odd in [
        r#"{"reasoning_details":[5,{"text":"x"},null,[]],"content":"x"}"#,
        r#"{"reasoning_details":["a",{"text":1},{"text":2}],"content":"x"}"#,
        r#"{"reasoning_details":7,"content":["x",7,{"type":"reference"}]}"#,
        r#"{"content":"x","tool_calls":{},"reasoning_content":[1],"refusal":{}}"#,
    ] {
        let blocks = read(&[&delta(odd), &finish("stop")]).0.unwrap().blocks;
        assert_eq!(blocks.last(), Some(&text("x")), "{odd}");
    }
    let odd = concat!(
        r#"{"tool_calls":[{"index":0,"id":"a","extra_content":[[1]],"function":{"name":"f","#,
        r#""arguments":"{}"}}]}"#
    );
    assert_eq!(blocks(&[odd], "tool_calls").0, [call("a", "f", "{}")]);
}

#[test]
fn a_piece_without_id_and_name_begins_no_call() {
    let pieces = [
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":1,"function":{"arguments":"{\"x\""}}]}"#,
        r#"{"tool_calls":[{"index":2,"function":{"arguments":":1}"}}]}"#,
    ];
    assert_eq!(
        blocks(&pieces, "tool_calls").0,
        [call("a", "f", r#"{"x":1}"#)]
    );
}

#[test]
fn signs_of_life_are_no_substance() {
    let on_delta = |_| {};
    let mut reply = OpenAiReply::new("p", 1_000);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}"#;
    let begun =
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#);
    let empty = delta(r#"{"content":"","role":"assistant"}"#);
    let details = delta(r#"{"reasoning_details":[{}]}"#);
    let end = finish("tool_calls");
    for (chunk, taken) in [
        (begun.as_str(), EventEffect::Substance),
        (&begun, EventEffect::Nothing),
        (&empty, EventEffect::Nothing),
        (&details, EventEffect::Nothing),
        (usage, EventEffect::Substance),
        (usage, EventEffect::Nothing),
        (&end, EventEffect::Substance),
        (&end, EventEffect::Nothing),
    ] {
        assert_eq!(reply.take_event(chunk, &on_delta), Ok(taken), "{chunk}");
    }
}

/// Symptom: a stream that ended in order was requested four times. Cause: only a finish reason
/// counted as an end. Fix: the end mark counts as well, if the reply has usage and content.
#[test]
fn usage_and_the_mark_of_the_end_stand_for_a_finish_reason() {
    let hello = delta(r#"{"content":"4"}"#);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":22,"completion_tokens":5}}"#;
    let whole = read(&[&hello, usage, "[DONE]"]).0.unwrap();
    assert_eq!(
        (whole.finish.as_str(), whole.blocks),
        ("stop", vec![text("4")])
    );
    for chunks in [
        vec![hello.as_str(), usage],
        vec![hello.as_str(), "[DONE]"],
        vec![usage, "[DONE]"],
    ] {
        assert_eq!(
            read(&chunks).0,
            Err(ExchangeFault::Unfinished),
            "{chunks:?}"
        );
    }
}

#[test]
fn pieces_of_a_routers_thinking_are_put_together() {
    let piece = |fields: &str| {
        delta(&format!(
            r#"{{"reasoning_details":[{{"type":"reasoning.text","index":0,{fields}}}]}}"#
        ))
    };
    let (first, second) = (
        piece(r#""text":"a""#),
        piece(r#""text":"b","signature":"s""#),
    );
    let blocks = read(&[
        &first,
        &second,
        &delta(r#"{"content":"x"}"#),
        &finish("stop"),
    ])
    .0;
    let raw = concat!(
        r#"{"provider":"p","field":"","details":[{"type":"reasoning.text","index":0,"text":"ab","#,
        r#""signature":"s"}]}"#
    );
    let details = ReplyBlock::Thinking {
        text: String::new(),
        raw: Some(raw.into()),
    };
    assert_eq!(blocks.unwrap().blocks, [details, text("x")]);
}

#[test]
fn a_reply_is_bounded() {
    let half = delta(&format!(
        r#"{{"content":"{}"}}"#,
        "x".repeat(REPLY_BYTES_MAX / 2)
    ));
    assert!(read(&[&half, &half, &finish("stop")]).0.is_ok());
    assert_eq!(
        read(&[&half, &half, &delta(r#"{"reasoning":"x"}"#)]).0,
        Err(ExchangeFault::TooLarge)
    );
    let call = |n| {
        let named = r#""function":{"name":"f"}"#;
        delta(&format!(
            r#"{{"tool_calls":[{{"index":{n},"id":"{n}",{named}}}]}}"#
        ))
    };
    let turns = |n| {
        let words = [r#"{"content":"x"}"#, r#"{"reasoning":"x"}"#];
        delta(words[n % 2])
    };
    let (calls, blocks): (Vec<_>, Vec<_>) = (0..=BLOCKS_MAX).map(|n| (call(n), turns(n))).unzip();
    for chunks in [calls, blocks] {
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        assert_eq!(read(&chunks).0, Err(ExchangeFault::TooLarge));
        assert_eq!(read(&chunks[1..]).0, Err(ExchangeFault::Unfinished));
    }
}
