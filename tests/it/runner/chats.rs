//! Chats that are suspended, and threads whose steps are lost again and again.

use super::answer_tables::cause;
use super::fixture::{RunnerFixture, calls, fails, says, user};
use crate::history::code;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::history::parse_user;
use threadkeep_core::runner::{HolderProof, LOST_STEPS_MAX, Signal, StepOutcome};
use threadkeep_tests::fixture::MapLibrary;

/// A world whose operator has this policy.
fn world_with_policy(policy: &str) -> RunnerFixture {
    let library = MapLibrary::small().with("settings", "policy", policy);
    RunnerFixture::over(Arc::new(MemoryStore::new()), library)
}

/// Creates a thread that has used its turns, or tokens.
fn capped_thread(world: &mut RunnerFixture, directive: Option<&str>) -> String {
    let thread = world.create(directive);
    world.start(&thread, Some("hi")).unwrap();
    world.submit(&thread, calls(&[("none", "{}")])).unwrap();
    assert_eq!(world.status(&thread), "suspended");
    thread
}

/// Symptom: a chat that had reached an operator's cap on a run could never go on. Cause: it stayed
/// in that run, and no caller can raise that cap. Fix: a person's message begins a new run, as in
/// an idle chat. Kind: turns and tokens; a message with the start, by a signal before it, or
/// appended. Without a message, and for a directive's thread, the cap stands.
#[test]
fn a_message_to_a_suspended_chat_begins_a_new_run() {
    for policy in [r#"{"limits":{"turns":1}}"#, r#"{"limits":{"tokens":100}}"#] {
        for way in ["start", "signal", "append"] {
            let mut world = world_with_policy(policy);
            let chat = capped_thread(&mut world, None);
            assert_eq!(code(&world.start(&chat, None).unwrap_err()), "exceeded");
            let before = world.service.load(&chat).unwrap().head.value;
            let input = (way == "start").then_some("go on");
            if way == "signal" {
                for name in ["one", "two"] {
                    let message = Signal::Message(parse_user(&user(name)).unwrap());
                    world.service.signal(&chat, name, &message).unwrap();
                }
            }
            if way == "append" {
                let said = crate::history::message_event("user", "go on").to_string();
                let service = &world.service;
                service
                    .append(&chat, None, Some(before.version), &[said])
                    .unwrap();
            }
            world.start(&chat, input).unwrap();
            world.audit();
            let head = world.service.load(&chat).unwrap().head.value;
            assert_eq!((head.run, head.counters.run_turns), (2, 0), "{way}");
            assert_eq!(head.counters.turns, before.counters.turns, "{way}");
            world.submit(&chat, says("gladly")).unwrap();
            assert_eq!(world.status(&chat), "idle");
            world.audit();
        }
        let mut world = world_with_policy(policy);
        let thread = capped_thread(&mut world, Some("work"));
        let refused = world.start(&thread, Some("go on")).unwrap_err();
        assert_eq!(code(&refused), "exceeded");
    }
    let mut world = world_with_policy(r#"{"limits":{"turns":0}}"#);
    let chat = world.create(None);
    world.start(&chat, Some("hi")).unwrap();
    let refused = world.start(&chat, Some("again")).unwrap_err();
    assert_eq!(code(&refused), "exceeded", "a cap of zero allows no run");
}

/// Symptom: a step that killed each of its holders was paid for at each resume, for ever. Cause: a
/// start reset the count of lost steps, and only a claim checked it. Fix: a submit alone resets it,
/// and every call that closes the lost run checks. Kind: recovered and resumed, claimed, and both
/// in turn.
#[test]
fn a_step_that_is_lost_again_and_again_suspends_for_good() {
    for claims in [[false, false], [true, true], [true, false], [false, true]] {
        let mut world = RunnerFixture::new();
        let thread = world.create(Some("work"));
        world.start(&thread, None).unwrap();
        for lost in 1..=LOST_STEPS_MAX {
            let claims = claims[lost as usize % 2];
            let head = world.service.load(&thread).unwrap().head.value;
            if claims {
                let holder = format!("claimer/{lost}");
                world
                    .service
                    .claim(&thread, &holder, HolderProof::Dead)
                    .unwrap();
            } else {
                let dead = [head.holder.clone().unwrap()];
                world.service.recover(&dead, None).unwrap();
            }
            world.audit();
            if lost == LOST_STEPS_MAX {
                break;
            }
            if !claims {
                assert_eq!(cause(&world, &thread), "recovered");
                world.start(&thread, None).unwrap();
            }
        }
        assert_eq!(cause(&world, &thread), "crash_loop", "{claims:?}");
        // A person who has looked at it lets it go on, and an answer resets the count.
        world.start(&thread, None).unwrap();
        world.submit(&thread, says("done")).unwrap();
        assert_eq!(world.status(&thread), "completed");
    }
}

/// Symptom: found by random requests, a message to a suspended chat with open calls counted a run
/// that no entry had begun. Cause: such a message changes the head alone. Fix: the start that
/// delivers it begins the run. Kind: calls that are open while a message comes.
#[test]
fn a_message_behind_open_calls_begins_its_run_with_the_start() {
    let mut world = RunnerFixture::new();
    let mut draft = threadkeep_core::thread::ThreadDraft::default();
    draft.overrides.capabilities = vec!["execute.tool.read".to_owned()];
    let chat = world
        .service
        .create(&draft)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    world.threads.push(chat.clone());
    world.start(&chat, Some("hi")).unwrap();
    world.submit(&chat, calls(&[("read", "{}")])).unwrap();
    let stopped = StepOutcome::Stopped(fails("cancelled", false));
    world.submit(&chat, stopped).unwrap();
    let message = Signal::Message(parse_user(&user("more")).unwrap());
    world.service.signal(&chat, "m", &message).unwrap();
    world.audit();
    let run = |world: &RunnerFixture| world.service.load(&chat).unwrap().head.value.run;
    assert_eq!(run(&world), 1);
    world.start(&chat, None).unwrap();
    world.audit();
    assert_eq!(run(&world), 2);
}
