//! Past and prevented faults of the runner: each test opens with the one that it guards against.

use super::answer_tables::cause;
use super::fixture::{RunnerFixture, calls, fails, raise, reply, says, usage, user};
use crate::history::code;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_core::history::parse_user;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::runner::{
    DecisionInputs, HolderProof, LlmCompletion, REPLY_BYTES_MAX, ReplyBlock, Signal, StepOutcome,
    StepSubmission,
};
use threadkeep_core::thread::{MAIL_MAX, StepKind};
use threadkeep_tests::fixture::MapLibrary;

/// A world whose model takes more than any conversation here has.
fn world_with_a_wide_window() -> RunnerFixture {
    let library = MapLibrary::small_with_window(20_000_000);
    RunnerFixture::over(Arc::new(MemoryStore::new()), library)
}

fn send(world: &RunnerFixture, thread: &str, text: &str) -> Result<(), Error> {
    let signal = Signal::Message(parse_user(&user(text)).unwrap());
    let name = &text[..text.len().min(40)];
    world.service.signal(thread, name, &signal).map(drop)
}

/// Symptom: on resume, a provider was sent calls without results. Cause: a step that carries the
/// last entries read them in one page, and a page is cut at a mebibyte. Fix: the driver reads the
/// entries that do not fit one page.
#[test]
fn a_step_carries_every_message_or_says_from_where_to_read() {
    let mut world = world_with_a_wide_window();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    for _ in 0..2 {
        world.submit(&thread, calls(&[("read", "{}"); 8])).unwrap();
        let StepOutcome::ToolOutcomes(mut outcomes) = world.outcomes(&thread) else {
            panic!("there are calls");
        };
        for outcome in &mut outcomes {
            outcome.content = "x".repeat(64_000);
        }
        world
            .submit(&thread, StepOutcome::ToolOutcomes(outcomes))
            .unwrap();
    }
    let failed = StepOutcome::Failure(fails("permanent", false));
    world.submit(&thread, failed).unwrap();
    let handed = world.start(&thread, None).unwrap();
    let (all, cursor) = world
        .service
        .messages(&thread, 0, Some(handed.step.version))
        .unwrap();
    assert!(all.len() >= 5 || cursor.is_some());
    assert!(handed.messages == all || handed.since == handed.step.version);
}

/// Symptom: a reply near the size limit could never be committed and its thread was stuck. Cause:
/// the bound counted the text of blocks alone. Fix: every bound leaves room for the other fields of
/// the entry.
#[test]
fn values_within_their_bounds_can_be_committed() {
    let text = |bytes: usize| ReplyBlock::Text {
        text: "x".repeat(bytes),
    };
    let call = |name: String| ReplyBlock::ToolUse {
        id: "i".repeat(1_000),
        name,
        arguments: "{}".to_owned(),
        raw: None,
    };
    let many = || {
        (0..150)
            .map(|n| call(format!("unknown{n}")))
            .collect::<Vec<_>>()
    };
    for (what, blocks, status) in [
        (
            "the largest text",
            vec![text(REPLY_BYTES_MAX - 2_000)],
            "running",
        ),
        ("a larger text", vec![text(REPLY_BYTES_MAX)], "suspended"),
        (
            "a name as long as a book",
            vec![call("n".repeat(490_000))],
            "running",
        ),
        ("150 calls of unknown tools", many(), "running"),
        (
            "8000 calls",
            (0..8_000).map(|_| call("u".to_owned())).collect(),
            "suspended",
        ),
        (
            "NUL upon NUL",
            vec![ReplyBlock::Text {
                text: "\0".repeat(80_000),
            }],
            "running",
        ),
    ] {
        let mut world = world_with_a_wide_window();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        send(&world, &thread, &"m".repeat(380_000)).unwrap();
        let more = send(&world, &thread, &"n".repeat(30_000)).unwrap_err();
        assert_eq!(
            code(&more),
            "exceeded",
            "the inbox has room for what fits an entry"
        );
        let usage = usage(10, 10);
        world.submit(&thread, reply(blocks, usage)).expect(what);
        assert_eq!(
            world.status(&thread),
            status,
            "{what}: {}",
            cause(&world, &thread)
        );
        world.audit();
    }
}

#[test]
fn a_retry_is_the_same_request_though_money_has_become_short() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("poor"));
    let first = world.start(&thread, None).unwrap();
    world
        .submit(&thread, StepOutcome::Failure(fails("transient", true)))
        .unwrap();
    let again = world.submit(&thread, StepOutcome::Waited).unwrap();
    match again.step.kind {
        Some(_) => assert_eq!(again.step.hash, first.step.hash),
        None => assert_eq!(cause(&world, &thread), "spend_exceeded"),
    }
    world.audit();
}

