//! `runner.run` on the native host: its model and tool calls are the driver's, within policy and
//! limits, and a caller that is gone ends it.

use crate::ceilings::fixture::CountedModel;
use crate::component::fixture::{CountingTools, assert_sound, tenant};
use crate::component::project::{engine, engine_with};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use threadkeep::ceilings::CeilingGuard;
use threadkeep::clock::SystemClock;
use threadkeep::component::TenantContext;
use threadkeep::driver::{DriveError, Driver, EventSink, RunEvent};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{ModelCompletion, ModelProvider, OneProvider, ReplyBlock};
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::{MapLibrary, draft};

/// A driver over a model, and what its tools are asked.
struct DrivenLoop {
    store: Arc<MemoryStore>,
    tenant: Tenant,
    tools: Arc<CountingTools>,
    driver: Driver,
    thread: String,
}

impl DrivenLoop {
    async fn new(engine: Engine, model: Arc<dyn ModelProvider>) -> Self {
        let store = Arc::new(MemoryStore::new());
        let context = TenantContext::new(store.clone(), Arc::new(MapLibrary::small()));
        let tenant = Tenant::new(engine, context);
        let tools = Arc::new(CountingTools::default());
        let providers = Arc::new(OneProvider::new(model));
        let driver = Driver::new(tenant.clone(), providers, tools.clone(), "inner");
        let thread = tenant.create(draft(Some("work"))).await.unwrap().id;
        Self {
            store,
            tenant,
            tools,
            driver,
            thread,
        }
    }

    async fn status(&self) -> (String, String) {
        let thread = self.tenant.get(&self.thread).await.unwrap();
        let code = thread.cause.map(|cause| cause.code);
        (thread.status, code.unwrap_or_default())
    }
}

fn script(replies: serde_json::Value) -> Arc<dyn ModelProvider> {
    Arc::new(ScriptedProvider::parse(&replies.to_string()).unwrap())
}

/// A model whose reply comes when its gate opens.
fn gated_model() -> Arc<CountedModel> {
    let mut answer = ModelCompletion::default();
    answer.blocks.push(ReplyBlock::Text {
        text: "Done.".to_owned(),
    });
    answer.finish = "stop".to_owned();
    let model = CountedModel::answering(Ok(answer));
    model.gate.forget_permits(1_000);
    Arc::new(model)
}

async fn wait_for_call(model: &CountedModel) {
    while model.call_count() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Symptom: `Tenant::run_inside` trapped at its first model call. Cause: the engine linked `llm`
/// and `tools` to functions that always trap. Fix: they are handed to the future that awaits the
/// call.
#[tokio::test]
async fn a_run_calls_the_models_and_tools_of_its_driver() {
    let read = json!({"name": "read", "arguments": {}});
    let model = script(json!([{"text": "I look.", "calls": [read]}, {"text": "Done."}]));
    let native = DrivenLoop::new(engine(), model).await;
    let (sink, mut events) = EventSink::channel();
    let mut run = native.driver.begin_inner_run(&sink).unwrap();
    let report = run.perform_steps(&native.thread, None, 100).await.unwrap();
    assert_eq!(
        (report.status.as_str(), report.more_for),
        ("completed", None)
    );
    assert_eq!(native.tools.reads.load(Ordering::SeqCst), 1);
    drop((run, sink));
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        seen.push(event);
    }
    let text = |text: &str| RunEvent::Text(text.to_owned());
    assert!(seen.contains(&text("Done.")), "{seen:?}");
    let done = |event: &RunEvent| matches!(event, RunEvent::ToolDone { failed: false, .. });
    assert!(seen.iter().any(done), "{seen:?}");
    assert_eq!(native.driver.recover_lost().await.unwrap(), [""; 0]);
    assert_sound(&*native.store);
}

/// While models answer, a run has neither a thread of the pool nor the time of an ordinary call.
#[tokio::test]
async fn a_run_that_waits_for_its_model_is_in_nobodys_way() {
    let limits = EngineLimits {
        calls_running_max: 1,
        call_threads_max: 2,
        wall_time_max: Duration::from_secs(2),
        ..EngineLimits::local()
    };
    let model = gated_model();
    let native = DrivenLoop::new(engine_with(limits), model.clone()).await;
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    let other = async {
        wait_for_call(&model).await;
        let page = native.tenant.get(&native.thread).await.unwrap();
        assert_eq!(page.status, "running");
        tokio::time::sleep(limits.wall_time_max + Duration::from_millis(300)).await;
        model.gate.add_permits(1);
    };
    let (report, ()) = tokio::join!(run.perform_steps(&native.thread, None, 9), other);
    assert_eq!(report.unwrap().status, "completed");
    assert_sound(&*native.store);
}

