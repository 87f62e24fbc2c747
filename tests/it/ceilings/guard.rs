//! Each ceiling refuses by its name, before the provider or the tool is reached, when its field is
//! at its edge; one more lets the same call pass. The tests call the guard itself, as a component
//! would that ignores budgets and capabilities.

use super::fixture::{
    ARGUMENTS, CountedModel, CountedTool, LONG, REQUEST_BYTES, WORST_NANOS, call, complete, fails,
    guard, policy, request, says, usage,
};
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;
use threadkeep::ceilings::{CallNotice, CeilingGuard, HostCeilings, InMemoryBook, UsageTotals};
use threadkeep::clock::{ManualClock, SystemClock};
use threadkeep::models::{FailureKind, REPLY_BYTES_MAX};
use threadkeep::policy::{Policy, PolicyPreset, UnknownBill};
use threadkeep::tools::RESULT_BYTES_MAX;
use tokio::sync::Semaphore;

/// Returns the code that refuses a model call and then a tool call, or an empty string if both
/// pass. Checks that a refused call reached neither the provider nor the tool.
async fn refusal_code(ceilings: HostCeilings, model_name: &str) -> String {
    let permit = match guard(ceilings).admit_run() {
        Ok(permit) => permit,
        Err(refusal) => return refusal.code(),
    };
    let model = CountedModel::answering(says(usage(10, 1)));
    if let Err(failure) = complete(&permit, &model, model_name).await {
        assert_eq!(
            (model.call_count(), failure.sent),
            (0, false),
            "{failure:?}"
        );
        assert_eq!(failure.kind, FailureKind::Permanent, "{failure:?}");
        assert!(failure.message.contains("the preset strict"), "{failure:?}");
        return failure.code;
    }
    let tool = CountedTool::default();
    let called = call(&permit, &tool, "read_file").await;
    if called.result.failed {
        assert_eq!(tool.reached.load(Ordering::SeqCst), 0, "{called:?}");
        let text = called.result.content;
        let code = text
            .rsplit_once('(')
            .and_then(|(_, code)| code.strip_suffix(')'));
        return code.expect("it names the ceiling").to_owned();
    }
    String::new()
}

