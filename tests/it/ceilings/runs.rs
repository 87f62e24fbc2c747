//! Ceilings through the driver: a run that reaches one is suspended with the ceiling's name and
//! goes on once the operator allows more. The library of these tests has no policy, so the
//! component offers and asks for everything, and only the guard stops it.

use crate::component::project::engine;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::ceilings::{CeilingGuard, HostCeilings, InMemoryBook, UsageTotals};
use threadkeep::clock::SystemClock;
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::driver::{
    DriveError, Driver, EndedRun, EventSink, ModelProviders, OnBusy, RunEvent, StopLevel,
    StopReceiver, stop_channel,
};
use threadkeep::error::CallError;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{BoxFuture, ModelFailure, ModelProvider};
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep_tests::fixture::{MapLibrary, draft};

const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read", "arguments": {}}, {"name": "write",
      "arguments": {}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "Done.", "usage": {"input": 150, "output": 20}}
]"#;

struct ScriptModels(Arc<ScriptedProvider>);

impl ModelProviders for ScriptModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        Ok((Arc::<ScriptedProvider>::clone(&self.0), model.to_owned()))
    }
}

struct EchoTools;

impl ToolSet for EchoTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move { ToolResult::ok(format!("{name} ran")) })
    }
}

fn tenant() -> Tenant {
    let context = TenantContext {
        storage: Arc::new(MemoryStore::new()),
        library: Arc::new(MapLibrary::small()),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine(), context)
}

/// A driver under a policy, which continues from the totals in `used`.
fn driver(tenant: &Tenant, policy: Policy, used: UsageTotals, script: &str) -> Driver {
    let guard = CeilingGuard::with_book(
        policy,
        Arc::new(SystemClock),
        Box::new(InMemoryBook::from_totals(used)),
    );
    let script = ScriptModels(Arc::new(ScriptedProvider::parse(script).unwrap()));
    Driver::new(tenant.clone(), Arc::new(script), Arc::new(EchoTools), "n")
        .with_guard(Arc::new(guard))
}

fn policy(ceilings: HostCeilings) -> Policy {
    Policy {
        ceilings,
        ..Policy::preset(PolicyPreset::Local)
    }
}

async fn run(driver: &Driver, thread: &str) -> Result<EndedRun, DriveError> {
    driver
        .run(thread, None, &EventSink::none(), &StopReceiver::never())
        .await
}

async fn create_thread(tenant: &Tenant) -> String {
    tenant.create(draft(Some("work"))).await.unwrap().id
}

