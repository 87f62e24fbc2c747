//! The signal `fail`: a host ends a run that it cannot go on with, wherever the thread stands.

use super::fixture::{RunnerFixture, calls, says, usage};
use crate::history::code;
use threadkeep_component::service::Error;
use threadkeep_core::history::Event;
use threadkeep_core::runner::{HostFailure, LoopFailure, Signal, StepOutcome};

/// Returns the code of a refusal.
fn refusal<T>(told: Result<T, Error>) -> &'static str {
    code(&told.map(drop).unwrap_err())
}

fn fail(message: &str) -> Signal {
    let text = format!(r#"{{"code":"disk_full","message":"{message}"}}"#);
    Signal::Fail(HostFailure {
        failure: LoopFailure {
            code: "disk_full".to_owned(),
            message: message.to_owned(),
        },
        text,
    })
}

/// Checks that the thread has ended by the error, and that nobody can go on with it in place.
fn assert_failed(world: &mut RunnerFixture, thread: &str) {
    let loaded = world.service.load(thread).unwrap();
    let (record, head) = (&loaded.thread.value, &loaded.head.value);
    assert_eq!(head.status.as_str(), "error");
    let cause = head.cause.as_ref().unwrap();
    assert_eq!(
        (&*cause.reason, &*cause.code, &*cause.message),
        ("error", "disk_full", "no room")
    );
    assert_eq!(
        record.outcome.map(|outcome| outcome.as_str()),
        Some("error")
    );
    assert!(record.result.as_deref().unwrap().contains("disk_full"));
    assert!(head.holder.is_none() && head.hold.is_none() && head.round.is_none());
    assert_eq!(refusal(world.start(thread, None)), "refused");
    world.audit();
}

#[test]
fn a_run_is_ended_wherever_it_stands() {
    for stage in ["running", "tools", "suspended"] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        match stage {
            "tools" => drop(world.submit(&thread, calls(&[("write", "{}")])).unwrap()),
            "suspended" => {
                let failed = StepOutcome::Failure(super::fixture::fails("permanent", false));
                world.submit(&thread, failed).unwrap();
                assert_eq!(world.status(&thread), "suspended");
            }
            _ => {}
        }
        let version = world.service.load(&thread).unwrap().head.value.version;
        world
            .service
            .signal(&thread, "f", &fail("no room"))
            .unwrap();
        assert_failed(&mut world, &thread);
        // The same again is done already; another of the same name is not.
        let again = world
            .service
            .signal(&thread, "f", &fail("no room"))
            .unwrap();
        assert_eq!(again.head.value.version, version + 1, "{stage}");
        assert_eq!(
            refusal(world.service.signal(&thread, "f", &fail("other"))),
            "conflict"
        );
        assert_eq!(
            refusal(world.service.signal(&thread, "g", &fail("other"))),
            "refused"
        );
        let entry = world.service.entry(&again, version + 1).unwrap().unwrap();
        let results = entry
            .events
            .iter()
            .filter(|event| matches!(event, Event::ToolResult(_)));
        assert_eq!(results.count(), usize::from(stage == "tools"), "{stage}");
    }
}

/// The attempt under way is charged, and its late bill is still taken; the holder is fenced.
#[test]
fn the_holder_is_fenced_and_its_attempt_charged() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.advance(2_000);
    world
        .service
        .signal(&thread, "f", &fail("no room"))
        .unwrap();
    let spent = world
        .service
        .load(&thread)
        .unwrap()
        .head
        .value
        .counters
        .spend;
    assert!(spent.get() > 0);
    let late = super::fixture::reply(Vec::new(), usage(10, 1));
    assert_eq!(refusal(world.submit(&thread, late)), "fenced");
    world.audit();
}

#[test]
fn a_thread_without_a_run_cannot_fail() {
    let mut world = RunnerFixture::new();
    let created = world.create(Some("work"));
    assert_eq!(
        refusal(world.service.signal(&created, "f", &fail("x"))),
        "refused"
    );
    assert_eq!(world.status(&created), "created");
    let chat = world.create(None);
    world.start(&chat, Some("hi")).unwrap();
    world.submit(&chat, says("hello")).unwrap();
    assert_eq!(world.status(&chat), "idle");
    assert_eq!(
        refusal(world.service.signal(&chat, "f", &fail("x"))),
        "refused"
    );
    world.audit();
}
