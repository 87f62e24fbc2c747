//! Runs that wait for a thread with another holder: their order, their deadlines, and the effect of
//! those that leave.

use super::fixture::{CountingTools, assert_sound, message, scripted_driver, tenant};
use super::project::{open, project_dir};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::driver::{
    DriveError, Driver, EndedRun, EventSink, OnBusy, StopLevel, StopReceiver, stop_channel,
};
use threadkeep::error::CallError;
use threadkeep::models::OneProvider;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep_tests::fixture::draft;
use tokio::task::JoinHandle;

/// A model that answers every message, after a moment.
const ANSWERS: &str = r#"[{"text": "yes", "delay_ms": 5, "repeat": "forever"}]"#;
/// A model that never answers by itself.
const SLOW: &str = r#"[{"text": "begun", "delay_ms": 590000}]"#;
const MODELS: &str = "providers: {local: {wire: scripted, file: s.json}}\nmodels:\n  tiny: \
                      {provider: local, prices: \
                      {input: \"1.00\", output: \"2.00\"}}\ntiers: {default: tiny}\n";
const LONG: OnBusy = OnBusy::Queue(Duration::from_secs(120));
const WAITERS: usize = 24;

type SpawnedRun = JoinHandle<Result<EndedRun, DriveError>>;

/// Performs a run on a task of its own. Tasks of a test are polled first in the order in which they
/// were made.
fn spawn(driver: &Driver, thread: &str, text: &str, stop: StopReceiver) -> SpawnedRun {
    let (driver, thread, input) = (driver.clone(), thread.to_owned(), message(text));
    tokio::spawn(async move {
        driver
            .run(&thread, Some(input), &EventSink::none(), &stop)
            .await
    })
}