/// The code of a suspension, the turns before it, and the ceilings that cause it.
fn ceiling_cases() -> [(&'static str, u64, HostCeilings); 5] {
    let none = HostCeilings::none();
    [
        (
            "ceiling_model_calls",
            1,
            HostCeilings {
                model_calls_max: Some(1),
                ..none
            },
        ),
        (
            "ceiling_unpriced",
            0,
            HostCeilings {
                spend_nanos_max: Some(u64::MAX),
                ..none
            },
        ),
        (
            "ceiling_run_time",
            0,
            HostCeilings {
                run_time_max: Some(Duration::ZERO),
                ..none
            },
        ),
        (
            "ceiling_model_bytes",
            0,
            HostCeilings {
                model_bytes_max: Some(1),
                ..none
            },
        ),
        (
            "ceiling_calls_per_minute",
            0,
            HostCeilings {
                calls_per_minute_max: Some(0),
                ..none
            },
        ),
    ]
}

#[tokio::test]
async fn a_run_that_meets_a_ceiling_is_suspended_by_its_name_and_goes_on_when_there_is_more() {
    let none = HostCeilings::none();
    for (code, turns, ceilings) in ceiling_cases() {
        let tenant = tenant();
        let thread = create_thread(&tenant).await;
        let bounded = driver(&tenant, policy(ceilings), UsageTotals::default(), SCRIPT);
        for _ in 0..2 {
            let ended = run(&bounded, &thread).await.unwrap();
            assert_eq!(
                (ended.status.as_str(), ended.costs.turns),
                ("suspended", turns),
                "{code}"
            );
            let cause = ended.cause.unwrap();
            assert_eq!(
                (cause.reason.as_str(), cause.code.as_str()),
                ("limit", code)
            );
            assert!(cause.message.contains("the operator's policy"), "{cause:?}");
        }
        let unbounded = driver(&tenant, policy(none), UsageTotals::default(), SCRIPT);
        let ended = run(&unbounded, &thread).await.unwrap();
        assert_eq!(
            (ended.status.as_str(), ended.costs.turns),
            ("completed", 2),
            "{code}"
        );
    }
}

#[tokio::test]
async fn a_model_that_is_not_granted_is_not_called_though_the_component_asks_for_it() {
    let tenant = tenant();
    let thread = create_thread(&tenant).await;
    let other = Policy {
        models: Some([("other".to_owned(), None)].into()),
        ..Policy::preset(PolicyPreset::Local)
    };
    let ended = run(
        &driver(&tenant, other, UsageTotals::default(), SCRIPT),
        &thread,
    )
    .await
    .unwrap();
    let cause = ended.cause.unwrap();
    assert_eq!(
        (cause.code.as_str(), ended.costs.spend_nanos),
        ("ceiling_models", 0)
    );
    assert!(
        cause.message.contains("the model default is not granted"),
        "{cause:?}"
    );
}

#[tokio::test]
async fn a_tool_call_that_is_refused_is_a_failed_result_and_the_run_goes_on() {
    let bounded = Policy {
        tools: Some(vec!["read".to_owned()]),
        ..Policy::preset(PolicyPreset::Local)
    };
    let once = policy(HostCeilings {
        tool_calls_max: Some(1),
        ..HostCeilings::none()
    });
    for (code, policy) in [("ceiling_tools", bounded), ("ceiling_tool_calls", once)] {
        let tenant = tenant();
        let thread = create_thread(&tenant).await;
        let ended = run(
            &driver(&tenant, policy, UsageTotals::default(), SCRIPT),
            &thread,
        )
        .await
        .unwrap();
        assert_eq!(ended.status, "completed");
        let events = tenant.events(&thread, 0, 100, None).await.unwrap().events;
        let results: Vec<&str> = events
            .iter()
            .filter(|event| event.kind == "tool_result")
            .map(|event| event.body.as_str())
            .collect();
        let ran = results
            .iter()
            .filter(|body| body.contains(" ran\""))
            .count();
        let refused = results.iter().filter(|body| body.contains(code)).count();
        assert_eq!((ran, refused), (1, 1), "{results:?}");
    }
}

/// A model that never finishes by itself.
const SLOW: &str = r#"[{"text": "Begun.", "chunk": 2, "pause_ms": 590000}]"#;

fn one_run() -> Policy {
    policy(HostCeilings {
        runs_max: Some(1),
        ..HostCeilings::none()
    })
}

async fn wait_until_running(tenant: &Tenant, thread: &str) {
    while tenant.get(thread).await.unwrap().status != "running" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn runs_beyond_the_ceiling_are_refused_before_anything_is_written() {
    let tenant = tenant();
    let (one, two) = (create_thread(&tenant).await, create_thread(&tenant).await);
    let driver = driver(&tenant, one_run(), UsageTotals::default(), SLOW);
    let held = {
        let (driver, one) = (driver.clone(), one.clone());
        tokio::spawn(async move { run(&driver, &one).await })
    };
    wait_until_running(&tenant, &one).await;
    let Err(DriveError::Ceiling(refusal)) = run(&driver, &two).await else {
        panic!("it is refused");
    };
    assert_eq!(refusal.code(), "ceiling_runs");
    // Symptom: a refused run left the thread that was made for it. Fix: `admit` asks for room
    // beforehand.
    let asked = driver.admit(&StopReceiver::never()).await;
    assert!(matches!(asked, Err(DriveError::Ceiling(_))), "{asked:?}");
    assert_eq!(tenant.get(&two).await.unwrap().version, 0);
    held.abort();
    assert!(held.await.is_err());
    let permit = driver
        .admit(&StopReceiver::never())
        .await
        .expect("there is room again");
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let admitted = driver.run_admitted(permit, &two, None, &sink, &stop);
    let stopped = tokio::time::timeout(Duration::from_millis(100), admitted).await;
    assert!(stopped.is_err(), "it runs");
}

/// Symptom: a queued run was refused by the ceiling on `runs` as soon as its thread was free.
/// Cause: only a held thread was waited for. Fix: room is waited for too, first come, first served,
/// and a run gives its room back before its place in the queue.
#[tokio::test]
async fn runs_in_line_wait_for_room_and_are_served_in_order() {
    let tenant = tenant();
    let first = create_thread(&tenant).await;
    let guard = Arc::new(CeilingGuard::new(one_run(), Arc::new(SystemClock)));
    let slow =
        driver(&tenant, one_run(), UsageTotals::default(), SLOW).with_guard(Arc::clone(&guard));
    let (stopper, stop) = stop_channel();
    let held = {
        let (driver, first) = (slow.clone(), first.clone());
        tokio::spawn(async move { driver.run(&first, None, &EventSink::none(), &stop).await })
    };
    wait_until_running(&tenant, &first).await;
    let quick = Arc::new(ScriptModels(Arc::new(
        ScriptedProvider::parse(SCRIPT).unwrap(),
    )));
    let quick = Driver::new(tenant.clone(), quick, Arc::new(EchoTools), "m").with_guard(guard);
    let short = quick
        .clone()
        .with_on_busy(OnBusy::Queue(Duration::from_millis(50)));
    let late = create_thread(&tenant).await;
    let Err(DriveError::Ceiling(refusal)) = run(&short, &late).await else {
        panic!("there was no room in that time");
    };
    assert_eq!(refusal.code(), "ceiling_runs");
    assert_eq!(tenant.get(&late).await.unwrap().version, 0);
    let quick = quick.with_on_busy(OnBusy::Queue(Duration::from_secs(300)));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (driver, thread) = (quick.clone(), create_thread(&tenant).await);
        let order = Arc::clone(&order);
        waiting.spawn(async move {
            let (sink, mut events) = EventSink::channel();
            let whole_run = async move {
                let never = StopReceiver::never();
                driver.run(&thread, None, &sink, &never).await
            };
            // Where it begins: a run gives its room back before it has ended, so another one that
            // began later may end sooner.
            let begins = async {
                events.recv().await.expect("it begins");
                order.lock().unwrap().push(n);
            };
            let (ended, ()) = tokio::join!(whole_run, begins);
            ended.unwrap().status
        });
        tokio::task::yield_now().await;
    }
    stopper.raise(StopLevel::Cancel);
    assert_eq!(held.await.unwrap().unwrap().status, "suspended");
    while let Some(status) = waiting.join_next().await {
        assert_eq!(status.unwrap(), "completed");
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

/// Symptom: two runs waited for each other until their deadlines. Cause: one kept the room that it
/// had been given while it stood in the queue behind the other, which needed it. Fix: a run in the
/// queue has no room.
#[tokio::test]
async fn an_admitted_run_that_stands_in_line_gives_its_room_back() {
    let tenant = tenant();
    let thread = create_thread(&tenant).await;
    let driver = driver(&tenant, one_run(), UsageTotals::default(), SCRIPT);
    let driver = driver.with_on_busy(OnBusy::Queue(Duration::from_secs(30)));
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let room = driver.admit(&stop).await.unwrap();
    let first = {
        let (driver, thread) = (driver.clone(), thread.clone());
        tokio::spawn(async move { run(&driver, &thread).await })
    };
    // It has its thread, and waits for room.
    tokio::task::yield_now().await;
    let second = driver.run_admitted(room, &thread, None, &sink, &stop).await;
    assert_eq!(first.await.unwrap().unwrap().status, "completed");
    assert!(
        matches!(second, Err(DriveError::Call(CallError::Refused(_)))),
        "its thread is over by then: {second:?}"
    );
}

/// Symptom: a run that was cancelled while its call waited for the rate was billed the whole hold.
/// Cause: a stopped step was always reported as sent. Fix: the provider reports whether it was
/// asked.
#[tokio::test]
async fn call_stopped_in_the_rate_queue_costs_nothing() {
    let tenant = tenant();
    let (one, two) = (create_thread(&tenant).await, create_thread(&tenant).await);
    let policy = policy(HostCeilings {
        calls_per_minute_max: Some(1),
        ..HostCeilings::none()
    });
    let done = r#"[{"text": "Done.", "usage": {"input": 10, "output": 1}}]"#;
    let driver = driver(&tenant, policy, UsageTotals::default(), done);
    assert_eq!(run(&driver, &one).await.unwrap().status, "completed");
    let (stopper, stop) = stop_channel();
    let (sink, mut events) = EventSink::channel();
    let waits = {
        let (driver, two) = (driver.clone(), two.clone());
        tokio::spawn(async move { driver.run(&two, None, &sink, &stop).await })
    };
    let millis = loop {
        match events.recv().await.expect("it waits") {
            RunEvent::Waiting { millis, message } => {
                assert!(message.contains("calls_per_minute"), "{message}");
                break millis;
            }
            other => assert!(matches!(other, RunEvent::Started { .. }), "{other:?}"),
        }
    };
    assert!((1..=60_000).contains(&millis), "{millis}");
    stopper.raise(StopLevel::Cancel);
    let ended = waits.await.unwrap().unwrap();
    assert_eq!(
        (ended.status.as_str(), ended.costs.spend_nanos),
        ("suspended", 0)
    );
    let kept = threadkeep_tests::auditor::audit(&*tenant.context().storage);
    assert!(kept.is_empty(), "{kept:?}");
}

/// Impossible usage reaches neither the book nor the thread; an event of the run reports it.
#[tokio::test]
async fn impossible_usage_is_reported_and_does_not_lock_the_thread() {
    let tenant = tenant();
    let thread = create_thread(&tenant).await;
    let absurd = r#"[{"text": "Done.", "usage": {"input": 1000000000000000000, "output": 5}}]"#;
    let driver = driver(
        &tenant,
        policy(HostCeilings::none()),
        UsageTotals::default(),
        absurd,
    );
    let (sink, mut events) = EventSink::channel();
    let ended = driver
        .run(&thread, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    drop(sink);
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        if let RunEvent::Disbelieved { reported, counted } = event {
            told.push((reported.input, counted.input, counted.output));
        }
    }
    let input = ended.costs.input_tokens;
    assert_eq!(told, [(1_000_000_000_000_000_000, input, 5)]);
    assert!((10_000..20_000).contains(&input), "{input}");
    assert_eq!(ended.status, "completed");
}
