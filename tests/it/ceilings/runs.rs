//! Ceilings through the driver: a run that reaches one is suspended with the ceiling's name and
//! goes on once the operator allows more. The library of these tests has no policy, so the
//! component offers and asks for everything, and only the guard stops it.

use crate::component::project::engine;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::ceilings::{Ceilings, Guard, InMemory, Used};
use threadkeep::clock::SystemClock;
use threadkeep::component::{Context, SystemRandom};
use threadkeep::driver::{
    DriveError, Driver, Ended, Models, OnBusy, RunEvent, Sink, Stop, StopLevel, stopper,
};
use threadkeep::error::CallError;
use threadkeep::models::scripted::Scripted;
use threadkeep::models::{BoxFuture, Failure, Llm};
use threadkeep::policy::{Policy, Preset};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, Tools};
use threadkeep_tests::fixture::{MapLibrary, draft};

const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read", "arguments": {}}, {"name": "write", "arguments": {}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "Done.", "usage": {"input": 150, "output": 20}}
]"#;

struct Script(Arc<Scripted>);

impl Models for Script {
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure> {
        Ok((Arc::<Scripted>::clone(&self.0), model.to_owned()))
    }
}

struct Echo;

impl Tools for Echo {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move { ToolResult::ok(format!("{name} ran")) })
    }
}

fn tenant() -> Tenant {
    let context = Context {
        storage: Arc::new(MemoryStore::new()),
        library: Arc::new(MapLibrary::small()),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine(), context)
}

/// A driver under a policy, which continues from the totals in `used`.
fn driver(tenant: &Tenant, policy: Policy, used: Used, script: &str) -> Driver {
    let guard = Guard::over(
        policy,
        Arc::new(SystemClock),
        Box::new(InMemory::from(used)),
    );
    let script = Script(Arc::new(Scripted::parse(script).unwrap()));
    Driver::new(tenant.clone(), Arc::new(script), Arc::new(Echo), "n").within(Arc::new(guard))
}

fn policy(ceilings: Ceilings) -> Policy {
    Policy {
        ceilings,
        ..Policy::preset(Preset::Local)
    }
}

async fn run(driver: &Driver, thread: &str) -> Result<Ended, DriveError> {
    driver
        .run(thread, None, &Sink::none(), &Stop::never())
        .await
}

async fn created(tenant: &Tenant) -> String {
    tenant.create(draft(Some("work"))).await.unwrap().id
}

