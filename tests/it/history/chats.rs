//! Chats that the runner and external loops share.

use super::{LoopHost, call_event, code, message_event, result_event};
use crate::runner::fixture::says;
use serde_json::json;

/// A provider is sent the appended text byte for byte, whether the runner or an external loop goes
/// on.
#[test]
fn the_runner_sends_what_was_appended() {
    let mut host = LoopHost::new();
    host.append(&[
        message_event("user", "what is it? 漢🙂 \u{0}"),
        json!({"type": "thinking", "text": "hm", "raw": "{\"signature\": \"x\"}"}),
        json!({"type": "assistant_text", "text": "Let me look."}),
        call_event("toolu_1"),
        result_event("toolu_1"),
        message_event("assistant", "It is 42."),
    ])
    .unwrap();
    let appended = [
        r#"{"role":"user","content":[{"type":"text","text":"what is it? 漢🙂 \u0000"}]}"#,
        concat!(
            r#"{"role":"assistant","content":[{"type":"thinking","text":"hm","#,
            r#""raw":"{\"signature\": \"x\"}"},{"type":"text","text":"Let me look."},"#,
            r#"{"type":"tool_use","id":"call_1_3","name":"read","arguments":"{}"}]}"#
        ),
        concat!(
            r#"{"role":"tool","content":[{"type":"tool_result","id":"call_1_3","name":"read","#,
            r#""text":"42","failed":false}]}"#
        ),
        r#"{"role":"assistant","content":[{"type":"text","text":"It is 42."}]}"#,
    ];
    let thread = host.thread.clone();
    assert_eq!(
        code(&host.world.start(&thread, None).unwrap_err()),
        "invalid",
        "nothing is asked"
    );
    let handed = host.world.start(&thread, Some("sure?")).unwrap();
    assert_eq!(handed.messages[..4], appended);
    assert_eq!(handed.messages.len(), 5);
    host.world.submit(&thread, says("sure")).unwrap();
    host.append(&[message_event("user", "thanks")]).unwrap();
    // An appended question may be answered by the runner without another message.
    let handed = host.world.start(&thread, None).unwrap();
    assert_eq!(handed.messages[..4], appended);
    assert_eq!(handed.messages.len(), 7);
    host.world.submit(&thread, says("welcome")).unwrap();
    host.take_lease("h/1", 60).unwrap();
    host.append(&[
        message_event("user", "bye"),
        message_event("assistant", "bye"),
    ])
    .unwrap();
    host.close("idle", None).unwrap();
    assert_eq!(
        host.world
            .service
            .messages(&thread, 0, None)
            .unwrap()
            .0
            .len(),
        10
    );
}

/// Symptom: a thread that ended, or was held, before its first start answered `corrupt` to a start,
/// a claim and a submit. Cause: its pin was read before its status. Fix: decisions that need no pin
/// come first.
#[test]
fn a_thread_that_was_never_started_is_not_corrupt() {
    use threadkeep_core::runner::{DecisionInputs, HolderProof, Signal, StepSubmission};
    let mut host = LoopHost::new();
    let thread = host.thread.clone();
    let submission = StepSubmission {
        token: 0,
        version: 0,
        outcome: says("hello"),
        inputs: DecisionInputs::default(),
    };
    for ended in [false, true] {
        if ended {
            let service = &host.world.service;
            service.signal(&thread, "c", &Signal::Cancel).unwrap();
            let started = host.world.start(&thread, Some("hi"));
            assert_eq!(code(&started.unwrap_err()), "refused");
        }
        let service = &host.world.service;
        let claimed = service.claim(&thread, "d/1", HolderProof::Dead);
        assert_eq!(code(&claimed.unwrap_err()), "refused");
        let expected = if ended { "fenced" } else { "conflict" };
        let submitted = service.submit(&thread, &submission, 0);
        assert_eq!(code(&submitted.unwrap_err()), expected);
    }
}

/// Symptom: with a message before the first start, prompt and schemas were missing from the
/// estimated context. Cause: they were added only to an estimate of zero. Fix: they are added with
/// the first pin.
#[test]
fn early_messages_count_beside_the_prompt() {
    let context = |before: bool| {
        let mut host = LoopHost::new();
        let thread = host.world.create(Some("work"));
        host.thread.clone_from(&thread);
        if before {
            host.append(&[message_event("user", "hi")]).unwrap();
            host.world.start(&thread, None).unwrap();
        } else {
            host.world.start(&thread, Some("hi")).unwrap();
        }
        host.head().context
    };
    assert_eq!(context(true), context(false));
}
