//! Late corrections: a driver that was presumed dead reports the real usage of its call.

use super::world::{World, calls, reply, says, usage};
use threadkeep_component::service::Error;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{Kit, Outcome, Proof, Signal, Submission};
use threadkeep_core::thread::{CHARGED_MAX, Status};

/// Creates a thread with one reply and a lost second attempt; returns it with the lost driver's
/// submission.
fn lost(world: &mut World, used: Option<Usage>) -> (String, Submission) {
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    let outcomes = world.outcomes(&thread);
    let handed = world.submit(&thread, outcomes).unwrap();
    let submission = Submission {
        token: handed.loaded.head.value.token,
        version: handed.step.version,
        outcome: reply(Vec::new(), used),
        kit: Kit::default(),
    };
    (thread, submission)
}

fn late(world: &World, thread: &str, submission: &Submission) {
    let fenced = world.service.submit(thread, submission, submission.version);
    assert!(
        matches!(fenced, Err(Error::Core(CoreError::Fenced { .. }))),
        "{fenced:?}"
    );
}

/// Returns the account's spend, the thread's counter, and the number of corrections in the history.
fn figures(world: &World, thread: &str) -> (u64, u64, usize) {
    let loaded = world.service.load(thread).unwrap();
    let (_, lines, _) = world.service.entries(thread, 0, None, 500).unwrap();
    let events = lines.iter().flat_map(|line| &line.entry.events);
    let corrections = events.filter(|event| event.kind() == "usage_corrected");
    let spent = loaded.chain.value.account.spent.get();
    (
        spent,
        loaded.head.value.counters.spend.get(),
        corrections.count(),
    )
}

#[test]
fn it_replaces_the_charge_once_where_nobody_holds_the_thread() {
    let mut world = World::new();
    let (thread, submission) = lost(&mut world, usage(200, 20));
    world.advance(10_000);
    world.service.signal(&thread, "k", &Signal::Kill).unwrap();
    // The first reply cost 120,000 nano-USD, the tool 7; the second attempt was charged by its
    // time.
    let charged = figures(&world, &thread);
    assert!(charged.0 > 120_007 + 240_000, "{charged:?}");
    late(&world, &thread, &submission);
    let after = (120_007 + 240_000, 120_007 + 240_000, 1);
    assert_eq!(figures(&world, &thread), after);
    world.audit();
    let other = Submission {
        outcome: reply(Vec::new(), usage(1, 1)),
        ..submission.clone()
    };
    for again in [&submission, &other] {
        late(&world, &thread, again);
        assert_eq!(figures(&world, &thread), after, "it is taken once");
    }
    assert_eq!(world.status(&thread), "killed", "an end stays the end");
    world.audit();
}

#[test]
fn it_waits_in_the_head_while_another_holds_the_thread() {
    let mut world = World::new();
    let (thread, submission) = lost(&mut world, usage(200, 20));
    let claimed = world.service.claim(&thread, "h/2", Proof::Dead);
    let version = world.hold(&thread, claimed).unwrap().step.version;
    let before = figures(&world, &thread);
    late(&world, &thread, &submission);
    assert_eq!(
        figures(&world, &thread),
        before,
        "the next entry tells of it"
    );
    world.audit();
    // The holder still has its step.
    let handed = world.submit(&thread, says("done")).unwrap();
    assert_eq!(handed.loaded.head.value.version, version + 1);
    let expected = 120_007 + 240_000 + 120_000;
    assert_eq!(figures(&world, &thread), (expected, expected, 1));
    world.audit();
}

#[test]
fn nothing_is_taken_from_whoever_knows_no_usage_or_was_not_charged() {
    let mut world = World::new();
    let (thread, submission) = lost(&mut world, None);
    world.service.signal(&thread, "k", &Signal::Kill).unwrap();
    let before = world.service.load(&thread).unwrap();
    let settled_long_ago = Submission {
        version: 1,
        outcome: reply(Vec::new(), usage(9, 9)),
        ..submission.clone()
    };
    for nothing in [submission, settled_long_ago] {
        late(&world, &thread, &nothing);
        assert_eq!(world.service.load(&thread).unwrap(), before);
    }
    let waited = Submission {
        token: 0,
        version: 3,
        outcome: Outcome::Waited,
        kit: Kit::default(),
    };
    late(&world, &thread, &waited);
    assert_eq!(world.service.load(&thread).unwrap(), before);
}

/// Symptom: a charge stayed for ever although its real usage had been reported. Cause: the newest
/// eight attempts can be corrected, and the oldest was dropped before its correction was counted.
/// Fix: it is counted first.
#[test]
fn what_was_told_counts_although_its_attempt_makes_room_for_another() {
    let mut world = World::new();
    let (thread, submission) = lost(&mut world, usage(200, 20));
    let lose = |world: &mut World, most: usize| {
        for n in 0.. {
            let head = world.service.load(&thread).unwrap().head.value;
            if head.status == Status::Running && head.charged.len() >= most {
                return;
            }
            let handed = match head.status {
                Status::Running => world.service.claim(&thread, &format!("h/{n}"), Proof::Dead),
                _ => world.start(&thread, None),
            };
            handed.unwrap();
            world.audit();
        }
    };
    lose(&mut world, CHARGED_MAX);
    let before = figures(&world, &thread);
    late(&world, &thread, &submission);
    let oldest = world.service.load(&thread).unwrap().head.value.charged[0].version;
    assert_eq!(oldest, submission.version, "it is the next to go");
    world.service.claim(&thread, "h/last", Proof::Dead).unwrap();
    let after = figures(&world, &thread);
    assert_eq!((before.2, after.2), (0, 1), "{before:?} {after:?}");
    world.audit();
}
