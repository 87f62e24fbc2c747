//! Late corrections: a driver that was presumed dead reports the real usage of its call.

use super::fixture::{RunnerFixture, calls, reply, says, usage};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{DecisionInputs, HolderProof, Signal, StepOutcome, StepSubmission};
use threadkeep_core::thread::{CHARGED_MAX, ThreadStatus};

/// Creates a thread with one reply and a lost second attempt; returns it with the lost driver's
/// submission.
fn lose_attempt(world: &mut RunnerFixture, used: Option<Usage>) -> (String, StepSubmission) {
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    let outcomes = world.outcomes(&thread);
    let handed = world.submit(&thread, outcomes).unwrap();
    let submission = StepSubmission {
        token: handed.loaded.head.value.token,
        version: handed.step.version,
        outcome: reply(Vec::new(), used),
        inputs: DecisionInputs::default(),
    };
    (thread, submission)
}

fn submit_late(world: &RunnerFixture, thread: &str, submission: &StepSubmission) {
    let fenced = world.service.submit(thread, submission, submission.version);
    assert!(
        matches!(
            fenced.as_ref().map_err(Error::kind),
            Err(ErrorKind::Core(CoreErrorKind::Fenced { .. }))
        ),
        "{fenced:?}"
    );
}

/// Returns the account's spend, the thread's counter, and the number of corrections in the history.
fn figures(world: &RunnerFixture, thread: &str) -> (u64, u64, usize) {
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
fn correction_replaces_the_charge_once_on_an_unheld_thread() {
    let mut world = RunnerFixture::new();
    let (thread, submission) = lose_attempt(&mut world, usage(200, 20));
    world.advance(10_000);
    world.service.signal(&thread, "k", &Signal::Kill).unwrap();
    // The first reply cost 120,000 nano-USD, the tool 7; the second attempt was charged by its
    // time.
    let charged = figures(&world, &thread);
    assert!(charged.0 > 120_007 + 240_000, "{charged:?}");
    submit_late(&world, &thread, &submission);
    let after = (120_007 + 240_000, 120_007 + 240_000, 1);
    assert_eq!(figures(&world, &thread), after);
    world.audit();
    let other = StepSubmission {
        outcome: reply(Vec::new(), usage(1, 1)),
        ..submission.clone()
    };
    for again in [&submission, &other] {
        submit_late(&world, &thread, again);
        assert_eq!(figures(&world, &thread), after, "it is taken once");
    }
    assert_eq!(world.status(&thread), "killed", "an end stays the end");
    world.audit();
}

#[test]
fn correction_waits_in_the_head_of_a_held_thread() {
    let mut world = RunnerFixture::new();
    let (thread, submission) = lose_attempt(&mut world, usage(200, 20));
    let claimed = world.service.claim(&thread, "h/2", HolderProof::Dead);
    let version = world.hold(&thread, claimed).unwrap().step.version;
    let before = figures(&world, &thread);
    submit_late(&world, &thread, &submission);
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
fn correction_needs_usage_and_a_charge() {
    let mut world = RunnerFixture::new();
    let (thread, submission) = lose_attempt(&mut world, None);
    world.service.signal(&thread, "k", &Signal::Kill).unwrap();
    let before = world.service.load(&thread).unwrap();
    let settled_long_ago = StepSubmission {
        version: 1,
        outcome: reply(Vec::new(), usage(9, 9)),
        ..submission.clone()
    };
    for nothing in [submission, settled_long_ago] {
        submit_late(&world, &thread, &nothing);
        assert_eq!(world.service.load(&thread).unwrap(), before);
    }
    let waited = StepSubmission {
        token: 0,
        version: 3,
        outcome: StepOutcome::Waited,
        inputs: DecisionInputs::default(),
    };
    submit_late(&world, &thread, &waited);
    assert_eq!(world.service.load(&thread).unwrap(), before);
}

/// Symptom: a charge stayed for ever although its real usage had been reported. Cause: the newest
/// eight attempts can be corrected, and the oldest was dropped before its correction was counted.
/// Fix: it is counted first.
#[test]
fn correction_counts_before_its_attempt_is_evicted() {
    let mut world = RunnerFixture::new();
    let (thread, submission) = lose_attempt(&mut world, usage(200, 20));
    let lose = |world: &mut RunnerFixture, most: usize| {
        for n in 0.. {
            let head = world.service.load(&thread).unwrap().head.value;
            if head.status == ThreadStatus::Running && head.charged.len() >= most {
                return;
            }
            let handed = match head.status {
                ThreadStatus::Running => {
                    world
                        .service
                        .claim(&thread, &format!("h/{n}"), HolderProof::Dead)
                }
                _ => world.start(&thread, None),
            };
            handed.unwrap();
            world.audit();
        }
    };
    lose(&mut world, CHARGED_MAX);
    let before = figures(&world, &thread);
    submit_late(&world, &thread, &submission);
    let oldest = world.service.load(&thread).unwrap().head.value.charged[0].version;
    assert_eq!(oldest, submission.version, "it is the next to go");
    world
        .service
        .claim(&thread, "h/last", HolderProof::Dead)
        .unwrap();
    let after = figures(&world, &thread);
    assert_eq!((before.2, after.2), (0, 1), "{before:?} {after:?}");
    world.audit();
}
