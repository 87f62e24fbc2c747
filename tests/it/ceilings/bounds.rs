//! Bounds on values that an embedder's own provider and tools hand to the host, and on the usage
//! that a provider reports.

use super::fixture::{
    ARGUMENTS, CountedModel, CountedTool, LONG, REQUEST_BYTES, WORST_NANOS, call, complete, fails,
    guard, request, says, usage,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::ceilings::{CallNotice, HostCeilings};
use threadkeep::models::{
    BLOCKS_MAX, FailureKind, ModelCompletion, ModelFailure, REPLY_BYTES_MAX, ReplyBlock,
    ReplyDelta, Usage, answer_bytes_max,
};
use threadkeep::tools::RESULT_BYTES_MAX;

/// A reply of `blocks` blocks of `bytes` bytes each.
fn reply(blocks: usize, bytes: usize) -> ModelCompletion {
    let text = "é".repeat(bytes / 2);
    let mut reply = ModelCompletion::new(vec![ReplyBlock::Text { text }; blocks], "");
    reply.usage = usage(10, 1);
    reply
}

/// Symptom: an embedder's tool or model could hand any number of bytes to the component, which
/// stopped at its memory limit. Cause: only our own adapters and tools kept within bounds. Fix: the
/// permit bounds all of them.
#[tokio::test]
async fn replies_of_any_provider_are_bounded() {
    let of = |session: usize| reply(1, 0).with_session("s".repeat(session));
    for (what, completion, fits) in [
        ("all bytes", reply(1, REPLY_BYTES_MAX), true),
        ("a byte more", reply(1, REPLY_BYTES_MAX + 2), false),
        ("all blocks", reply(BLOCKS_MAX, 2), true),
        ("a block more", reply(BLOCKS_MAX + 1, 2), false),
        ("a session", of(REPLY_BYTES_MAX), true),
        ("a larger one", of(REPLY_BYTES_MAX + 1), false),
    ] {
        let guard = guard(HostCeilings::none());
        let model = CountedModel::answering(Ok(completion.clone()));
        let answer = complete(&guard.admit_run().unwrap(), &model, "known").await;
        if fits {
            assert!(answer == Ok(completion), "{what}");
            continue;
        }
        let failure = answer.expect_err(what);
        let told = (failure.kind, failure.code.as_str(), failure.sent);
        assert_eq!(
            told,
            (FailureKind::Permanent, "reply_too_large", true),
            "{what}"
        );
        assert_eq!(failure.usage, usage(10, 1), "it is paid for");
        assert_eq!(guard.used_totals().unwrap().spend_nanos, 24_000, "{what}");
    }
}

#[tokio::test]
async fn failures_and_deltas_of_any_provider_are_bounded() {
    let long = "é".repeat(REPLY_BYTES_MAX);
    let failure = ModelFailure {
        partial: long.clone(),
        code: long.clone(),
        ..ModelFailure::new(FailureKind::Transient, "", long)
    };
    let piece = ReplyDelta::Text("x".repeat(REPLY_BYTES_MAX / 2));
    let model = CountedModel {
        deltas: vec![piece.clone(), piece.clone(), piece],
        ..CountedModel::answering(Err(failure))
    };
    let permit = guard(HostCeilings::none()).admit_run().unwrap();
    let told = Mutex::new(0);
    let on_delta = |_| *told.lock().unwrap() += 1;
    let request = request("known");
    let failed = permit.complete(&model, &request, &on_delta, LONG);
    let failed = failed.await.unwrap_err();
    assert_eq!(failed.partial.len(), REPLY_BYTES_MAX);
    assert!(failed.code.len() <= 4 << 10 && failed.message.len() <= 4 << 10);
    assert_eq!(
        *told.lock().unwrap(),
        2,
        "what no reply can hold is not told"
    );
}

#[tokio::test]
async fn results_of_any_tool_are_bounded() {
    let mut word_bytes = 0;
    for more in [0, RESULT_BYTES_MAX, 100 * RESULT_BYTES_MAX] {
        let guard = guard(HostCeilings::none());
        let tool = CountedTool {
            more,
            ..CountedTool::default()
        };
        let called = call(&guard.admit_run().unwrap(), &tool, "read_file").await;
        let content = called.result.content;
        assert!(content.len() <= RESULT_BYTES_MAX, "{more}");
        assert_eq!(content.ends_with("ask for less]"), more > 0, "{more}");
        if more == 0 {
            word_bytes = content.len();
        }
        // What is not shown is kept as a blob, and counts as well.
        let bytes = (ARGUMENTS.len() + word_bytes + more) as u64;
        assert_eq!(guard.used_totals().unwrap().tool_bytes, bytes, "{more}");
    }
}

type ProviderAnswer = Result<ModelCompletion, ModelFailure>;

/// A provider's answer, the usage that the component is told, and the money in the book.
fn usages() -> [(&'static str, ProviderAnswer, Option<Usage>, u64); 7] {
    let long = ReplyBlock::Text {
        text: "x".repeat(16_000),
    };
    let reply = |usage| {
        let mut reply = says(usage).unwrap();
        reply.blocks = vec![long.clone()];
        Ok(reply)
    };
    let absurd = 1_000_000_000_000_000_000;
    // 100 bytes were sent and 50 tokens asked for: of either, twice that and 10,000 are believed.
    let (most_read, most_written) = (200 + 10_000, 100 + 10_000);
    [
        ("as it is", says(usage(10, 1)), usage(10, 1), 24_000),
        (
            "absurd",
            says(usage(absurd, absurd)),
            usage(most_read, most_written),
            20_400_000 + 40_400_000,
        ),
        (
            "just believed",
            says(usage(most_read, 0)),
            usage(most_read, 0),
            20_400_000,
        ),
        (
            "absurd, and failed",
            fails(true, usage(u64::MAX, 0)),
            usage(most_read, 0),
            20_400_000,
        ),
        // A token has at most 16 bytes: 6 were read and 1,000 written.
        (
            "none for a long reply",
            reply(usage(0, 0)),
            usage(0, 0),
            6 * 2_000 + 1_000 * 4_000,
        ),
        (
            "none, and refused",
            Err(ModelFailure {
                partial: String::new(),
                ..fails(true, usage(0, 0)).unwrap_err()
            }),
            usage(0, 0),
            0,
        ),
        ("not said", reply(None), None, WORST_NANOS),
    ]
}

/// Symptom: one answer that claimed 10^18 tokens locked the operator's book for all tenants, and
/// one that claimed none cost nothing. Cause: a provider's usage was believed whatever it was. Fix:
/// it is bounded by the request and by the bytes that arrived.
#[tokio::test]
async fn usage_is_believed_within_reason() {
    for (what, answer, told, nanos) in usages() {
        let guard = guard(HostCeilings::none());
        let mut permit = guard.admit_run().unwrap();
        let notes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&notes);
        permit.set_notice_receiver(move |note| kept.lock().unwrap().push(note));
        let model = CountedModel::answering(answer.clone());
        let answered = complete(&permit, &model, "known").await;
        let of = |answer: &ProviderAnswer| match answer {
            Ok(completion) => completion.usage,
            Err(failure) => failure.usage,
        };
        assert_eq!(of(&answered), told, "{what}");
        assert_eq!(guard.used_totals().unwrap().spend_nanos, nanos, "{what}");
        let (reported, counted) = (of(&answer), of(&answered));
        let expected: Vec<CallNotice> = match (reported, counted) {
            (Some(reported), Some(counted)) if reported != counted => {
                vec![CallNotice::Disbelieved { reported, counted }]
            }
            _ => Vec::new(),
        };
        assert_eq!(*notes.lock().unwrap(), expected, "{what}");
    }
}

#[tokio::test]
async fn every_kind_of_tokens_is_held_to_reason() {
    let all = u64::MAX;
    let absurd = Usage {
        input: 5,
        output: all,
        read: all,
        write: all,
        reasoning: all,
    };
    let permit = guard(HostCeilings::none()).admit_run().unwrap();
    let model = CountedModel::answering(says(Some(absurd)));
    let usage = complete(&permit, &model, "known")
        .await
        .unwrap()
        .usage
        .unwrap();
    let expected = Usage {
        input: 5,
        output: 10_100,
        read: 10_195,
        write: 0,
        reasoning: 10_100,
    };
    assert_eq!(usage, expected);
}

/// Symptom: `model_bytes` counted a reply of four bytes that had come in a stream of megabytes.
/// Fix: the bytes on the wire count, and no stream may be longer than the bytes that were held for
/// it.
#[tokio::test]
async fn bytes_on_the_wire_are_counted() {
    for (received, expected) in [
        (0, 10),
        (5, 10),
        (1_000_000, 1_000_000),
        (u64::MAX, answer_bytes_max(50)),
    ] {
        let guard = guard(HostCeilings::none());
        let model = CountedModel {
            deltas: vec![ReplyDelta::Received(received)],
            ..CountedModel::answering(says(usage(1, 1)))
        };
        complete(&guard.admit_run().unwrap(), &model, "known")
            .await
            .unwrap();
        assert_eq!(
            guard.used_totals().unwrap().model_bytes,
            REQUEST_BYTES + expected,
            "{received}"
        );
    }
    let tokens = [0, 50, 16_384, 200_000, u64::MAX].map(answer_bytes_max);
    assert_eq!(tokens, [4 << 20, 4 << 20, 16 << 20, 128 << 20, 128 << 20]);
}

/// A step that takes longer than its time is dropped, and waiting in the rate queue is part of that
/// time.
#[tokio::test]
async fn a_call_that_takes_too_long_says_whether_it_was_sent() {
    let guard = guard(HostCeilings {
        calls_per_minute_max: Some(1),
        ..HostCeilings::none()
    });
    let permit = guard.admit_run().unwrap();
    let silent = CountedModel {
        gate: tokio::sync::Semaphore::new(0),
        ..CountedModel::answering(says(None))
    };
    let request = request("known");
    let late = permit.complete(&silent, &request, &|_| {}, Duration::from_millis(20));
    let late = late.await.unwrap_err();
    assert_eq!(
        (late.code.as_str(), late.sent, silent.call_count()),
        ("timeout", true, 1)
    );
    assert_eq!(guard.used_totals().unwrap().spend_nanos, WORST_NANOS);
    let tool = CountedTool {
        slow: true,
        ..CountedTool::default()
    };
    let refused = permit
        .call_tool(&tool, "read_file", ARGUMENTS, Duration::from_secs(10))
        .await;
    assert!(
        !refused.interrupted
            && refused
                .result
                .content
                .contains("(ceiling_calls_per_minute)"),
        "{refused:?}"
    );
}

/// Symptom: a tool that had waited a minute in the queue ran on behind the deadline of its step,
/// and another host could take the thread over meanwhile. Cause: its time began after the wait.
/// Fix: the wait is part of it.
#[tokio::test]
async fn time_in_the_rate_queue_counts_for_the_call() {
    let guard = guard(HostCeilings {
        calls_per_minute_max: Some(120),
        ..HostCeilings::none()
    });
    let permit = guard.admit_run().unwrap();
    let (quick, slow) = (
        CountedTool::default(),
        CountedTool {
            slow: true,
            ..CountedTool::default()
        },
    );
    for _ in 0..120 {
        assert!(!call(&permit, &quick, "read_file").await.result.failed);
    }
    // The next place in the queue comes after half a second.
    let has = Duration::from_secs(1);
    let behind = tokio::time::sleep(has + has / 4);
    let called = tokio::select! {
        biased;
        called = permit.call_tool(&slow, "read_file", ARGUMENTS, has) => called,
        () = behind => panic!("it had its whole time after the wait"),
    };
    assert!(called.interrupted, "it had its turn: {called:?}");
}
