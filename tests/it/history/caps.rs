//! Holds of an external loop count against every cap, and its bills are bounded: one test for each
//! known fault.

use super::loop_money::{dollars, price, tokens, usage_bill};
use super::{LoopHost, code};
use crate::runner::fixture::{RunnerFixture, raise};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::CallBill;
use threadkeep_core::thread::{HOLDS_MAX, ThreadDraft};

impl LoopHost {
    fn caps(&self, caps: ThreadCaps) {
        let service = &self.world.service;
        service.signal(&self.thread, "caps", &raise(caps)).unwrap();
    }
}

/// The code of the cap that denies a hold.
fn denying_cap_code<T: std::fmt::Debug>(held: Result<T, Error>) -> String {
    match held.map_err(Error::into_kind) {
        Err(ErrorKind::Core(CoreErrorKind::Exceeded(cause))) => cause.code,
        other => panic!("it is not denied: {other:?}"),
    }
}

/// Symptom: parallel calls of an external loop passed the caps on turns, tokens and spend. Cause:
/// only settled amounts were compared with caps. Fix: holds count, too.
#[test]
fn calls_side_by_side_count_against_every_cap() {
    let caps = |turns, tokens| ThreadCaps {
        turns,
        tokens,
        ..ThreadCaps::NONE
    };
    for (caps, fits, expected) in [
        (caps(Some(2), None), 2, "turns_exceeded"),
        // A call is admitted as long as anything is left, as in a run.
        (caps(None, Some(900)), 3, "tokens_exceeded"),
    ] {
        let host = LoopHost::open();
        host.caps(caps);
        let hold = |n: usize| host.hold(&format!("call-{n}"), &tokens(100, 300));
        let held: Vec<u64> = (0..fits).map(|n| hold(n).unwrap().version).collect();
        let before = host.head();
        assert_eq!(denying_cap_code(hold(fits)), expected);
        assert_eq!(host.head(), before, "a denial writes nothing");
        // A call that cost less, or was never sent, makes room again.
        host.settle(held[0], CallBill::Nothing).unwrap();
        hold(fits).unwrap();
    }
}

/// A thread without an account has a cap of its own, which is lower than the money in its
/// ancestor's account.
#[test]
fn calls_side_by_side_count_against_the_cap_on_spend_of_a_thread_without_an_account() {
    let mut host = LoopHost::open();
    let top = host.thread.clone();
    host.thread = host.spawn(&top, "poor", None);
    host.caps(ThreadCaps {
        spend: Some(NanoUsd::new(1_000)),
        ..ThreadCaps::NONE
    });
    host.token = None;
    host.take_lease("h/2", 60).unwrap();
    host.hold("a", &dollars(600)).unwrap();
    assert_eq!(
        denying_cap_code(host.hold("b", &dollars(401))),
        "spend_exceeded"
    );
    let second = host.hold("c", &dollars(400)).unwrap();
    host.settle(second.version, CallBill::Amount(NanoUsd::new(100)))
        .unwrap();
    assert_eq!(
        denying_cap_code(host.hold("d", &dollars(301))),
        "spend_exceeded"
    );
    host.hold("e", &dollars(300)).unwrap();
    assert_eq!(host.figures(), (100, 900));
}

/// Symptom: a cost near the largest number broke an account for ever. Cause: its sums saturated.
/// Fix: one call costs at most [`NanoUsd::BILL_MAX`]; a larger bill is refused, and the price of
/// tokens is bounded by it.
#[test]
fn a_bill_beyond_any_is_refused_and_changes_nothing() {
    let most = NanoUsd::BILL_MAX.get();
    let host = LoopHost::open();
    let held = host.hold("a", &tokens(100, 300)).unwrap();
    let before = host.head();
    for nanos in [most + 1, u64::MAX] {
        let bill = CallBill::Amount(NanoUsd::new(nanos));
        assert_eq!(
            code(&host.settle(held.version, bill).unwrap_err()),
            "invalid"
        );
        let asked = host.hold("b", &dollars(nanos));
        let wrapped = host.settle(held.version, usage_bill(1 << 63, 1));
        assert_eq!(code(&wrapped.unwrap_err()), "invalid");
        assert_eq!(code(&asked.unwrap_err()), "invalid");
    }
    assert_eq!(host.head(), before);
    // The largest possible bills: the root owes an amount; usage is cut to what the call can have
    // used, 11,200 tokens in and 10,600 out. Everything goes on.
    let other = host.hold("c", &dollars(1)).unwrap();
    let tokens = i64::MAX as u64;
    host.settle(held.version, usage_bill(tokens, tokens))
        .unwrap();
    host.settle(other.version, CallBill::Amount(NanoUsd::BILL_MAX))
        .unwrap();
    assert_eq!(host.figures(), (most + 32_400_000, 0));
    host.close("idle", None).unwrap();
    host.world.audit();
}

