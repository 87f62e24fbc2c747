//! Tests of the tables and pages of threads, as text and as JSON.

use super::*;
use crate::answer::SignalAnswer;
use crate::screen::tests::screen;
use serde_json::json;

fn view() -> ThreadView {
    ThreadView {
        thread_id: "a-1".to_owned(),
        directive: Some("a".to_owned()),
        status: "running".to_owned(),
        outcome: None,
        cause: None,
        waits_for: ThreadNeeds::default(),
        title: None,
        agent: None,
        task: None,
        parent: None,
        chain: "a-1".to_owned(),
        previous: None,
        next: None,
        forked_from: None,
        state: None,
        forks: 0,
        model: "fast".to_owned(),
        limits: LimitsView {
            turns: Some(1),
            spend: Some(500_000_000),
            duration: Some(1_800_000),
            ..LimitsView::default()
        },
        capabilities: vec!["execute.tool.*".to_owned()],
        inputs: json!({"file": "x"}),
        result: None,
        cost: ThreadCost::default(),
        duration: 1_240,
        context: 310,
        window: Some(32_000),
        run: RunView {
            number: 1,
            holder: Some("native-1/1".to_owned()),
            expiry: Some("2026-03-10T12:10:00Z".to_owned()),
            step: Some("call-llm".to_owned()),
        },
        version: 2,
        created: "2026-03-10T11:00:00Z".to_owned(),
        updated: "2026-03-10T12:00:00Z".to_owned(),
    }
}

#[test]
fn a_thread_is_shown_with_what_is_known() {
    let answer = ShowAnswer {
        thread: view(),
        at: None,
        events: vec![EventView {
            version: 1,
            index: 0,
            kind: "message".to_owned(),
            time: "2026-03-10T11:59:30Z".to_owned(),
            body: json!({"content": [{"type": "text", "text": "one\ntwo \x07"}]}),
        }],
        documents: Some(".ai/threads/a-1".to_owned()),
        events_problem: None,
        continued_in: None,
        exit: CommandExit::Done,
        utc: false,
    };
    let (mut person, out, _) = screen(false, true);
    person.print_answer(&answer);
    let text = out.text();
    for line in [
        "thread         a-1",
        "documents      .ai/threads/a-1",
        "limits         1 turn, 0.50 USD, 30 min 0 s",
        "run            1, call-llm under way, held by native-1/1, expires in 10 minutes",
        "  1.0  30 seconds ago  message  one two \\u{7}",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    assert!(!text.contains("title"), "what is empty is not shown");
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["thread"]["limits"]["spend"], "0.50");
    assert_eq!(json["events"][0]["type"], "message");
}

#[test]
fn signals_say_what_comes_of_them() {
    for (signal, status, expected) in [
        (
            "cancel",
            "running",
            "a ends: a model call under way is dropped by the process that runs it, if that is the \
             native program; tools finish first\n",
        ),
        ("cancel", "cancelled", "a is cancelled\n"),
        ("kill", "killed", "a is killed\n"),
        ("message", "running", "a gets it before its next turn\n"),
        ("raise", "suspended", "a is suspended; caps: 9 turns\n"),
    ] {
        let (mut person, out, err) = screen(false, false);
        person.print_answer(&SignalAnswer {
            thread_id: "a".to_owned(),
            continued_in: None,
            signal: signal.to_owned(),
            status: status.to_owned(),
            limits: LimitsView {
                turns: Some(9),
                ..LimitsView::default()
            },
            version: 3,
            unreadable: Vec::new(),
            not_told: None,
            can_go_on: status == "suspended",
            own_loop: false,
            exit: CommandExit::Done,
        });
        assert_eq!(out.text(), expected);
        assert_eq!(err.text().is_empty(), signal != "raise");
    }
}

#[test]
fn gists_are_short() {
    assert_eq!(
        event_gist(&json!({"text": "x".repeat(200)}))
            .chars()
            .count(),
        EVENT_CHARS_MAX + 1
    );
    assert_eq!(event_gist(&json!({"cause": {"message": "why"}})), "why");
    for (arguments, gist) in [
        (
            json!(r#"{"path": "caf\u00e9"}"#),
            r#"read_file {"path":"café"}"#,
        ),
        (json!("no JSON"), "read_file no JSON"),
        (json!("{}"), "read_file"),
        (json!({"n": 1}), r#"read_file {"n":1}"#),
        (json!(null), "read_file"),
    ] {
        let call = json!({"type": "tool_use", "name": "read_file", "arguments": arguments});
        assert_eq!(event_gist(&call), gist);
    }
    // Symptom: the row of a `charged` event was blank. Kind: events that tell amounts alone.
    let charged = json!({"type": "charged", "version": 2, "spend": 5_000_000, "most": 20_000_000});
    let gist = "0.005 USD is charged by estimate; at most it was 0.02 USD";
    assert_eq!(event_gist(&charged), gist);
    let corrected =
        json!({"type": "usage_corrected", "charged": 5_000_000, "spend": 1_000_000, "version": 2});
    let gist = "0.005 USD was charged, 0.001 USD was really spent";
    assert_eq!(event_gist(&corrected), gist);
    for (event, gist) in [
        (
            json!({"type": "context_limit_reached", "tokens_used": 9, "tokens_limit": 10}),
            "9 of 10 tokens are used",
        ),
        (
            json!({"type": "thread_handoff", "new_thread_id": "t-2"}),
            "goes on in t-2",
        ),
        (
            json!({"type": "thread_resumed", "new_thread_id": "t-2", "message_preview": "again"}),
            "goes on in t-2: again",
        ),
    ] {
        assert_eq!(event_gist(&event), gist);
    }
    assert_eq!(event_gist(&json!({})), "");
    assert_eq!(event_gist(&json!(null)), "");
}
