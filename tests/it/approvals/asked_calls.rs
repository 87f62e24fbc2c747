//! The way of a call that needs consent: asked, decided, handed out or not, and told to the model.

use super::fixture::{
    answer, approve, assert_asks, assert_calls_model, begin, code, deny, due, finish_calls,
    finish_calls_with, handed_out, newest_results, waiting, world_with_policy,
};
use crate::resumes::fixture::{core_error, newest_events, sent_messages};
use crate::runner::fixture::{RunnerFixture, calls, says, user};
use serde_json::Value;
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::{Event, parse_user};
use threadkeep_core::runner::{Signal, ToolState};
use threadkeep_core::thread::StepKind;

#[test]
fn approved_call_is_handed_out_once_and_the_run_ends() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", r#"{"to":"all"}"#)]);
    assert_asks(&world, &thread, &["call_2_0"]);
    let head = world.service.load(&thread).unwrap().head.value;
    let message = head.cause.clone().unwrap().message;
    assert_eq!(
        message,
        "call_2_0 (ask) waits for a decision: approve, deny or answer"
    );
    let details = world.service.load(&thread).unwrap();
    let needs = world.service.details(&details).unwrap().waits_for.unwrap();
    assert_eq!(
        needs,
        r#"{"calls":[{"call":"call_2_0","name":"ask","arguments":"{\"to\":\"all\"}"}]}"#
    );
    approve(&world, &thread, "call_2_0");
    assert_eq!(waiting(&world, &thread), [] as [String; 0]);
    assert_eq!(due(&world), [thread.as_str()]);
    let step = world.start(&thread, None).unwrap();
    world.audit();
    assert_eq!(step.step.kind, Some(StepKind::CallTools));
    let [call] = &step.step.calls[..] else {
        panic!("one call: {step:?}")
    };
    assert!(call.approved && !call.idempotent, "{call:?}");
    let step = finish_calls(&mut world, &thread);
    assert_calls_model(&step);
    world.submit(&thread, says("done")).unwrap();
    assert_eq!(world.status(&thread), "completed");
    world.audit();
}

#[test]
fn model_is_told_denial_note_and_answer() {
    let mut world = RunnerFixture::new();
    let two = [("ask", r#"{"n":1}"#), ("ask", r#"{"n":2}"#)];
    let thread = begin(&mut world, "work", &two);
    assert_asks(&world, &thread, &["call_2_0", "call_2_1"]);
    deny(&world, &thread, "call_2_0", "not on a Sunday");
    assert_asks(&world, &thread, &["call_2_1"]);
    answer(&world, &thread, "call_2_1", "send it to the list");
    assert_eq!(due(&world), [thread.as_str()]);
    let step = world.start(&thread, None).unwrap();
    assert_calls_model(&step);
    let sent = sent_messages(&world, &thread).concat();
    assert!(sent.contains("denied: not on a Sunday"), "{sent}");
    assert!(sent.contains("send it to the list"), "{sent}");
    world.submit(&thread, says("done")).unwrap();
    world.audit();
}

#[test]
fn other_calls_of_the_reply_come_first() {
    let mut world = RunnerFixture::new();
    let three = [("read", "{}"), ("ask", "{}"), ("write", "{}")];
    let thread = begin(&mut world, "work", &three);
    assert_eq!(world.pending(&thread), Some(StepKind::CallTools));
    assert_eq!(handed_out(&world.held[&thread].handed), ["read", "write"]);
    assert_eq!(
        waiting(&world, &thread),
        ["call_2_1"],
        "it may be decided now"
    );
    let step = finish_calls(&mut world, &thread);
    assert_eq!(step.step.kind, None);
    assert_asks(&world, &thread, &["call_2_1"]);
}

#[test]
fn decision_while_other_calls_run_lets_the_run_go_on() {
    for (verdict, state) in [("approve", "done"), ("deny", "denied"), ("answer", "done")] {
        let mut world = RunnerFixture::new();
        let thread = begin(&mut world, "work", &[("read", "{}"), ("ask", "{}")]);
        let version = world.service.load(&thread).unwrap().head.value.version;
        match verdict {
            "approve" => approve(&world, &thread, "call_2_1"),
            "deny" => deny(&world, &thread, "call_2_1", "no"),
            _ => answer(&world, &thread, "call_2_1", "yes"),
        }
        let head = world.service.load(&thread).unwrap().head.value;
        assert_eq!(head.version, version, "the history is the driver's");
        assert_eq!(waiting(&world, &thread), [] as [String; 0]);
        let step = finish_calls(&mut world, &thread);
        let told = newest_events(&world, &thread);
        let decided = told.iter().filter(|event| event.kind() == "decision");
        assert_eq!(decided.count(), 1, "{verdict}: {told:?}");
        if verdict == "approve" {
            assert_eq!(handed_out(&step), ["ask"]);
            let step = finish_calls(&mut world, &thread);
            assert_calls_model(&step);
        } else {
            assert_calls_model(&step);
        }
        let (call, _, found) = newest_results(&world, &thread).pop().unwrap();
        assert_eq!((call.as_str(), found), ("call_2_1", state), "{verdict}");
        world.submit(&thread, says("done")).unwrap();
        world.audit();
    }
}

#[test]
fn start_hands_out_what_is_approved_and_stops_for_the_rest() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{}"), ("ask", "{}")]);
    approve(&world, &thread, "call_2_1");
    assert_eq!(due(&world), [] as [String; 0], "one is left");
    let step = world.start(&thread, None).unwrap();
    assert_eq!(step.step.calls.len(), 1);
    assert_eq!(step.step.calls[0].index, 1);
    finish_calls(&mut world, &thread);
    assert_asks(&world, &thread, &["call_2_0"]);
}

#[test]
fn start_without_a_decision_is_refused_and_names_the_calls() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{}"), ("ask", "{}")]);
    for input in [None, Some("go on")] {
        match core_error(world.start(&thread, input)) {
            CoreErrorKind::Refused { status, advice, .. } => {
                assert_eq!(status, "suspended");
                assert_eq!(advice, "approve, deny or answer call_2_0, call_2_1");
            }
            other => panic!("{other:?}"),
        }
    }
    let deadline = threadkeep_component::ports::HostPorts::now(world.service.ports());
    let deadline = deadline.plus_millis(60_000);
    let opened = world.service.open(&thread, "loop", deadline);
    assert!(matches!(core_error(opened), CoreErrorKind::Refused { .. }));
    assert_asks(&world, &thread, &["call_2_0", "call_2_1"]);
}

