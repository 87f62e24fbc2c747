//! Unusual forms of replies: a whole one is accepted unchanged after one request, an incomplete one
//! is never a turn.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use threadkeep_tests::judge::{
    ServerAnswer, answer_in_order, anthropic_events, chunk, finish_chunk, read_file_call,
    stream_reply, text_chunk, usage_chunk,
};
use threadkeep_tests::llmock::MockWire;

/// Pause between two keep-alive messages of a stream.
const SECOND: Duration = Duration::from_secs(1);

/// Runs a project whose server gives this answer; checks that its text is the result, after one
/// request. Returns the project.
fn check_whole(place: &str, wire: MockWire, answer: ServerAnswer, result: &str) -> JudgedProject {
    let judged = JudgedProject::new(&ProjectPlan::of_wire(wire), answer_in_order(vec![answer]));
    let document = judged.run();
    assert_eq!(document["status"], "completed", "{place}: {document}");
    assert_eq!(document["result"], result, "{place}: {document}");
    assert_eq!(judged.server.requests().len(), 1, "{place}");
    judged
}

/// Runs a project whose server gives this answer each time; checks that there is no result, and
/// that the run can go on.
fn check_unfinished(place: &str, wire: MockWire, answer: ServerAnswer) {
    let judged = JudgedProject::new(&ProjectPlan::of_wire(wire), answer_in_order(vec![answer]));
    let document = judged.run();
    assert_eq!(document["status"], "suspended", "{place}: {document}");
    assert_eq!(document["exit"], 3, "{place}: {document}");
    assert_eq!(document["result"], Value::Null, "{place}: {document}");
}

/// The end of every reply that is whole.
fn ending() -> [Value; 2] {
    [finish_chunk("stop"), usage_chunk(100, 10)]
}

/// Symptom: the answers of a thinking model were lost, and each was paid four times. Cause: its
/// content is a list of parts, where others send text. Fix: parts of text and of thinking are read.
/// Kind: content that is not a string.
#[test]
fn content_may_be_a_list_of_parts() {
    let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    let hello = json!({"type": "text", "text": "Hello"});
    let reference = json!({"type": "reference", "reference_ids": [1]});
    for (place, contents) in [
        ("a part each", vec![json!([thought]), json!([hello])]),
        ("both in one", vec![json!([thought, hello])]),
        (
            "texts in the list",
            vec![json!([thought]), json!(["Hel", "lo"])],
        ),
        (
            "lists and texts",
            vec![json!([thought]), json!(["Hel"]), json!("lo")],
        ),
        (
            "a part of another kind",
            vec![json!([thought, reference]), json!([hello])],
        ),
        (
            "an empty list",
            vec![json!([]), json!([thought]), json!([hello])],
        ),
    ] {
        let contents = contents.iter();
        let chunks = contents.map(|content| chunk(&json!({"content": content}), None));
        let chunks: Vec<Value> = chunks.chain(ending()).collect();
        let judged = check_whole(place, MockWire::OpenAi, stream_reply(&chunks), "Hello");
        let thinking = judged.events("thinking");
        assert_eq!(thinking.len(), 1, "{place}: {thinking:?}");
        assert_eq!(thinking[0]["text"], "hm", "{place}");
    }
}

/// Symptom: a healthy stream was ended as broken, and paid again. Cause: gateways keep connections
/// alive with events without data. Fix: they are skipped. Kind: keep-alive messages in a stream.
#[test]
fn keep_alive_messages_are_skipped() {
    for sign in [
        "data:\n\n",
        "data: \n\n",
        ": waiting\n\n",
        ":\n\n",
        "event: ping\ndata: \n\n",
        "\n\n",
    ] {
        let answer = ServerAnswer::stream()
            .send_bytes(sign.repeat(2))
            .send_chunk(&text_chunk("Hello"))
            .send_bytes(sign)
            .send_chunks(&ending())
            .send_bytes(sign)
            .send_done();
        check_whole(&format!("{sign:?}"), MockWire::OpenAi, answer, "Hello");
    }
    for sign in [
        "event: ping\ndata: \n\n",
        "data:\n\n",
        ": waiting\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    ] {
        let events = anthropic_events("end_turn", "Hello");
        let spread = |answer: ServerAnswer, event| answer.send_event(event).send_bytes(sign);
        let answer = events
            .iter()
            .fold(ServerAnswer::stream().send_bytes(sign), spread);
        check_whole(&format!("{sign:?}"), MockWire::Anthropic, answer, "Hello");
    }
}

