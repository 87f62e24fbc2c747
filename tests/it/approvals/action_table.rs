//! The table of suspensions: each reason, and what every action does to a thread that it stopped.

use super::fixture::{begin, code, due, finish_calls, send};
use crate::runner::fixture::{RunnerFixture, calls, fails, raise, reply, usage, user};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_core::history::parse_user;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{ReplyBlock, Signal, StepOutcome};
use threadkeep_tests::fixture::MapLibrary;

/// A world with a directive that may call its model once.
fn world() -> RunnerFixture {
    let capped = json!({
        "name": "capped", "body": "Do the work.",
        "front": {"capabilities": ["execute.tool.read"], "limits": {"turns": 1}},
    });
    let library = MapLibrary::small().with("directive", "capped", &capped.to_string());
    RunnerFixture::over(Arc::new(MemoryStore::new()), library)
}

/// Brings a thread into a suspension of this reason.
fn suspended_for(world: &mut RunnerFixture, reason: &str) -> String {
    let thread = match reason {
        "limit" => {
            let thread = begin(world, "capped", &[("read", "{}")]);
            finish_calls(world, &thread);
            thread
        }
        "error" => {
            let thread = world.create(Some("work"));
            world.start(&thread, None).unwrap();
            let failed = StepOutcome::Failure(fails("permanent", true));
            world.submit(&thread, failed).unwrap();
            thread
        }
        "budget" => {
            let thread = world.create(Some("poor"));
            world.start(&thread, None).unwrap();
            let block = ReplyBlock::ToolUse {
                id: "x".to_owned(),
                name: "read".to_owned(),
                arguments: "{}".to_owned(),
                raw: None,
            };
            world
                .submit(&thread, reply(vec![block], usage(20, 390)))
                .unwrap();
            finish_calls(world, &thread);
            thread
        }
        _ => begin(world, "work", &[("ask", "{}")]),
    };
    let head = world.service.load(&thread).unwrap().head.value;
    let cause = head.cause.clone().expect("it is suspended");
    assert_eq!(
        (world.status(&thread).as_str(), &*cause.reason),
        ("suspended", reason)
    );
    thread
}

/// Performs an action; returns the thread to be looked at.
fn act(world: &mut RunnerFixture, thread: &str, action: &str) -> Result<String, Error> {
    let decision = match action {
        "approve" => Some(json!({"call": "call_2_0", "approve": true})),
        "deny" => Some(json!({"call": "call_2_0", "approve": false})),
        "answer" => Some(json!({"call": "call_2_0", "answer": "yes"})),
        _ => None,
    };
    if let Some(decision) = decision {
        return send(world, thread, "d", &decision).map(|_| thread.to_owned());
    }
    let signal = match action {
        "message" => Signal::Message(parse_user(&user("hurry")).unwrap()),
        "raise" => raise(ThreadCaps {
            turns: Some(50),
            spend: Some(NanoUsd::new(50_000_000)),
            ..ThreadCaps::NONE
        }),
        "cancel" => Signal::Cancel,
        "kill" => Signal::Kill,
        "resume" => return world.start(thread, None).map(|_| thread.to_owned()),
        _ => {
            let version = world.service.load(thread)?.head.value.version;
            let forked = world.service.fork(thread, version, "f", None)?;
            return Ok(forked.thread.value.id.clone());
        }
    };
    world.service.signal(thread, "s", &signal)?;
    Ok(thread.to_owned())
}

/// The result of an action: `refused` where it is, then the status, and `due` if a driver is to
/// start it.
fn outcome(reason: &str, action: &str) -> String {
    let mut world = world();
    let thread = suspended_for(&mut world, reason);
    let done = act(&mut world, &thread, action);
    world.audit();
    let refused = if done.is_err() { "refused " } else { "" };
    let looked_at = done.unwrap_or(thread);
    let due = match due(&world).contains(&looked_at) {
        true => " due",
        false => "",
    };
    let code = match code(&world, &looked_at).as_str() {
        "forked" => " forked",
        _ => "",
    };
    format!("{refused}{}{code}{due}", world.status(&looked_at))
}

/// Checks a row: the outcomes of message, raise, approve, deny, answer, cancel, kill, resume and
/// fork, in this order.
#[track_caller]
fn check_row(reason: &str, expected: [&str; 9]) {
    let actions = [
        "message", "raise", "approve", "deny", "answer", "cancel", "kill", "resume", "fork",
    ];
    let found: Vec<String> = actions
        .iter()
        .map(|action| outcome(reason, action))
        .collect();
    let rows = actions.iter().zip(&found).zip(expected);
    let wrong: Vec<_> = rows
        .filter(|((_, found), expected)| found != expected)
        .collect();
    assert!(wrong.is_empty(), "{reason}: {wrong:#?}");
}

#[test]
fn limit_row() {
    check_row(
        "limit",
        [
            "suspended",
            "suspended due",
            "refused suspended",
            "refused suspended",
            "refused suspended",
            "cancelled",
            "killed",
            "refused suspended",
            "suspended forked",
        ],
    );
}

#[test]
fn error_row() {
    check_row(
        "error",
        [
            "suspended due",
            "suspended",
            "refused suspended",
            "refused suspended",
            "refused suspended",
            "cancelled",
            "killed",
            "running",
            "suspended forked",
        ],
    );
}

#[test]
fn budget_row() {
    check_row(
        "budget",
        [
            "suspended due",
            "suspended due",
            "refused suspended",
            "refused suspended",
            "refused suspended",
            "cancelled",
            "killed",
            "suspended",
            "suspended forked",
        ],
    );
}

#[test]
fn approval_row() {
    check_row(
        "approval",
        [
            "suspended",
            "suspended",
            "suspended due",
            "suspended due",
            "suspended due",
            "cancelled",
            "killed",
            "refused suspended",
            "suspended forked",
        ],
    );
}

/// A thread that a cap stopped while calls wait for a decision takes the decision, and is due only
/// once the cap is raised.
#[test]
fn decision_lifts_no_limit() {
    let boss = json!({
        "name": "boss", "body": "Have it done.",
        "front": {"capabilities": ["execute.tool.*"], "limits": {"spawns": 0}},
    });
    let library = MapLibrary::small().with("directive", "boss", &boss.to_string());
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let thread = world.create(Some("boss"));
    world.start(&thread, None).unwrap();
    let spawn = ("spawn_thread", r#"{"directive":"work"}"#);
    world
        .submit(&thread, calls(&[("ask", "{}"), spawn]))
        .unwrap();
    assert_eq!(code(&world, &thread), "spawns_exceeded");
    let decision = json!({"call": "call_2_0", "approve": true});
    send(&world, &thread, "d", &decision).unwrap();
    world.audit();
    assert_eq!(due(&world), [] as [String; 0]);
    let lifted = raise(ThreadCaps {
        spawns: Some(3),
        ..ThreadCaps::NONE
    });
    world.service.signal(&thread, "r", &lifted).unwrap();
    assert_eq!(due(&world), [thread.as_str()]);
    let step = world.start(&thread, None).unwrap();
    assert_eq!(step.step.calls.len(), 1);
    world.audit();
}
