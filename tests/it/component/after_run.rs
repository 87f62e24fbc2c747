//! Work after a run: it gets the run's outcome, never changes it, and fails alone.

use super::fixture::{message, scripted_driver, tenant};
use std::error::Error;
use std::sync::{Arc, Mutex};
use threadkeep::driver::{AfterRun, EndedRun, EventSink, RunEvent, StopReceiver};
use threadkeep::models::BoxFuture;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::draft;

/// Gives a thread a title when its run is over.
struct TitleHook(Tenant);

impl AfterRun for TitleHook {
    fn name(&self) -> &str {
        "titles"
    }

    fn after_run<'a>(
        &'a self,
        ended: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let title = format!("{} turn", ended.costs.turns);
            self.0.set_title(&ended.thread, Some(title)).await?;
            Ok(())
        })
    }
}

/// Notes the status of each run, then fails; it panics at the second.
struct FailingHook(Mutex<Vec<String>>);

impl AfterRun for FailingHook {
    fn name(&self) -> &str {
        "broken"
    }

    fn after_run<'a>(
        &'a self,
        ended: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        let mut seen = self.0.lock().unwrap();
        seen.push(ended.status.clone());
        let second = seen.len() == 2;
        drop(seen);
        Box::pin(async move {
            assert!(!second, "on purpose");
            Err("no such service".into())
        })
    }
}

#[tokio::test]
async fn work_after_a_run_fails_alone() {
    let tenant = tenant(Arc::new(MemoryStore::new()));
    let broken = Arc::new(FailingHook(Mutex::default()));
    let driver = scripted_driver(
        &tenant,
        r#"[{"text": "hello", "repeat": "forever"}]"#,
        &Arc::default(),
        "n",
    )
    .with_after_run(Arc::<FailingHook>::clone(&broken))
    .with_after_run(Arc::new(TitleHook(tenant.clone())));
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let (sink, mut events) = EventSink::channel();
    for _ in 0..2 {
        let ended = driver
            .run(&thread, Some(message("hi")), &sink, &StopReceiver::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "idle", "whatever comes after it");
    }
    driver.wait_for_post_run_work().await;
    assert_eq!(*broken.0.lock().unwrap(), ["idle", "idle"]);
    assert_eq!(
        tenant.get(&thread).await.unwrap().title.as_deref(),
        Some("2 turn")
    );
    drop(sink);
    let mut failed = Vec::new();
    while let Some(event) = events.recv().await {
        if let RunEvent::AfterFailed { work, message } = event {
            failed.push(format!("{work}: {message}"));
        }
    }
    assert_eq!(failed, ["broken: no such service", "broken: it panicked"]);
}