/// The code of a suspension, the turns before it, and the ceilings that cause it.
fn reached() -> [(&'static str, u64, Ceilings); 5] {
    let none = Ceilings::none();
    [
        (
            "ceiling_model_calls",
            1,
            Ceilings {
                model_calls_max: Some(1),
                ..none
            },
        ),
        (
            "ceiling_unpriced",
            0,
            Ceilings {
                spend_nanos_max: Some(u64::MAX),
                ..none
            },
        ),
        (
            "ceiling_run_time",
            0,
            Ceilings {
                run_time_max: Some(Duration::ZERO),
                ..none
            },
        ),
        (
            "ceiling_model_bytes",
            0,
            Ceilings {
                model_bytes_max: Some(1),
                ..none
            },
        ),
        (
            "ceiling_calls_per_minute",
            0,
            Ceilings {
                calls_per_minute_max: Some(0),
                ..none
            },
        ),
    ]
}

#[tokio::test]
async fn a_run_that_meets_a_ceiling_is_suspended_by_its_name_and_goes_on_when_there_is_more() {
    let none = Ceilings::none();
    for (code, turns, ceilings) in reached() {
        let tenant = tenant();
        let thread = created(&tenant).await;
        let bounded = driver(&tenant, policy(ceilings), Used::default(), SCRIPT);
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
        let unbounded = driver(&tenant, policy(none), Used::default(), SCRIPT);
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
    let thread = created(&tenant).await;
    let other = Policy {
        models: Some([("other".to_owned(), None)].into()),
        ..Policy::preset(Preset::Local)
    };
    let ended = run(&driver(&tenant, other, Used::default(), SCRIPT), &thread)
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
        ..Policy::preset(Preset::Local)
    };
    let once = policy(Ceilings {
        tool_calls_max: Some(1),
        ..Ceilings::none()
    });
    for (code, policy) in [("ceiling_tools", bounded), ("ceiling_tool_calls", once)] {
        let tenant = tenant();
        let thread = created(&tenant).await;
        let ended = run(&driver(&tenant, policy, Used::default(), SCRIPT), &thread)
            .await
            .unwrap();
        assert_eq!(ended.status, "completed");
        let events = tenant.events(&thread, 0, 100).await.unwrap().events;
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
    policy(Ceilings {
        runs_max: Some(1),
        ..Ceilings::none()
    })
}

async fn running(tenant: &Tenant, thread: &str) {
    while tenant.get(thread).await.unwrap().status != "running" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn runs_beyond_the_ceiling_are_refused_before_anything_is_written() {
    let tenant = tenant();
    let (one, two) = (created(&tenant).await, created(&tenant).await);
    let driver = driver(&tenant, one_run(), Used::default(), SLOW);
    let held = {
        let (driver, one) = (driver.clone(), one.clone());
        tokio::spawn(async move { run(&driver, &one).await })
    };
    running(&tenant, &one).await;
    let Err(DriveError::Ceiling(refusal)) = run(&driver, &two).await else {
        panic!("it is refused");
    };
    assert_eq!(refusal.code(), "ceiling_runs");
    // Symptom: a refused run left the thread that was made for it. Fix: `admit` asks for room
    // beforehand.
    let asked = driver.admit(&Stop::never()).await;
    assert!(matches!(asked, Err(DriveError::Ceiling(_))), "{asked:?}");
    assert_eq!(tenant.get(&two).await.unwrap().version, 0);
    held.abort();
    assert!(held.await.is_err());
    let permit = driver
        .admit(&Stop::never())
        .await
        .expect("there is room again");
    let (sink, stop) = (Sink::none(), Stop::never());
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
    let first = created(&tenant).await;
    let guard = Arc::new(Guard::new(one_run(), Arc::new(SystemClock)));
    let slow = driver(&tenant, one_run(), Used::default(), SLOW).within(Arc::clone(&guard));
    let (stopper, stop) = stopper();
    let held = {
        let (driver, first) = (slow.clone(), first.clone());
        tokio::spawn(async move { driver.run(&first, None, &Sink::none(), &stop).await })
    };
    running(&tenant, &first).await;
    let quick = Arc::new(Script(Arc::new(Scripted::parse(SCRIPT).unwrap())));
    let quick = Driver::new(tenant.clone(), quick, Arc::new(Echo), "m").within(guard);
    let short = quick
        .clone()
        .on_busy(OnBusy::Queue(Duration::from_millis(50)));
    let late = created(&tenant).await;
    let Err(DriveError::Ceiling(refusal)) = run(&short, &late).await else {
        panic!("there was no room in that time");
    };
    assert_eq!(refusal.code(), "ceiling_runs");
    assert_eq!(tenant.get(&late).await.unwrap().version, 0);
    let quick = quick.on_busy(OnBusy::Queue(Duration::from_secs(300)));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (driver, thread) = (quick.clone(), created(&tenant).await);
        let order = Arc::clone(&order);
        waiting.spawn(async move {
            let ended = run(&driver, &thread).await.unwrap();
            order.lock().unwrap().push(n);
            ended.status
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
    let thread = created(&tenant).await;
    let driver = driver(&tenant, one_run(), Used::default(), SCRIPT);
    let driver = driver.on_busy(OnBusy::Queue(Duration::from_secs(30)));
    let (sink, stop) = (Sink::none(), Stop::never());
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
async fn a_call_that_is_stopped_while_it_waits_for_its_turn_costs_nothing() {
    let tenant = tenant();
    let (one, two) = (created(&tenant).await, created(&tenant).await);
    let policy = policy(Ceilings {
        calls_per_minute_max: Some(1),
        ..Ceilings::none()
    });
    let done = r#"[{"text": "Done.", "usage": {"input": 10, "output": 1}}]"#;
    let driver = driver(&tenant, policy, Used::default(), done);
    assert_eq!(run(&driver, &one).await.unwrap().status, "completed");
    let (stopper, stop) = stopper();
    let (sink, mut events) = Sink::channel();
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
async fn usage_that_cannot_be_is_told_and_does_not_lock_the_thread() {
    let tenant = tenant();
    let thread = created(&tenant).await;
    let absurd = r#"[{"text": "Done.", "usage": {"input": 1000000000000000000, "output": 5}}]"#;
    let driver = driver(&tenant, policy(Ceilings::none()), Used::default(), absurd);
    let (sink, mut events) = Sink::channel();
    let ended = driver
        .run(&thread, None, &sink, &Stop::never())
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
