//! Chunks in, completion or fault out.

use super::*;
use crate::models::http::Reply as _;
use crate::models::{BLOCKS_MAX, REPLY_BYTES_MAX};
use std::sync::Mutex;

fn read(chunks: &[&str]) -> (Result<Completion, Fault>, Vec<Delta>) {
    let deltas = Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let mut reply = Reply::default();
    let taken = chunks
        .iter()
        .try_for_each(|chunk| reply.take(chunk, &on_delta));
    let result = taken.and_then(|()| reply.complete());
    (result, deltas.into_inner().unwrap())
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// The blocks of a reply whose deltas are these and whose finish reason is this.
fn blocks(deltas: &[&str], reason: &str) -> (Vec<Block>, String) {
    let mut chunks: Vec<String> = deltas.iter().map(|text| delta(text)).collect();
    chunks.push(finish(reason));
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let completion = read(&chunks).0.unwrap();
    (completion.blocks, completion.finish)
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolUse {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
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
        [
            Block::Thinking {
                text: "ab".into(),
                raw: None
            },
            text("Hello")
        ]
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
    let (a, b) = (Delta::Thinking("a".into()), Delta::Thinking("b".into()));
    assert_eq!(
        deltas,
        [a, b, Delta::Text("Hel".into()), Delta::Text("lo".into())]
    );
}

#[tokio::test]
async fn an_answer_cut_at_every_byte_is_the_same() {
    let chunks = [
        delta(r#"{"reasoning":"hm – "}"#),
        delta(r#"{"content":"Grüße \ud83d\ude42"}"#),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}"#,
        ),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"ä\"}"}}]}"#),
        finish("tool_calls"),
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#.to_owned(),
        "[DONE]".to_owned(),
    ];
    let answer: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat();
    let bytes = answer.as_bytes();
    let (whole, deltas) = http::replay::<Reply>(vec![bytes.into()]).await;
    let whole = whole.unwrap();
    assert_eq!(whole.blocks[1], text("Grüße 🙂"));
    assert_eq!(whole.blocks[2], call("a", "f", r#"{"x":"ä"}"#));
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let got = http::replay::<Reply>(vec![first.into(), second.into()]).await;
        assert_eq!(got, (Ok(whole.clone()), deltas.clone()), "cut at {at}");
    }
}

#[test]
fn calls_are_merged() {
    let first = r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}"#;
    let both = [call("a", "f", r#"{"x":1}"#), call("b", "g", "{}")];
    for (what, deltas) in [
        (
            "by index, interleaved",
            vec![
                first,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}"#,
                r#"{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":":1}"}}]}"#,
            ],
        ),
        (
            "each numbered 0",
            vec![
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}"#,
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
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}"#,
            ],
        ),
        (
            "arguments as an object",
            vec![
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]}"#,
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
        (vec![call("call_0", "f", "{\"a\": ")], "length".to_owned())
    );
}

/// Symptom: a call that was cut before its arguments ran with none. Cause: no arguments always became an empty object.
/// Fix: only where the reply is whole.
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
    assert_eq!(deltas, [Delta::ToolUse("f".into())]);
}

#[test]
fn finish_reasons() {
    for (reason, want) in [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("end_turn", "end_turn"),
    ] {
        assert_eq!(blocks(&[r#"{"content":"x"}"#], reason).1, want);
    }
    let refused = blocks(&[r#"{"refusal":"I can"}"#, r#"{"refusal":"not."}"#], "stop");
    assert_eq!(refused, (vec![text("I cannot.")], "refusal".to_owned()));
}

#[test]
fn what_is_not_a_reply() {
    let hello = delta(r#"{"content":"Hello"}"#);
    let error = r#"{"error":{"message":"m","code":502},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#;
    let said = classify::Said {
        code: "502".into(),
        message: "m".into(),
        ..classify::Said::default()
    };
    for (chunks, want) in [
        (vec![], Fault::Unfinished),
        (vec![hello.as_str()], Fault::Unfinished),
        (
            vec![&hello, r#"{"choices":[{"index":0,"finish_reason":""}]}"#],
            Fault::Unfinished,
        ),
        (
            vec![
                &hello,
                r#"{"choices":[{"index":1,"finish_reason":"stop"}]}"#,
            ],
            Fault::Unfinished,
        ),
        (
            vec![&hello, r#"{"choices":[{"delta":{"con"#],
            Fault::BadChunk,
        ),
        (vec![&hello, &finish("stop"), "{"], Fault::BadChunk),
        (vec!["[]"], Fault::BadChunk),
        (
            vec![r#"{"choices":[{"delta":{"content":{"a":1}}}]}"#],
            Fault::BadChunk,
        ),
        (vec![&hello, error], Fault::StreamError(said)),
        (
            vec![&hello, &finish("error")],
            Fault::StreamError(classify::Said::default()),
        ),
        (vec![&hello, &finish("tool_calls")], Fault::CallsMissing),
    ] {
        assert_eq!(read(&chunks).0, Err(want), "{chunks:?}");
    }
}

#[test]
fn usage_that_makes_no_sense_is_not_believed() {
    for (usage, want) in [
        (r#"{}"#, None),
        (r#""many""#, None),
        (r#"{"prompt_tokens":-1}"#, None),
        (
            r#"{"prompt_tokens":5}"#,
            Some(Usage {
                input: 5,
                ..Usage::default()
            }),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":2,"prompt_cache_hit_tokens":9,
                "completion_tokens_details":{"reasoning_tokens":7}}"#,
            Some(Usage {
                read: 5,
                output: 2,
                reasoning: 2,
                ..Usage::default()
            }),
        ),
    ] {
        let chunk = format!(r#"{{"choices":[{{"finish_reason":"stop"}}],"usage":{usage}}}"#);
        assert_eq!(read(&[&chunk]).0.unwrap().usage, want, "{usage}");
    }
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
        Err(Fault::TooLarge)
    );
    let call = |n| delta(&format!(r#"{{"tool_calls":[{{"index":{n}}}]}}"#));
    let turns = |n| {
        let words = [r#"{"content":"x"}"#, r#"{"reasoning":"x"}"#];
        delta(words[n % 2])
    };
    let (calls, blocks): (Vec<_>, Vec<_>) = (0..=BLOCKS_MAX).map(|n| (call(n), turns(n))).unzip();
    for chunks in [calls, blocks] {
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        assert_eq!(read(&chunks).0, Err(Fault::TooLarge));
        assert_eq!(read(&chunks[1..]).0, Err(Fault::Unfinished));
    }
}
