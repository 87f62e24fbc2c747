//! A component that hands out steps for models and tools that were not granted: the host refuses
//! each by itself.

use super::fixture::{exercise_neighbour, limits, tenant};
use crate::component::project::engine_with;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use threadkeep::ceilings::CeilingGuard;
use threadkeep::clock::SystemClock;
use threadkeep::driver::{Driver, EventSink, ModelProviders, RunEvent, StopReceiver};
use threadkeep::models::{BoxFuture, ModelFailure, ModelProvider};
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep_tests::programs::{build_component, field_offset};

/// Its first step calls the tool `shell`, its second the model `gpt`; then it is finished. All
/// other fields are zero: empty texts, no lists, no options.
fn rogue_component() -> Vec<u8> {
    let result = 8;
    let step = result + field_offset("handle", "step");
    let (kind, calls, request) = (
        field_offset("step", "kind"),
        field_offset("step", "calls"),
        field_offset("step", "request"),
    );
    let (name, arguments, timeout) = (
        field_offset("tool-call", "name"),
        field_offset("tool-call", "arguments"),
        field_offset("tool-call", "timeout"),
    );
    let model = request + 8 + field_offset("request", "model");
    build_component(
        &format!(
            r#"(module
  (memory (export "memory") 1)
  (data (i32.const 16384) "call-toolscall-llmfinishedshellgpt{{}}")
  (global $steps (mut i32) (i32.const 0))
  (func $text (param $at i32) (param $from i32) (param $bytes i32)
    (i32.store (local.get $at) (local.get $from))
    (i32.store (i32.add (local.get $at) (i32.const 4)) (local.get $bytes)))
  (func (export "threadkeep:threads/runner@0.1.0#start")
      (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (global.set $steps (i32.const 0))
    (call $text (i32.const {at_kind}) (i32.const 16384) (i32.const 10))
    (call $text (i32.const {at_calls}) (i32.const 20480) (i32.const 1))
    (call $text (i32.const {at_name}) (i32.const 16410) (i32.const 5))
    (call $text (i32.const {at_arguments}) (i32.const 16418) (i32.const 2))
    (i64.store (i32.const {at_timeout}) (i64.const 1000))
    (i32.const 0))
  (func (export "threadkeep:threads/runner@0.1.0#submit") (param i32) (result i32)
    (memory.fill (i32.const 8192) (i32.const 0) (i32.const 1024))
    (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
    (if (i32.eq (global.get $steps) (i32.const 1))
      (then
        (call $text (i32.const {next_kind}) (i32.const 16394) (i32.const 8))
        (i32.store8 (i32.const {next_request}) (i32.const 1))
        (call $text (i32.const {next_model}) (i32.const 16415) (i32.const 3)))
      (else (call $text (i32.const {next_kind}) (i32.const 16402) (i32.const 8))))
    (i32.const 8192)))"#,
            at_kind = step + kind,
            at_calls = step + calls,
            at_name = 20480 + name,
            at_arguments = 20480 + arguments,
            at_timeout = 20480 + timeout,
            next_kind = 8192 + result + kind,
            next_request = 8192 + result + request,
            next_model = 8192 + result + model,
        ),
        &[],
    )
}

/// Models and tools that count the calls that reach them.
#[derive(Default)]
struct UngrantedCalls {
    tools: AtomicU64,
    models: Mutex<Vec<String>>,
}

impl ModelProviders for UngrantedCalls {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        self.models.lock().unwrap().push(model.to_owned());
        Ok((Arc::new(UncalledModel), model.to_owned()))
    }
}

impl ToolSet for UngrantedCalls {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        self.tools.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolResult::ok("ran") })
    }
}

/// A provider that is never asked.
struct UncalledModel;

impl ModelProvider for UncalledModel {
    fn complete<'a>(
        &'a self,
        _: &'a threadkeep::models::CompletionRequest,
        _: threadkeep::models::OnDelta<'a>,
    ) -> BoxFuture<'a, Result<threadkeep::models::ModelCompletion, ModelFailure>> {
        panic!("a model that is not granted was called")
    }
}

#[tokio::test]
async fn a_component_that_asks_for_what_is_not_granted_does_not_get_it() {
    let engine = engine_with(limits());
    let evil = engine.prepare_sibling(&rogue_component(), None).unwrap();
    let evil = tenant(&evil, Arc::new(MemoryStore::new()));
    let neighbour = tenant(&engine, Arc::new(MemoryStore::new()));
    let policy = Policy {
        tools: Some(vec!["read".to_owned()]),
        models: Some([("default".to_owned(), None)].into()),
        ..Policy::preset(PolicyPreset::Strict)
    };
    let guard = CeilingGuard::new(policy, Arc::new(SystemClock));
    let reached = Arc::new(UngrantedCalls::default());
    let driver =
        Driver::new(evil, reached.clone(), reached.clone(), "rogue").with_guard(Arc::new(guard));
    let (sink, mut events) = EventSink::channel();
    // The component is finished, and then does not even know its own thread.
    let ended = driver.run("x", None, &sink, &StopReceiver::never()).await;
    assert!(ended.is_err(), "{ended:?}");
    drop(sink);
    let mut refused = Vec::new();
    while let Some(event) = events.recv().await {
        if let RunEvent::ToolDone { name, failed, .. } = event {
            refused.push((name, failed));
        }
    }
    assert_eq!(refused, [("shell".to_owned(), true)]);
    assert_eq!(reached.tools.load(Ordering::SeqCst), 0);
    assert_eq!(
        *reached.models.lock().unwrap(),
        ["gpt"],
        "it was looked up, and not called"
    );
    exercise_neighbour(&neighbour, &AtomicBool::new(true)).await;
}
