//! What a host's own loop holds counts against every cap, and what it tells is bounded: known faults, each of which a test
//! here would have shown.

use super::money::{dollars, price, tokens, used};
use super::{Host, code};
use crate::runner::world::{World, raise};
use threadkeep_component::service::Error;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::limits::Limits;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::Bill;
use threadkeep_core::thread::{Draft, HOLDS_MAX};

impl Host {
    fn caps(&self, caps: Limits) {
        let service = &self.world.service;
        service.signal(&self.thread, "caps", &raise(caps)).unwrap();
    }
}

/// The code of the cap that denies.
fn denied<T: std::fmt::Debug>(held: Result<T, Error>) -> String {
    match held {
        Err(Error::Core(CoreError::Exceeded(cause))) => cause.code,
        other => panic!("it is not denied: {other:?}"),
    }
}

/// Symptom: calls that a loop made side by side passed the caps on turns, tokens and spend. Cause: caps were compared with
/// what was settled alone. Fix: what is held counts, too.
#[test]
fn calls_side_by_side_count_against_every_cap() {
    let caps = |turns, tokens| Limits {
        turns,
        tokens,
        ..Limits::NONE
    };
    for (caps, fits, expected) in [
        (caps(Some(2), None), 2, "turns_exceeded"),
        // A call is admitted as long as anything is left, as a run's is.
        (caps(None, Some(900)), 3, "tokens_exceeded"),
    ] {
        let host = Host::open();
        host.caps(caps);
        let hold = |n: usize| host.hold(&format!("call-{n}"), &tokens(100, 300));
        let held: Vec<u64> = (0..fits).map(|n| hold(n).unwrap().version).collect();
        let before = host.head();
        assert_eq!(denied(hold(fits)), expected);
        assert_eq!(host.head(), before, "a denial writes nothing");
        // What came to less, or was never sent, makes room again.
        host.settle(held[0], Bill::Nothing).unwrap();
        hold(fits).unwrap();
    }
}

/// A thread whose money is another's has a cap of its own, which is lower than what the account has.
#[test]
fn calls_side_by_side_count_against_the_cap_on_spend_of_a_thread_without_an_account() {
    let mut host = Host::open();
    let top = host.thread.clone();
    host.thread = host.spawn(&top, "poor", None);
    host.caps(Limits {
        spend: Some(NanoUsd::new(1_000)),
        ..Limits::NONE
    });
    host.token = None;
    host.take("h/2", 60).unwrap();
    host.hold("a", &dollars(600)).unwrap();
    assert_eq!(denied(host.hold("b", &dollars(401))), "spend_exceeded");
    let second = host.hold("c", &dollars(400)).unwrap();
    host.settle(second.version, Bill::Amount(NanoUsd::new(100)))
        .unwrap();
    assert_eq!(denied(host.hold("d", &dollars(301))), "spend_exceeded");
    host.hold("e", &dollars(300)).unwrap();
    assert_eq!(host.figures(), (100, 900));
}

/// Symptom: a cost near the largest number broke an account for ever. Cause: its sums saturated. Fix: one call costs at most
/// [`NanoUsd::BILL_MAX`], which is refused where it is told, and what tokens come to is no more than that.
#[test]
fn a_bill_beyond_any_is_refused_and_changes_nothing() {
    let most = NanoUsd::BILL_MAX.get();
    let host = Host::open();
    let held = host.hold("a", &tokens(100, 300)).unwrap();
    let before = host.head();
    for nanos in [most + 1, u64::MAX] {
        let bill = Bill::Amount(NanoUsd::new(nanos));
        assert_eq!(
            code(&host.settle(held.version, bill).unwrap_err()),
            "invalid"
        );
        let asked = host.hold("b", &dollars(nanos));
        assert_eq!(code(&asked.unwrap_err()), "invalid");
    }
    assert_eq!(host.head(), before);
    // As much as there can be: the root owes it, and everything goes on.
    let other = host.hold("c", &dollars(1)).unwrap();
    host.settle(held.version, used(u64::MAX, u64::MAX)).unwrap();
    host.settle(other.version, Bill::Amount(NanoUsd::BILL_MAX))
        .unwrap();
    assert_eq!(host.figures(), (2 * most, 0));
    host.close("idle", None).unwrap();
    host.world.audit();
}

/// Symptom: whoever settled by amounts had no cap on tokens. Cause: an amount counted as no tokens. Fix: it counts as those
/// that it was admitted with, at once and late.
#[test]
fn a_call_that_is_settled_as_money_counts_as_the_tokens_that_it_was_held_for() {
    let host = Host::open();
    host.caps(Limits {
        tokens: Some(801),
        ..Limits::NONE
    });
    for name in ["a", "b"] {
        let held = host.hold(name, &tokens(100, 300)).unwrap();
        let bill = Bill::Amount(NanoUsd::new(5));
        host.settle(held.version, bill).unwrap();
    }
    assert_eq!(host.head().counters.run_tokens, 800);
    let last = host.hold("c", &tokens(100, 300)).unwrap();
    assert_eq!(denied(host.hold("d", &tokens(1, 1))), "tokens_exceeded");
    // Time enough for 300 tokens.
    host.world.advance(10_000);
    host.close("idle", None).unwrap();
    assert_eq!(host.head().counters.run_tokens, 1_200, "charged");
    let bill = Bill::Amount(NanoUsd::new(5));
    host.settle(last.version, bill).unwrap();
    host.settle(last.version, bill).unwrap();
    assert_eq!(host.head().counters.run_tokens, 1_200, "told as money");
    assert_eq!(host.figures(), (15, 0));
    let usage = host.settle(last.version, used(1, 2)).unwrap_err();
    assert_eq!(code(&usage), "conflict");
}

/// Symptom: the record of a call of a long name in a thread of a long id had a key that no store takes. Cause: it was made
/// of both. Fix: it is made of their digest then.
#[test]
fn long_names_in_threads_of_long_ids_are_known_again() {
    let mut world = World::new();
    let draft = Draft {
        id: Some("T".repeat(200)),
        ..Draft::default()
    };
    let thread = world.service.create(&draft).unwrap().thread.value.id;
    world.threads.push(thread.clone());
    let mut host = Host {
        world,
        thread,
        token: None,
    };
    host.take("h/1", 60).unwrap();
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
    host.settle(held[0], used(90, 20)).unwrap();
    host.settle(held[0], used(90, 20)).unwrap();
    assert_eq!(
        code(&host.settle(held[0], used(90, 21)).unwrap_err()),
        "conflict"
    );
    assert_eq!(host.figures(), (price(90, 20), price(100, 300)));
}

/// Symptom: `close`, repeated because its answer was lost, was refused once a charged call had been told of. Cause: only the
/// newest entry was looked at. Fix: entries that tell late are passed over.
#[test]
fn a_close_is_known_again_after_late_truths() {
    let host = Host::open();
    let hold = |n: usize| host.hold(&format!("call-{n}"), &dollars(10)).unwrap();
    let held: Vec<u64> = (0..HOLDS_MAX).map(|n| hold(n).version).collect();
    let closed = host.close("completed", Some("\"done\"")).unwrap();
    for version in held {
        host.settle(version, Bill::Amount(NanoUsd::new(3))).unwrap();
        let again = host.close("completed", Some("\"done\"")).unwrap();
        assert_eq!(again, closed);
    }
    let other = host.close("completed", Some("\"another\"")).unwrap_err();
    assert_eq!(code(&other), "refused");
}