#[test]
fn message_waits_until_the_calls_are_decided() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{}")]);
    let message = Signal::Message(parse_user(&user("and hurry")).unwrap());
    world.service.signal(&thread, "m", &message).unwrap();
    world.audit();
    assert_asks(&world, &thread, &["call_2_0"]);
    deny(&world, &thread, "call_2_0", "no");
    let step = world.start(&thread, None).unwrap();
    assert_calls_model(&step);
    let sent = sent_messages(&world, &thread);
    let last: Value = serde_json::from_str(sent.last().unwrap()).unwrap();
    assert_eq!(last["content"][0]["text"], "and hurry");
}

#[test]
fn tool_may_ask_for_consent_itself_once() {
    let mut world = RunnerFixture::new();
    let thread = begin(
        &mut world,
        "work",
        &[("read", "{}"), ("write", r#"{"n":1}"#)],
    );
    let asks = |outcome: &mut threadkeep_core::runner::ToolOutcome| {
        if outcome.index == 1 {
            outcome.state = ToolState::NeedsConsent;
            outcome.content = "it would overwrite a file".to_owned();
        }
    };
    finish_calls_with(&mut world, &thread, asks);
    assert_asks(&world, &thread, &["call_2_1"]);
    let head = world.service.load(&thread).unwrap().head.value;
    let message = head.cause.clone().unwrap().message;
    assert!(
        message.starts_with("call_2_1 (write: it would overwrite a file) waits"),
        "{message}"
    );
    let told = newest_events(&world, &thread);
    let asked = told
        .iter()
        .any(|event| matches!(event, Event::ConsentAsked(_)));
    assert!(asked, "{told:?}");
    approve(&world, &thread, "call_2_1");
    let step = world.start(&thread, None).unwrap();
    assert!(step.step.calls[0].approved);
    let step = finish_calls_with(&mut world, &thread, asks);
    assert_calls_model(&step);
    let [(_, text, state)] = &newest_results(&world, &thread)[..] else {
        panic!("one result")
    };
    assert_eq!(*state, "denied");
    assert!(text.contains("asks again for consent"), "{text}");
}

#[test]
fn end_of_the_run_says_that_an_undecided_call_never_ran() {
    for signal in [Signal::Cancel, Signal::Kill] {
        let mut world = RunnerFixture::new();
        let thread = begin(&mut world, "work", &[("ask", "{}")]);
        world.service.signal(&thread, "end", &signal).unwrap();
        world.audit();
        let [(_, text, state)] = &newest_results(&world, &thread)[..] else {
            panic!("one result")
        };
        assert_eq!(*state, "denied");
        assert!(text.starts_with("not run"), "{text}");
    }
}

#[test]
fn operators_patterns_apply_to_threads_that_run_already() {
    let mut world = world_with_policy(&["execute.tool.wr*"]);
    let thread = begin(&mut world, "work", &[("read", "{}"), ("write", "{}")]);
    assert_eq!(handed_out(&world.held[&thread].handed), ["read"]);
    finish_calls(&mut world, &thread);
    assert_asks(&world, &thread, &["call_2_1"]);
}

#[test]
fn unreadable_arguments_are_no_question_to_a_person() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{")]);
    assert_eq!(world.pending(&thread), Some(StepKind::CallLlm));
    assert_eq!(code(&world, &thread), "");
    world.submit(&thread, calls(&[("ask", "{}")])).unwrap();
    assert_asks(&world, &thread, &["call_3_0"]);
}