#[test]
fn unreported_tokens_are_estimated_and_count_against_the_cap() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    let limits = ThreadCaps {
        tokens: Some(1_000),
        ..ThreadCaps::NONE
    };
    world.service.signal(&thread, "r", &raise(limits)).unwrap();
    world.start(&thread, None).unwrap();
    let mut replies = 0;
    while world.pending(&thread) == Some(StepKind::CallLlm) && replies < 100 {
        let call = reply(
            vec![ReplyBlock::ToolUse {
                id: "x".to_owned(),
                name: "read".to_owned(),
                arguments: format!("{{\"text\":\"{}\"}}", "four".repeat(100)),
                raw: None,
            }],
            None,
        );
        world.submit(&thread, call).unwrap();
        let outcomes = world.outcomes(&thread);
        world.submit(&thread, outcomes).unwrap();
        replies += 1;
    }
    assert_eq!(cause(&world, &thread), "tokens_exceeded");
    // A hundred tokens were written each time, and the context is read again.
    assert!((3..10).contains(&replies), "{replies}");
    let used = world.service.load(&thread).unwrap().head.value.counters;
    assert_eq!(used.usage.total(), used.run_tokens);
    world.audit();
}

#[test]
fn a_reply_that_is_cut_withheld_or_empty_is_not_the_end_of_a_run() {
    for (finish, text, expected) in [
        ("length", "half a senten", "reply_truncated"),
        ("content_filter", "", "reply_filtered"),
        ("stop", "", "empty_reply"),
    ] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        let blocks = vec![ReplyBlock::Text {
            text: text.to_owned(),
        }];
        let StepOutcome::Completion(mut completion) = reply(blocks, usage(1, 1)) else {
            unreachable!("a reply is a completion")
        };
        completion.finish = finish.to_owned();
        world
            .submit(&thread, StepOutcome::Completion(completion))
            .unwrap();
        assert_eq!(
            (
                world.status(&thread).as_str(),
                cause(&world, &thread).as_str()
            ),
            ("suspended", expected)
        );
        world.start(&thread, Some("go on")).unwrap();
        world.submit(&thread, says("done")).unwrap();
        assert_eq!(world.status(&thread), "completed");
        world.audit();
    }
}

#[test]
fn a_cancel_that_waits_takes_effect_when_the_thread_is_claimed() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.service.signal(&thread, "c", &Signal::Cancel).unwrap();
    let proof = HolderProof::Dead;
    let handed = world.service.claim(&thread, "other", proof).unwrap();
    assert_eq!(
        (handed.step.kind, world.status(&thread).as_str()),
        (None, "cancelled")
    );
    world.audit();
}

/// Ways in which a thread ends or stops, each with the outcome that is submitted, if one is.
fn thread_ends() -> [(&'static str, Option<StepOutcome>); 9] {
    let large = ReplyBlock::Text {
        text: "x".repeat(REPLY_BYTES_MAX - 2_000),
    };
    [
        ("reply", Some(says("done"))),
        ("the largest reply", Some(reply(vec![large], usage(10, 10)))),
        ("calls", Some(calls(&[("write", "{}"), ("read", "{}")]))),
        (
            "failure",
            Some(StepOutcome::Failure(fails("transient", true))),
        ),
        ("stop", Some(StepOutcome::Stopped(fails("cancelled", true)))),
        ("claim", None),
        ("recover", None),
        ("kill", None),
        ("kill of a suspended one with open calls", None),
    ]
}

/// Symptom: an acknowledged message was in no history. Cause: the commits that end a thread left
/// the inbox as it was. Fix: a cancel or a kill reads it first, and the messages that may wait
/// always fit.
#[test]
fn acknowledged_message_is_in_the_history_after_any_end() {
    for (how, outcome) in thread_ends() {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        let holder = world
            .start(&thread, None)
            .unwrap()
            .loaded
            .head
            .value
            .holder
            .clone();
        if how.contains("open calls") {
            world.submit(&thread, calls(&[("read", "{}")])).unwrap();
            let stopped = StepOutcome::Stopped(fails("cancelled", true));
            world.submit(&thread, stopped).unwrap();
        }
        for n in 0..MAIL_MAX - 1 {
            send(&world, &thread, &format!("before {n}")).unwrap();
        }
        let signal = if how.starts_with("kill") {
            Signal::Kill
        } else {
            Signal::Cancel
        };
        if signal == Signal::Cancel {
            world.service.signal(&thread, "c", &signal).unwrap();
        }
        send(&world, &thread, &"y".repeat(390_000)).unwrap();
        match (how, outcome) {
            (_, Some(outcome)) => drop(world.submit(&thread, outcome).unwrap()),
            ("claim", _) => drop(
                world
                    .service
                    .claim(&thread, "other", HolderProof::Dead)
                    .unwrap(),
            ),
            ("recover", _) => {
                let dead: Vec<String> = holder.into_iter().collect();
                world.service.recover(&dead, None).unwrap();
            }
            _ => drop(world.service.signal(&thread, "k", &signal).unwrap()),
        }
        world.audit();
        let status = world.status(&thread);
        assert_eq!(
            status,
            if signal == Signal::Kill {
                "killed"
            } else {
                "cancelled"
            },
            "{how}"
        );
        let version = world.service.load(&thread).unwrap().head.value.version;
        let last = world
            .service
            .entries(&thread, version - 1, None, 1)
            .unwrap()
            .1;
        for sent in ["before 0", "before 30", &"y".repeat(390_000)] {
            assert!(last[0].text.contains(sent), "{how}: {sent:.20}");
        }
    }
}

#[test]
fn a_message_never_comes_between_a_call_and_its_result() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    world
        .submit(&thread, StepOutcome::Stopped(fails("cancelled", true)))
        .unwrap();
    let message = parse_user(&user("hello?")).unwrap();
    world
        .service
        .signal(&thread, "m", &Signal::Message(message))
        .unwrap();
    world.audit();
    let handed = world.start(&thread, None).unwrap();
    assert_eq!(handed.step.kind, Some(StepKind::CallTools));
    let outcomes = world.outcomes(&thread);
    world.submit(&thread, outcomes).unwrap();
    let (messages, _) = world.service.messages(&thread, 0, None).unwrap();
    let roles: Vec<&str> = messages.iter().map(|text| &text[9..13]).collect();
    assert_eq!(roles, ["user", "assi", "tool", "user"]);
    world.audit();
}

