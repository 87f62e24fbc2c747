//! Complaints of other systems' users about budgets and usage, 60 to 72 of the study of them.
//!
//! Two cannot occur here: no budget is reset by a window of time (65), and nothing is imported yet
//! (69). The message that a child out of money sends its parent (66) is in
//! [`super::spawned_children`].

use super::loop_family::{LoopFamily, TENTH, denial_cause};
use crate::runner::fixture::{RunnerFixture, calls, fails, raise, reply, says, usage};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_component::service::store::CONTENTION;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{CallBill, ReplyBlock, StepOutcome};
use threadkeep_tests::fixture::MapLibrary;

/// Returns whether the call was admitted, repeating it after each conflict.
fn is_admitted(store: &Arc<dyn StorageBackend>, thread: &str) -> bool {
    let world = RunnerFixture::over(Arc::clone(store), MapLibrary::small());
    let service = &world.service;
    let until = |seconds: u64| service.ports().now().plus_millis(seconds * 1_000);
    let opened = service.open(thread, &format!("h/{thread}"), until(3_000));
    let token = opened.unwrap().head.value.token;
    let asked = UnresolvedEstimate::Amount(NanoUsd::new(TENTH));
    loop {
        let held = service.hold(thread, token, "only", &asked, until(60));
        match held.map_err(Error::into_kind) {
            Ok(_) => return true,
            Err(ErrorKind::Core(CoreErrorKind::Exceeded(_))) => return false,
            Err(ErrorKind::Storage(error)) => {
                assert!(format!("{error:?}").contains(CONTENTION), "{error:?}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// 60 (litellm 40095): the first requests of a new user all passed, before the row of its budget
/// was there.
#[test]
fn e60_an_account_is_there_before_the_first_request_and_admits_what_it_has() {
    let family = LoopFamily::new(Some(10 * TENTH));
    let threads: Vec<String> = (0..16).map(|n| format!("child-{n}")).collect();
    for thread in &threads {
        family.child_without_account("root", thread);
    }
    let store = &family.world.store;
    let admitted = std::thread::scope(|scope| {
        let race = |thread: &String| {
            let thread = thread.clone();
            scope.spawn(move || is_admitted(store, &thread))
        };
        let racing: Vec<_> = threads.iter().map(race).collect();
        let done = racing.into_iter().map(|race| race.join().unwrap());
        done.filter(|admitted| *admitted).count()
    });
    assert_eq!(admitted, 10);
    assert_eq!(family.tenths("root"), [10, 0, 10, 0]);
    family.world.audit();
}

/// 61 (litellm 8867, otari 691): four exact rows summed to 0.6619999999999999 in the counter that
/// decides.
#[test]
fn e61_exact_amounts_add_up_exactly() {
    let mut family = LoopFamily::new(Some(662_000_000));
    for _ in 0..4 {
        family.spend("root", 165_500_000);
    }
    let account = family.account("root");
    assert_eq!(account.spent.to_string(), "0.662");
    assert_eq!(account.room(None), NanoUsd::ZERO);
    denial_cause(family.hold("root", 1));
    assert_eq!(NanoUsd::new(1_615_000).to_string(), "0.001615");
}

/// 62 (otari 128): a provider that failed before it sent anything left its hold for ever.
#[test]
fn e62_every_way_out_of_a_call_closes_its_hold() {
    let partial = threadkeep_core::runner::LlmFailure {
        usage: usage(50, 5),
        ..fails("permanent", true)
    };
    for (outcome, spent) in [
        (StepOutcome::Failure(fails("permanent", false)), Some(0)),
        (StepOutcome::Failure(fails("permanent", true)), None),
        (StepOutcome::Failure(partial.clone()), Some(60_000)),
        (StepOutcome::Stopped(fails("cancelled", false)), Some(0)),
        (StepOutcome::Stopped(fails("cancelled", true)), None),
        (StepOutcome::Stopped(partial), Some(60_000)),
        (says("done"), Some(120_000)),
    ] {
        let mut family = LoopFamily::new(Some(10 * TENTH));
        family.world.start("root", Some("go")).unwrap();
        let held = family.account("root").held.get();
        assert!(held > 0);
        let shown = format!("{outcome:?}");
        family.world.submit("root", outcome).unwrap();
        family.world.audit();
        let account = family.account("root");
        assert_eq!(account.held, NanoUsd::ZERO, "{shown}");
        // Where the bill is unknown, its input is charged: no time has passed in which the model
        // could write 400 tokens.
        let input = held - 400 * 2_000;
        assert_eq!(account.spent.get(), spent.unwrap_or(input), "{shown}");
    }
}

/// 63 (litellm 35568): a stream that broke was refunded, though its tokens were billed.
#[test]
fn e63_a_stream_that_breaks_costs_what_was_reported() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.world.start("root", Some("go")).unwrap();
    let broken = threadkeep_core::runner::LlmFailure {
        usage: usage(70, 15),
        partial: "Half of".to_owned(),
        ..fails("transient", true)
    };
    family
        .world
        .submit("root", StepOutcome::Failure(broken))
        .unwrap();
    assert_eq!(family.account("root").spent.get(), 70_000 + 30_000);
    let head = family.world.service.load("root").unwrap().head.value;
    assert_eq!(head.counters.run_tokens, 85);
}

/// 64 (routstr-core 682): a cost above its reserve consumed the holds of others, and the remaining
/// money went below zero; a sweeper freed the holds of live streams.
#[test]
fn e64_an_overrun_takes_nothing_from_anybodys_hold() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.child("root", "one", 2 * TENTH);
    family.child("root", "two", 8 * TENTH);
    let other = family.hold("two", 8 * TENTH).unwrap();
    let held = family.hold("one", 2 * TENTH).unwrap();
    family.settle("one", held.version, 5 * TENTH).unwrap();
    // The other's money is unchanged; the root owes.
    assert_eq!(family.tenths("two"), [8, 0, 8, 0]);
    assert_eq!(family.tenths("one"), [5, 5, 0, 0]);
    assert_eq!(family.account("root").deficit().get(), 3 * TENTH);
    // A recovery releases no live hold, and the hold is settled as intended.
    let swept = family.world.service.recover(&["h/nobody".to_owned()], None);
    assert!(swept.unwrap().closed.is_empty());
    family.settle("two", other.version, 8 * TENTH).unwrap();
    for thread in ["one", "two", "root"] {
        family.end(thread);
    }
    assert_eq!(family.tenths("root"), [10, 13, 0, 0]);
}

/// 67 (hermes-agent 2873): children starved on a shared budget; with a fresh one each the cap no
/// longer held.
#[test]
fn e67_a_reserve_is_its_childs_alone_and_all_of_them_are_the_parents() {
    let mut family = LoopFamily::new(Some(9 * TENTH));
    for child in ["greedy", "second", "third"] {
        family.child("root", child, 3 * TENTH);
    }
    family.spend("greedy", 3 * TENTH);
    let cause = denial_cause(family.hold("greedy", 1));
    assert_eq!((cause.reason.as_str(), cause.maximum), ("budget", Some(0)));
    // The others have all of their money, and no child has more.
    family.spend("second", 3 * TENTH);
    family.spend("third", 3 * TENTH);
    denial_cause(family.hold("root", 1));
    for child in ["greedy", "second", "third"] {
        family.end(child);
    }
    assert_eq!(family.tenths("root"), [9, 9, 0, 0]);
}

/// 68 (claude-code 87303): usage was repeated on each block of a response and counted as often.
#[test]
fn e68_a_response_of_many_blocks_is_counted_once() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.world.start("root", Some("go")).unwrap();
    let text = |text: &str| ReplyBlock::Text {
        text: text.to_owned(),
    };
    let blocks = vec![text("one"), text("two"), text("three")];
    let answer = reply(blocks, usage(100, 10));
    family.world.submit("root", answer).unwrap();
    assert_eq!(family.account("root").spent.get(), 120_000);
    // A response that is reported twice is the same response.
    let (last, version) = family.world.held["root"].last.clone().unwrap();
    let again = family.world.service.submit("root", &last, version);
    again.unwrap();
    let head = family.world.service.load("root").unwrap().head.value;
    assert_eq!((head.counters.turns, head.counters.usage.total()), (1, 110));
    assert_eq!(family.account("root").spent.get(), 120_000);
}

/// 70 (ccusage 950, 897): a forked or spawned thread reported its parent's usage once more, up to
/// 91 times.
#[test]
fn e70_new_threads_have_spent_nothing() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.spend("root", 4 * TENTH);
    family.child("root", "child", 2 * TENTH);
    family.child_without_account("root", "poor");
    for thread in ["child", "poor"] {
        assert_eq!(family.own_cost(thread), 0, "{thread}");
    }
    assert_eq!(family.tenths("child"), [2, 0, 0, 0]);
    assert_eq!(family.tenths("root"), [10, 4, 0, 2]);
}

/// 71 (claude-code 5904, ccusage 866): placeholders of a stream counted as its usage, and were
/// never corrected.
#[test]
fn e71_only_final_usage_counts() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    family.world.start("root", Some("go")).unwrap();
    let before = family.account("root");
    let token = family.world.held["root"].token;
    for text in ["Half", "Half of it"] {
        let service = &family.world.service;
        service.progress("root", token, text).unwrap();
        assert_eq!(family.account("root"), before);
    }
    family
        .world
        .submit("root", says("Half of it, and the rest"))
        .unwrap();
    let account = family.account("root");
    assert_eq!((account.spent.get(), account.held.get()), (120_000, 0));
    // An external loop's call has one bill, and the first reported one stands.
    let held = family.hold("root", TENTH).unwrap();
    let usage = CallBill::Usage(usage(1, 0).unwrap());
    let settled = family.world.service.settle("root", held.version, usage);
    assert!(settled.is_err(), "it was held as money");
    family.settle("root", held.version, 7).unwrap();
    assert!(family.settle("root", held.version, 8).is_err());
}

/// 72 (claude-code 42338, 87137): a resumed run sent other bytes than before, and missed the
/// provider's cache.
#[test]
fn e72_resumed_request_begins_with_the_same_bytes() {
    let mut family = LoopFamily::new(Some(10 * TENTH));
    let turns = |turns| {
        raise(ThreadCaps {
            turns: Some(turns),
            ..ThreadCaps::NONE
        })
    };
    let world = &mut family.world;
    world.service.signal("root", "one", &turns(1)).unwrap();
    world.start("root", Some("go")).unwrap();
    world
        .submit("root", calls(&[("read", "{\"a\": 0.10}")]))
        .unwrap();
    let sent = |world: &RunnerFixture| world.service.messages("root", 0, None).unwrap().0;
    let before = sent(world);
    world.service.signal("root", "more", &turns(5)).unwrap();
    let handed = world.start("root", None).unwrap();
    let after = sent(world);
    assert_eq!(after[..before.len()], before[..]);
    assert!(handed.step.version > 0);
    world.submit("root", says("done")).unwrap();
    world.start("root", Some("and more")).unwrap();
    assert_eq!(sent(world)[..after.len()], after[..]);
}
