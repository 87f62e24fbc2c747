//! Steps that the tests of approvals do again and again.

use crate::resumes::fixture::newest_events;
use crate::runner::fixture::{RunnerFixture, calls};
use serde_json::{Value, json};
use threadkeep_component::service::Error;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_core::history::{Event, ToolResult};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{CallDecision, Signal, StepOutcome, ToolOutcome};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;

/// A world whose operator wants these calls to be approved.
pub fn world_with_policy(approvals: &[&str]) -> RunnerFixture {
    let policy = json!({"approvals": approvals}).to_string();
    let library = MapLibrary::small().with("settings", "policy", &policy);
    RunnerFixture::over(
        std::sync::Arc::new(threadkeep::storage::memory::MemoryStore::new()),
        library,
    )
}

/// Sends a decision under a key.
pub fn send(
    world: &RunnerFixture,
    thread: &str,
    key: &str,
    decision: &Value,
) -> Result<LoadedThread, Error> {
    let decision = CallDecision::parse(&decision.to_string())?;
    let signal = Signal::Decision(decision);
    world.service.signal(thread, key, &signal)
}

/// Approves a call.
#[track_caller]
pub fn approve(world: &RunnerFixture, thread: &str, call: &str) {
    let decision = json!({"call": call, "approve": true});
    send(world, thread, &format!("approve {call}"), &decision).unwrap();
    world.audit();
}

/// Denies a call with a note.
#[track_caller]
pub fn deny(world: &RunnerFixture, thread: &str, call: &str, note: &str) {
    let decision = json!({"call": call, "approve": false, "note": note});
    send(world, thread, &format!("deny {call}"), &decision).unwrap();
    world.audit();
}

/// Answers a call.
#[track_caller]
pub fn answer(world: &RunnerFixture, thread: &str, call: &str, text: &str) {
    let decision = json!({"call": call, "answer": text});
    send(world, thread, &format!("answer {call}"), &decision).unwrap();
    world.audit();
}

/// Starts a thread of this directive, whose model then makes these calls.
pub fn begin(world: &mut RunnerFixture, directive: &str, wanted: &[(&str, &str)]) -> String {
    let thread = world.create(Some(directive));
    world.start(&thread, None).unwrap();
    world.submit(&thread, calls(wanted)).unwrap();
    world.audit();
    thread
}

/// Ids of the calls that wait for a decision, as a caller is told.
pub fn waiting(world: &RunnerFixture, thread: &str) -> Vec<String> {
    let loaded = world.service.load(thread).unwrap();
    let needs = world.service.details(&loaded).unwrap().waits_for;
    let needs: Value = serde_json::from_str(&needs.unwrap_or("{}".to_owned())).unwrap();
    let calls = needs["calls"].as_array().into_iter().flatten();
    calls
        .map(|call| call["call"].as_str().unwrap().to_owned())
        .collect()
}

/// Code of the cause of a thread's status.
pub fn code(world: &RunnerFixture, thread: &str) -> String {
    let head = world.service.load(thread).unwrap().head.value;
    head.cause.clone().map_or(String::new(), |cause| cause.code)
}

/// Ids of the threads that are due, with the calls that get them going.
pub fn due(world: &RunnerFixture) -> Vec<String> {
    let page = world.service.ready(100, None, None).unwrap();
    let ids = page.threads.into_iter();
    ids.map(|due| due.loaded.thread.value.id.clone()).collect()
}

/// Names of the tools that the pending step hands out.
pub fn handed_out(step: &StepHandle) -> Vec<String> {
    let calls = step.step.calls.iter();
    calls.map(|call| call.name.clone()).collect()
}

/// Results in the newest entry: the call, its text, and the state of it.
pub fn newest_results(world: &RunnerFixture, thread: &str) -> Vec<(String, String, &'static str)> {
    let events = newest_events(world, thread).into_iter();
    let results = events.filter_map(|event| match event {
        Event::ToolResult(ToolResult {
            version,
            index,
            text,
            state,
            ..
        }) => Some((format!("call_{version}_{index}"), text, state.as_str())),
        _ => None,
    });
    results.collect()
}

/// Submits the outcomes of the pending calls, as the tools gave them.
pub fn finish_calls(world: &mut RunnerFixture, thread: &str) -> StepHandle {
    let outcomes = world.outcomes(thread);
    let step = world.submit(thread, outcomes).unwrap();
    world.audit();
    step
}

/// Submits changed outcomes of the pending calls.
pub fn finish_calls_with(
    world: &mut RunnerFixture,
    thread: &str,
    change: impl Fn(&mut ToolOutcome),
) -> StepHandle {
    let StepOutcome::ToolOutcomes(mut outcomes) = world.outcomes(thread) else {
        panic!("calls are pending")
    };
    outcomes.iter_mut().for_each(change);
    let step = world
        .submit(thread, StepOutcome::ToolOutcomes(outcomes))
        .unwrap();
    world.audit();
    step
}

/// Asserts that the run stopped for decisions about these calls.
#[track_caller]
pub fn assert_asks(world: &RunnerFixture, thread: &str, calls: &[&str]) {
    assert_eq!(world.status(thread), "suspended");
    assert_eq!(code(world, thread), "approval_needed");
    assert_eq!(waiting(world, thread), calls);
    let due = due(world);
    assert!(
        !due.contains(&thread.to_owned()),
        "nothing can be done before: {due:?}"
    );
}

/// Asserts that the model is called next.
#[track_caller]
pub fn assert_calls_model(step: &StepHandle) {
    assert_eq!(step.step.kind, Some(StepKind::CallLlm));
}