async fn texts_of_users(tenant: &Tenant, thread: &str) -> Vec<String> {
    let page = tenant.events(thread, 0, 500, None).await.unwrap();
    let bodies = page.events.iter().filter(|event| event.kind == "message");
    bodies
        .map(|event| serde_json::from_str::<Value>(&event.body).unwrap())
        .filter(|body| body["role"] == "user")
        .map(|body| body["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn waiters_are_served_in_order_and_those_that_leave_hurt_nobody() {
    let memory = Arc::new(MemoryStore::new());
    let tenant = tenant(Arc::<MemoryStore>::clone(&memory));
    let driver = scripted_driver(&tenant, ANSWERS, &Arc::default(), "one").with_on_busy(LONG);
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let mut runs: Vec<(usize, SpawnedRun)> = (0..WAITERS)
        .map(|n| {
            (
                n,
                spawn(&driver, &thread, &n.to_string(), StopReceiver::never()),
            )
        })
        .collect();
    tokio::task::yield_now().await;
    for gone in [17, 5, 3] {
        let (_, run) = runs.remove(gone);
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
    }
    for (_, run) in &mut runs {
        assert_eq!(run.await.unwrap().unwrap().status, "idle");
    }
    let expected: Vec<String> = runs.iter().map(|(n, _)| n.to_string()).collect();
    assert_eq!(texts_of_users(&tenant, &thread).await, expected);
    assert_sound(&*memory);
}

#[tokio::test]
async fn without_a_queue_a_second_run_is_refused_at_once() {
    let tenant = tenant(Arc::new(MemoryStore::new()));
    let driver = scripted_driver(&tenant, SLOW, &Arc::default(), "one");
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let (stopper, stop) = stop_channel();
    let first = spawn(&driver, &thread, "a", stop);
    await_lease(&tenant, &thread).await;
    let second = spawn(&driver, &thread, "b", StopReceiver::never())
        .await
        .unwrap();
    let Err(DriveError::Call(CallError::Refused(wit::Error::Busy(busy)))) = second else {
        panic!("{second:?}");
    };
    assert_eq!(busy.lease.holder, "one/1");
    stopper.raise(StopLevel::Cancel);
    assert_eq!(first.await.unwrap().unwrap().status, "suspended");
}

/// Waits until the thread has a holder; returns the lease.
async fn await_lease(tenant: &Tenant, thread: &str) -> wit::Lease {
    loop {
        if let Some(lease) = tenant.get(thread).await.unwrap().run.lease {
            return lease;
        }
        tokio::task::yield_now().await;
    }
}

/// Two processes have one directory; the second waits until the first releases the lease.
#[tokio::test]
async fn between_processes_the_lease_is_awaited() {
    let (_kept, dir) = project_dir(MODELS);
    dir.write(".ai/s.json", ANSWERS).unwrap();
    let first = open(dir.try_clone().unwrap(), None, &[]);
    let thread = first.tenant().create(draft(None)).await.unwrap().id;
    let (stopper, stop) = stop_channel();
    let slow = OneProvider::new(Arc::new(ScriptedProvider::parse(SLOW).unwrap()));
    let running = spawn(
        &first.driver_with_models(Arc::new(slow)),
        &thread,
        "a",
        stop,
    );
    let lease = await_lease(first.tenant(), &thread).await;
    let second = open(dir, None, &[]);
    let short = second
        .driver()
        .with_on_busy(OnBusy::Queue(Duration::from_millis(300)));
    let late = spawn(&short, &thread, "b", StopReceiver::never())
        .await
        .unwrap();
    let Err(error @ DriveError::Waited { .. }) = late else {
        panic!("{late:?}");
    };
    let told = error.to_string();
    assert!(
        told.contains(&lease.holder) && told.contains(" until 20"),
        "{told}"
    );
    let waiting = spawn(
        &second.driver().with_on_busy(LONG),
        &thread,
        "c",
        StopReceiver::never(),
    );
    tokio::time::sleep(Duration::from_millis(50)).await;
    stopper.raise(StopLevel::Cancel);
    assert_eq!(running.await.unwrap().unwrap().status, "suspended");
    assert_eq!(waiting.await.unwrap().unwrap().status, "idle");
    assert_eq!(texts_of_users(second.tenant(), &thread).await, ["a", "c"]);
    assert_sound(&*second.tenant().context().storage);
}

/// Symptom: two drivers of one project performed the same run. Cause: each counted its runs from
/// one, so the second counted as a repetition of the first. Fix: the drivers of a project share
/// their count.
#[tokio::test]
async fn drivers_of_one_project_hold_under_different_names() {
    let (_kept, dir) = project_dir(MODELS);
    dir.write(".ai/s.json", SLOW).unwrap();
    let project = open(dir, Some(Arc::new(MemoryStore::new())), &[]);
    let thread = project.tenant().create(draft(None)).await.unwrap().id;
    let (stopper, stop) = stop_channel();
    let first = spawn(&project.driver(), &thread, "a", stop);
    await_lease(project.tenant(), &thread).await;
    let second = spawn(&project.driver(), &thread, "a", StopReceiver::never())
        .await
        .unwrap();
    assert!(
        matches!(
            second,
            Err(DriveError::Call(CallError::Refused(wit::Error::Busy(_))))
        ),
        "{second:?}"
    );
    stopper.raise(StopLevel::Cancel);
    assert_eq!(first.await.unwrap().unwrap().status, "suspended");
}

#[tokio::test]
async fn a_wait_ends_when_its_run_is_stopped() {
    let tenant = tenant(Arc::new(MemoryStore::new()));
    let driver =
        scripted_driver(&tenant, SLOW, &Arc::<CountingTools>::default(), "one").with_on_busy(LONG);
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let (first_stopper, first_stop) = stop_channel();
    let first = spawn(&driver, &thread, "a", first_stop);
    await_lease(&tenant, &thread).await;
    let (second_stopper, second_stop) = stop_channel();
    let second = spawn(&driver, &thread, "b", second_stop);
    tokio::task::yield_now().await;
    second_stopper.raise(StopLevel::Cancel);
    let given_up = second.await.unwrap();
    assert!(
        matches!(given_up, Err(DriveError::GivenUp(_))),
        "{given_up:?}"
    );
    first_stopper.raise(StopLevel::Cancel);
    assert_eq!(first.await.unwrap().unwrap().status, "suspended");
    assert_eq!(texts_of_users(&tenant, &thread).await, ["a"]);
}