/// Symptom: a loop that settled by amounts had no cap on tokens. Cause: an amount counted as no
/// tokens. Fix: it counts as the tokens of its hold, whether settled at once or late.
#[test]
fn a_call_that_is_settled_as_money_counts_as_the_tokens_that_it_was_held_for() {
    let host = LoopHost::open();
    host.caps(ThreadCaps {
        tokens: Some(801),
        ..ThreadCaps::NONE
    });
    for name in ["a", "b"] {
        let held = host.hold(name, &tokens(100, 300)).unwrap();
        let bill = CallBill::Amount(NanoUsd::new(5));
        host.settle(held.version, bill).unwrap();
    }
    assert_eq!(host.head().counters.run_tokens, 800);
    let last = host.hold("c", &tokens(100, 300)).unwrap();
    assert_eq!(
        denying_cap_code(host.hold("d", &tokens(1, 1))),
        "tokens_exceeded"
    );
    // Time enough for 300 tokens.
    host.world.advance(10_000);
    host.close("idle", None).unwrap();
    assert_eq!(host.head().counters.run_tokens, 1_200, "charged");
    let bill = CallBill::Amount(NanoUsd::new(5));
    host.settle(last.version, bill).unwrap();
    host.settle(last.version, bill).unwrap();
    assert_eq!(host.head().counters.run_tokens, 1_200, "told as money");
    assert_eq!(host.figures(), (15, 0));
    let usage = host.settle(last.version, usage_bill(1, 2)).unwrap_err();
    assert_eq!(code(&usage), "conflict");
}

/// Symptom: the record of a call with a long name in a thread with a long id had a key that no
/// store accepts. Cause: the key joined both. Fix: a long key is their digest.
#[test]
fn long_call_names_in_long_thread_ids_are_recognised() {
    let mut world = RunnerFixture::new();
    let draft = ThreadDraft {
        id: Some("T".repeat(200)),
        ..ThreadDraft::default()
    };
    let thread = world
        .service
        .create(&draft)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    world.threads.push(thread.clone());
    let mut host = LoopHost {
        world,
        thread,
        token: None,
    };
    host.take_lease("h/1", 60).unwrap();
    let names = ["n", "m"].map(|letter| letter.repeat(128));
    let held = names.each_ref().map(|name| {
        let held = host.hold(name, &tokens(100, 300)).unwrap();
        assert_eq!(host.hold(name, &tokens(100, 300)).unwrap(), held);
        assert_eq!(
            code(&host.hold(name, &tokens(100, 301)).unwrap_err()),
            "conflict"
        );
        held.version
    });
    host.settle(held[0], usage_bill(90, 20)).unwrap();
    host.settle(held[0], usage_bill(90, 20)).unwrap();
    assert_eq!(
        code(&host.settle(held[0], usage_bill(90, 21)).unwrap_err()),
        "conflict"
    );
    assert_eq!(host.figures(), (price(90, 20), price(100, 300)));
}

/// Symptom: a `close` that was repeated because its answer was lost was refused once a charged call
/// had been corrected. Cause: only the newest entry was compared. Fix: entries of late corrections
/// are skipped.
#[test]
fn repeated_close_is_recognised_after_corrections() {
    let host = LoopHost::open();
    let hold = |n: usize| host.hold(&format!("call-{n}"), &dollars(10)).unwrap();
    let held: Vec<u64> = (0..HOLDS_MAX).map(|n| hold(n).version).collect();
    let closed = host.close("completed", Some("\"done\"")).unwrap();
    for version in held {
        host.settle(version, CallBill::Amount(NanoUsd::new(3)))
            .unwrap();
        let again = host.close("completed", Some("\"done\"")).unwrap();
        assert_eq!(again, closed);
    }
    let other = host.close("completed", Some("\"another\"")).unwrap_err();
    assert_eq!(code(&other), "refused");
}
