//! Work after a run: it gets the run's outcome, never changes it, and fails alone.

use super::world::{message, scripted, tenant};
use std::error::Error;
use std::sync::{Arc, Mutex};
use threadkeep::driver::{AfterRun, Ended, RunEvent, Sink, Stop};
use threadkeep::models::BoxFuture;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::draft;

/// Gives a thread a title when its run is over.
struct Titles(Tenant);

impl AfterRun for Titles {
    fn name(&self) -> &str {
        "titles"
    }

    fn after<'a>(
        &'a self,
        ended: &'a Ended,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let title = format!("{} turn", ended.costs.turns);
            self.0.set_title(&ended.thread, Some(title)).await?;
            Ok(())
        })
    }
}

/// Notes the status of each run, then fails; it panics at the second.
struct Broken(Mutex<Vec<String>>);

impl AfterRun for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn after<'a>(
        &'a self,
        ended: &'a Ended,
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
    let broken = Arc::new(Broken(Mutex::default()));
    let driver = scripted(
        &tenant,
        r#"[{"text": "hello", "repeat": "forever"}]"#,
        &Arc::default(),
        "n",
    )
    .after_run(Arc::<Broken>::clone(&broken))
    .after_run(Arc::new(Titles(tenant.clone())));
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let (sink, mut events) = Sink::channel();
    for _ in 0..2 {
        let ended = driver
            .run(&thread, Some(message("hi")), &sink, &Stop::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "idle", "whatever comes after it");
    }
    driver.after_runs_done().await;
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
