//! Tests of replies that a router abandoned for those of another provider.

use super::tests::{call, finish, read, text};
use super::*;

/// Makes a chunk of the reply with this id.
fn chunk_of(id: &str, delta: &str) -> String {
    format!(r#"{{"id":"{id}","choices":[{{"index":0,"delta":{delta}}}]}}"#)
}

/// Makes the first chunk of a reply; `more` makes a later one.
fn first(id: &str, word: &str) -> String {
    chunk_of(id, &format!(r#"{{"role":"assistant","content":"{word}"}}"#))
}

fn more(id: &str, word: &str) -> String {
    chunk_of(id, &format!(r#"{{"content":"{word}"}}"#))
}

/// Makes the first chunk of a reply that begins with a call.
fn first_call(id: &str, arguments: &str) -> String {
    let function = format!(r#"{{"name":"f","arguments":"{arguments}"}}"#);
    let call = format!(r#"{{"index":0,"id":"{id}","function":{function}}}"#);
    chunk_of(
        id,
        &format!(r#"{{"role":"assistant","tool_calls":[{call}]}}"#),
    )
}

/// Symptom: text and calls of a provider that broke off behind a router stood in front of the reply
/// of the next provider. Cause: one stream was treated as one reply. Fix: another id with a role
/// begins a new reply, unless the server generates another id for every chunk, which the third
/// chunk shows.
#[test]
fn a_reply_that_was_abandoned_leaves_nothing() {
    let said = |chunks: &[String]| {
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        read(&chunks).0.unwrap().blocks
    };
    let end = finish("stop");
    let e = || end.clone();
    for (what, chunks, want) in [
        (
            "after several chunks",
            vec![first("a", "x"), more("a", "y"), first("b", "z"), e()],
            vec![text("z")],
        ),
        (
            "after one chunk",
            vec![first("a", "x"), first("b", "z"), more("b", "!"), e()],
            vec![text("z!")],
        ),
        (
            "at the end",
            vec![first("a", "x"), first("b", "z"), e()],
            vec![text("z")],
        ),
        (
            "a call in the first chunk",
            vec![
                first_call("a", "{}"),
                first_call("b", "{}"),
                more("b", ""),
                finish("tool_calls"),
            ],
            vec![call("b", "f", "{}")],
        ),
        (
            "half a call",
            vec![first_call("a", "{"), first("b", "z"), more("b", "!"), e()],
            vec![text("z!")],
        ),
        (
            "behind a whole one",
            vec![first("a", "x"), more("a", "y"), e(), first("b", "z")],
            vec![text("xy")],
        ),
        (
            "an id for every chunk",
            vec![first("a", "x"), first("b", "y"), first("c", "z"), e()],
            vec![text("xyz")],
        ),
        (
            "an id for every chunk, and one role",
            vec![first("a", "x"), more("b", "y"), more("c", "z"), e()],
            vec![text("xyz")],
        ),
        (
            "another id without a role",
            vec![first("a", "x"), more("a", "y"), more("b", "z"), e()],
            vec![text("xyz")],
        ),
    ] {
        assert_eq!(said(&chunks), want, "{what}");
    }
}

/// Symptom: the usage of an abandoned reply was lost, or counted as that of the next one. Fix: it
/// is added to the usage of the next reply, if that reports one.
#[test]
fn a_reply_that_was_abandoned_is_paid_for() {
    let chunk = |id: &str, usage: &str| {
        format!(
            r#"{{"id":"{id}","choices":[{{"index":0,"delta":{}}}],"usage":{usage}}}"#,
            r#"{"role":"assistant","content":"x"}"#
        )
    };
    let usage =
        |input, output| format!(r#"{{"prompt_tokens":{input},"completion_tokens":{output}}}"#);
    let (end, none) = (finish("stop"), "null".to_owned());
    let billed = |second: &str| {
        let (a, b) = (chunk("a", &usage(50, 9)), chunk("b", second));
        let (result, deltas) = read(&[&a, &a, &b, &b, &end]);
        assert!(deltas.contains(&ReplyDelta::Restarted));
        result
            .unwrap()
            .usage
            .map(|usage| (usage.input, usage.output))
    };
    assert_eq!(billed(&usage(7, 2)), Some((57, 11)));
    assert_eq!(billed(&none), None, "nobody knows what the second used");
}