/// Symptom: a thread whose process died in the evening had reached its cap on duration in the
/// morning. Cause: the time of a lost step counted up to its deadline. Fix: it counts up to the
/// last text that its holder committed, and no further.
#[test]
fn the_time_of_a_lost_step_counts_up_to_its_last_sign_of_life() {
    for (lived, counted) in [(None, 0), (Some(3_500), 3_500)] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        let head = world.service.load(&thread).unwrap().head.value;
        if let Some(millis) = lived {
            world.advance(millis);
            world.service.progress(&thread, head.token, "Half").unwrap();
        }
        world.advance(10_000_000);
        let holder = head.holder.clone().unwrap();
        world.service.recover(&[holder], None).unwrap();
        let used = world.service.load(&thread).unwrap().head.value.counters;
        assert_eq!((used.duration, used.run_duration), (counted, counted));
    }
}

/// Symptom: tools ran though the reply that called them was withheld, or had an unknown finish
/// reason. Cause: the finish reason was checked only for replies without calls. Fix: no call of an
/// incomplete reply is run; a truncated one is requested again, the others suspend. Kind:
/// incomplete replies.
#[test]
fn no_call_of_a_reply_that_is_not_whole_is_run() {
    for (finish, expected) in [
        ("tool_calls", "call-tools"),
        ("length", "call-llm"),
        ("content_filter", "reply_filtered"),
        ("banana", "reply_unfinished"),
    ] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        let call = ReplyBlock::ToolUse {
            id: "x".to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            raw: None,
        };
        let StepOutcome::Completion(completion) = reply(vec![call], usage(10, 5)) else {
            panic!("a completion");
        };
        let finish_word = finish.to_owned();
        let outcome = StepOutcome::Completion(LlmCompletion {
            finish: finish_word,
            ..completion
        });
        world.submit(&thread, outcome).unwrap();
        let found = match world.pending(&thread) {
            Some(StepKind::CallTools) => "call-tools".to_owned(),
            Some(StepKind::CallLlm) => "call-llm".to_owned(),
            _ => cause(&world, &thread),
        };
        assert_eq!(found, expected, "{finish}");
        world.audit();
    }
}

/// Symptom: "version is 2, not 2". Cause: where no step is pending, the version of the thread was
/// told in the place of the step's. Fix: the error says that no step waits for a result.
#[test]
fn a_result_without_a_pending_step_is_told_so() {
    let mut world = RunnerFixture::new();
    let chat = world.create(None);
    world.start(&chat, Some("hello")).unwrap();
    let held = world.held[&chat].clone();
    world.submit(&chat, says("hi")).unwrap();
    let submission = StepSubmission {
        token: held.token,
        version: held.handed.step.version + 1,
        outcome: says("again"),
        inputs: DecisionInputs::default(),
    };
    let refused = world.service.submit(&chat, &submission, 0).unwrap_err();
    assert_eq!(code(&refused), "conflict");
    let told = format!("{refused:?}");
    assert!(told.contains(r#"actual: "none""#), "{told}");
}
