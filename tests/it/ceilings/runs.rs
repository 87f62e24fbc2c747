//! Ceilings through the driver: a run that meets one is suspended with its name and goes on once the operator allows
//! more. The library of these tests speaks of no policy, so the component offers and asks for everything: what stops it
//! is the guard alone.

use crate::component::project::engine;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::ceilings::{Ceilings, Guard, InMemory, Used};
use threadkeep::clock::SystemClock;
use threadkeep::component::{Context, SystemRandom};
use threadkeep::driver::{DriveError, Driver, Ended, Models, Sink, Stop};
use threadkeep::models::scripted::Scripted;
use threadkeep::models::{BoxFuture, Failure, Llm};
use threadkeep::policy::Policy;
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

/// A driver under a policy, going on with what was used before.
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
        ..Policy::preset("local")
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

/// The code of a suspension, the turns before it, and ceilings that cause it.
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
        ..Policy::preset("local")
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
        ..Policy::preset("local")
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

#[tokio::test]
async fn runs_beyond_the_ceiling_are_refused_before_anything_is_written() {
    let tenant = tenant();
    let (one, two) = (created(&tenant).await, created(&tenant).await);
    let slow = r#"[{"text": "Begun.", "chunk": 2, "pause_ms": 590000}]"#;
    let policy = policy(Ceilings {
        runs_max: Some(1),
        ..Ceilings::none()
    });
    let driver = driver(&tenant, policy, Used::default(), slow);
    let held = {
        let (driver, one) = (driver.clone(), one.clone());
        tokio::spawn(async move { run(&driver, &one).await })
    };
    while tenant.get(&one).await.unwrap().status != "running" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let Err(DriveError::Ceiling(refusal)) = run(&driver, &two).await else {
        panic!("it is refused");
    };
    assert_eq!(refusal.code(), "ceiling_runs");
    assert_eq!(tenant.get(&two).await.unwrap().version, 0);
    held.abort();
    assert!(held.await.is_err());
    let stopped = tokio::time::timeout(Duration::from_millis(100), run(&driver, &two)).await;
    assert!(stopped.is_err(), "it runs, for there is room again");
}
