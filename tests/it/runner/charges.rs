//! The charge of an attempt whose usage is unknown, and the money that the next attempt then has.

use super::fixture::{RunnerFixture, fails, says};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::runner::{LlmFailure, StepOutcome};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;

#[test]
fn attempt_without_usage_is_charged_by_time_and_text() {
    // 400 output tokens are admitted, at 2,000 nano-USD; 200 are written in a second.
    for (millis, partial, output) in [
        (0, "", 0),
        (0, "four and some words arrived", 7),
        (1_000, "", 200),
        (60_000, "", 400),
    ] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        let account = |world: &RunnerFixture| {
            world
                .service
                .load(&thread)
                .unwrap()
                .chain
                .value
                .account
                .clone()
        };
        let held = account(&world).held.get();
        world.advance(millis);
        let failure = LlmFailure {
            partial: partial.to_owned(),
            ..fails("transient", true)
        };
        world
            .submit(&thread, StepOutcome::Failure(failure))
            .unwrap();
        let after = account(&world);
        let spent = held - (400 - output) * 2_000;
        assert_eq!(
            (after.spent.get(), after.held.get()),
            (spent, 0),
            "{millis} {partial}"
        );
        world.audit();
    }
}

/// Symptom: after a crash and a night a call of a second was charged as an hour of output. Cause:
/// time without a driver counted as the model's. Fix: the charged time ends soon after the holder's
/// last sign of life. Kind: a charge by time.
#[test]
fn a_call_whose_holder_died_is_charged_until_its_last_sign() {
    // 20 s at 200 tokens a second are more than the 400 that this model may write, so a slower rate
    // makes its time count.
    let slow = r#"{"name":"default","provider":"p","window":200000,"output":400,"rate":5,
        "prices":{"input":"1","output":"2"}}"#;
    for (kept_after, output) in [(None, 100), (Some(10_000), 150)] {
        let library = MapLibrary::small().with("model", "default", slow);
        let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
        let thread = world.create(Some("work"));
        let handed = world.start(&thread, None).unwrap();
        let head = handed.loaded.head.value;
        if let Some(millis) = kept_after {
            world.advance(millis);
            world
                .service
                .progress(&thread, head.token, "so far")
                .unwrap();
        }
        world.advance(36_000_000);
        let held = head.hold.unwrap().amount.get();
        let holder = head.holder.clone().unwrap();
        world.service.recover(&[holder], None).unwrap();
        let account = world
            .service
            .load(&thread)
            .unwrap()
            .chain
            .value
            .account
            .clone();
        assert_eq!(
            account.spent.get(),
            held - (400 - output) * 2_000,
            "{kept_after:?}"
        );
        world.audit();
    }
}

/// Symptom: one broken connection suspended a run that had nearly all of its money left. Cause: the
/// retry asked for the output maximum of the first attempt, which had held all the money. Fix: it
/// is lowered to the rest.
#[test]
fn a_retry_has_what_the_attempt_before_it_left() {
    let large = r#"{"name":"default","provider":"p","window":1000000,"output":128000,
        "prices":{"input":"1","output":"10"}}"#;
    let library = MapLibrary::small().with("model", "default", large);
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let thread = world.create(Some("boss"));
    let first = world.start(&thread, None).unwrap().step;
    let failed = StepOutcome::Failure(fails("transient", true));
    world.submit(&thread, failed).unwrap();
    let retry = world.submit(&thread, StepOutcome::Waited).unwrap().step;
    assert_eq!(retry.kind, Some(StepKind::CallLlm));
    assert!(
        retry.output < first.output && retry.output > 1_000,
        "{retry:?}"
    );
    world.submit(&thread, says("done")).unwrap();
    world.audit();
}