/// Symptom: a whole, paid reply was thrown away and requested again. Cause: a gateway ends
/// Anthropic's wire as the other wire ends. Fix: after the stop reason that mark is an end. Kind:
/// the end of a stream.
#[test]
fn an_anthropic_stream_may_end_otherwise() {
    let events = anthropic_events("end_turn", "Hello");
    let (stop, before) = events.split_last().expect("events");
    let begun = || ServerAnswer::stream().send_events(before);
    for (place, answer) in [
        ("with the other mark", begun().send_done()),
        ("with both marks", begun().send_event(stop).send_done()),
        ("with its connection", begun()),
    ] {
        check_whole(place, MockWire::Anthropic, answer, "Hello");
    }
    let without_reason = ServerAnswer::stream().send_events(&events[..4]).send_done();
    check_unfinished("without a stop reason", MockWire::Anthropic, without_reason);
}

/// Symptom: replies of a server that never gives a finish reason were paid again and again. Cause:
/// no reply was whole without one. Fix: usage and the end mark together say the same. Kind: the end
/// of a stream.
#[test]
fn usage_and_end_mark_stand_for_a_finish_reason() {
    let (text, usage) = (text_chunk("4"), usage_chunk(22, 5));
    let stream = ServerAnswer::stream;
    let whole = stream().send_chunk(&text).send_chunk(&usage).send_done();
    check_whole("usage and mark", MockWire::OpenAi, whole, "4");
    let beside = json!({"id": "c1", "choices": [{"index": 0, "delta": {"content": "4"}}],
        "usage": usage["usage"]});
    let beside = stream().send_chunk(&beside).send_done();
    check_whole("usage beside the text", MockWire::OpenAi, beside, "4");
    for (place, answer) in [
        (
            "without the mark",
            stream().send_chunk(&text).send_chunk(&usage),
        ),
        ("without usage", stream().send_chunk(&text).send_done()),
        ("without text", stream().send_chunk(&usage).send_done()),
        ("without anything", stream().send_done()),
    ] {
        check_unfinished(place, MockWire::OpenAi, answer);
    }
}

/// Symptom: a stream failed at its first chunk. Cause: some chunks have no choices, and some
/// choices no delta. Fix: both are skipped. Kind: chunks without a part of the reply.
#[test]
fn chunks_without_choices_or_delta_are_passed_over() {
    let filter = json!([{"prompt_index": 0, "content_filter_results": {}}]);
    let first = json!({"choices": [], "id": "", "model": "", "object": "",
        "prompt_filter_results": filter});
    let check = json!({"index": 0, "finish_reason": null, "content_filter_results": {},
        "content_filter_offsets": {"check_offset": 1}});
    let without_delta = json!({"id": "", "object": "", "choices": [check], "usage": null});
    let begun = chunk(&json!({"role": "assistant", "content": ""}), None);
    let [finish, usage] = ending();
    let nothing = json!({"id": "", "object": "", "choices": null});
    let chunks = [
        first,
        begun,
        text_chunk("Hi"),
        without_delta,
        nothing,
        finish,
        usage,
    ];
    check_whole("all of them", MockWire::OpenAi, stream_reply(&chunks), "Hi");
}

/// A chunk of the reply with this id.
fn chunk_of(id: &str, delta: Value, finish: Option<&str>) -> Value {
    let mut chunk = chunk(&delta, finish);
    chunk["id"] = json!(id);
    chunk
}