/// A caller that is gone drops the request in flight; the thread is closed as that of a driver
/// whose future was dropped.
#[tokio::test]
async fn a_run_that_is_dropped_leaves_a_thread_that_goes_on() {
    let model = gated_model();
    let native = DrivenLoop::new(engine(), model.clone()).await;
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    tokio::select! {
        report = run.perform_steps(&native.thread, None, 9) => panic!("{report:?}"),
        () = wait_for_call(&model) => {}
    }
    assert_eq!(native.status().await.0, "running");
    drop(run);
    assert_eq!(
        native.driver.recover_lost().await.unwrap(),
        std::slice::from_ref(&native.thread)
    );
    assert_eq!(
        native.status().await,
        ("suspended".into(), "recovered".into())
    );
    model.gate.add_permits(1);
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    let report = run.perform_steps(&native.thread, None, 9).await.unwrap();
    assert_eq!(report.status, "completed");
    assert_sound(&*native.store);
}

/// Symptom: a run inside the component went on with a model call long after the cap on duration and
/// its lease, and another process took its thread over and paid for the call again. Cause: an
/// import was not told when its step ends. Fix: the request has the deadline of the step.
#[tokio::test]
async fn a_call_is_given_up_at_the_cap_on_duration() {
    let model = gated_model();
    let native = DrivenLoop::new(engine(), model.clone()).await;
    let mut asked = draft(Some("work"));
    asked.limits.duration = Some(1_500);
    let thread = native.tenant.create(asked).await.unwrap().id;
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    let steps = run.perform_steps(&thread, None, 9);
    let report = tokio::time::timeout(Duration::from_secs(120), steps).await;
    let report = report.expect("the call is given up").unwrap();
    assert_eq!(report.status, "suspended");
    let cause = native.tenant.get(&thread).await.unwrap().cause.unwrap();
    assert_eq!(cause.code, "duration_exceeded");
    assert_eq!(model.call_count(), 1);
    assert_sound(&*native.store);
}

/// Policy and ceilings hold for the calls of the component's own loop as for those of the driver.
#[tokio::test]
async fn a_run_keeps_to_the_policy() {
    let read = json!({"name": "read", "arguments": {}});
    let write = json!({"name": "write", "arguments": {}});
    let replies = json!([{"calls": [read, write]}, {"text": "Done."}]);
    let mut native = DrivenLoop::new(engine(), script(replies.clone())).await;
    let guard = |policy: Policy| Arc::new(CeilingGuard::new(policy, Arc::new(SystemClock)));
    let no_writes = Policy {
        tools: Some(vec!["read".to_owned()]),
        ..Policy::preset(PolicyPreset::Local)
    };
    native.driver = native.driver.clone().with_guard(guard(no_writes));
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    let report = run.perform_steps(&native.thread, None, 9).await.unwrap();
    assert_eq!(report.status, "completed");
    let count = |calls: &std::sync::atomic::AtomicU64| calls.load(Ordering::SeqCst);
    let tools = &native.tools;
    assert_eq!((count(&tools.reads), count(&tools.writes)), (1, 0));

    let mut native = DrivenLoop::new(engine(), script(replies)).await;
    let no_models = Policy {
        models: Some([("another".to_owned(), None)].into()),
        ..Policy::preset(PolicyPreset::Local)
    };
    native.driver = native.driver.clone().with_guard(guard(no_models));
    let mut run = native.driver.begin_inner_run(&EventSink::none()).unwrap();
    let report = run.perform_steps(&native.thread, None, 9).await.unwrap();
    assert_eq!(report.more_for.as_deref(), Some("person"));
    assert_eq!(
        native.status().await,
        ("suspended".into(), "ceiling_models".into())
    );
}

/// Runs are counted whoever performs them, and a refusal of the component is its error.
#[tokio::test]
async fn a_run_is_admitted_and_refused_as_any_other() {
    let one = DrivenLoop::new(engine(), script(json!([{"text": "Done."}]))).await;
    let mut policy = Policy::preset(PolicyPreset::Local);
    policy.ceilings.runs_max = Some(1);
    let guard = Arc::new(CeilingGuard::new(policy, Arc::new(SystemClock)));
    let driver = one.driver.clone().with_guard(guard);
    let mut run = driver.begin_inner_run(&EventSink::none()).unwrap();
    let second = driver.begin_inner_run(&EventSink::none());
    assert!(matches!(second.err(), Some(DriveError::Ceiling(_))));
    for steps in [0, 1_001] {
        let refused = run.perform_steps(&one.thread, None, steps).await;
        let Err(DriveError::Call(error)) = refused else {
            panic!("{refused:?}");
        };
        assert!(error.to_string().contains("steps"), "{error}");
    }
    let unknown = run.perform_steps("nobody", None, 1).await.unwrap_err();
    assert!(unknown.to_string().contains("nobody"), "{unknown}");
    assert_eq!(
        tenant(one.store.clone())
            .get(&one.thread)
            .await
            .unwrap()
            .status,
        "created"
    );
}
