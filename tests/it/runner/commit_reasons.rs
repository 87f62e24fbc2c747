//! The reason in the history and the status, for each pair of what happened and what waited.
//!
//! Symptom: a cancel that waited while a reply was too large ended the thread as cancelled, and the
//! history gave the reason `suspended`. Cause: each function might turn the outcome into another,
//! and its caller returned a reason that it had chosen before. Fix: one place applies the outcome
//! and names the reason (`runner/outcome.rs`). Kind: every result of a step, and every claim.

use super::fixture::{RunnerFixture, calls, fails, raise, reply, says, usage};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::runner::{BACKOFF_MILLIS, StepOutcome};
use threadkeep_core::runner::{HolderProof, LlmFailure, REPLY_BYTES_MAX, Signal};

/// The things that wait when the result arrives.
const WAITS: [&str; 4] = ["nothing", "mail", "cancel", "cap"];

/// One thing that happens, and the reason and status after it for each of [`WAITS`].
type ReasonRow = (&'static str, [(&'static str, &'static str); 4]);

const CANCELLED: (&str, &str) = ("cancelled", "cancelled");
const SUSPENDED: (&str, &str) = ("suspended", "suspended");

const ROWS: [ReasonRow; 10] = [
    (
        "last reply",
        [
            ("run-finished", "completed"),
            ("assistant-turn", "running"),
            CANCELLED,
            ("run-finished", "completed"),
        ],
    ),
    (
        "empty reply",
        [
            SUSPENDED,
            ("assistant-turn", "running"),
            CANCELLED,
            SUSPENDED,
        ],
    ),
    ("large reply", [SUSPENDED, SUSPENDED, CANCELLED, SUSPENDED]),
    (
        "call",
        [
            ("assistant-turn", "running"),
            ("assistant-turn", "running"),
            CANCELLED,
            ("assistant-turn", "running"),
        ],
    ),
    (
        "unknown tool",
        [
            ("assistant-turn", "running"),
            ("assistant-turn", "running"),
            CANCELLED,
            ("assistant-turn", "suspended"),
        ],
    ),
    (
        "transient failure",
        [
            ("error", "running"),
            ("error", "running"),
            CANCELLED,
            SUSPENDED,
        ],
    ),
    (
        "permanent failure",
        [SUSPENDED, SUSPENDED, CANCELLED, SUSPENDED],
    ),
    ("stop", [SUSPENDED, SUSPENDED, CANCELLED, SUSPENDED]),
    (
        "tool results",
        [
            ("tool-results", "running"),
            ("tool-results", "running"),
            CANCELLED,
            ("tool-results", "suspended"),
        ],
    ),
    (
        "end of a retry's wait",
        [
            ("attempt", "running"),
            ("attempt", "running"),
            CANCELLED,
            SUSPENDED,
        ],
    ),
];

#[test]
fn reason_says_what_became_of_the_run() {
    for (happens, expected) in ROWS {
        for (waits, expected) in WAITS.into_iter().zip(expected) {
            let found = reason_and_status(happens, waits);
            assert_eq!(
                (found.0.as_str(), found.1.as_str()),
                expected,
                "{happens} while there waits: {waits}"
            );
        }
    }
}

#[test]
fn claim_and_recovery_name_their_reason() {
    for (waits, recovered, claimed) in [
        ("nothing", SUSPENDED, ("resumed", "running")),
        ("mail", SUSPENDED, ("resumed", "running")),
        ("cancel", CANCELLED, CANCELLED),
        ("cap", SUSPENDED, ("resumed", "suspended")),
    ] {
        let found = |recovers: bool| {
            let mut world = RunnerFixture::new();
            let thread = start_thread(&mut world);
            send(&world, &thread, waits);
            let holder = world
                .service
                .load(&thread)
                .unwrap()
                .head
                .value
                .holder
                .clone()
                .unwrap();
            match recovers {
                true => drop(world.service.recover(&[holder], None).unwrap()),
                false => {
                    let dead = HolderProof::Dead;
                    drop(world.service.claim(&thread, "other/1", dead).unwrap());
                }
            }
            world.audit();
            newest(&world, &thread)
        };
        let pair = |(reason, status): (&str, &str)| (reason.to_owned(), status.to_owned());
        assert_eq!(found(true), pair(recovered), "recovery, {waits}");
        assert_eq!(found(false), pair(claimed), "claim, {waits}");
    }
}

fn start_thread(world: &mut RunnerFixture) -> String {
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    thread
}

/// Lets something wait for the thread: mail, a cancel, or a cap of turns that is reached already.
fn send(world: &RunnerFixture, thread: &str, waits: &str) {
    let signal = match waits {
        "mail" => Signal::Message(threadkeep_core::history::Message::text(
            threadkeep_core::history::MessageRole::User,
            "more",
        )),
        "cancel" => Signal::Cancel,
        "cap" => raise(ThreadCaps {
            turns: Some(0),
            ..ThreadCaps::NONE
        }),
        _ => return,
    };
    world.service.signal(thread, waits, &signal).unwrap();
}

fn reason_and_status(happens: &str, waits: &str) -> (String, String) {
    let mut world = RunnerFixture::new();
    let thread = start_thread(&mut world);
    let before = match happens {
        "tool results" => Some(calls(&[("read", "{}")])),
        "end of a retry's wait" => Some(StepOutcome::Failure(fails("transient", false))),
        _ => None,
    };
    if let Some(outcome) = before {
        world.submit(&thread, outcome).unwrap();
    }
    send(&world, &thread, waits);
    let outcome = match happens {
        "last reply" => says("Done."),
        "empty reply" => reply(Vec::new(), usage(10, 0)),
        "large reply" => says(&"x".repeat(REPLY_BYTES_MAX)),
        "call" => calls(&[("read", "{}")]),
        "unknown tool" => calls(&[("raed", "{}")]),
        "transient failure" => StepOutcome::Failure(fails("transient", false)),
        "permanent failure" => StepOutcome::Failure(fails("permanent", false)),
        "stop" => StepOutcome::Stopped(LlmFailure::default()),
        "tool results" => world.outcomes(&thread),
        "end of a retry's wait" => {
            world.advance(BACKOFF_MILLIS);
            StepOutcome::Waited
        }
        _ => panic!("{happens}"),
    };
    world.submit(&thread, outcome).unwrap();
    world.audit();
    newest(&world, &thread)
}

/// The reason of the newest entry, and the status.
fn newest(world: &RunnerFixture, thread: &str) -> (String, String) {
    let version = world.service.load(thread).unwrap().head.value.version;
    let (_, lines, _) = world.service.entries(thread, version - 1, None, 1).unwrap();
    let reason = lines[0].entry.reason.as_str().to_owned();
    (reason, world.status(thread))
}