/// A ceiling's name, ceilings that refuse a call, and ceilings under which the same calls pass.
type CeilingEdge = (&'static str, HostCeilings, HostCeilings);

/// Fails to compile when `HostCeilings` gets a field, until that field has an edge.
fn all_have_edges(ceilings: HostCeilings) {
    let HostCeilings {
        spend_nanos_max: _,
        unpriced: _,
        model_calls_max: _,
        model_bytes_max: _,
        tool_calls_max: _,
        tool_bytes_max: _,
        argument_bytes_max: _,
        calls_per_minute_max: _,
        run_time_max: _,
        runs_max: _,
        // Time limits of a call refuse none: `a_call_is_cut_at_the_operators_time` and the model
        // table's own tests cover them.
        call_time_max: _,
        idle_time_max: _,
    } = ceilings;
}

fn ceiling_edges() -> Vec<CeilingEdge> {
    all_have_edges(HostCeilings::none());
    let none = HostCeilings::none();
    let at = |set: fn(&mut HostCeilings, u64), refuses: u64, passes: u64| {
        let (mut below, mut above) = (none, none);
        set(&mut below, refuses);
        set(&mut above, passes);
        (below, above)
    };
    let model_bytes = REQUEST_BYTES + REPLY_BYTES_MAX as u64;
    let arguments = ARGUMENTS.len() as u64;
    let tool_bytes = arguments + RESULT_BYTES_MAX as u64;
    let edge = |name, (below, above)| (name, below, above);
    vec![
        edge(
            "spend",
            at(
                |c, n| c.spend_nanos_max = Some(n),
                WORST_NANOS - 1,
                WORST_NANOS,
            ),
        ),
        edge("model_calls", at(|c, n| c.model_calls_max = Some(n), 0, 1)),
        edge(
            "model_bytes",
            at(
                |c, n| c.model_bytes_max = Some(n),
                model_bytes - 1,
                model_bytes,
            ),
        ),
        edge("tool_calls", at(|c, n| c.tool_calls_max = Some(n), 0, 1)),
        edge(
            "tool_bytes",
            at(
                |c, n| c.tool_bytes_max = Some(n),
                tool_bytes - 1,
                tool_bytes,
            ),
        ),
        edge(
            "argument_bytes",
            at(
                |c, n| c.argument_bytes_max = Some(n),
                arguments - 1,
                arguments,
            ),
        ),
        edge(
            "calls_per_minute",
            at(|c, n| c.calls_per_minute_max = Some(n), 0, 2),
        ),
        edge(
            "run_time",
            at(
                |c, n| c.run_time_max = Some(Duration::from_secs(n)),
                0,
                1_000,
            ),
        ),
        edge("runs", at(|c, n| c.runs_max = Some(n), 0, 1)),
    ]
}

#[tokio::test]
async fn each_ceiling_refuses_by_its_name_before_anything_is_sent() {
    for (name, refuses, passes) in ceiling_edges() {
        assert_eq!(
            refusal_code(refuses, "known").await,
            format!("ceiling_{name}")
        );
        assert_eq!(refusal_code(passes, "known").await, "", "{name}");
    }
    let money = HostCeilings {
        spend_nanos_max: Some(u64::MAX),
        ..HostCeilings::none()
    };
    assert_eq!(
        refusal_code(money, "free-for-all").await,
        "ceiling_unpriced"
    );
    let unpriced = HostCeilings {
        unpriced: true,
        ..money
    };
    assert_eq!(refusal_code(unpriced, "free-for-all").await, "");
    assert_eq!(refusal_code(HostCeilings::none(), "free-for-all").await, "");
    assert_eq!(
        refusal_code(HostCeilings::none(), "other").await,
        "ceiling_models"
    );
}

#[tokio::test]
async fn a_model_that_the_policy_does_not_price_costs_what_the_built_in_table_says() {
    let money = Policy {
        ceilings: HostCeilings {
            spend_nanos_max: Some(1_000_000_000),
            ..HostCeilings::none()
        },
        ..Policy::preset(PolicyPreset::Local)
    };
    let guard = Arc::new(CeilingGuard::new(money, Arc::new(SystemClock)));
    let permit = guard.admit_run().unwrap();
    let model = CountedModel::answering(says(usage(1_000, 100)));
    complete(&permit, &model, "gpt-4o-mini").await.unwrap();
    // 1,000 tokens at 0.15 and 100 at 0.60 USD a million.
    assert_eq!(guard.used_totals().unwrap().spend_nanos, 150_000 + 60_000);
    for unknown in ["my-model", "default"] {
        let refused = complete(&permit, &model, unknown).await.unwrap_err();
        assert_eq!(refused.code, "ceiling_unpriced", "{unknown}");
    }
}

#[tokio::test]
async fn tools_that_are_not_granted_are_not_reached() {
    let permit = guard(HostCeilings::none()).admit_run().unwrap();
    for (name, granted) in [
        ("read_file", true),
        ("list_files", true),
        ("list_", true),
        ("search_files", false),
        ("read_file2", false),
        ("", false),
    ] {
        let tool = CountedTool::default();
        let called = call(&permit, &tool, name).await;
        assert_eq!(called.result.failed, !granted, "{name:?}: {called:?}");
        assert_eq!(tool.reached.load(Ordering::SeqCst), u64::from(granted));
        let named = called.result.content.contains("(ceiling_tools)");
        assert_eq!(named, !granted, "{called:?}");
    }
}

#[tokio::test]
async fn calls_at_the_same_time_cannot_pass_a_ceiling_of_money_together() {
    let most = 3 * WORST_NANOS + WORST_NANOS / 2;
    let guard = guard(HostCeilings {
        spend_nanos_max: Some(most),
        ..HostCeilings::none()
    });
    let model = Arc::new(CountedModel {
        gate: Semaphore::new(0),
        ..CountedModel::answering(says(usage(100, 50)))
    });
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (permit, model) = (guard.admit_run().unwrap(), Arc::clone(&model));
        calls.spawn(async move { complete(&permit, &model, "known").await });
    }
    let mut refused = 0;
    while refused < 5 {
        let failure = calls.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(failure.code, "ceiling_spend");
        refused += 1;
    }
    assert_eq!(model.call_count(), 3);
    assert_eq!(guard.used_totals().unwrap().spend_nanos, 3 * WORST_NANOS);
    model.gate.add_permits(3);
    while let Some(done) = calls.join_next().await {
        assert!(done.unwrap().is_ok());
    }
    assert_eq!(guard.used_totals().unwrap().spend_nanos, 3 * WORST_NANOS);
    assert_eq!(guard.used_totals().unwrap().model_calls, 3);
}

