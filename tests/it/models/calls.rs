//! Calls of a reply on the OpenAI wire, however a server numbers, cuts and repeats them.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use threadkeep_tests::judge::{
    ServerAnswer, answer_in_order, calls_chunk, chunk, finish_chunk, stream_reply, text_reply,
    usage_chunk,
};

/// The files that the two calls of these tests read.
const PATHS: [&str; 2] = ["notes.txt", "other.txt"];

/// A whole call of `read_file` without an id or an index.
fn bare_call(path: &str) -> Value {
    let arguments = json!({"path": path}).to_string();
    json!({"type": "function", "function": {"name": "read_file", "arguments": arguments}})
}

/// The two calls, each with one further field.
fn calls_with(field: &str, values: [Value; 2]) -> [Value; 2] {
    let [mut first, mut second] = PATHS.map(bare_call);
    [first[field], second[field]] = values;
    [first, second]
}

/// A reply that comes in these chunks.
fn reply_in(chunks: Vec<Value>) -> ServerAnswer {
    let end = vec![finish_chunk("tool_calls"), usage_chunk(100, 10)];
    stream_reply(&[chunks, end].concat())
}

/// Runs a project whose first reply comes in these chunks, and checks that both files are read, in
/// order, each by a call of its own, and that the answer to that is the result.
fn check_two_calls(place: &str, first: ServerAnswer) {
    let answers = vec![first, text_reply("Done.")];
    let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
    let answer = judged.run();
    assert_eq!(answer["result"], "Done.", "{place}: {answer}");
    let request = &judged.server.requests()[1];
    let ids: [String; 2] = request.call_ids().try_into().expect(place);
    assert_ne!(ids[0], ids[1], "{place}");
    let results = request.results();
    let named: Vec<&String> = results.iter().map(|(id, _)| id).collect();
    assert_eq!(named, [&ids[0], &ids[1]], "{place}");
    assert!(results[0].1.contains("oats"), "{place}: {results:?}");
    assert!(results[1].1.contains("tea"), "{place}: {results:?}");
}

/// Symptom: two calls of one reply became one that no tool could run. Cause: pieces were joined by
/// an index that not every server sends, or that some send otherwise. Fix: a piece begins a new
/// call if its id, index, name or complete arguments show that. Kind: parallel calls.
#[test]
fn each_call_is_a_call_of_its_own_however_it_is_numbered() {
    let bare = || PATHS.map(bare_call);
    let ids = || calls_with("id", [json!("x1"), json!("x2")]);
    let numbered = |numbers: [Value; 2]| {
        let [mut first, mut second] = ids();
        [first["index"], second["index"]] = numbers;
        [first, second]
    };
    for (place, calls) in [
        ("ids without an index", ids()),
        ("index 0 for every call", numbered([json!(0), json!(0)])),
        ("neither ids nor indexes", bare()),
        ("an index as text", numbered([json!("0"), json!("1")])),
        ("indexes from 1", numbered([json!(1), json!(2)])),
        (
            "an index that is null",
            numbered([Value::Null, Value::Null]),
        ),
        (
            "indexes without ids",
            calls_with("index", [json!(0), json!(1)]),
        ),
        ("empty ids", calls_with("id", [json!(""), json!("")])),
    ] {
        let [first, second] = calls.clone().map(|call| calls_chunk(&[call]));
        let place_of = |how: &str| format!("{place}, {how}");
        check_two_calls(&place_of("in two chunks"), reply_in(vec![first, second]));
        check_two_calls(
            &place_of("in one chunk"),
            reply_in(vec![calls_chunk(&calls)]),
        );
    }
}

/// Symptom, cause and fix as above. Kind: arguments that are no text, or come in pieces.
#[test]
fn arguments_are_put_together_however_they_come() {
    let object = |path: &str| {
        let mut call = bare_call(path);
        call["function"]["arguments"] = json!({"path": path});
        call
    };
    let piece = |index: u64, text: &str| {
        calls_chunk(&[json!({"index": index, "function": {"arguments": text}})])
    };
    let begun = |index: u64, id: &str| {
        let function = json!({"name": "read_file", "arguments": ""});
        json!({"index": index, "id": id, "type": "function", "function": function})
    };
    let begun = calls_chunk(&[begun(0, "x1"), begun(1, "x2")]);
    for (place, chunks) in [
        (
            "objects in one chunk",
            vec![calls_chunk(&PATHS.map(object))],
        ),
        (
            "objects in two chunks",
            PATHS.map(|path| calls_chunk(&[object(path)])).to_vec(),
        ),
        (
            "pieces by turns",
            vec![
                begun,
                piece(0, "{\"path\":"),
                piece(1, "{\"path\": \"oth"),
                piece(0, "\"notes.txt\"}"),
                piece(1, "er.txt\"}"),
            ],
        ),
    ] {
        check_two_calls(place, reply_in(chunks));
    }
}

/// Symptom: a call was refused to the model, and a turn was lost each time. Cause: the first piece
/// of its arguments was `{}`, and the real ones followed. Fix: an empty object that another follows
/// is dropped. Kind: arguments with a prefix.
#[test]
fn an_empty_object_in_front_of_the_arguments_is_dropped() {
    let begun = |arguments: Value| {
        let function = json!({"name": "read_file", "arguments": arguments});
        calls_chunk(&[json!({"index": 0, "id": "a", "type": "function", "function": function})])
    };
    let more = |function: Value| calls_chunk(&[json!({"index": 0, "function": function})]);
    let whole = "{\"path\":\"notes.txt\"}";
    for (place, chunks) in [
        (
            "without a name",
            vec![begun(json!("{}")), more(json!({"arguments": whole}))],
        ),
        (
            "with the name again",
            vec![
                begun(json!("{}")),
                more(json!({"name": "read_file", "arguments": whole})),
            ],
        ),
        (
            "in pieces",
            vec![
                begun(json!("{}")),
                more(json!({"arguments": "{\"path\":"})),
                more(json!({"arguments": "\"notes.txt\"}"})),
            ],
        ),
        (
            "as an object",
            vec![begun(json!({})), more(json!({"arguments": whole}))],
        ),
    ] {
        let answers = vec![reply_in(chunks), text_reply("Done.")];
        let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
        let answer = judged.run();
        assert_eq!(answer["result"], "Done.", "{place}: {answer}");
        let results = judged.server.requests()[1].results();
        assert_eq!(results.len(), 1, "{place}: {results:?}");
        assert!(results[0].1.contains("oats"), "{place}: {results:?}");
    }
}

/// Symptom: a whole, paid reply was no reply. Cause: a server answered a request for a stream with
/// one document. Fix: its message is read as the reply. Kind: calls of a reply that is no stream.
#[test]
fn calls_of_a_whole_document_are_performed() {
    let calls = calls_with("id", [json!("x1"), json!("x2")]);
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
    let document = json!({"id": "c1", "object": "chat.completion", "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}});
    check_two_calls("a document", ServerAnswer::json(200, &document));
}

/// Symptom: a reply with text and calls lost one of both. Cause: a server sends them in one chunk,
/// with the finish reason. Fix: each part of a chunk counts. Kind: a chunk with several parts.
#[test]
fn a_chunk_with_calls_and_finish_reason_is_read_whole() {
    let calls = calls_with("id", [json!("x1"), json!("x2")]);
    let delta = json!({"role": "assistant", "content": "Let me look.", "tool_calls": calls});
    let first = stream_reply(&[chunk(&delta, Some("stop")), usage_chunk(100, 10)]);
    check_two_calls("all in one chunk", first);
}
