//! The summary of a thread that is handed off: an attempt like any other, whose failure never keeps
//! the thread from being handed off.

use super::fixture::{DrivenChain, library, words};
use crate::runner::fixture::{fails, reply, usage};
use serde_json::{Value, json};
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{LlmFailure, ReplyBlock, Signal, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadStatus};

/// A chat that is asked until its summary is asked for, or it has gone on in another thread.
pub fn fill(continuation: Value) -> DrivenChain {
    let mut chain = DrivenChain::start(library(continuation), None, Some("the first question"));
    for n in 0..9 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        if chain.is_summarizing() || chain.links.len() > 1 {
            return chain;
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

fn text(text: &str) -> StepOutcome {
    let block = ReplyBlock::Text {
        text: text.to_owned(),
    };
    reply(vec![block], usage(500, 20))
}

/// The event that closed the first link.
fn closing_event(chain: &DrivenChain) -> Value {
    chain.event(&chain.links[0], "thread_handoff")
}

#[test]
fn a_summary_is_settled_on_the_chain_and_is_no_turn() {
    let mut chain = fill(json!({}));
    let first = chain.links[0].clone();
    let before = chain.load(&first);
    chain.submit(text("a summary"));
    let (old, new) = (chain.load(&first), chain.load(&chain.thread));
    // 520 tokens at 2 USD a million.
    let spent = old.head.value.counters.spend.get() - before.head.value.counters.spend.get();
    assert_eq!(spent, 520 * 2_000);
    assert_eq!(
        old.head.value.counters.turns,
        before.head.value.counters.turns
    );
    let used = new.head.value.counters.run_tokens - before.head.value.counters.run_tokens;
    assert_eq!(used, 520);
    assert_eq!(
        new.head.value.carried_spend,
        Some(old.head.value.counters.spend)
    );
    assert_eq!(new.chain.value.account.spent, old.head.value.counters.spend);
    let results = chain.events(&first);
    let summary = results.iter().filter(|event| event["summary"] == true);
    assert_eq!(summary.count(), 1);
    let events: Vec<Value> = chain.events(&first);
    let model = events
        .iter()
        .find(|event| event["summary"] == true)
        .unwrap();
    assert_eq!(model["model"], "fast");
    chain.check();
}

#[test]
fn a_summary_that_comes_to_nothing_is_left_out_and_said() {
    let calls = vec![ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: "write".to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    }];
    for (outcome, problem) in [
        (text(" \n"), "is empty"),
        (reply(calls, usage(1, 1)), "is empty"),
        (StepOutcome::Failure(fails("permanent", true)), "on purpose"),
        (StepOutcome::Failure(fails("quota", true)), "on purpose"),
        (
            StepOutcome::Failure(fails("context-overflow", true)),
            "on purpose",
        ),
    ] {
        let mut chain = fill(json!({}));
        chain.submit(outcome);
        let closing = closing_event(&chain);
        assert_eq!(closing["summary_generated"], false, "{closing}");
        let said = closing["summary_problem"].as_str().unwrap();
        assert!(said.contains(problem), "{said}");
        chain.check();
        chain.say("and on");
        assert_eq!(chain.status(), ThreadStatus::Idle);
    }
}

#[test]
fn a_transient_failure_is_tried_again_with_the_same_bytes() {
    let mut chain = fill(json!({"summary_limit_overrides": {"turns": 2}}));
    let (asked, hash) = (chain.request(), chain.handed.step.hash.clone());
    chain.submit(StepOutcome::Failure(fails("transient", true)));
    assert_eq!(chain.handed.step.kind, Some(StepKind::Wait));
    chain.submit(StepOutcome::Waited);
    assert!(chain.is_summarizing());
    assert_eq!(chain.request(), asked);
    assert_eq!(chain.handed.step.hash, hash);
    chain.check();
    chain.submit(StepOutcome::Failure(fails("transient", true)));
    assert_eq!(closing_event(&chain)["summary_generated"], false);
    chain.check();
}

#[test]
fn money_and_models_that_are_missing_are_no_reason_to_wait() {
    let chain = fill(json!({"summary_limit_overrides": {"spend": 0.001}}));
    let said = closing_event(&chain)["summary_problem"].to_string();
    assert!(said.contains("USD"), "{said}");
    chain.check();
    let small = library(json!({})).with(
        "model",
        "fast",
        concat!(
            r#"{"name":"fast","provider":"p","window":200,"output":100,"#,
            r#""prices":{"input":"1","output":"1"}}"#
        ),
    );
    let mut chain = DrivenChain::start(small, None, Some("the first question"));
    while chain.links.len() == 1 {
        chain.say(&words(90));
        chain.ask("next");
        assert!(!chain.is_summarizing());
    }
    let said = closing_event(&chain)["summary_problem"].to_string();
    assert!(said.contains("too small"), "{said}");
    chain.check();
}

#[test]
fn a_summary_that_is_too_long_is_cut() {
    let mut chain = fill(json!({}));
    chain.submit(text(&"long story ".repeat(400)));
    assert!(closing_event(&chain)["summary_tokens"].as_u64().unwrap() <= 450 / 3);
    let opening = chain.request().remove(0).1;
    assert!(opening.contains("The summary is cut here"), "{opening}");
    chain.check();
}

#[test]
fn a_stop_keeps_the_phase_and_a_start_goes_on_with_it() {
    let mut chain = fill(json!({}));
    chain.submit(StepOutcome::Stopped(LlmFailure {
        partial: "half a summ".to_owned(),
        ..fails("cancelled", true)
    }));
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "stopped");
    let phase = chain.load(&chain.thread).head.value.phase.clone().unwrap();
    assert_eq!(phase.tries, 1);
    chain.check();
    chain.try_start(None).unwrap();
    assert!(chain.is_summarizing());
    chain.submit(text("a summary"));
    assert_eq!(chain.links.len(), 2);
    let limits = chain.events(&chain.links[0]);
    let limits = limits
        .iter()
        .filter(|event| event["type"] == "context_limit_reached");
    assert_eq!(limits.count(), 1);
    chain.check();
}