/// Totals in the book after an answer: money, model calls, bytes.
#[tokio::test]
async fn a_hold_is_settled_by_what_was_reported() {
    let table = [
        ("reported", says(usage(10, 1)), (24_000, 1, 110)),
        (
            "more than was held",
            says(usage(1_000, 50)),
            (2_200_000, 1, 110),
        ),
        ("nobody knows", says(None), (WORST_NANOS, 1, 110)),
        (
            "failed, and nobody knows",
            fails(true, None),
            (WORST_NANOS, 1, 105),
        ),
        (
            "failed, and reported",
            fails(true, usage(10, 0)),
            (20_000, 1, 105),
        ),
        ("never sent", fails(false, None), (0, 0, 0)),
    ];
    for (name, answer, expected) in table {
        let guard = guard_charging(UnknownBill::Full);
        let permit = guard.admit_run().unwrap();
        let model = CountedModel::answering(answer.clone());
        assert_eq!(complete(&permit, &model, "known").await, answer, "{name}");
        let used = guard.used_totals().unwrap();
        let left = (used.spend_nanos, used.model_calls, used.model_bytes);
        assert_eq!(left, expected, "{name}");
        let again = complete(&permit, &model, "known").await;
        let refused = again.is_err_and(|failure| failure.code == "ceiling_spend");
        assert_eq!(refused, expected.0 > 0, "{name}");
    }
}

/// A guard with room for one call at its worst cost.
fn guard_charging(unknown_bill: UnknownBill) -> Arc<CeilingGuard> {
    let ceilings = HostCeilings {
        spend_nanos_max: Some(WORST_NANOS),
        ..HostCeilings::none()
    };
    let policy = Policy {
        unknown_bill,
        ..policy(ceilings)
    };
    Arc::new(CeilingGuard::new(policy, Arc::new(SystemClock)))
}

/// Symptom: a connection that closed before its first byte took the worst cost of its call from the
/// ceiling. Kind: calls whose cost is unknown.
#[tokio::test]
async fn unknown_bill_is_charged_by_duration() {
    // On a busy machine one call may take so long that its model could have written everything.
    for _ in 0..50 {
        let guard = guard_charging(UnknownBill::Estimate);
        let permit = guard.admit_run().unwrap();
        let model = CountedModel::answering(fails(true, None));
        complete(&permit, &model, "known").await.unwrap_err();
        let spent = guard.used_totals().unwrap().spend_nanos;
        assert!(spent >= 200_000, "the request alone: {spent}");
        if spent < WORST_NANOS {
            return;
        }
    }
    panic!("the most was booked each time");
}

#[tokio::test]
async fn dropped_call_is_charged_its_worst_cost() {
    let guard = guard(HostCeilings::none());
    let permit = guard.admit_run().unwrap();
    let model = CountedModel {
        gate: Semaphore::new(0),
        ..CountedModel::answering(says(None))
    };
    let dropped = tokio::time::timeout(Duration::ZERO, complete(&permit, &model, "known"));
    assert!(dropped.await.is_err());
    let tool = CountedTool {
        slow: true,
        ..CountedTool::default()
    };
    let called = permit
        .call_tool(&tool, "read_file", ARGUMENTS, Duration::ZERO)
        .await;
    assert!(called.interrupted && called.result.failed, "{called:?}");
    let expected = UsageTotals {
        spend_nanos: WORST_NANOS,
        unpriced_calls: 0,
        model_calls: 1,
        model_bytes: REQUEST_BYTES + REPLY_BYTES_MAX as u64,
        tool_calls: 1,
        tool_bytes: (ARGUMENTS.len() + RESULT_BYTES_MAX) as u64,
    };
    assert_eq!(guard.used_totals().unwrap(), expected);
}

#[tokio::test]
async fn a_snapshot_goes_on_where_it_was_taken() {
    let ceilings = HostCeilings {
        model_calls_max: Some(2),
        ..HostCeilings::none()
    };
    let model = CountedModel::answering(says(usage(1, 1)));
    let first = guard(ceilings);
    complete(&first.admit_run().unwrap(), &model, "known")
        .await
        .unwrap();
    let book = InMemoryBook::from_totals(first.used_totals().unwrap());
    let second = CeilingGuard::with_book(policy(ceilings), Arc::new(SystemClock), Box::new(book));
    let permit = Arc::new(second).admit_run().unwrap();
    complete(&permit, &model, "known").await.unwrap();
    let refused = complete(&permit, &model, "known").await.unwrap_err();
    assert_eq!(
        (refused.code.as_str(), model.call_count()),
        ("ceiling_model_calls", 2)
    );
}