/// Symptom: a result was two replies in one. Cause: a router began another reply in the same stream
/// after the first had failed. Fix: a reply that begins again replaces the incomplete one. Kind:
/// several replies in one stream.
#[test]
fn a_reply_that_begins_anew_replaces_what_was_not_whole() {
    let anew = || chunk_of("b", json!({"role": "assistant", "content": "Three."}), None);
    let call = read_file_call(0, "notes.txt", "x1");
    for (place, first) in [
        ("after text", json!({"content": "One, two"})),
        ("after thinking", json!({"reasoning_content": "One, two"})),
        ("after a call", json!({"tool_calls": [call]})),
    ] {
        let chunks = [
            chunk_of("a", json!({"role": "assistant", "content": ""}), None),
            chunk_of("a", first.clone(), None),
            chunk_of("a", first, None),
            anew(),
            chunk_of("b", json!({}), Some("stop")),
            usage_chunk(100, 10),
        ];
        let judged = check_whole(place, MockWire::OpenAi, stream_reply(&chunks), "Three.");
        assert!(judged.events("thinking").is_empty(), "{place}");
    }
    let chunks = [
        chunk_of("a", json!({"role": "assistant", "content": "One."}), None),
        chunk_of("a", json!({}), Some("stop")),
        anew(),
        chunk_of("b", json!({}), Some("stop")),
        usage_chunk(100, 10),
    ];
    check_whole(
        "after a whole one",
        MockWire::OpenAi,
        stream_reply(&chunks),
        "One.",
    );
}

/// Symptom: a whole, paid reply was no reply. Cause: a server answered a request for a stream with
/// one document. Fix: its message is read as the reply. Kind: a reply that is no stream.
#[test]
fn a_whole_document_is_a_reply_on_both_wires() {
    let message = json!({"role": "assistant", "content": "Hello", "reasoning_content": "hm"});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let openai = json!({"id": "c1", "object": "chat.completion", "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}});
    let anthropic = json!({"id": "m1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 10}});
    for (wire, document) in [(MockWire::OpenAi, openai), (MockWire::Anthropic, anthropic)] {
        let answer = ServerAnswer::json(200, &document);
        let judged = check_whole("a document", wire, answer, "Hello");
        assert_eq!(judged.spent_amount(), "0.00012", "{wire:?}");
    }
}

/// Symptom: a whole, paid reply was lost. Cause: an error came behind it. Fix: a whole reply stays
/// whole. Kind: an error after the end.
#[test]
fn an_error_after_the_finish_reason_loses_nothing() {
    let error = json!({"error": {"message": "the worker went away", "code": 500}});
    let hello = || ServerAnswer::stream().send_chunk(&text_chunk("Hello"));
    let [finish, usage] = ending();
    let without_usage = hello().send_chunk(&finish).send_chunk(&error);
    check_whole("without usage", MockWire::OpenAi, without_usage, "Hello");
    let with_usage = hello().send_chunks(&[finish, usage, error]).send_done();
    let judged = check_whole("with usage", MockWire::OpenAi, with_usage, "Hello");
    assert_eq!(judged.spent_amount(), "0.00012");
    let error = json!({"type": "error",
        "error": {"type": "overloaded_error", "message": "the worker went away"}});
    let events = anthropic_events("end_turn", "Hello");
    let answer = ServerAnswer::stream()
        .send_events(&events[..5])
        .send_event(&error);
    let judged = check_whole("the other wire", MockWire::Anthropic, answer, "Hello");
    assert_eq!(judged.spent_amount(), "0.00012");
}

/// Symptom: a run hung after its reply was whole. Cause: the server kept the connection alive, and
/// each keep-alive message restarted the wait. Fix: after the finish reason the adapter waits 5 s
/// in all. Kind: a stream that does not end.
#[test]
fn a_stream_that_goes_on_after_its_finish_reason_is_left() {
    let events = anthropic_events("end_turn", "Hello");
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let openai = ServerAnswer::stream().send_chunks(&[text_chunk("Hello"), finish_chunk("stop")]);
    let anthropic = ServerAnswer::stream().send_events(&events[..5]);
    for (wire, begun, sign) in [
        (MockWire::OpenAi, openai.clone(), ": waiting\n\n"),
        (MockWire::OpenAi, openai, "data:\n\n"),
        (MockWire::Anthropic, anthropic, ping),
    ] {
        let live = |answer: ServerAnswer, _| answer.send_bytes(sign).pause_for(SECOND);
        let answer = (0..60).fold(begun, live);
        let began = Instant::now();
        check_whole(sign, wire, answer, "Hello");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(30), "{sign:?} {took:?}");
    }
}