#[test]
fn an_end_that_comes_meanwhile_ends_the_thread() {
    for (signal, status) in [
        (Signal::Cancel, ThreadStatus::Cancelled),
        (Signal::Kill, ThreadStatus::Killed),
    ] {
        let mut chain = fill(json!({}));
        let thread = chain.thread.clone();
        chain.world.service.signal(&thread, "end", &signal).unwrap();
        let _ = chain.try_submit(text("a summary"));
        assert_eq!(chain.links.len(), 1);
        let head = chain.load(&thread).head.value;
        assert_eq!((head.status, head.phase.clone()), (status, None));
        chain.check();
    }
}

#[test]
fn a_result_that_is_given_again_gets_the_step_of_the_next_link() {
    let mut chain = fill(json!({}));
    let (first, submission) = (chain.thread.clone(), chain.submission(text("a summary")));
    chain.submit(text("a summary"));
    let again = chain.world.service.submit(&first, &submission, 0).unwrap();
    assert_eq!(again.loaded.thread.value.id, chain.thread);
    assert_eq!(again.step, chain.handed.step);
    chain.check();
}

#[test]
fn another_summary_holds_nothing_that_the_first_hand_off_left_behind() {
    let mut chain = fill(json!({}));
    chain.submit(text("SUMMARY ONE"));
    for n in 10..30 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        if chain.is_summarizing() {
            break;
        }
    }
    let asked = chain.request().remove(0).1;
    assert!(asked.contains("SUMMARY ONE"), "{asked}");
    for gone in ["the first question", "answer 0 ", "question 0"] {
        assert!(!asked.contains(gone), "{gone} is in {asked}");
    }
    chain.submit(text("SUMMARY TWO"));
    assert_eq!(chain.links.len(), 3);
    let request = chain.request();
    assert!(request[0].1.contains("SUMMARY TWO"));
    assert!(!request.iter().any(|(_, text)| text.contains("SUMMARY ONE")));
    chain.check();
}

#[test]
fn unknown_usage_of_a_summary_is_charged_by_its_text() {
    let mut chain = fill(json!({}));
    let block = ReplyBlock::Text {
        text: "a summary".to_owned(),
    };
    chain.submit(reply(vec![block], None::<Usage>));
    assert_eq!(chain.links.len(), 2);
    chain.check();
}