#[tokio::test]
async fn call_beyond_the_rate_gets_a_retry_time() {
    let clock = Arc::new(ManualClock::default());
    let ceilings = HostCeilings {
        calls_per_minute_max: Some(1),
        ..HostCeilings::none()
    };
    let guard = CeilingGuard::new(policy(ceilings), Arc::<ManualClock>::clone(&clock));
    let guard = Arc::new(guard);
    let mut permit = guard.admit_run().unwrap();
    let (notes, told) = channel();
    permit.set_notice_receiver(move |note| {
        let CallNotice::Waits { wait, message } = note else {
            panic!("{note:?}")
        };
        assert_eq!(wait, Duration::from_secs(60));
        assert!(message.contains("calls_per_minute"), "{message}");
        notes.send(()).unwrap();
    });
    let model = CountedModel::answering(says(usage(1, 1)));
    complete(&permit, &model, "known").await.unwrap();
    let mut waits = Box::pin(complete(&permit, &model, "known"));
    assert!(
        (&mut waits).now_or_never().is_none(),
        "it waits for its turn"
    );
    let asked = request("known");
    for (has, again) in [(LONG, 60), (Duration::from_secs(80), 80)] {
        let late = permit.complete(&model, &asked, &|_| {}, has);
        let late = late.await.unwrap_err();
        assert_eq!((late.kind, late.sent), (FailureKind::RateLimited, false));
        assert_eq!(late.code, "ceiling_calls_per_minute");
        assert_eq!(
            late.retry_after,
            Some(Duration::from_secs(again)),
            "{has:?}"
        );
    }
    // Symptom: a caller that stopped a waiting run and began another waited twice. Cause: the first
    // run's place in the queue stayed taken.
    drop(waits);
    let mut waits = Box::pin(complete(&permit, &model, "known"));
    assert!(
        (&mut waits).now_or_never().is_none(),
        "the turn of the other"
    );
    assert_eq!(model.call_count(), 1);
    assert_eq!(told.try_iter().count(), 2);
    assert_eq!(
        guard.used_totals().unwrap().model_calls,
        1,
        "those that wait hold nothing"
    );
    drop(waits);
    clock.advance(Duration::from_secs(1_000));
    complete(&permit, &model, "known").await.unwrap();
}

#[tokio::test]
async fn a_call_is_cut_at_the_operators_time() {
    let guard = guard(HostCeilings {
        call_time_max: Some(Duration::from_millis(30)),
        ..HostCeilings::none()
    });
    let model = CountedModel {
        gate: Semaphore::new(0),
        ..CountedModel::answering(says(None))
    };
    let permit = guard.admit_run().unwrap();
    let cut = complete(&permit, &model, "known").await.unwrap_err();
    assert_eq!(
        (cut.code.as_str(), cut.kind),
        ("timeout", FailureKind::Transient)
    );
    model.gate.add_permits(1);
    complete(&permit, &model, "known").await.unwrap();
}

#[tokio::test]
async fn call_is_dropped_when_the_run_time_ends() {
    let guard = guard(HostCeilings {
        run_time_max: Some(Duration::from_millis(30)),
        ..HostCeilings::none()
    });
    let model = CountedModel {
        gate: Semaphore::new(0),
        ..CountedModel::answering(says(None))
    };
    let permit = guard.admit_run().unwrap();
    let over = complete(&permit, &model, "known").await.unwrap_err();
    // On a slow machine the call's time may end before it is sent, or after.
    assert_eq!(over.code, "ceiling_run_time");
    assert_eq!(over.sent, model.call_count() == 1);
    let after = complete(&permit, &model, "known").await.unwrap_err();
    assert_eq!(
        (after.code.as_str(), after.sent),
        ("ceiling_run_time", false)
    );
    let tool = CountedTool::default();
    let called = call(&permit, &tool, "read_file").await;
    assert!(
        called.result.content.contains("(ceiling_run_time)"),
        "{called:?}"
    );
    assert_eq!(tool.reached.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_run_that_ends_makes_room_for_the_next() {
    let guard = guard(HostCeilings {
        runs_max: Some(1),
        ..HostCeilings::none()
    });
    let permit = guard.admit_run().unwrap();
    let refusal = guard.admit_run().unwrap_err();
    assert_eq!(refusal.code(), "ceiling_runs");
    drop(permit);
    assert!(guard.admit_run().is_ok());
}

/// The host holds the operator's approvals by itself: a component that hands such a call out
/// without one reaches no tool, and one that says that it was approved passes.
#[tokio::test]
async fn a_call_that_needs_approval_reaches_no_tool() {
    for (pattern, passes) in [("read_*", false), ("read_file", false), ("write_*", true)] {
        let policy = Policy {
            approvals: vec![pattern.to_owned()],
            ..policy(HostCeilings::none())
        };
        let guard = Arc::new(CeilingGuard::new(policy, Arc::new(SystemClock)));
        let permit = guard.admit_run().unwrap();
        let tool = CountedTool::default();
        let called = call(&permit, &tool, "read_file").await;
        let reached = tool.reached.load(Ordering::SeqCst);
        assert_eq!(
            (reached, called.result.failed),
            (u64::from(passes), !passes)
        );
        assert!(!called.interrupted, "{called:?}");
        let text = called.result.content;
        for words in [
            "not run",
            "read_file needs a person's approval",
            "approvals",
        ] {
            assert_eq!(text.contains(words), !passes, "{words}: {text}");
        }
    }
}
