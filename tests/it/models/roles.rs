//! The order of messages on the OpenAI wire: a message order that strict servers refuse is never
//! sent.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use std::time::Duration;
use threadkeep_tests::binary;
use threadkeep_tests::judge::{
    ServerAnswer, call_reply, chunk, finish_chunk, read_file_call, refuse, stream_reply,
    text_chunk, text_reply, thinking_chunk, usage_chunk,
};

/// Time after which a run counts as stuck: longer than any of these tests waits.
const STUCK: Duration = Duration::from_secs(60);

/// Returns the reason for which a strict server refuses this conversation, if it does.
fn strict_fault(body: &Value) -> Option<&'static str> {
    let messages = body["messages"].as_array()?;
    let talk = messages
        .iter()
        .filter(|message| message["role"] != "system");
    let talk: Vec<&Value> = talk.collect();
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    for pair in talk.windows(2) {
        match (role(pair[0]).as_str(), role(pair[1]).as_str()) {
            ("user", "user") | ("assistant", "assistant") => {
                return Some("roles must alternate between user and assistant");
            }
            ("tool", "user") => return Some("unexpected role user after role tool"),
            ("user", "tool") => return Some("a result without its call"),
            _ => {}
        }
    }
    let says_nothing = |message: &&Value| {
        let text = message["content"].as_str().unwrap_or_default();
        let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
        role(message) == "assistant" && text.is_empty() && calls == 0
    };
    if talk.iter().any(says_nothing) {
        return Some("a message of the assistant must not be empty");
    }
    match (role(talk.first()?).as_str(), role(talk.last()?).as_str()) {
        ("user", "user" | "tool") => None,
        ("user", _) => Some("the last message must be of a user or a tool"),
        _ => Some("the first message must be of a user"),
    }
}

/// A project whose strict server answers the first request with `first` and each later one with
/// text.
fn strict_project(first: ServerAnswer) -> JudgedProject {
    JudgedProject::new(
        &ProjectPlan::default(),
        move |number, body, _| match strict_fault(body) {
            Some(message) => refuse(
                400,
                &json!({"object": "error", "message": message, "code": "3230"}),
            ),
            None if number == 0 => first.clone(),
            None => text_reply("Done."),
        },
    )
}

/// Panics if the server has refused a request.
fn assert_no_fault(judged: &JudgedProject, place: &str) {
    for request in judged.server.requests() {
        let fault = strict_fault(&request.body);
        assert_eq!(fault, None, "{place}: {}", request.body["messages"]);
    }
}

/// Symptom: after a reply of thinking alone every later request was refused, and the thread was
/// lost. Cause: such a reply was sent back as an empty message. Fix: an empty message is left out.
/// Kind: a reply that leaves a history which no strict server takes.
#[test]
fn a_reply_without_text_does_not_poison_its_thread() {
    let thinks = |field: &str| chunk(&json!({"role": "assistant", field: "I am done."}), None);
    for (place, chunks, word) in [
        (
            "reasoning_content",
            vec![thinks("reasoning_content")],
            "stop",
        ),
        ("reasoning", vec![thinks("reasoning")], "stop"),
        (
            "cut while it thinks",
            vec![thinking_chunk("I am")],
            "length",
        ),
        (
            "with an empty text",
            vec![thinking_chunk("I am done."), text_chunk("")],
            "stop",
        ),
        ("nothing at all", Vec::new(), "stop"),
    ] {
        let end = vec![finish_chunk(word), usage_chunk(100, 10)];
        let judged = strict_project(stream_reply(&[chunks, end].concat()));
        judged.say("one");
        for line in ["two", "three"] {
            let ran = judged.say(line);
            assert_eq!(ran.code, Some(0), "{place}, {line}: {ran:#?}");
        }
        assert_no_fault(&judged, place);
    }
}

/// Symptom: a thread whose model had answered nothing was refused for ever. Cause: two user
/// messages stood in a row. Fix: they are sent as one. Kind: the order of roles.
#[test]
fn messages_of_a_user_in_a_row_are_sent_as_one() {
    let nothing = stream_reply(&[text_chunk(""), finish_chunk("stop"), usage_chunk(100, 1)]);
    let judged = strict_project(nothing);
    judged.say("The first line.");
    let ran = judged.say("The second line.");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_no_fault(&judged, "user after user");
    let sent = &judged.server.requests()[1];
    let [user]: [&Value; 1] = sent.messages_of("user").try_into().expect("one message");
    let text = user["content"].as_str().expect("a text");
    assert!(
        text.contains("The first line.") && text.contains("The second line."),
        "{text}"
    );
}

/// Symptom: a thread that had got a message between a result and the next request was refused for
/// ever. Cause: a user message followed a result. Fix: an assistant message stands between. Kind:
/// the order of roles.
#[test]
fn a_message_after_a_result_is_sent_so_that_strict_servers_take_it() {
    let calls = [read_file_call(0, "notes.txt", "a")];
    let judged = strict_project(call_reply(&calls));
    for (arguments, exit) in [
        (&["run", "go", "--id", "t", "--turns", "1"][..], 3),
        (&["raise", "t", "--turns", "5"], 0),
        (&["message", "t", "Be short, please."], 0),
        (&["resume", "t"], 0),
    ] {
        let answer = judged.project.json(arguments);
        assert_eq!(answer["exit"], exit, "{arguments:?}: {answer}");
    }
    assert_no_fault(&judged, "user after tool");
    let sent = judged.server.requests()[1].body["messages"].to_string();
    assert!(sent.contains("Be short, please."), "{sent}");
}

/// Symptom: a run could not continue after a truncated reply. Cause: the assistant's message stood
/// last. Fix: a user message stands behind it. Kind: the order of roles.
#[test]
fn a_cut_reply_is_not_the_last_message() {
    let cut = stream_reply(&[
        text_chunk("The first half"),
        finish_chunk("length"),
        usage_chunk(100, 10),
    ]);
    let judged = strict_project(cut);
    assert_eq!(judged.run()["exit"], 3);
    let answer = judged.project.json(&["resume", "t"]);
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_no_fault(&judged, "assistant last");
    let sent = judged.server.requests()[1].body["messages"].to_string();
    assert!(sent.contains("The first half"), "{sent}");
}

/// Symptom: after a reply that the user had stopped the chat was refused for ever. Cause: two user
/// messages stood in a row. Fix: they are sent as one. Kind: the order of roles.
#[cfg(unix)]
#[test]
fn a_chat_goes_on_after_a_reply_that_was_stopped() {
    let stuck = ServerAnswer::stream()
        .send_chunk(&text_chunk("Half"))
        .pause_for(STUCK);
    let judged = strict_project(stuck);
    let chat = judged.project.command(&["chat", "--id", "c"]);
    let running = binary::start_with_input(chat, "one\n");
    running.await_err("a reply is under way");
    running.interrupt();
    assert_eq!(running.wait_for_end().code, Some(3));
    for line in ["two", "three"] {
        let ran = judged.say(line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:#?}");
    }
    assert_no_fault(&judged, "user after a stop");
}
